"""What a /metrics text means: names of all eras, several engines, odd values, cut and pasted texts."""

import gzip
import itertools
import math
import time
from collections import Counter
from unittest import mock

import pytest

from live.exposition import read_exposition
from live.metric_names import NUMBER_RULES
from live.metrics import read_metrics
from live.samples import COUNTER_FIELDS, GAUGE_FIELDS, NUMBER_FIELDS, EngineIdentity, fell_back
from live.text_bytes import decode_text

V1 = 'engine="0",model_name="M"'


def engines(*lines: str):
    return read_metrics("\n".join(lines) + "\n", 7).engines


def one(*lines: str):
    (engine,) = engines(*lines)
    return engine


def codes(*lines: str) -> list[str]:
    return [finding.code for finding in read_metrics("\n".join(lines) + "\n", 7).findings]


# -- names --------------------------------------------------------------------------------------------------------------


def test_every_field_of_a_sample_has_its_rule_or_its_early_unit():
    early = {"prefix_cache_queries_blocks", "prefix_cache_hits_blocks"}

    assert set(NUMBER_RULES) | early == set(NUMBER_FIELDS)
    assert set(COUNTER_FIELDS) | set(GAUGE_FIELDS) == set(NUMBER_FIELDS)


@pytest.mark.parametrize("suffix", ["", "_total"])
@pytest.mark.parametrize("prefix", ["vllm:", "ray_vllm:", "vllm_", "ray_vllm_"])
def test_a_counter_is_found_under_every_spelling(prefix, suffix):
    assert one(f"{prefix}num_preemptions{suffix}{{{V1}}} 5.0").num_preemptions == 5


def test_the_v0_names_fill_the_same_fields():
    engine = one(
        'vllm:gpu_cache_usage_perc{model_name="M"} 0.5',
        'vllm:cpu_cache_usage_perc{model_name="M"} 0.25',
        'vllm:num_requests_swapped{model_name="M"} 2.0',
        'vllm:gpu_prefix_cache_hit_rate{model_name="M"} 0.75',
    )

    assert (engine.kv_usage_fraction, engine.cpu_kv_usage_fraction) == (0.5, 0.25)
    assert (engine.num_requests_swapped, engine.gpu_prefix_cache_hit_fraction) == (2, 0.75)


def test_what_is_absent_is_none_and_never_zero():
    engine = one(f"vllm:num_requests_running{{{V1}}} 0.0")

    absent = [name for name in NUMBER_FIELDS if getattr(engine, name) is None]
    assert engine.num_requests_running == 0
    assert len(absent) == len(NUMBER_FIELDS) - 1
    assert engine.cache_config is None


def test_a_family_that_is_only_declared_is_absent():
    text = "# HELP vllm:num_preemptions_total Cumulative.\n# TYPE vllm:num_preemptions_total counter\n"

    assert one(text, f"vllm:num_requests_running{{{V1}}} 1.0").num_preemptions is None


def test_names_that_only_begin_alike_are_not_taken():
    engine = one(
        f"vllm:num_requests_waiting{{{V1}}} 64.0",
        f'vllm:num_requests_waiting_by_reason{{{V1},reason="deferred"}} 0.0',
        f"vllm:num_preemptions_created{{{V1}}} 1.7e+09",
        f"vllm:request_num_preemptions_sum{{{V1}}} 3.0",
        f"vllm:tokens_total{{{V1}}} 9.0",
        f"vllm:request_prompt_tokens_sum{{{V1}}} 8.0",
    )

    assert engine.num_requests_waiting == 64
    assert engine.num_preemptions is None
    assert engine.prompt_tokens is None
    assert [dict(value.labels) for value in engine.labelled_values("vllm:num_requests_waiting_by_reason")] == [
        {"reason": "deferred"}
    ]


def test_the_new_name_wins_over_the_old_and_a_difference_is_said():
    lines = [f"vllm:gpu_cache_usage_perc{{{V1}}} 0.1", f"vllm:kv_cache_usage_perc{{{V1}}} 0.2"]

    assert one(*lines).kv_usage_fraction == 0.2
    assert codes(*lines) == ["metric-names-disagree"]


