"""Asks vLLM itself: its classes built on the meta device from a config, with no weights and no card, beside our plan.

The asking happens in a child process of the engine environment, within a time limit. Nothing here imports vLLM.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from live.engine.environment import VLLM_RELEASE, find_engine
from planner.answer import Plan
from planner.facts import PlanError
from planner.gpu_catalog import find_gpu
from planner.inventory import ModelDocuments

DEFAULT_SECONDS = 240.0
_ROOT = Path(__file__).parents[2]
_HOPPER = (9, 0)
_LARGEST_ANSWER_BYTES = 64 * 2**20
# flags that vLLM's engine takes by the same names and that decide what it builds or plans
_FLAGS = (
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "block_size",
    "max_num_seqs",
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "enable_expert_parallel",
    "disable_hybrid_kv_cache_manager",
    "async_scheduling",
    "mamba_cache_dtype",
    "mamba_ssm_cache_dtype",
    "mamba_cache_mode",
    "attention_backend",
    "moe_backend",
    "disable_sliding_window",
    "language_model_only",
)
_DROPPED_PREFIXES = ("VLLM_", "HF_", "HUGGING_FACE_", "PYTHON")  # a person's own engines' settings, and tokens


class OracleError(Exception):
    """vLLM could not be asked, or refused: `state` is "absent", "timed_out", "refused" or "broken"; the text is one sentence."""

    def __init__(self, state: str, text: str) -> None:
        super().__init__(text)
        self.state = state
        self.text = text


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleQuestion:
    """One model as vLLM is to build it. `engine` are vLLM's own arguments by name."""

    id: str
    config_json: str
    hf_quant_config_json: str | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    available_bytes: tuple[int, ...]  # for the KV pool, a number a pipeline stage
    compute_capability: tuple[int, int] = _HOPPER
    engine: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleLayers:
    """Layers that keep the same: vLLM's own spec of one layer, and how many have it."""

    kind: str  # vLLM's class
    num_layers: int
    block_size: int  # tokens
    page_bytes: int
    token_bytes: float  # a token; 0 for a state
    state_bytes: int  # a sequence
    sliding_window: int | None = None  # tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleRank:
    """What rank 0 of one pipeline stage holds."""

    parameter_bytes_by_dtype: dict[str, int]
    buffer_bytes: int
    absorbed_bytes: int  # MLA's copies made after loading
    layers: tuple[OracleLayers, ...]
    num_layers_sharing_kv: int
    kernels: tuple[str, ...] = ()  # quantisation methods with the kernels chosen among those of this build

    @property
    def parameter_bytes(self) -> int:
        """All its parameters."""
        return sum(self.parameter_bytes_by_dtype.values())

    @property
    def kv_bytes_per_token(self) -> float:
        """Over layers whose cache grows with length, window or not."""
        return sum(layers.num_layers * layers.token_bytes for layers in self.layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleGroup:
    """One KV-cache group of vLLM's plan."""

    kind: str
    num_layers: int
    block_size: int
    page_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OraclePool:
    """vLLM's plan of the pool; with `error`, its own words why the model does not fit, and nothing else."""

    error: str | None = None
    num_blocks: int | None = None
    tokens: int | None = None
    max_concurrency: float | None = None
    max_model_len: int | None = None
    groups: tuple[OracleGroup, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleAnswer:
    """What vLLM builds and plans; with `error`, its own words why it does not."""

    id: str
    error: str | None = None
    stage: str | None = None  # where it failed: "config" or "build"
    vllm_version: str | None = None
    model_class: str | None = None
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    ranks: tuple[OracleRank, ...] = ()
    pool: OraclePool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One figure of vLLM's beside the plan's."""

    name: str
    unit: str
    vllm: float
    planned: float
    text: str = ""  # why they differ, where that is known

    @property
    def is_equal(self) -> bool:
        """Whether the two are the same number."""
        return self.vllm == self.planned

    @property
    def error_fraction(self) -> float:
        """The plan's signed error as a fraction of vLLM's figure."""
        return (self.planned - self.vllm) / self.vllm if self.vllm else float(self.planned != 0)


Started = Callable[["subprocess.Popen[bytes]"], None]

_decoder = msgspec.json.Decoder(OracleAnswer)


def question_of(plan: Plan, documents: ModelDocuments) -> OracleQuestion:
    """The question whose answer stands beside `plan`."""
    flags = plan.request.flags
    resolved = {entry.name: entry.value for entry in plan.resolved}
    given = {name: getattr(flags, name) for name in _FLAGS}
    engine = {name: value for name, value in given.items() if value is not None and value != "auto"}
    engine["max_model_len"] = plan.pool.max_model_len
    engine["max_num_batched_tokens"] = resolved["max_num_batched_tokens"]
    if flags.limit_mm_per_prompt:
        engine["limit_mm_per_prompt"] = dict(flags.limit_mm_per_prompt)
    return OracleQuestion(
        id=f"{documents.model_id} tp{flags.tensor_parallel_size} pp{flags.pipeline_parallel_size}",
        config_json=documents.config_json,
        hf_quant_config_json=documents.hf_quant_config_json,
        tensor_parallel_size=flags.tensor_parallel_size,
        pipeline_parallel_size=flags.pipeline_parallel_size,
        available_bytes=tuple(rank.kv_pool.best_bytes for rank in plan.ranks),
        compute_capability=_capability(plan),
        engine=tuple(engine.items()),
    )


def _capability(plan: Plan) -> tuple[int, int]:
    if plan.request.gpu is None:
        return _HOPPER
    return find_gpu(plan.request.gpu).capability or _HOPPER


def ask_vllm(
    questions: Sequence[OracleQuestion], seconds: float = DEFAULT_SECONDS, started: Started | None = None
) -> tuple[OracleAnswer, ...]:
    """VLLM's answers in the questions' order; all of one card. Raises `OracleError` where it cannot be asked.

    `started` is told the child process once it runs, so that another thread can end it.
    """
    found = find_engine()
    if found.state != "ready":
        raise OracleError("absent", found.text)
    if len({question.compute_capability for question in questions}) != 1:
        raise PlanError("questions", len(questions), "Ask for one card at a time: they differ in compute capability.")
    records = [_record(question) for question in questions]
    output = _asked(found.python, json.dumps(records), seconds, started)
    try:
        answers = tuple(_decoder.decode(line) for line in output.splitlines() if line.strip())
    except (msgspec.DecodeError, RecursionError):
        raise OracleError("broken", "vLLM's process answered with what is no answer; ask again.") from None
    if [answer.id for answer in answers] != [question.id for question in questions]:
        raise OracleError("broken", "vLLM's process did not answer every question; ask again.")
    return answers


def ask_about(plan: Plan, documents: ModelDocuments, seconds: float = DEFAULT_SECONDS) -> OracleAnswer:
    """VLLM's answer beside `plan`; a refusal of vLLM's is an `OracleError` with its own words."""
    return ask_one(question_of(plan, documents), seconds)


def ask_one(question: OracleQuestion, seconds: float = DEFAULT_SECONDS, started: Started | None = None) -> OracleAnswer:
    """VLLM's answer to one question; a refusal of vLLM's is an `OracleError` with its own words."""
    (answer,) = ask_vllm([question], seconds, started)
    if answer.error is not None:
        raise OracleError("refused", f"vLLM {VLLM_RELEASE} does not build this model: {answer.error}")
    return answer


def _record(question: OracleQuestion) -> dict[str, Any]:
    record: dict[str, Any] = msgspec.to_builtins(question)
    return record | {"engine": dict(question.engine)}


def _asked(python: Path, text: str, seconds: float, started: Started | None) -> bytes:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED_PREFIXES)}
    process = subprocess.Popen(  # noqa: S603 - our own words
        [str(python), "-m", "live.engine.oracle_child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=_ROOT,
        env=kept | {"PYTHONPATH": str(_ROOT)},
        start_new_session=True,  # its forks end with it
    )
    if started is not None:
        started(process)
    try:
        output, errors = process.communicate(text.encode(), timeout=seconds)
    except subprocess.TimeoutExpired:
        raise OracleError("timed_out", f"vLLM did not answer within {seconds:.0f} s and was stopped.") from None
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode:
        last = errors.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
        raise OracleError("broken", f"vLLM's process ended with status {process.returncode}: {last[0][:300]}")
    if len(output) > _LARGEST_ANSWER_BYTES:
        raise OracleError("broken", "vLLM's answer is too large to read.")
    return output


def _kernel_text(rank: OracleRank) -> str:
    """What a CPU build's choice of kernels does to the weights."""
    padding = next((kernel for kernel in rank.kernels if "Mxfp4" in kernel and "MARLIN" in kernel), None)
    if padding is None:
        return ""
    return f"This build lacks Triton's expert kernels and took {padding.split()[-1]}, which pads; plan with moe_backend=marlin."


def differences(answer: OracleAnswer, plan: Plan) -> tuple[Difference, ...]:
    """Every figure that both give, equal or not, the weights first."""
    return tuple(_differences(answer, plan))


def _differences(answer: OracleAnswer, plan: Plan) -> Iterator[Difference]:
    for rank, (theirs, ours) in enumerate(zip(answer.ranks, plan.ranks, strict=True)):
        of_rank = f" of stage {rank}" if len(answer.ranks) > 1 else ""
        weights = ours.weights
        yield Difference(
            name=f"Parameters{of_rank}",
            unit="bytes",
            vllm=theirs.parameter_bytes,
            planned=weights.parameter_bytes,
            text=_kernel_text(theirs) if theirs.parameter_bytes != weights.parameter_bytes else "",
        )
        yield Difference(name=f"Buffers{of_rank}", unit="bytes", vllm=theirs.buffer_bytes, planned=weights.buffer_bytes)
    pool, planned = answer.pool, plan.pool
    if pool is None or pool.error is not None or pool.num_blocks is None:
        return
    figures = {
        ("KV blocks", "blocks"): (pool.num_blocks, planned.num_blocks),
        ("KV tokens", "tokens"): (pool.tokens, planned.tokens),
        ("Concurrency at the longest length", "requests"): (pool.max_concurrency, planned.max_concurrency),
        ("KV groups", "groups"): (len(pool.groups), len(planned.groups)),
        ("KV block size", "tokens"): (pool.groups[0].block_size, planned.groups[0].block_size),
    }
    for (name, unit), (theirs_value, ours_value) in figures.items():
        yield Difference(name=name, unit=unit, vllm=float(theirs_value or 0), planned=float(ours_value))
