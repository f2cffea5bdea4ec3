"""What the end of a text without a line end is worth: taken where nothing can follow, else left out."""

import math

import pytest

from live.metrics import read_metrics
from live.samples import NUMBER_FIELDS

LABELS = 'engine="0",model_name="M"'
HEAD = f"# HELP vllm:x As a server sends it.\nvllm:num_requests_running{{{LABELS}}} 1.0\n"
CONFIG = 'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="72"}'
TEXT = f"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{{LABELS}}} 64.0
vllm:num_requests_waiting{{{LABELS}}} 7.0
vllm:kv_cache_usage_perc{{{LABELS}}} 0.00223878211531546
vllm:prefix_cache_queries_total{{{LABELS}}} 1.030024e+06
vllm:prefix_cache_hits_total{{{LABELS}}} 2480.0
vllm:num_preemptions_total{{{LABELS}}} 3.0
vllm:prompt_tokens_total{{{LABELS}}} 339968.0
vllm:generation_tokens_total{{{LABELS}}} 1.5e+09
vllm:kv_offload_total_bytes_total{{{LABELS},transfer_type="GPU_to_CPU"}} 7.71795e+09
{CONFIG} 1.0
process_start_time_seconds 1.78692899276e+09
"""


def value(text: str, name: str) -> float | None:
    (engine,) = read_metrics(text, 0).engines
    return getattr(engine, name)


@pytest.mark.parametrize(
    ("name", "line", "whole"),
    [
        ("num_requests_waiting", "vllm:num_requests_waiting{%s} 3.0", 3),
        ("num_requests_waiting", "vllm:num_requests_waiting{%s} 12.0", 12),
        ("num_requests_waiting", "vllm:num_requests_waiting{%s} 12.", None),
        ("num_requests_waiting", "vllm:num_requests_waiting{%s} 12", None),
        ("num_preemptions", "vllm:num_preemptions_total{%s} 0.0", 0),
        ("num_preemptions", "vllm:num_preemptions_total{%s} 12.0", 12),
        ("prompt_tokens", "vllm:prompt_tokens_total{%s} 3.0", None),  # of 3.05e+06
        ("prompt_tokens", "vllm:prompt_tokens_total{%s} 3e+06", 3_000_000),
        ("prompt_tokens", "vllm:prompt_tokens_total{%s} 3e+0", None),
        ("prompt_tokens", "vllm:prompt_tokens_total{%s} 3", None),
        ("kv_usage_fraction", "vllm:kv_cache_usage_perc{%s} 0.0", None),  # of 0.0123
        ("kv_usage_fraction", "vllm:kv_cache_usage_perc{%s} 0.25", None),
        ("kv_usage_fraction", "vllm:kv_cache_usage_perc{%s} 0.11223878211531546", 0.11223878211531546),
        ("kv_usage_fraction", "vllm:kv_cache_usage_perc{%s} 9.75e-06", 9.75e-06),
        ("kv_usage_fraction", "vllm:kv_cache_usage_perc{%s} 0.25 1753795326500", 0.25),
    ],
)
def test_the_last_value_of_a_scrape_is_taken_only_where_nothing_can_follow(name, line, whole):
    text = HEAD + line.replace("%s", LABELS)

    codes = [finding.code for finding in read_metrics(text, 0).findings]

    assert value(text, name) == whole
    assert codes == (["metrics-text-cut"] if whole is not None else ["metric-lines-unread", "metrics-text-cut"])


def test_a_whole_number_alone_may_have_lost_its_tail():
    assert read_metrics(f"vllm:prompt_tokens_total{{{LABELS}}} 12", 0).engines == ()
    assert value(f"vllm:prompt_tokens_total{{{LABELS}}} 12\n", "prompt_tokens") == 12


@pytest.mark.parametrize("end", ["", " ", " 1", " 1.", " 1.0"])
def test_the_labels_of_a_config_count_without_its_value(end):
    (engine,) = read_metrics(HEAD + CONFIG + end, 0).engines

    assert (engine.cache_config.block_size, engine.cache_config.num_gpu_blocks) == (16, 72)


@pytest.mark.parametrize("length", range(90, len(TEXT)))
def test_no_cut_gives_another_number(length):
    (whole,) = read_metrics(TEXT, 0).engines

    for engine in read_metrics(TEXT[:length], 0).engines:
        for name in NUMBER_FIELDS:
            found, right = getattr(engine, name), getattr(whole, name)
            assert found is None or math.isclose(found, right, rel_tol=1e-14)
        config = engine.cache_config
        assert config is None or config.num_gpu_blocks in {None, 72}