def test_the_old_name_fills_in_where_the_new_one_is_no_number():
    lines = [f"vllm:gpu_cache_usage_perc{{{V1}}} 0.1", f"vllm:kv_cache_usage_perc{{{V1}}} NaN"]

    assert one(*lines).kv_usage_fraction == 0.1


def test_transfers_exported_twice_are_counted_once():
    engine = one(
        f"vllm:kv_offload_store_bytes_total{{{V1}}} 70.0",
        f'vllm:kv_offload_total_bytes_total{{{V1},transfer_type="GPU_to_CPU"}} 70.0',
        f'vllm:kv_offload_total_bytes_total{{{V1},transfer_type="CPU_to_GPU"}} 30.0',
        f'vllm:kv_offload_total_time_total{{{V1},transfer_type="CPU_to_GPU"}} 1.5',
    )

    assert (engine.offload_store_bytes, engine.offload_load_bytes) == (70, 30)
    assert (engine.offload_store_seconds, engine.offload_load_seconds) == (None, 1.5)


@pytest.mark.parametrize(("new", "old", "found"), [(70, 0, []), (0, 70, ["metric-names-disagree"]), (70, 70, [])])
def test_an_older_transfer_that_counts_nothing_is_no_difference(new, old, found):
    lines = [
        f"vllm:kv_offload_store_bytes_total{{{V1}}} {new}.0",
        f'vllm:kv_offload_total_bytes_total{{{V1},transfer_type="GPU_to_CPU"}} {old}.0',
    ]

    assert (one(*lines).offload_store_bytes, codes(*lines)) == (new, found)


def test_a_transfer_to_another_medium_counts_where_it_is_the_only_one():
    line = f'vllm:kv_offload_total_bytes_total{{{V1},transfer_type="GPU_to_SHARED_STORAGE"}} 70.0'
    second = line.replace("SHARED_STORAGE", "DISK")

    assert one(line).offload_store_bytes == 70
    assert one(line).offload_load_bytes is None
    assert one(line, second).offload_store_bytes is None


def test_a_family_nobody_named_is_kept_with_its_labels():
    engine = one(f'vllm:brand_new_thing{{{V1},colour="red"}} 4.0')

    (value,) = engine.labelled_values("vllm:brand_new_thing")
    assert (value.labels, value.value) == ((("colour", "red"),), 4)


def test_a_histogram_keeps_its_buckets_by_bound():
    engine = one(
        f'vllm:iteration_tokens_total_bucket{{{V1},le="+Inf"}} 9.0',
        f'vllm:iteration_tokens_total_bucket{{{V1},le="1.0"}} 4.0',
        f'vllm:iteration_tokens_total_bucket{{{V1},le="many"}} 4.0',
        f"vllm:iteration_tokens_total_sum{{{V1}}} 30.0",
        f"vllm:iteration_tokens_total_count{{{V1}}} 9.0",
    )

    histogram = engine.histogram("vllm:iteration_tokens_total")
    assert (histogram.upper_bounds, histogram.counts) == ((1.0, math.inf), (4.0, 9.0))
    assert (histogram.sum, histogram.count) == (30, 9)
    assert engine.histogram("vllm:absent") is None


# -- values -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("NaN", "metric-not-finite"),
        ("+Inf", "metric-not-finite"),
        ("-1.0", "metric-out-of-range"),
        ("45.3", "metric-out-of-range"),
    ],
)
def test_a_usage_that_can_be_none_is_left_out_and_said(text, code):
    line = f"vllm:kv_cache_usage_perc{{{V1}}} {text}"

    assert one(line).kv_usage_fraction is None
    assert codes(line) == [code]


def test_a_hit_rate_of_minus_one_means_no_data():
    line = 'vllm:gpu_prefix_cache_hit_rate{model_name="M"} -1.0'

    assert one(line).gpu_prefix_cache_hit_fraction is None
    assert codes(line) == []


@pytest.mark.parametrize(
    ("text", "value"), [("3.22296832e+08", 322296832), ("7.2903e+010", 72903000000), ("5", 5), ("1E3", 1000)]
)
def test_numbers_are_read_in_every_spelling(text, value):
    assert one(f"vllm:prompt_tokens_total{{{V1}}} {text}").prompt_tokens == value


@pytest.mark.parametrize("tail", [" 1753795326935", ' # {trace_id="a b"} 0.67 1753795326.9'])
def test_a_time_or_an_exemplar_behind_the_value_is_no_part_of_it(tail):
    assert one(f"vllm:prompt_tokens_total{{{V1}}} 12.0{tail}").prompt_tokens == 12


