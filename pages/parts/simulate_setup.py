"""From the form's value to an engine and its requests: presets, drawn, hand-made and uploaded workloads, the plan's pool.

Pure; knows no Streamlit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, cast

from pages.parts.language import mark, t
from pages.parts.said import said
from pages.parts.simulate_request import (
    BURST,
    DRAWN,
    FAILURES,
    FILE,
    FRAGMENTATION,
    LESSON,
    LONG,
    PLAN,
    TABLE,
    SimulationInput,
    TableRow,
    start_of,
)
from planner.active_parameters import active_parameters
from planner.answer import Plan
from planner.block_hashes import Piece
from planner.facts import PlanError
from planner.failure_presets import FailureKind, failure_preset
from planner.gpu_catalog import find_gpu
from planner.inventory import ModelFacts
from planner.sequence import SimulatedRequest
from planner.simulation import SimulationOptions, StepSeconds
from planner.simulator_config import FULL_ATTENTION, KvGroup, SimulatorConfig
from planner.simulator_pool import engine_of_plan
from planner.step_time import FixedStepTime, Roofline
from planner.tiers import OffloadConfig, Tier
from planner.units import GIB
from planner.workload import ArrivalProcess, LengthDistribution, WorkloadSpec, draw_workload
from planner.workload_files import has_times

TOY_BYTES_PER_TOKEN = 131_072  # assumed for a toy pool: an 8B model with 32 layers of 8 bf16 KV heads of 128
_RECOMPUTE_SECONDS_PER_TOKEN = 1 / 20_000  # assumed: prefill of an 8B model on one large card
_MOST_STEPS = 300_000

WORKLOAD_TITLES = {
    LESSON: mark("A first lesson"),
    BURST: mark("Breaks: a burst of long prompts"),
    LONG: mark("Breaks: too many long generations"),
    FRAGMENTATION: mark("Breaks: fragmentation"),
    DRAWN: mark("Drawn from distributions"),
    TABLE: mark("My own requests"),
    FILE: mark("A trace file"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """All that a simulation needs; `notes` say what was left out."""

    title: str
    config: SimulatorConfig
    requests: tuple[SimulatedRequest, ...]
    options: SimulationOptions
    block_bytes: int
    notes: tuple[str, ...] = ()


def start_for(workload: str) -> SimulationInput:
    """Where a workload starts, a failure preset with its own pool and flags."""
    start = start_of(workload)
    if workload not in FAILURES:
        return start
    return with_config(start, failure_preset(cast("FailureKind", workload), seed=start.seed).config)


def with_config(asked: SimulationInput, config: SimulatorConfig) -> SimulationInput:
    """`asked` with the pool and the flags of `config`."""
    shared = {field.name for field in fields(SimulationInput)} & {field.name for field in fields(SimulatorConfig)}
    values: dict[str, Any] = {name: getattr(config, name) for name in shared}
    return replace(asked, **values)


def with_plan(asked: SimulationInput, plan: Plan) -> SimulationInput:
    """`asked` with the plan's pool and the flags as vLLM resolves them; as it was where the plan has no pool."""
    try:
        return replace(with_config(asked, engine_of_plan(plan).config), pool=PLAN, sliding_window=0)
    except PlanError:
        return replace(asked, pool=PLAN)


def setup(
    asked: SimulationInput,
    plan: Plan | None,
    uploaded: Sequence[SimulatedRequest] | None,
    model: ModelFacts | None = None,
) -> Setup:
    """The engine and the requests that `asked` describes; raises `PlanError` at the field that stands in the way.

    `plan` lends its pool, and with `model` the time of a step.
    """
    config, notes, block_bytes = _engine(asked, plan)
    requests = _requests(asked, uploaded)
    return Setup(
        title=WORKLOAD_TITLES[asked.workload],
        config=config,
        requests=requests,
        options=SimulationOptions(
            seed=asked.seed,
            draft_acceptance=asked.draft_acceptance,
            step_seconds=_step_time(asked, plan, model) if has_times(requests) else None,
            offload=_offload(asked, block_bytes),
            max_steps=_MOST_STEPS,
        ),
        block_bytes=block_bytes,
        notes=notes,
    )


