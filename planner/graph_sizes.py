"""CUDA graph mode and capture sizes as each vLLM release chooses them (`_set_cudagraph_sizes`, vllm/config)."""

from __future__ import annotations

from dataclasses import dataclass

from planner.facts import PlanError
from planner.versions import Version

MODES = ("NONE", "PIECEWISE", "FULL", "FULL_AND_PIECEWISE", "FULL_DECODE_ONLY")


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphQuestion:
    """What the sizes depend on; `given_sizes` and `given_max` are the user's, None when left to vLLM."""

    version: Version
    is_v0: bool
    mode: str
    max_num_seqs: int
    max_num_batched_tokens: int
    num_speculative_tokens: int
    is_datacenter_blackwell: bool  # compute capability 10.x
    is_gpt_oss: bool
    is_interactive: bool  # performance_mode=interactivity
    given_sizes: tuple[int, ...] | None
    given_max: int | None


def default_mode(version: Version, *, is_v0: bool, is_encoder_decoder: bool) -> str:
    """The mode vLLM takes when none is asked for: full and piecewise since 0.11, piecewise on 0.8 to 0.10, V0 decode only."""
    if is_v0:
        return "FULL_DECODE_ONLY"
    if version < (0, 11, 0) or is_encoder_decoder:
        return "PIECEWISE"
    return "FULL_AND_PIECEWISE"


def capture_sizes(question: GraphQuestion) -> tuple[int, ...]:
    """The batch sizes, ascending, for which a graph is captured; empty without graphs."""
    if question.mode == "NONE":
        return ()
    tokens = question.max_num_batched_tokens
    if question.given_sizes is not None:
        sizes = tuple(sorted({size for size in question.given_sizes if size <= tokens}))
        _check_given(question, sizes)
        return sizes
    if question.is_v0:
        return _sizes_of_v0(question.max_num_seqs)
    if question.version < (0, 12, 0):
        return tuple(size for size in _sizes_to_011(question) if size <= tokens)
    return _sizes_since_012(question)


def _check_given(question: GraphQuestion, sizes: tuple[int, ...]) -> None:
    if any(size < 1 for size in question.given_sizes or ()) or not question.given_sizes:
        text = "cudagraph_capture_sizes takes whole numbers of at least 1, as in [1, 2, 4, 8]."
        raise PlanError("cudagraph_capture_sizes", question.given_sizes, text)
    largest = sizes[-1] if sizes else 0
    if question.given_max is not None and question.given_max != largest:
        text = (
            f"customized max_cudagraph_capture_size(={question.given_max}) should be consistent with the max value of "
            f"cudagraph_capture_sizes(={largest}); give one of the two."
        )
        raise PlanError("max_cudagraph_capture_size", question.given_max, text)


def _sizes_of_v0(max_num_seqs: int) -> tuple[int, ...]:
    """1, 2, 4 and multiples of 8 up to the first that covers `max_num_seqs`."""
    candidates = (1, 2, 4, *range(8, 8193, 8))
    largest = next((size for size in candidates if size >= max_num_seqs), candidates[-1])
    return tuple(size for size in candidates if size <= largest)


def _sizes_to_011(question: GraphQuestion) -> tuple[int, ...]:
    if question.version < (0, 9, 2):
        largest = 512  # 0.8.5 captures up to 512 whatever max_num_seqs is
    else:
        largest = question.given_max or min(question.max_num_seqs * 2, 512)
        if question.is_gpt_oss and question.version >= (0, 10, 2) and largest < 992:
            return (1, 2, 4, *range(8, 256, 8), *range(256, 993, 16))
    return (1, 2, 4, *range(8, largest + 1, 8))


def _sizes_since_012(question: GraphQuestion) -> tuple[int, ...]:
    query_len = 1 + question.num_speculative_tokens
    largest, uniform = question.given_max, set[int]()
    if largest is None and question.is_gpt_oss:
        largest = 1024  # GptOssForCausalLMConfig raises it before the sizes are made
    if largest is None:
        ceiling = 1024 if question.is_datacenter_blackwell and question.version >= (0, 28, 0) else 512
        largest = min(question.max_num_seqs * query_len * 2, ceiling)
        if question.version >= (0, 29, 0):
            uniform = _uniform_decode_sizes(question.max_num_seqs, query_len, largest, ceiling)
    tokens = question.max_num_batched_tokens
    largest = min(largest, tokens)
    sizes = set(_strided(largest, is_interactive=question.is_interactive and question.version >= (0, 17, 0)))
    if tokens <= largest and question.version >= (0, 21, 0):  # not in 0.20.0
        sizes.add(tokens)
    sizes.update(size for size in uniform if size <= tokens)
    return tuple(sorted(sizes))


def _strided(largest: int, *, is_interactive: bool) -> tuple[int, ...]:
    """1, 2, 4 (or each size to 32), then steps of 8 below 256 and of 16 from there to `largest`."""
    small = range(1, min(largest, 32) + 1) if is_interactive else [size for size in (1, 2, 4) if size <= largest]
    return (*small, *range(8, min(largest + 1, 256), 8), *range(256, largest + 1, 16))


def _uniform_decode_sizes(max_num_seqs: int, query_len: int, largest: int, ceiling: int) -> set[int]:
    """Token counts of decode batches in which each request brings `query_len` tokens."""
    if query_len == 1:
        return {max_num_seqs} if max_num_seqs <= largest else set()
    requests = min(max_num_seqs, ceiling)
    counts = {*_strided(requests, is_interactive=False), requests}
    return {count * query_len for count in counts if count * query_len <= largest}
