"""How requests are batched when flags leave it open: limits, async scheduling, CUDA graphs; by release and card."""

from __future__ import annotations

from dataclasses import dataclass

from planner.batch_defaults import GEMMA4_LARGEST_ITEM_TOKENS, BatchLimits, BatchQuestion, batch_limits
from planner.graph_sizes import GraphQuestion, capture_sizes, default_mode
from planner.inventory import ModelFacts
from planner.model_defaults import Served, sees_both_ways
from planner.resolution import Question
from planner.runner_choice import Engine, choose_async, concurrent_batches


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How requests are batched."""

    enable_chunked_prefill: bool
    limits: BatchLimits
    async_scheduling: bool
    batches: int
    cudagraph_mode: str
    sizes: tuple[int, ...]


def resolve_schedule(question: Question, served: Served) -> Schedule:
    """How requests are batched for `served`, every decision recorded in the question's ledger."""
    chunked = _chunked_prefill(question, served)
    limits = _limits(question, served, chunked=chunked)
    is_async = _async(question, served.runner)
    batches = concurrent_batches(
        question.version, served.runner, is_async=is_async, pipeline_size=question.flags.pipeline_parallel_size
    )
    mode = _graph_mode(question, served.runner)
    return Schedule(
        enable_chunked_prefill=chunked,
        limits=limits,
        async_scheduling=is_async,
        batches=batches,
        cudagraph_mode=mode,
        sizes=_sizes(question, served, limits, mode),
    )


def takes_whole_prompts(model: ModelFacts) -> bool:
    """Whether prompts cannot be split: attention goes both ways, or all tokens are pooled (config/model.py)."""
    return sees_both_ways(model) or model.architecture == "Qwen2ForProcessRewardModel"


def _chunked_prefill(question: Question, served: Served) -> bool:
    asked, model = question.flags.enable_chunked_prefill, question.model
    if served.runner == "v0":
        default, note = _chunked_in_v0(question, served.max_model_len)
        value = default if asked is None else asked
    elif model.is_encoder_decoder and question.version >= (0, 11, 0):
        value, note = False, "encoder-decoder models do not chunk prompts"
    elif takes_whole_prompts(model):
        value, note = False, "models that attend both ways or judge every step take a prompt whole"
    else:
        value, note = True if asked is None else asked, "on by default for generation"
        if question.version < (0, 12, 0):
            value, note = True, "always on in the V1 engine of this release"
    is_given = asked is not None and asked == value
    return question.ledger.note("enable_chunked_prefill", value, note, is_given=is_given)


def _chunked_in_v0(question: Question, length: int) -> tuple[bool, str]:
    model, flags = question.model, question.flags
    has_window = any(cache.kind == "sliding" for layer in model.layers for cache in layer.caches)
    stays_off = model.is_multimodal or model.is_mla or has_window or flags.enable_lora or flags.speculative_config
    if length > 32768 and not stays_off:
        return True, "V0: on for lengths over 32768"
    return False, "V0: off up to 32768, and for windows, multimodal, MLA, LoRA and speculative decoding"


def _limits(question: Question, served: Served, *, chunked: bool) -> BatchLimits:
    flags, ledger = question.flags, question.ledger
    limits = batch_limits(
        BatchQuestion(
            version=question.version,
            is_v0=served.runner == "v0",
            gpu=question.gpu,
            usage=question.request.usage_context,
            max_model_len=served.max_model_len,
            is_chunked=chunked,
            is_multimodal=question.model.is_multimodal,
            doubles=flags.performance_mode == "throughput",
            least_item_tokens=_least_item_tokens(question),
            seqs=flags.max_num_seqs,
            tokens=flags.max_num_batched_tokens,
        )
    )
    ledger.note("max_num_seqs", limits.max_num_seqs, limits.seqs_note, is_given=flags.max_num_seqs is not None)
    tokens, is_given = limits.max_num_batched_tokens, flags.max_num_batched_tokens is not None
    ledger.note("max_num_batched_tokens", tokens, limits.tokens_note, is_given=is_given)
    _check_draft_slots(question, limits)
    return limits


def _check_draft_slots(question: Question, limits: BatchLimits) -> None:
    """Some drafters take slots of the batch for every sequence: 0.20 to 0.30 refuse when none is left (config/vllm.py)."""
    slots = {"draft_model": 1, "dflash": question.num_speculative_tokens - 1}.get(question.method or "", 0)
    taken = slots * limits.max_num_seqs
    if taken < limits.max_num_batched_tokens or not (0, 20, 0) <= question.version < (0, 31, 0):
        return
    text = (
        f"Drafting takes {slots} slots for each of {limits.max_num_seqs} sequences, which leaves nothing of"
        f" max_num_batched_tokens ({limits.max_num_batched_tokens}) to schedule; raise it, or lower max_num_seqs."
    )
    question.ledger.find("draft-slots", text, is_refusal=True, field_name="max_num_batched_tokens")


def _least_item_tokens(question: Question) -> int:
    """The tokens of one multimodal item where vLLM does not split them: Gemma 4 with two-way attention over images."""
    model = question.model
    sees_whole = model.text_config.get("use_bidirectional_attention") == "vision"
    if model.is_multimodal and model.model_type.startswith("gemma4") and sees_whole:
        return 0 if question.flags.language_model_only else GEMMA4_LARGEST_ITEM_TOKENS
    return 0


def _async(question: Question, runner: Engine) -> bool:
    asked, pipeline_size = question.flags.async_scheduling, question.flags.pipeline_parallel_size
    default, note = choose_async(question.version, runner, method=question.method, pipeline_size=pipeline_size)
    value = default if asked is None or runner == "v0" else asked
    return question.ledger.note("async_scheduling", value, note, is_given=asked is not None and value == asked)


def _graph_mode(question: Question, runner: Engine) -> str:
    flags = question.flags
    if flags.enforce_eager:
        return question.ledger.note("cudagraph_mode", "NONE", "--enforce-eager", is_given=False)
    if flags.cudagraph_mode is not None:
        return question.ledger.note("cudagraph_mode", flags.cudagraph_mode, "", is_given=True)
    is_encoder_decoder = question.model.is_encoder_decoder
    mode = default_mode(question.version, is_v0=runner == "v0", is_encoder_decoder=is_encoder_decoder)
    return question.ledger.note("cudagraph_mode", mode, "the default of this release (-O2)", is_given=False)


def _sizes(question: Question, served: Served, limits: BatchLimits, mode: str) -> tuple[int, ...]:
    flags = question.flags
    sizes = capture_sizes(
        GraphQuestion(
            version=question.version,
            is_v0=served.runner == "v0",
            mode=mode,
            max_num_seqs=limits.max_num_seqs,
            max_num_batched_tokens=limits.max_num_batched_tokens,
            num_speculative_tokens=question.num_speculative_tokens,
            is_datacenter_blackwell=(question.gpu.capability or (0, 0))[0] == 10,
            is_gpt_oss=question.model.architecture == "GptOssForCausalLM",
            is_interactive=flags.performance_mode == "interactivity",
            given_sizes=flags.cudagraph_capture_sizes,
            given_max=flags.max_cudagraph_capture_size,
        )
    )
    note = f"{len(sizes)} sizes from max_num_seqs and max_num_batched_tokens by this release's rule"
    is_given = flags.cudagraph_capture_sizes is not None and bool(sizes)
    return question.ledger.note("cudagraph_capture_sizes", sizes, note, is_given=is_given)
