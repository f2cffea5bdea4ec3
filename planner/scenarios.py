"""Two to four plans side by side: what was asked, each part of the card, what the pool holds; differences marked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from planner.answer import Plan, RankPlan
from planner.facts import PlanError
from planner.log_request import request_of_log
from planner.request import EngineFlags, PlanRequest
from planner.startup_log import read_starts

MOST_SCENARIOS = 4
Origin = Literal["plan", "link", "log", "live"]
Unit = Literal["text", "bytes", "count", "times", "flag"]
Section = Literal["asked", "resolved", "card", "capacity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One plan with a name, where it comes from, and what its source did not say."""

    name: str
    origin: Origin
    plan: Plan
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRow:
    """One line of the table: a value of each scenario, None where it has none."""

    section: Section
    name: str
    unit: Unit
    values: tuple[object, ...]

    @property
    def differs(self) -> bool:
        """Whether the scenarios do not all have the same value."""
        return any(value != self.values[0] for value in self.values[1:])


def compare(scenarios: Sequence[Scenario]) -> tuple[ComparedRow, ...]:
    """All lines of the table, in the order in which a reader meets them."""
    plans = [scenario.plan for scenario in scenarios]
    return (*_asked(plans), *_resolved(plans), *_card(plans), *_capacity(plans))


def _rows(
    plans: Sequence[Plan], section: Section, parts: Sequence[tuple[str, Unit, Callable[[Plan], object]]]
) -> tuple[ComparedRow, ...]:
    return tuple(
        ComparedRow(section=section, name=name, unit=unit, values=tuple(pick(each) for each in plans))
        for name, unit, pick in parts
    )


def _asked(plans: Sequence[Plan]) -> tuple[ComparedRow, ...]:
    basics = _rows(
        plans,
        "asked",
        (
            ("model", "text", lambda plan: plan.request.model_id),
            ("gpu", "text", lambda plan: plan.gpu_name),
            ("num_cards", "count", num_cards),
            ("vllm_version", "text", lambda plan: plan.vllm_version),
            ("other_processes_bytes", "bytes", lambda plan: plan.request.other_processes_bytes),
        ),
    )
    given = [
        ComparedRow(
            section="asked",
            name=field.name,
            unit="flag",
            values=tuple(getattr(plan.request.flags, field.name) for plan in plans),
        )
        for field in fields(EngineFlags)
        if any(getattr(plan.request.flags, field.name) != field.default for plan in plans)
    ]
    return (*basics, *given)


def _resolved(plans: Sequence[Plan]) -> tuple[ComparedRow, ...]:
    """What vLLM fills in, where the scenarios come out differently and the line does not stand above already."""
    shown = {
        field.name
        for field in fields(EngineFlags)
        if any(getattr(plan.request.flags, field.name) != field.default for plan in plans)
    }
    tables = [{item.name: item.value for item in plan.resolved} for plan in plans]
    names = dict.fromkeys(name for table in tables for name in table if name not in shown)
    rows = [
        ComparedRow(section="resolved", name=name, unit="flag", values=tuple(table.get(name) for table in tables))
        for name in names
    ]
    return tuple(row for row in rows if row.differs)


def _card(plans: Sequence[Plan]) -> tuple[ComparedRow, ...]:
    """Each part of the card that bounds the pool, in bytes."""
    ranks = [plan.ranks[plan.bounding_rank] for plan in plans]
    names = dict.fromkeys(line.name for rank in ranks for line in rank.lines)
    parts = [
        ComparedRow(section="card", name=name, unit="bytes", values=tuple(_line(rank, name) for rank in ranks))
        for name in names
    ]
    held = [row for row in parts if any(row.values)]
    total = ComparedRow(
        section="card", name="gpu_total", unit="bytes", values=tuple(plan.gpu_total.best_bytes for plan in plans)
    )
    return (total, *held)


def _line(rank: RankPlan, name: str) -> int | None:
    return next((line.estimate.best_bytes for line in rank.lines if line.name == name), None)


def _capacity(plans: Sequence[Plan]) -> tuple[ComparedRow, ...]:
    return _rows(
        plans,
        "capacity",
        (
            ("will_start", "flag", lambda plan: plan.will_start),
            ("max_model_len", "count", lambda plan: plan.pool.max_model_len),
            ("tokens", "count", lambda plan: plan.pool.tokens),
            ("num_blocks", "count", lambda plan: plan.pool.num_blocks),
            ("max_concurrency", "times", lambda plan: plan.pool.max_concurrency),
            ("estimated_max_model_len", "count", lambda plan: plan.pool.estimated_max_model_len),
            ("bytes_per_block", "bytes", lambda plan: plan.pool.bytes_per_block),
            ("kv_bytes_per_token", "bytes", lambda plan: plan.pool.kv_bytes_per_token),
            ("needed_bytes", "bytes", lambda plan: plan.pool.needed_bytes),
        ),
    )


def num_cards(plan: Plan) -> int:
    """The cards that a plan takes."""
    flags = plan.request.flags
    return flags.tensor_parallel_size * flags.pipeline_parallel_size * flags.data_parallel_size


# -- from a log -------------------------------------------------------------------------------------------------------


def request_of_log_text(text: str, base: PlanRequest) -> tuple[PlanRequest, tuple[str, ...]]:
    """The request of the last start in a log, and what the log does not say, which is then `base`'s."""
    logged = request_of_log(read_starts(text)[-1])
    told = {name for name, _ in logged.fields}
    if "model_id" not in told:
        raise PlanError("log", None, "The log does not name its model; paste it from the first line of the start on.")
    notes = [finding.text for finding in logged.findings]
    if not told & {"gpu", "gpu_memory_bytes"}:
        notes.append(f"The log names no card; the Plan page's is taken: {base.gpu or 'its size'}.")
    if "vllm_version" not in told:
        notes.append(f"The log tells no release; the Plan page's is taken: {base.vllm_version}.")
    return logged.apply(base), tuple(dict.fromkeys(notes))
