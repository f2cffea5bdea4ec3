"""A broken text never crashes the reader, and no number comes out of it that is not in it."""

import math
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from live.metrics import read_metrics
from live.samples import NUMBER_FIELDS
from live.snapshot_json import engine_to_json

BASE = """\
# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",engine="0",kv_cache_max_concurrency="195.53125",num_gpu_blocks="25028"} 1.0
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="opt-125m"} 64.0
vllm:num_requests_running{engine="1",model_name="opt-125m"} 31.0
vllm:kv_cache_usage_perc{engine="0",model_name="opt-125m"} 0.11223878211531546
# HELP vllm:gpu_prefix_cache_queries_total GPU prefix cache queries, in terms of number of queried tokens.
vllm:gpu_prefix_cache_queries_total{engine="0",model_name="opt-125m"} 3.39968e+05
vllm:gpu_prefix_cache_queries_created{engine="0",model_name="opt-125m"} 1.7869290186210005e+09
vllm:kv_offload_total_bytes_total{engine="0",model_name="opt-125m",transfer_type="GPU_to_CPU"} 7.71795e+09
vllm:iteration_tokens_total_bucket{engine="0",le="8.0",model_name="opt-125m"} 994.0
process_start_time_seconds 1.78692899276e+09
"""
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?")
_PIECES = st.sampled_from(
    [*'{}",=# \n\t\\_e.-+19', "NaN", "+Inf", "vllm:", "# TYPE ", "ray_", "_total", "&quot;", "\x00", "\ufeff", "“"]
)


@st.composite
def mutated_texts(draw: st.DrawFn) -> str:
    text = BASE
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 60)))
        kind = draw(st.sampled_from(["cut", "insert", "repeat", "tail", "head"]))
        if kind == "cut":
            text = text[:start] + text[end:]
        elif kind == "insert":
            text = text[:start] + draw(_PIECES) + text[start:]
        elif kind == "repeat":
            text = text[:end] + text[start:]
        elif kind == "tail":
            text = text[:start]
        else:
            text = text[start:]
    return text


def values_in(text: str) -> set[float]:
    found = set()
    for match in _NUMBER.finditer(text):
        found.add(float(match[0]))
        found.add(float(match[0].lstrip("+-")))
    return found


@settings(max_examples=300, deadline=None)
@given(mutated_texts())
def test_every_number_is_in_the_text(text):
    reading = read_metrics(text, 0)

    in_text = values_in(text)
    for engine in reading.engines:
        numbers = [getattr(engine, name) for name in NUMBER_FIELDS]
        numbers += [value.value for value in engine.labelled]
        numbers += [value for name, value in engine_to_json(engine).items() if isinstance(value, (int, float))]
        assert all(math.isfinite(value) and value in in_text for value in numbers if value is not None)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=400) | st.binary(max_size=400).map(lambda content: content.decode("latin-1")))
def test_any_text_is_read_without_a_crash(text):
    reading = read_metrics(text, 0)

    assert reading.engines or reading.findings


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet='vlm:_#{}"=,. \\019enaHELPTY\n', max_size=300))
def test_any_text_of_the_formats_own_letters_is_read_without_a_crash(text):
    reading = read_metrics(f"vllm:num_requests_running {text}\nvllm:x{{{text}", 0)

    assert isinstance(reading.engines, tuple)
