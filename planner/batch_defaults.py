"""Default batch limits: `max_num_seqs` and `max_num_batched_tokens` by release, card and usage context."""

from __future__ import annotations

from dataclasses import dataclass

from planner.facts import PlanError
from planner.gpu_catalog import GpuFacts
from planner.request import UsageContext
from planner.units import GIB
from planner.versions import Version

# Gemma 4 sees an image or a video whole: 32 frames of 70 tokens and 8 around them are its largest item (gemma4_mm.py).
GEMMA4_LARGEST_ITEM_TOKENS = 32 * (70 + 2 + 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """The two limits and why each has its value."""

    max_num_seqs: int
    max_num_batched_tokens: int
    seqs_note: str
    tokens_note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchQuestion:
    """What the limits depend on; `seqs` and `tokens` are the user's, None when left to vLLM."""

    version: Version
    is_v0: bool
    gpu: GpuFacts
    usage: UsageContext
    max_model_len: int
    is_chunked: bool
    is_multimodal: bool
    doubles: bool  # performance_mode=throughput
    least_item_tokens: int  # a multimodal item that must fit in one batch, 0 when none must
    seqs: int | None
    tokens: int | None


def batch_limits(question: BatchQuestion) -> BatchLimits:
    """The limits in force; raises `PlanError` with vLLM's text when the two do not go together."""
    limits = _limits_of_v0(question) if question.is_v0 else _limits_of_v1(question)
    _check(limits, question)
    return limits


def _check(limits: BatchLimits, question: BatchQuestion) -> None:
    seqs, tokens = limits.max_num_seqs, limits.max_num_batched_tokens
    if tokens < question.max_model_len and not question.is_chunked:
        text = (
            f"max_num_batched_tokens ({tokens}) is smaller than max_model_len ({question.max_model_len}). This effectively "
            "limits the maximum sequence length to max_num_batched_tokens and makes vLLM reject longer sequences. Please "
            "increase max_num_batched_tokens or decrease max_model_len."
        )
        raise PlanError("max_num_batched_tokens", tokens, text)
    if tokens < seqs:
        text = (
            f"max_num_batched_tokens ({tokens}) must be greater than or equal to max_num_seqs ({seqs}); raise the one or "
            "lower the other."
        )
        raise PlanError("max_num_batched_tokens", tokens, text)


def _limits_of_v0(question: BatchQuestion) -> BatchLimits:
    tokens = 2048 if question.is_chunked else max(question.max_model_len, 2048)
    if question.is_multimodal:
        tokens = max(tokens, 5120)
    return BatchLimits(
        max_num_seqs=question.seqs or 256,
        max_num_batched_tokens=question.tokens or tokens,
        seqs_note="256 in the V0 engine",
        tokens_note="V0: 2048 with chunked prefill, else max_model_len",
    )


def card_tier(gpu: GpuFacts, version: Version, usage: UsageContext) -> tuple[int, int, str]:
    """Batched tokens, sequences and the tier's name (`get_batch_defaults`, engine/arg_utils.py)."""
    is_server = usage == "api_server"
    memory = gpu.driver_total_bytes or gpu.total.best_bytes
    names = " ".join((gpu.name, *gpu.nvml_names)).lower()
    if version >= (0, 28, 0) and memory >= 160 * GIB:
        return 16384, 1024, "a card of 160 GiB or more"
    is_held_back = "a100" in names and version >= (0, 9, 0)
    is_held_back |= gpu.capability == (12, 1)  # GB10: NVML gave no memory up to 0.32, an explicit exception since
    # An AMD APU: amdsmi tells the BIOS's carve-out, not the shared memory that PyTorch sees (platforms/rocm.py, 0.27.1).
    is_held_back |= gpu.vendor == "AMD" and gpu.is_unified_memory and version >= (0, 27, 0)
    if memory >= 70 * GIB and not is_held_back:
        return 8192 if is_server else 16384, 1024, "a card of 70 GiB or more"
    return 2048 if is_server else 8192, 256, "a smaller card (or A100, GB10)"


def _limits_of_v1(question: BatchQuestion) -> BatchLimits:
    tier_tokens, tier_seqs, tier = card_tier(question.gpu, question.version, question.usage)
    doubles = question.doubles and question.version >= (0, 17, 0)
    factor, doubled = (2, ", doubled by performance_mode throughput") if doubles else (1, "")
    tokens_note = f"{tier_tokens} for {tier} and {question.usage}{doubled}"
    seqs_note = f"{tier_seqs} for {tier}{doubled}"
    tokens, seqs = question.tokens or tier_tokens * factor, question.seqs or tier_seqs * factor
    if question.tokens is None:
        tokens, tokens_note = _adapted_tokens(question, tokens, seqs, tokens_note)
    if question.seqs is None and question.version >= (0, 10, 0) and tokens < seqs:
        seqs, seqs_note = tokens, "not more than max_num_batched_tokens"
    return BatchLimits(
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        seqs_note="asked for" if question.seqs else seqs_note,
        tokens_note="asked for" if question.tokens else tokens_note,
    )


def _adapted_tokens(question: BatchQuestion, tokens: int, seqs: int, note: str) -> tuple[int, str]:
    length = question.max_model_len
    if not question.is_chunked and length > tokens:
        tokens, note = length, "max_model_len, without chunked prefill"
    if question.version >= (0, 22, 0) and question.least_item_tokens > tokens:
        tokens, note = question.least_item_tokens, "raised to one multimodal item, which is not split"
    if question.version >= (0, 12, 0) and seqs * length < tokens:
        tokens, note = seqs * length, "max_num_seqs x max_model_len"
    return tokens, note