def _step_time(asked: SimulationInput, plan: Plan | None, model: ModelFacts | None) -> StepSeconds:
    """The roofline of the plan's card, or a fixed time."""
    if asked.step_time == "fixed":
        return FixedStepTime(asked.step_seconds)
    if asked.pool != PLAN or plan is None or model is None or plan.request.gpu is None:
        text = t("The time of a step follows from the plan's card: take the pool from the plan, or give a fixed time.")
        raise PlanError("step_seconds", None, text)
    rank = plan.ranks[plan.bounding_rank]
    return Roofline.of_card(
        find_gpu(plan.request.gpu),
        weight_bytes=rank.weights.load.best_bytes,
        kv_bytes_per_token=plan.pool.kv_bytes_per_token,
        num_parameters=active_parameters(model) // (len(plan.ranks) * plan.request.flags.tensor_parallel_size),
    )


def goals(requests: Sequence[SimulatedRequest], max_model_len: int) -> tuple[int, ...]:
    """How many tokens each sequence will hold at its end."""
    wholes = ((request.num_prompt_tokens + request.num_output_tokens, request.n) for request in requests)
    return tuple(min(whole, max_model_len) for whole, samples in wholes for _ in range(samples))


def table_requests(rows: Sequence[TableRow]) -> tuple[SimulatedRequest, ...]:
    """The requests of a hand-made table; the first bad row is refused with its number."""
    if not rows:
        raise PlanError("rows", None, t("The table is empty: add a request."))
    requests = []
    for number, row in enumerate(rows, 1):
        try:
            requests.append(_table_request(number, row))
        except PlanError as error:
            raise PlanError(
                "rows", error.value, t("Row {number}: {text}", number=number, text=_lower(said(error.text)))
            ) from error
    return tuple(requests)


def _lower(text: str) -> str:
    """A sentence about request `rN` without naming it, to stand after "Row N:"."""
    start, colon, rest = text.replace("：", ": ").partition(": ")
    return rest if colon and start.startswith((t("Request"), "Request")) else text


def _table_request(number: int, row: TableRow) -> SimulatedRequest:
    if row.prefix and not row.prefix_tokens:
        raise PlanError(
            "rows", number, t("Request r{number}: a shared prefix needs its length in tokens.", number=number)
        )
    piece = Piece(key=f"system prompt {row.prefix}", num_tokens=row.prefix_tokens)
    return SimulatedRequest(
        request_id=f"r{number}",
        arrival_step=row.arrival_step,
        num_prompt_tokens=row.num_prompt_tokens,
        num_output_tokens=row.num_output_tokens,
        priority=row.priority,
        shared_pieces=(piece,) if row.prefix else (),
    )


def _requests(asked: SimulationInput, uploaded: Sequence[SimulatedRequest] | None) -> tuple[SimulatedRequest, ...]:
    if asked.workload in FAILURES:
        return failure_preset(cast("FailureKind", asked.workload), seed=asked.seed).requests
    if asked.workload == FILE:
        if uploaded is None:
            raise PlanError("trace", "not_loaded", t("Choose a trace file: CSV, JSON or JSONL, one request a row."))
        return tuple(uploaded)
    if asked.workload == DRAWN:
        return draw_workload(drawn_spec(asked), seed=asked.seed)
    return table_requests(start_of(LESSON).rows if asked.workload == LESSON else asked.rows)


def drawn_spec(asked: SimulationInput) -> WorkloadSpec:
    """The distributions of a drawn workload."""
    return WorkloadSpec(
        num_requests=asked.num_requests,
        prompt=_lengths(asked, "prompt"),
        output=_lengths(asked, "output"),
        arrivals=ArrivalProcess(kind=cast("Any", asked.arrivals), rate=asked.rate, burst_size=asked.burst_size),
        arrivals_in=cast("Any", asked.arrivals_in),
        num_prefixes=asked.num_prefixes,
        prefix_tokens=asked.prefix_tokens,
        shared_fraction=asked.shared_fraction,
        max_priority=1 if asked.scheduling_policy == "priority" else 0,
        n=asked.n,
        max_model_len=asked.max_model_len,
    )


