"""Mutated start-up logs: never a crash, and never a number that its line does not hold."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.facts import PlanError
from planner.log_file import decode_log
from planner.log_json import to_json
from planner.log_request import request_of_log
from planner.startup_log import StartupLog, read_starts

V1_START = """\
(APIServer pid=1) INFO 09-01 10:00:00 [startup.py:96] non-default args: {'model_tag': 'org/M-8B', 'model': 'org/M-8B', 'max_model_len': 131072, \
'tensor_parallel_size': 2, 'gpu_memory_utilization': 0.92, 'limit_mm_per_prompt': {'image': 2}, 'speculative_config': {'method': 'mtp', \
'num_speculative_tokens': 2}}
(EngineCore pid=5) INFO 09-01 10:00:01 [core.py:140] Initializing a V1 LLM engine (v0.33.0) with config: model='org/M-8B', \
dtype=torch.bfloat16, max_seq_len=131072, tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=1, quantization=None, \
enforce_eager=False, kv_cache_dtype=auto, device_config=cuda, enable_prefix_caching=True, compilation_config={"cudagraph_mode":[2,1]}
(Worker_TP0 pid=7) INFO 09-01 10:00:20 [gpu_model_runner.py:5089] Model loading took 7.52 GiB memory and 12.100000 seconds
(Worker_TP1 pid=8) INFO 09-01 10:00:20 [gpu_model_runner.py:5089] Model loading took 7.52 GiB memory and 12.200000 seconds
(Worker_TP0 pid=7) INFO 09-01 10:00:40 [gpu_model_runner.py:6410] Estimated CUDA graph memory: 0.52 GiB total
(Worker_TP0 pid=7) INFO 09-01 10:00:40 [gpu_worker.py:773] Available KV cache memory: 56.5 GiB
(Worker_TP1 pid=8) INFO 09-01 10:00:40 [gpu_worker.py:773] Available KV cache memory: 56.41 GiB
(EngineCore pid=5) INFO 09-01 10:00:41 [kv_cache_utils.py:1147] GPU KV cache size: 924,128 tokens, Maximum concurrency for 131,072 tokens \
per request: 7.05x
(Worker_TP0 pid=7) INFO 09-01 10:00:50 [gpu_worker.py:1070] Free memory on device (78.7/79.19 GiB) on startup. Desired GPU memory utilization \
is (0.92, 72.86 GiB). Actual usage is 14.9 GiB for consumed memory (weights + non-torch), 1.46 GiB for peak activation, and 0.6 GiB for \
CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=59862155264` (55.75 GiB) to fit into requested memory, or \
`--kv-cache-memory=66141323264` (61.6 GiB) to fully utilize gpu memory. Current kv cache memory in use is 56.5 GiB.
(APIServer pid=1) INFO:     Application startup complete.
"""
V0_START = """\
INFO 11-29 12:00:00 llm_engine.py:234] Initializing an LLM engine (v0.6.6) with config: model='/data/models/M', max_seq_len=8192, \
tensor_parallel_size=1, use_cached_outputs=True,
INFO 11-29 12:00:05 model_runner.py:1099] Loading model weights took 14.9888 GB
INFO 11-29 12:00:06 worker.py:241] the current vLLM instance can use total_gpu_memory (23.64GiB) x gpu_memory_utilization (0.90) = 21.28GiB
INFO 11-29 12:00:06 worker.py:241] model weights take 14.99GiB; non_torch_memory takes 0.06GiB; PyTorch activation peak memory takes 1.19GiB; \
the rest of the memory reserved for KV Cache is 5.03GiB.
INFO 11-29 12:00:06 gpu_executor.py:76] # GPU blocks: 2577, # CPU blocks: 2048
INFO 11-29 12:00:06 gpu_executor.py:80] Maximum concurrency for 8192 tokens per request: 5.03x
"""
FAILED_START = """\
{"log":"(EngineCore pid=9) ERROR 09-01 10:00:41 [core.py:1344] ValueError: To serve at least one request with the model's max seq len \
(262144), (4.26 GiB KV cache is needed, which is larger than the available KV cache memory (4.25 GiB). Based on the available memory, the \
estimated maximum model length is 259584. Try increasing\\n","stream":"stderr"}
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 44.53 GiB of which 448.00 KiB is free.
"""
NUMBERS = ["NaN", "-1", "9" * 400, "0", "1e999", "inf", "1.2.3", "", "-0.00", "1,23,4", "٣", "0x1f", "99999999.5"]


def holds(text: str, value: float) -> bool:
    """Whether a number of `text` is `value`, with or without thousands separators."""
    found = re.findall(r"-?\d[\d,]*(?:\.\d+)?", text)
    return any(float(number.replace(",", "")) == value for number in found)


def check(log: StartupLog) -> None:
    for name, line in log.lines:
        value = getattr(log, name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            assert holds(line.text, value), (name, value, line)
    for rank in log.ranks:
        for name, line in rank.lines:
            number = getattr(rank, name).formula.split(" ")[0]
            assert holds(line.text, float(number.replace(",", ""))), (name, number, line)
    json.dumps(to_json(log), allow_nan=False)
    request_of_log(log)


@dataclass(frozen=True)
class Spot:
    """A place in a log: a line of it and a column."""

    lines: list[str]
    at: int
    column: int
    draw: st.DrawFn

    def with_line(self, *lines: str) -> list[str]:
        return [*self.lines[: self.at], *lines, *self.lines[self.at + 1 :]]

    @property
    def line(self) -> str:
        return self.lines[self.at]


def without(spot: Spot) -> list[str]:
    return spot.with_line()


def cut(spot: Spot) -> list[str]:
    return spot.with_line(spot.line[: spot.column])


def twice(spot: Spot) -> list[str]:
    return spot.with_line(spot.line, spot.line)


def shuffled(spot: Spot) -> list[str]:
    return list(spot.draw(st.permutations(spot.lines)))


def renumbered(spot: Spot) -> list[str]:
    spans = [match.span() for match in re.finditer(r"\d+(?:\.\d+)?", spot.line)]
    begin, end = spot.draw(st.sampled_from(spans or [(0, 0)]))
    return spot.with_line(spot.line[:begin] + spot.draw(st.sampled_from(NUMBERS)) + spot.line[end:])


def with_text(spot: Spot) -> list[str]:
    text = spot.draw(st.text(max_size=5) | st.just("\n") | st.sampled_from(spot.lines))
    return spot.with_line(spot.line[: spot.column] + text + spot.line[spot.column :])


@st.composite
def mutated(draw: st.DrawFn) -> str:
    lines = draw(st.sampled_from([V1_START, V0_START, FAILED_START, V0_START + V1_START])).splitlines(keepends=True)
    for mutate in draw(st.lists(st.sampled_from([without, cut, twice, shuffled, renumbered, with_text]), max_size=6)):
        at = draw(st.integers(0, len(lines) - 1))
        column = draw(st.integers(0, len(lines[at])))
        lines = mutate(Spot(lines=lines, at=at, column=column, draw=draw)) or [""]
    return "".join(lines)


@settings(max_examples=150, deadline=None)
@given(mutated())
def test_mutated_logs_yield_only_numbers_of_their_lines(text: str) -> None:
    for log in read_starts(text):
        check(log)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=30))
def test_flipped_bytes_are_read_or_refused(flips: list[tuple[int, int]]) -> None:
    content = bytearray((V0_START + V1_START).encode())
    for place, byte in flips:
        content[place % len(content)] = byte

    try:
        text = decode_log(bytes(content))
    except PlanError:
        return
    for log in read_starts(text):
        check(log)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=3000))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    try:
        text = decode_log(content)
    except PlanError:
        return
    for log in read_starts(text):
        check(log)


def test_the_whole_logs_hold_their_facts() -> None:
    v0, v1 = read_starts(V0_START + V1_START)

    check(v0)
    check(v1)
    assert (v0.kv_cache_tokens, v0.block_size) == (2577 * 16, 16)
    assert (v1.kv_cache_tokens, v1.tensor_parallel_size, v1.outcome) == (924128, 2, "started")