def test_the_later_of_two_equal_series_counts_and_it_is_said():
    lines = [
        f"vllm:num_requests_running{{{V1}}} 1.0",
        'vllm:num_requests_running{model_name="M",engine="0"} 2.0',
        f"vllm:kv_cache_usage_perc{{{V1}}} 0.5",
        f"vllm:kv_cache_usage_perc{{{V1}}} 0.5",
    ]

    assert one(*lines).num_requests_running == 2
    assert codes(*lines) == ["series-repeated"]


def test_a_config_that_knows_its_blocks_wins_over_one_that_does_not():
    lines = [
        'vllm:cache_config_info{num_gpu_blocks="7281"} 1.0',
        'vllm:cache_config_info{num_gpu_blocks="None"} 1.0',
    ]

    assert one(*lines).cache_config.num_gpu_blocks == 7281
    assert one(*reversed(lines)).cache_config.num_gpu_blocks == 7281
    assert codes(*lines) == []
    assert codes(lines[0], lines[0].replace("7281", "9")) == ["series-repeated"]


@pytest.mark.parametrize(("second", "value", "found"), [("1.0", 1, []), ("2.0", None, ["metric-per-process"])])
def test_processes_that_disagree_give_no_number(second, value, found):
    lines = [
        f'vllm:num_requests_running{{{V1},pid="1"}} 1.0',
        f'vllm:num_requests_running{{{V1},pid="2"}} {second}',
    ]

    assert one(*lines).num_requests_running == value
    assert codes(*lines) == found


BLOCKS = "# HELP vllm:gpu_prefix_cache_queries_total GPU prefix cache queries, in terms of number of queried blocks."
TOKENS = "# HELP vllm:gpu_prefix_cache_queries_created GPU prefix cache queries, in terms of number of queriedtokens. DEPRECATED: Use vllm:prefix_cache_queries instead."


@pytest.mark.parametrize(
    ("help_line", "tokens", "blocks", "code"),
    [
        (BLOCKS, None, 117, "prefix-counted-in-blocks"),
        (TOKENS, 117, None, None),
        ("", None, None, "prefix-unit-unknown"),
        ("# HELP vllm:gpu_prefix_cache_hits_total Hits.", None, None, "prefix-unit-unknown"),
    ],
)
def test_the_help_line_tells_what_the_early_prefix_counter_counts(help_line, tokens, blocks, code):
    lines = [help_line, f"vllm:gpu_prefix_cache_queries_total{{{V1}}} 117.0"]

    engine = one(*lines)

    assert (engine.prefix_cache_queries_tokens, engine.prefix_cache_queries_blocks) == (tokens, blocks)
    assert codes(*lines) == [code] * (code is not None)


def test_an_old_prefix_name_beside_new_names_counts_tokens():
    lines = [f"vllm:gpu_prefix_cache_hits_total{{{V1}}} 8.0", f"vllm:prefix_cache_queries_total{{{V1}}} 32.0"]

    engine = one(*lines)

    assert (engine.prefix_cache_queries_tokens, engine.prefix_cache_hits_tokens) == (32, 8)


# -- cache_config_info ----------------------------------------------------------------------------------------------------


def test_the_word_none_is_unknown_and_zero_is_zero():
    config = one('vllm:cache_config_info{num_gpu_blocks="None",num_cpu_blocks="0",block_size="16"} 1.0').cache_config

    assert (config.num_gpu_blocks, config.num_cpu_blocks, config.block_size) == (None, 0, 16)
    assert config.label("num_gpu_blocks") is None
    assert config.label("block_size") == "16"


@pytest.mark.parametrize("text", ["sixteen", "1_6", "-4", "inf", "16.5", "9" * 400])
def test_a_label_that_is_no_count_is_unknown(text):
    assert one(f'vllm:cache_config_info{{block_size="{text}"}} 1.0').cache_config.block_size is None


