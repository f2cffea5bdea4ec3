"""What calibrating is worth: each start of a card and era predicted with the constants of one start of another model there.

The measure behind the shares in `planner.calibration` and the figures in docs/calibration.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.answer import Plan
from planner.budget import plan
from planner.calibration import CalibratedStart, Calibration, situation_of
from planner.calibration_evidence import calibrated_start
from planner.facts import PlanError
from planner.inventory import ModelFacts
from planner.measured_row import from_row
from planner.measured_start import MeasuredStart
from planner.planning import facts_for
from planner.request import PlanRequest
from planner.truth import TruthRow
from planner.truth_request import documents_for, request_for

TRIAL_HOST = "trial"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One start with its general plan."""

    request: PlanRequest
    model: ModelFacts
    plan: Plan
    start: MeasuredStart
    learned: CalibratedStart

    @property
    def group(self) -> tuple[str, str, int, int, str]:
        """What a calibration is of, and the split that non-torch memory goes by."""
        situation = situation_of(self.plan, self.plan.bounding_rank)
        return (
            self.plan.gpu_name,
            self.plan.era,
            situation.tensor_parallel_size,
            situation.pipeline_parallel_size,
            situation.runner,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One start predicted with the general constants and with those of `num_starts` starts of other models."""

    target: Subject
    num_starts: int
    calibrated: Plan

    def measured_pool_bytes(self) -> int:
        """The pool that the start printed."""
        rank = self.target.start.weakest
        return rank.kv_pool.best_bytes if rank is not None and rank.kv_pool is not None else 0


def subjects(rows: Sequence[TruthRow], grades: str = "AB") -> tuple[Subject, ...]:
    """The rows of a stated release that print a pool and can be planned."""
    found = (_subject(row) for row in rows if row.version is not None and row.grade in grades)
    return tuple(each for each in found if each is not None)


def _subject(row: TruthRow) -> Subject | None:
    try:
        documents = documents_for(row)
        request = request_for(row, documents, str(row.version))
        model = facts_for(request, documents)
        general = plan(request, model)
    except PlanError:
        return None
    start = from_row(row)
    rank = start.weakest
    if rank is None or rank.kv_pool is None or request.flags.kv_cache_memory_bytes is not None:
        return None
    learned = calibrated_start(general, start, "2026-01-01")
    return Subject(request=request, model=model, plan=general, start=start, learned=learned)


def trials_of_one(found: Sequence[Subject]) -> tuple[Trial, ...]:
    """Every ordered pair of starts of different models in one group: the first teaches, the second is predicted."""
    return tuple(
        trial
        for teacher in found
        for target in found
        if (trial := _trial(target, (teacher,))) is not None and _is_other(teacher, target)
    )


def trials_of_all(found: Sequence[Subject]) -> tuple[Trial, ...]:
    """Each start predicted with all starts of other models in its group."""
    made = (_trial(target, tuple(each for each in found if _is_other(each, target))) for target in found)
    return tuple(each for each in made if each is not None)


def _is_other(teacher: Subject, target: Subject) -> bool:
    return teacher.group == target.group and teacher.request.model_id.lower() != target.request.model_id.lower()


def _trial(target: Subject, teachers: Sequence[Subject]) -> Trial | None:
    if not teachers:
        return None
    starts = tuple(teacher.learned for teacher in teachers)
    calibration = Calibration(host=TRIAL_HOST, card=target.plan.gpu_name, era=target.plan.era, starts=starts)
    named = replace(target.request, calibration=calibration.identity)
    try:
        made = plan(named, target.model, calibration)
    except PlanError:
        return None
    return Trial(target=target, num_starts=len(starts), calibrated=made) if made.calibration else None