def _lengths(asked: SimulationInput, side: str) -> LengthDistribution:
    def value(name: str) -> Any:  # of that field's own type
        return getattr(asked, f"{side}_{name}")

    return LengthDistribution(
        kind=value("kind"),
        low=value("low"),
        high=value("high"),
        mean_tokens=value("mean"),
        spread=value("spread"),
        long_mean_tokens=value("long_mean"),
        long_fraction=value("long_fraction"),
        p50_tokens=value("p50"),
        p95_tokens=value("p95"),
        p99_tokens=value("p99"),
    )


def _engine(asked: SimulationInput, plan: Plan | None) -> tuple[SimulatorConfig, tuple[str, ...], int]:
    """The engine, what had to be left out of it, and the bytes of one block."""
    flags = _flags(asked)
    if asked.pool != PLAN:
        window = KvGroup(kind="sliding_window", span_tokens=asked.sliding_window or 1)
        toy = SimulatorConfig(
            num_gpu_blocks=asked.num_gpu_blocks,
            block_size=asked.block_size,
            groups=(FULL_ATTENTION, window) if asked.sliding_window else (FULL_ATTENTION,),
            num_lookahead_tokens=asked.num_speculative_tokens,
            **flags,
        )
        return toy, (), TOY_BYTES_PER_TOKEN * asked.block_size
    if plan is None:
        raise PlanError(
            "pool", PLAN, t("There is no plan to take the pool from: mend it on the Plan page, or set one by hand.")
        )
    planned = engine_of_plan(plan)
    can_cache = planned.config.enable_prefix_caching
    config = replace(planned.config, **flags | {"enable_prefix_caching": asked.enable_prefix_caching and can_cache})
    return config, tuple(finding.text for finding in planned.findings), plan.pool.bytes_per_block


def _flags(asked: SimulationInput) -> dict[str, Any]:
    """The flags that the form has, under the names of `SimulatorConfig`."""
    names = (
        "max_num_seqs", "max_num_batched_tokens", "max_model_len", "enable_prefix_caching", "scheduling_policy",
        "async_scheduling", "enable_chunked_prefill", "long_prefill_token_threshold", "watermark", "num_speculative_tokens",
    )  # fmt: skip
    return {name: getattr(asked, name) for name in names}


def _offload(asked: SimulationInput, block_bytes: int) -> OffloadConfig | None:
    sizes = (
        (mark("host memory"), asked.host_blocks, asked.host_gb_per_second),
        (mark("disk"), asked.disk_blocks, asked.disk_gb_per_second),
    )
    tiers = tuple(
        Tier(
            name=name,
            capacity_bytes=blocks * block_bytes,
            bytes_per_second=speed * 1e9,
            policy=cast("Any", asked.tier_policy),
        )
        for name, blocks, speed in sizes
        if blocks
    )
    if not tiers:
        return None
    return OffloadConfig(
        tiers=tiers,
        block_bytes=block_bytes,
        recompute_seconds_per_token=_RECOMPUTE_SECONDS_PER_TOKEN,
        load_rule=cast("Any", asked.load_rule),
    )


def pool_words(config: SimulatorConfig, block_bytes: int) -> str:
    """The pool in a few words: blocks, tokens, GiB."""
    size = config.num_usable_blocks * block_bytes / GIB
    tokens = config.num_usable_blocks * config.block_size
    return t(
        "{blocks} blocks of {block_size} tokens · {tokens} slots · {size} GiB",
        blocks=f"{config.num_usable_blocks:,}",
        block_size=config.block_size,
        tokens=f"{tokens:,}",
        size=f"{size:.3g}",
    )