def test_the_config_without_engine_is_every_engines_of_the_one_model():
    found = engines(
        'vllm:cache_config_info{block_size="16",num_gpu_blocks="200"} 1.0',
        'vllm:kv_cache_usage_perc{engine="0",model_name="M"} 0.1',
        'vllm:kv_cache_usage_perc{engine="1",model_name="M"} 0.2',
    )

    assert [engine.identity for engine in found] == [
        EngineIdentity(model_name="M", engine="0"),
        EngineIdentity(model_name="M", engine="1"),
    ]
    assert [engine.cache_config.num_gpu_blocks for engine in found] == [200, 200]


def test_blocks_of_data_parallel_engines_are_said_to_be_added_up():
    lines = [
        *(f'vllm:cache_config_info{{engine="{rank}",num_gpu_blocks="200"}} 1.0' for rank in (0, 1)),
        *(f'vllm:kv_cache_usage_perc{{engine="{rank}",model_name="M"}} 0.5' for rank in (0, 1)),
    ]

    assert codes(*lines) == ["blocks-of-all-engines"]


def test_the_config_of_one_of_two_busy_models_is_nobodys():
    lines = [
        'vllm:cache_config_info{num_gpu_blocks="200"} 1.0',
        'vllm:gpu_cache_usage_perc{model_name="A"} 0.1',
        'vllm:gpu_cache_usage_perc{model_name="B"} 0.2',
    ]

    assert [engine.cache_config for engine in engines(*lines)] == [None, None]
    assert codes(*lines) == ["cache-config-owner-unknown"]


def test_two_configs_of_two_busy_models_are_nobodys():
    lines = [
        'vllm:cache_config_info{num_gpu_blocks="200"} 1.0',
        'vllm:cache_config_info{num_gpu_blocks="300"} 1.0',
        'vllm:gpu_cache_usage_perc{model_name="A"} 0.1',
        'vllm:num_requests_running{model_name="B"} 2.0',
    ]

    assert [engine.cache_config for engine in engines(*lines)] == [None, None]


def test_a_hybrids_tokens_are_not_blocks_times_size():
    line = 'vllm:cache_config_info{block_size="2304",kv_cache_size_tokens="1544414",num_gpu_blocks="670"} 1.0'

    assert one(line).cache_config.kv_cache_tokens == 1544414
    assert codes(line) == ["tokens-are-not-blocks-times-size"]


# -- engines --------------------------------------------------------------------------------------------------------------


def test_a_fleets_labels_tell_its_engines_apart():
    found = engines(
        f'vllm:num_requests_running{{{V1},instance="a:8000",job="vllm"}} 1.0 1753795326935',
        f'vllm:num_requests_running{{{V1},instance="b:8000",job="vllm"}} 2.0 1753795326935',
        f'vllm:num_requests_waiting_by_reason{{{V1},instance="b:8000",job="vllm",reason="capacity"}} 3.0',
    )

    assert [engine.identity.replica for engine in found] == ["instance=a:8000,job=vllm", "instance=b:8000,job=vllm"]
    assert [value.labels for value in found[1].labelled] == [(("reason", "capacity"),)]


def test_a_series_without_labels_is_the_only_engines():
    engine = one('vllm:lora_requests_info{max_lora="0"} 1.7e+09', f"vllm:num_requests_running{{{V1}}} 1.0")

    assert engine.identity == EngineIdentity(model_name="M", engine="0")
    assert len(engine.labelled) == 1


def test_a_series_that_may_be_of_two_engines_is_left_out():
    lines = [
        "vllm:websocket_connections_active 4.0",
        'vllm:num_requests_running{engine="0",model_name="M"} 1.0',
        'vllm:num_requests_running{engine="1",model_name="M"} 1.0',
    ]

    assert [engine.labelled for engine in engines(*lines)] == [(), ()]
    assert codes(*lines) == ["series-owner-unknown"]


def test_more_engines_than_any_server_has_are_cut_off():
    lines = [f'vllm:num_requests_running{{engine="{n}"}} 1.0' for n in range(600)]

    assert len(engines(*lines)) == 256
    assert codes(*lines)[0] == "too-many-engines"


def test_names_without_end_do_not_hold_the_reader_up():
    lines = [f'vllm:num_requests_running{{model_name="M{number}",engine="0"}} 1.0' for number in range(5000)]
    fits = Counter()

    with mock.patch("live.series_owner._fits", side_effect=lambda *pair: bool(fits.update("x")) or pair[0] == pair[1]):
        assert len(engines(*lines)) == 256

    assert fits["x"] < 1_000_000


