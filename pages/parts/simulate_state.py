"""Session state and caches of the two Blocks pages.

Widgets are keyed `sim_<field>`; the fields are those of `SimulationInput`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, cast

import streamlit as st

from pages.parts import simulate_request, state
from pages.parts.language import language, t
from pages.parts.page_state import PageState
from pages.parts.said import said
from pages.parts.simulate_job import SimulationJob
from pages.parts.simulate_request import FILE, FIRST, PLAN, TABLE, SimulationInput, TableRow
from pages.parts.simulate_setup import Setup, goals, setup, start_for, with_config, with_plan
from pages.parts.simulate_v0 import V0Run, run_v0
from pages.parts.simulate_weigh import WeighJob
from pages.parts.step_player import Run, StepPlayer, View
from planner.answer import Plan
from planner.block_codes import ACTIVE, SHARED, ColourBy, decode
from planner.facts import PlanError
from planner.failure_presets import FailureKind, Remedy, failure_preset, remedies
from planner.sequence import SimulatedRequest
from planner.simulator_config import SimulatorConfig

PATIENCE_SECONDS = 1.2  # a short run is waited for, without a progress bar
MAP = "sim_map"  # the key of the block map
COLOURS: tuple[ColourBy, ...] = ("request", "state", "group")
_FIELDS = tuple(field.name for field in fields(SimulationInput))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """An uploaded file's requests; `digest` stands for them."""

    name: str
    digest: str
    requests: tuple[SimulatedRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the form says now and what it makes; `digest` stands for all of it."""

    digest: str
    setup: Setup


# -- the form ---------------------------------------------------------------------------------------------------------


_PAGE = PageState("sim")
key, value, keep, take = _PAGE.key, _PAGE.value, _PAGE.keep, _PAGE.take


def start_page() -> None:
    """Fill the form once a session: from the link when it holds a simulation, else with the first lesson."""
    if value("is_started"):
        return
    keep("is_started", True)
    fill(FIRST)
    keep("colour_by", COLOURS[0])
    text = state.link_extra("sim")
    if text is None:
        return
    try:
        start = _start(simulate_request.workload_of_link(text))
        asked, step = simulate_request.from_link(text, start)
        fill(asked)
        jump(step)
    except PlanError as problem:
        keep(
            "link_problem",
            t(
                "This link's simulation cannot be read: {why} The first lesson is shown instead.",
                why=said(problem.text),
            ),
        )


def take_link_problem() -> str | None:
    """What was wrong with the link's simulation, told once."""
    problem: str | None = take("link_problem")
    return problem


def fill(asked: SimulationInput) -> None:
    """Fill the whole form."""
    for name in _FIELDS:
        keep(name, getattr(asked, name))
    keep("rows_at_start", asked.rows)
    keep("table_turn", (value("table_turn") or 0) + 1)  # a new table, so that the editor forgets its edits


def asked_now() -> SimulationInput:
    """What the form says."""
    held = {name: value(name) for name in _FIELDS}
    return replace(FIRST, **{name: each for name, each in held.items() if each is not None})


def choose_workload() -> None:
    """Callback: start the chosen workload from its own pool and flags, keeping the plan's pool for one's own requests."""
    before = asked_now()
    start = start_for(before.workload)
    plan = plan_now()
    if before.pool == PLAN and plan is not None and before.workload not in simulate_request.FAILURES:
        start = with_plan(start, plan)
    fill(replace(start, seed=before.seed))
    jump(0)


def choose_pool() -> None:
    """Callback: take the plan's pool with its flags, or go back to a toy."""
    asked, plan = asked_now(), plan_now()
    if asked.pool == PLAN and plan is not None:
        fill(with_plan(asked, plan))
    elif asked.pool != PLAN:
        start = start_for(asked.workload)
        names = ("num_gpu_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens", "max_model_len")
        fill(replace(asked, async_scheduling=False, **{name: getattr(start, name) for name in names}))
    jump(0)


def apply_config(config: SimulatorConfig) -> None:
    """Callback: set the flags that a remedy says."""
    fill(with_config(asked_now(), config))
    jump(0)


def hold_trace(trace: Trace | None) -> None:
    """Keep an uploaded trace for this session; None forgets it."""
    keep("trace", trace)


def held_trace() -> Trace | None:
    """The trace that this session uploaded."""
    trace: Trace | None = value("trace")
    return trace


def table_start() -> tuple[TableRow, ...]:
    """The rows that the table's editor starts from."""
    rows: tuple[TableRow, ...] | None = value("rows_at_start")
    return FIRST.rows if rows is None else rows


def plan_now() -> Plan | None:
    """The plan of the Plan page's form; None where there is none."""
    answered = state.answer()
    return None if isinstance(answered, PlanError) else answered.plan


def link_text() -> str | None:
    """The simulation as the link's compact text; None before the page was seen."""
    return _link_of(step_now()) if value("is_started") else None


def _link_of(step: int) -> str:
    asked = asked_now()
    start = _start(asked.workload)
    if asked.workload != TABLE:
        asked = replace(asked, rows=start.rows)
    return simulate_request.to_link(asked, start, step)


def _start(workload: str) -> SimulationInput:
    return _cached_start(workload)


@st.cache_data(max_entries=16, show_spinner=False)
def _cached_start(workload: str) -> SimulationInput:
    return start_for(workload)


# -- the run ----------------------------------------------------------------------------------------------------------


def asked_setup() -> Asked | PlanError:
    """The engine and requests of the form's present values, or the one mistake that stands in the way."""
    asked, trace = asked_now(), held_trace()
    is_file = asked.workload == FILE
    try:
        answered = state.answer() if asked.pool == PLAN else None
        plan, model = (answered.plan, answered.model) if isinstance(answered, state.Answer) else (None, None)
        made = setup(asked, plan, trace.requests if is_file and trace else None, model)
    except PlanError as problem:
        return problem
    parts = (
        asked,
        made.config,
        made.options.step_seconds,
        made.block_bytes,
        trace.digest if is_file and trace else None,
        language(),
    )
    return Asked(digest=hashlib.sha256(repr(parts).encode()).hexdigest()[:16], setup=made)


def job_of(asked: Asked) -> SimulationJob:
    """The job of what is asked; another one that is still under way ends."""
    held: SimulationJob | None = value("job")
    if held is not None and value("job_digest") == asked.digest:
        return held
    if held is not None:
        held.stop()
    job = SimulationJob(asked.setup)
    keep("job", job)
    keep("job_digest", asked.digest)
    return job


def weigh_job_of(asked: Asked) -> WeighJob:
    """The trade-offs of what is asked; another job that is still under way ends."""
    held: WeighJob | None = value("weigh_job")
    if held is not None and value("weigh_digest") == asked.digest:
        return held
    if held is not None:
        held.stop()
    job = WeighJob(asked.setup)
    keep("weigh_job", job)
    keep("weigh_digest", asked.digest)
    return job


def v0_run_of(job: SimulationJob, *, num_cpu_blocks: int, mode: str, has_beams: bool) -> V0Run:
    """The V0 run of a job's requests, kept with the job; raises `PlanError` where V0 would stop."""
    asked = (num_cpu_blocks, mode, has_beams)
    if job.v0 is None or job.v0[0] != asked:
        job.v0 = (asked, run_v0(job.setup, num_cpu_blocks=num_cpu_blocks, mode=mode, has_beams=has_beams))
    return job.v0[1]


def player_of(asked: Asked, job: SimulationJob) -> StepPlayer | None:
    """The player of a finished job; None when it has no step to show."""
    if job.result is None or job.result.timeline.num_steps == 0:
        return None
    if job.player is None:
        run = Run(
            run_id=asked.digest,
            title=job.setup.title,
            timeline=job.result.timeline,
            goals=goals(job.setup.requests, job.setup.config.max_model_len),
        )
        job.player = StepPlayer(run)
    return job.player


@st.cache_data(max_entries=16, show_spinner=False)
def cached_remedies(kind: str, seed: int) -> tuple[Remedy, ...]:
    """The flag changes tried for a failure preset, each simulated anew."""
    return remedies(failure_preset(cast("FailureKind", kind), seed=seed))


# -- the step ---------------------------------------------------------------------------------------------------------


def step_now() -> int:
    """The step that the reader looks at."""
    return int(value("step") or 0)


def jump(step: int) -> None:
    """Move the player to `step` from outside it."""
    keep("step", step)
    keep("jump", (value("jump") or 0) + 1)
    keep("block", None)


def jump_to_row(steps: Sequence[int]) -> None:
    """Callback: a row of the event log was chosen; `steps` are those of its rows."""
    rows = (value("log") or {}).get("selection", {}).get("rows", [])
    if rows and 0 <= rows[0] < len(steps):
        jump(steps[rows[0]])


def view_of(run: Run) -> View:
    """What the reader looks at, held to what the run has."""
    names = run.timeline.request_ids
    chosen = value("selected")
    return View(
        step=min(step_now(), run.last_step),
        jump=value("jump") or 0,
        colour_by=value("colour_by") or COLOURS[0],
        selected=run.timeline.ordinal(chosen) if chosen in names else None,
        held_stretch=value("held") or "",
        link=_link_of(0),
    )


def follow_player() -> None:
    """Callback: the player came to a step."""
    told = _told("step")
    if isinstance(told, dict):
        _follow(told)


def picked_block(run: Run) -> None:
    """Callback: a block was picked; the request that holds it is chosen."""
    told = _told("pick")
    if not isinstance(told, dict):
        return
    _follow(told)
    step, block = min(step_now(), run.last_step), told.get("block")
    if not isinstance(block, int | float) or not 0 <= block < run.timeline.config.num_gpu_blocks:
        return
    state_code, _, owner = decode(int(run.timeline.block_codes(step)[int(block)]))
    keep("block", int(block))
    keep("selected", run.timeline.request_ids[owner] if owner is not None and state_code in {ACTIVE, SHARED} else None)


def chosen_request(run: Run) -> None:
    """Callback: a request was chosen in the list beside the map, or let go."""
    told = _told("choose")
    if not isinstance(told, dict):
        return
    _follow(told)
    ordinal = told.get("request")
    names = run.timeline.request_ids
    is_known = isinstance(ordinal, int | float) and 0 <= ordinal < len(names)
    keep("selected", names[int(cast("float", ordinal))] if is_known else None)
    keep("block", None)


def _told(name: str) -> object:
    return (st.session_state.get(MAP) or {}).get(name)


def _follow(told: dict[str, Any]) -> None:
    """Note the player's step, and which stretch it has."""
    if isinstance(told.get("step"), int | float):
        keep("step", int(told["step"]))
    keep("held", str(told.get("held", "")))
