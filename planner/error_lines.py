"""vLLM's own start-up error lines: what they say in numbers, and how that compares with a plan."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from planner.answer import Plan
from planner.units import GIB

ErrorKind = Literal["length_does_not_fit", "no_cache_memory", "too_little_free", "out_of_memory", "few_state_blocks"]

_NUMBER = r"(?<![\w.,])-?\d{1,7}(?:\.\d{1,9})?(?![\d.,]*\d)"
_GIB = rf"\(?({_NUMBER}) Gi?B"
_COUNT = r"(?<![\w.,])(?:\d{1,3}(?:,\d{3}){1,5}|\d{1,15})(?![\d.,]*\d)"
_FIT = re.compile(
    rf"max seq len \((?P<length>{_COUNT})\).*?{_GIB} KV cache is needed.*?available KV cache memory \((?P<available>{_NUMBER})",
    re.DOTALL,
)
_FIT_V0 = re.compile(rf"max seq len \((?P<length>{_COUNT})\).*?stored in KV cache \((?P<tokens>{_COUNT})\)", re.DOTALL)
_ESTIMATED = re.compile(rf"estimated maximum model length is (?P<length>{_COUNT})")
_FREE = re.compile(
    rf"(?:Free|Available) memory on (?:device|node).*?\((?P<free>{_NUMBER})/(?P<total>{_NUMBER}) GiB\) on startup is less than "
    rf"(?:desired [GC]PU memory utilization|the engine's budget after excluding external process's weights) "
    rf"\((?P<utilization>{_NUMBER}), (?P<requested>{_NUMBER}) GiB\)",
    re.DOTALL,
)
_FEW_BLOCKS = re.compile(
    rf"max_num_seqs \((?P<seqs>{_COUNT})\) exceeds available Mamba cache blocks \((?P<blocks>{_COUNT})\)"
)
# PyTorch's own texts, since 2.1 and before.
_SIZE = r"(?<![\w.,])(\d{1,7}(?:\.\d{1,9})? (?:[KMG]iB|bytes))"
_TRIED = re.compile(rf"Tried to allocate {_SIZE}")
_CAPACITY = re.compile(
    rf"total capacity of {_SIZE} of which {_SIZE} is free|; {_SIZE} total capacity;.*?; {_SIZE} free"
)
_IN_USE = re.compile(rf"this process has {_SIZE} memory in use")
_UNITS = {"bytes": 1, "KiB": 1024, "MiB": 1024**2, "GiB": GIB}


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReading:
    """The numbers of one error line; None where the line does not state one."""

    kind: ErrorKind
    max_model_len: int | None = None
    needed_bytes: int | None = None
    available_bytes: int | None = None
    available_tokens: int | None = None
    estimated_max_model_len: int | None = None
    free_bytes: int | None = None
    total_bytes: int | None = None
    gpu_memory_utilization: float | None = None
    requested_bytes: int | None = None
    tried_bytes: int | None = None  # what the refused allocation asked for
    in_use_bytes: int | None = None  # by the process that was refused
    max_num_seqs: int | None = None
    num_blocks: int | None = None


def read_error(text: str) -> ErrorReading | None:
    """What a pasted vLLM error says, or None when it is none of vLLM's memory errors."""
    text = " ".join(text[:20_000].split())
    if match := _FIT.search(text):
        estimated = _ESTIMATED.search(text)
        return ErrorReading(
            kind="length_does_not_fit",
            max_model_len=_whole(match["length"]),
            needed_bytes=_gib(match[2]),
            available_bytes=_gib(match["available"]),
            estimated_max_model_len=_whole(estimated["length"]) if estimated else None,
        )
    if match := _FIT_V0.search(text):
        tokens = _whole(match["tokens"])
        return ErrorReading(kind="length_does_not_fit", max_model_len=_whole(match["length"]), available_tokens=tokens)
    if match := _FREE.search(text):
        return ErrorReading(
            kind="too_little_free",
            free_bytes=_gib(match["free"]),
            total_bytes=_gib(match["total"]),
            gpu_memory_utilization=float(match["utilization"]),
            requested_bytes=_gib(match["requested"]),
        )
    return _without_gib(text)


def _without_gib(text: str) -> ErrorReading | None:
    """The errors that state no size of vLLM's own."""
    if match := _FEW_BLOCKS.search(text):
        seqs, blocks = _whole(match["seqs"]), _whole(match["blocks"])
        return ErrorReading(kind="few_state_blocks", max_num_seqs=seqs, num_blocks=blocks)
    if "No available memory for the cache blocks" in text:
        return ErrorReading(kind="no_cache_memory")
    if re.search(r"OutOfMemoryError|out of memory", text, re.IGNORECASE):
        return _out_of_memory(text)
    return None