def test_another_exporters_families_are_no_engines():
    text = 'vllm:num_requests_running{model_name="M"} 1.0\nvllm_router:queue 3.0\nsglang:num_running_reqs 4.0\n'

    assert len(engines(text)) == 1


# -- texts ----------------------------------------------------------------------------------------------------------------


def running(text: str):
    found = read_metrics(text, 0).engines
    return found[0].num_requests_running if found else None


ONE_LINE = """# HELP vllm:num_requests_running Running. # TYPE vllm:num_requests_running gauge \
vllm:num_requests_running{engine="0"} 3.0 vllm:num_requests_waiting{engine="0"} 9.0 # HELP vllm:x Rest.
"""


@pytest.mark.parametrize(
    "text",
    [
        'vllm-1  | 2026-01-01 vllm:num_requests_running{engine="0",model_name="M"} 3.0\n',
        '> vllm:num_requests_running{engine="0",model_name="M"} 3.0\n',
        "vllm:num_requests_running{engine=&quot;0&quot;,model_name=&quot;M&quot;} 3.0\n",
        "vllm:num_requests_running{engine=“0”,model_name=“M”} 3.0\n",
        'vllm:num_requests_running{engine=\\"0\\",model_name=\\"M\\"} 3.0\n',
        'vllm:num_requests_running{engine="0", model_name="M",}   3.0\r\n',
        'vllm:num_requests_running{engine="0",model_name="M"} 3.0 ``` and so on\n',
        '<pre>vllm:num_requests_running{engine="0"} 3.0<br></pre>\n',
        "vllm:num_requests_running{} 3.0\n",
        'metrics.txt:12:vllm:num_requests_running {engine="0"} 3.0\n',
        'vllm:num_requests_running{model="M",version="1"} 3.0\n',
        'vllm:num_requests_running{engine="0",\n  model_na\nme="M"} 3.0\n',
        '{__name__="vllm:num_requests_running",engine="0",model_name="M"} 3.0\n',
        '# TYPE vllm:num_requests_running gauge\\nvllm:num_requests_running{engine="0"} 3.0\\n',
        ONE_LINE,
    ],
)
def test_a_pasted_line_is_read_through_its_decoration(text):
    assert running(text) == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "<html><body>502 Bad Gateway vllm:num_requests_running</body></html>",
        '{"detail": "Not Found"}',
        "# vllm:num_requests_running 3.0\n",
        "# HELP vllm:num_requests_running up to vllm:num_requests_running 3.0\n",
        'http_requests_total{handler="vllm:num_requests_running 3.0"} 1.0\n',
        "vllm:num_requests_running three\n",
        "vllm:num_requests_running 1_0\n",
    ],
)
def test_what_is_no_sample_gives_no_number(text):
    assert running(text) is None
    assert "no-vllm-metrics" in [finding.code for finding in read_metrics(text, 0).findings]


def test_a_line_cut_in_its_labels_is_named_as_unread():
    lines = [f"vllm:num_requests_running{{{V1}}} 1.0", 'vllm:num_requests_waiting{engine="0",model_na']

    assert one(*lines).num_requests_waiting is None
    assert codes(*lines) == ["metric-lines-unread"]


def test_a_cut_config_line_keeps_its_whole_labels():
    config = one('vllm:cache_config_info{block_size="16",num_gpu_blocks="7281",num_cpu_blocks="20').cache_config

    assert (config.block_size, config.num_gpu_blocks, config.num_cpu_blocks) == (16, 7281, None)


def test_a_config_line_broken_by_a_terminal_is_joined_and_its_broken_number_not_read():
    config = one(
        'vllm:cache_config_info{block_si\nze="16",num_gpu_blocks="72\n81",num_cpu_blocks="20"} 1.0'
    ).cache_config

    assert (config.block_size, config.num_gpu_blocks, config.num_cpu_blocks) == (16, None, 20)


def test_a_line_that_is_never_closed_swallows_no_other():
    lines = ["vllm:num_requests_waiting{engine=", *(["junk"] * 80), f"vllm:num_requests_running{{{V1}}} 1.0"]

    assert one(*lines).num_requests_running == 1


def test_a_value_that_lost_its_digits_is_not_taken():
    text = f"vllm:num_requests_running{{{V1}}} 1.0\nvllm:prompt_tokens_total{{{V1}}} 3399"

    reading = read_metrics(text, 0)

    assert reading.engines[0].prompt_tokens is None
    assert [finding.code for finding in reading.findings] == ["metric-lines-unread", "metrics-text-cut"]


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("prompt_tokens", f"vllm:prompt_tokens_total{{{V1}}} 1.2"),  # of 1.23456789e+08
        ("offload_store_bytes", f'vllm:kv_offload_total_bytes_total{{{V1},transfer_type="GPU_to_CPU"}} 7.71'),
        ("kv_usage_fraction", f"vllm:kv_cache_usage_perc{{{V1}}} 0.11"),  # of 0.11223878211531546
    ],
)
def test_a_value_that_lost_its_exponent_or_its_tail_is_not_taken(field, line):
    help_line = "# HELP vllm:num_requests_running Number of requests in model execution batches."

    reading = read_metrics(f"{help_line}\nvllm:num_requests_running{{{V1}}} 1.0\n{line}", 0)

    assert getattr(reading.engines[0], field) is None
    assert [finding.code for finding in reading.findings] == ["metric-lines-unread", "metrics-text-cut"]
    assert getattr(read_metrics(f"{help_line}\n{line}\n", 0).engines[0], field) is not None


@pytest.mark.parametrize("value", ["0.25", "0.0", "1.0", "0.11223878211531546"])
def test_a_pasted_share_without_a_line_end_is_taken(value):
    assert read_metrics(f"vllm:kv_cache_usage_perc{{{V1}}} {value}", 0).engines[0].kv_usage_fraction == float(value)


@pytest.mark.parametrize("value", ["1.5 K", "1.5 Mil", "52 %", "52%", "12 tokens", "1,234", "0,25", "0x10", "1_0"])
def test_a_number_with_a_unit_is_not_the_number_it_begins_with(value):
    assert [engine.prompt_tokens for engine in engines(f"vllm:prompt_tokens_total{{{V1}}} {value}")] == []


@pytest.mark.parametrize("labels", ["{...}", "{…}", '{model_name="M",...}', '{model_name="M", … }'])
def test_labels_that_are_left_out_are_none(labels):
    engine = one(f"vllm:num_requests_running{labels} 3.0", "vllm:num_requests_waiting 4.0")

    assert (engine.num_requests_running, engine.num_requests_waiting) == (3, 4)


def test_an_openmetrics_text_is_whole_by_its_mark():
    text = f"# TYPE vllm:num_preemptions counter\nvllm:num_preemptions_total{{{V1}}} 3 1753795326.5\n# EOF"

    reading = read_metrics(text, 0)

    assert (reading.engines[0].num_preemptions, reading.findings) == (3, ())


def test_whole_numbers_without_a_point_are_taken_where_all_are_written_so():
    text = f"vllm:num_requests_running{{{V1}}} 1\nvllm:prompt_tokens_total{{{V1}}} 3399"

    assert read_metrics(text, 0).engines[0].prompt_tokens == 3399


def test_a_line_separator_in_a_label_does_not_break_the_line():
    assert one('vllm:num_requests_running{model_name="a\u2028b\\nc"} 3.0').identity.model_name == "a\u2028b\nc"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_saved_file_is_read_in_its_encoding(encoding):
    assert running(decode_text("vllm:num_requests_running 3.0\n".encode(encoding))) == 3


def test_a_packed_answer_is_unpacked_within_the_limit():
    packed = gzip.compress(b"vllm:num_requests_running 3.0\n" + b"#" * 90_000_000)

    assert running(decode_text(packed)) == 3
    assert len(decode_text(packed)) == 16_000_000
    assert decode_text(b"\x1f\x8b broken") == ""


def test_the_process_start_is_known_where_one_is_said():
    line = f"vllm:num_requests_running{{{V1}}} 1.0"

    assert read_metrics(f"process_start_time_seconds 1.5e+09\n{line}\n", 0).process_start_unix_seconds == 1.5e9
    assert read_metrics(f"{line}\n", 0).process_start_unix_seconds is None


def test_a_head_longer_than_any_real_one_is_read_all_the_same():
    name = "m" * 5000

    assert one(f'vllm:num_requests_running{{model_name="{name}"}} 3.0').identity.model_name == name