def _out_of_memory(text: str) -> ErrorReading:
    tried, in_use, card = _TRIED.search(text), _IN_USE.search(text), _CAPACITY.search(text)
    total, free = (card[1] or card[3], card[2] or card[4]) if card is not None else (None, None)
    return ErrorReading(
        kind="out_of_memory",
        tried_bytes=_size(tried[1]) if tried else None,
        total_bytes=_size(total) if total else None,
        free_bytes=_size(free) if free else None,
        in_use_bytes=_size(in_use[1]) if in_use else None,
    )


def _size(text: str) -> int:
    number, unit = text.split(" ")
    return int(float(number) * _UNITS[unit])


def explain(reading: ErrorReading, plan: Plan) -> tuple[str, ...]:
    """Sentences that set the error's numbers beside the plan's."""
    explainers = {
        "length_does_not_fit": _explain_fit,
        "no_cache_memory": _explain_no_memory,
        "too_little_free": _explain_free,
        "out_of_memory": _explain_out_of_memory,
        "few_state_blocks": _explain_few_blocks,
    }
    return tuple(explainers[reading.kind](reading, plan))


def _whole(text: str) -> int:
    return int(text.replace(",", ""))


def _gib(text: str) -> int:
    return int(float(text) * GIB)


def _explain_fit(reading: ErrorReading, plan: Plan) -> list[str]:
    sentences = [
        f"vLLM could not keep one request of {reading.max_model_len:,} tokens in its KV pool."
        if reading.max_model_len
        else "vLLM could not keep one request of the longest length in its KV pool."
    ]
    if reading.max_model_len and reading.max_model_len != plan.pool.max_model_len:
        sentences.append(f"This plan is for max_model_len {plan.pool.max_model_len:,}: set the same length to compare.")
    if reading.needed_bytes is not None:
        sentences.append(_beside("One request needs", reading.needed_bytes, plan.pool.needed_bytes))
    if reading.available_bytes is not None:
        pool = plan.ranks[plan.bounding_rank].kv_pool.best_bytes
        sentences.append(_beside("The pool has", reading.available_bytes, pool))
    if reading.available_tokens is not None:
        sentences.append(
            f"vLLM's pool held {reading.available_tokens:,} tokens; this plan's holds {plan.pool.tokens:,}."
        )
    if reading.estimated_max_model_len:
        sentences.append(f"--max-model-len {reading.estimated_max_model_len} starts on that machine as it was.")
    return sentences


def _beside(what: str, measured_bytes: int, planned_bytes: int) -> str:
    difference = (planned_bytes - measured_bytes) / GIB
    return f"{what} {measured_bytes / GIB:.2f} GiB by vLLM, {planned_bytes / GIB:.2f} GiB by this plan ({difference:+.2f})."


def _explain_no_memory(_reading: ErrorReading, plan: Plan) -> list[str]:
    pool = plan.ranks[plan.bounding_rank].kv_pool.best_bytes / GIB
    return [
        "After weights, activation peak and graphs nothing was left of the share that gpu_memory_utilization gives.",
        f"This plan leaves {pool:.2f} GiB for the KV cache.",
    ]


def _explain_free(reading: ErrorReading, plan: Plan) -> list[str]:
    sentences = [
        "vLLM checks before loading that the requested share of the card is free; something else holds memory."
    ]
    if reading.free_bytes and reading.total_bytes:
        largest = int(reading.free_bytes / reading.total_bytes * 100) / 100
        held = (reading.total_bytes - reading.free_bytes) / GIB
        sentences.append(f"{held:.2f} GiB were taken: --gpu-memory-utilization {largest} is the most that would start.")
        off = plan.gpu_total.best_bytes - reading.total_bytes
        if abs(off) > GIB // 4:
            sentences.append(
                f"The card there has {reading.total_bytes / GIB:.2f} GiB, this plan's {plan.gpu_total.best_bytes / GIB:.2f}."
            )
    return sentences


def _explain_out_of_memory(_reading: ErrorReading, plan: Plan) -> list[str]:
    rank = plan.ranks[plan.bounding_rank]
    spare = next(line.estimate.best_bytes for line in rank.lines if line.name == "unreserved") / GIB
    when = (
        "CUDA refused an allocation: while loading (weights too large), while profiling, or after the pool was taken "
        "(graphs, sampler warm-up), which gpu_memory_utilization does not cover."
    )
    return [
        when,
        f"This plan has {rank.weights.load.best_bytes / GIB:.2f} GiB of weights and {spare:.2f} GiB spare outside the budget.",
    ]


def _explain_few_blocks(reading: ErrorReading, plan: Plan) -> list[str]:
    had = f"vLLM's pool had {reading.num_blocks:,} blocks for {reading.max_num_seqs:,} sequences"
    return [
        "Full CUDA graphs of layers with states ask for a block of the pool for each of max_num_seqs sequences.",
        f"{had}; this plan's has {plan.pool.num_blocks:,}.",
    ]