def test_only_counters_that_fell_tell_of_a_restart():
    before = one(f"vllm:prompt_tokens_total{{{V1}}} 9.0", f"vllm:num_requests_running{{{V1}}} 5.0")
    after = one(f"vllm:prompt_tokens_total{{{V1}}} 2.0", f"vllm:num_requests_running{{{V1}}} 1.0")

    assert fell_back(before, after) == ("prompt_tokens",)
    assert fell_back(after, before) == ()


def test_an_exposition_of_another_exporter_is_known_to_be_one():
    assert read_exposition("up 1\n").has_metrics
    assert not read_exposition("<html>\n").has_metrics


def test_a_text_longer_than_any_real_one_is_read_up_to_a_limit():
    lines = [f"vllm:num_requests_running {number}.0" for number in range(40_000)] + ["vllm:num_requests_waiting 2.0"]

    assert (one(*lines).num_requests_running, one(*lines).num_requests_waiting) == (599, 2)
    assert codes(*lines) == ["metrics-text-too-long", "series-repeated"]


@pytest.mark.parametrize(
    "other",
    [
        'node_cpu_seconds_total{{cpu="{}"}} 1.0',
        'container_cpu_usage_seconds_total{{pod="vllm-{}"}} 1.0',
        'vllm:foo_{}{{engine="0",model_name="M"}} 1.0',
        "# HELP vllm:foo_{} Foo.",
    ],
)
def test_a_known_family_is_read_behind_two_hundred_thousand_other_lines(other):
    others = [other.format(number) for number in range(200_000)]

    assert one(*others, f"vllm:num_requests_running{{{V1}}} 3.0").num_requests_running == 3


HOSTILE = {
    "distinct labels": lambda n: f'vllm:foo_{n % 50}{{engine="0",model_name="m",x="{n}"}} {n}.0',
    "distinct names": lambda n: f'vllm:foo_{n}{{engine="0",model_name="m"}} {n}.0',
    "distinct models": lambda n: f'vllm:num_requests_running{{engine="{n}",model_name="m{n}"}} {n}.0',
    "refused": lambda n: f'vllm:foo_{n}{{engine="0" model_name="m"}} {n}.0 x y',
    "open": lambda n: f'vllm:x{{a="{n}',
    "many labels": lambda n: "vllm:x{" + ",".join(f'l{place}="{n}"' for place in range(100)) + f"}} {n}.0",
    "escapes": lambda n: f'vllm:foo{{model_name="m\\\\n{n}\\"\\\\"}} {n}.0',
    "entities": lambda n: "vllm:x &quot; " * 50 + str(n),
    "hashes": lambda n: f"vllm {n} " + "# " * 4000,
    "literals": lambda n: f'vllm {n} "\\n" \\' * 20,
    "times": lambda n: f'vllm:foo_{n}{{engine="0",model_name="m"}} {n}.0 1753795326500',
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_hostile_text_costs_more_than_a_second(kind):
    line, text = HOSTILE[kind], ""
    text = "\n".join(itertools.islice(iter(map(line, range(40_000))), 5_000_000 // len(line(1000))))

    start = time.thread_time()
    read_metrics(text, 0)

    assert time.thread_time() - start < 4  # 0.1 to 1 s here, where nothing else runs


@pytest.mark.parametrize(
    "line", ['vllm:x{a="' + "x" * 9000, "vllm:x{" + 'a="b",' * 3000 + "} 1.0", "junk vllm:x{a" * 2]
)
def test_a_line_that_no_engine_writes_is_unread(line):
    assert codes(*[line] * 3, f"vllm:num_requests_running{{{V1}}} 1.0")[0] == "metric-lines-unread"


@pytest.mark.parametrize(
    ("count", "begin"),
    [
        (1, "1 line of vLLM's could not be read and is left out: "),
        (2, "2 lines of vLLM's could not be read and are left out, such as "),
    ],
)
def test_unread_lines_are_counted_in_a_whole_sentence(count: int, begin: str) -> None:
    torn = "".join(f'vllm:num_requests_running{{engine="{place}"}} x\n' for place in range(count))

    (finding,) = [each for each in read_metrics(torn, 0).findings if each.code == "metric-lines-unread"]

    assert finding.text.startswith(begin + "'vllm:num_requests_running{")
