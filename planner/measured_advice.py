"""What to change, by the constants that one start measured: the planner's own advice, made again with them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.answer import Advice, Plan
from planner.calibration import Calibration
from planner.calibration_evidence import calibrated_start, stage_of_rank
from planner.facts import PlanError
from planner.inventory import ModelDocuments
from planner.measured_start import MeasuredStart
from planner.planning import answer
from planner.request import PlanRequest
from planner.units import GIB

THIS_START = "this-start"
_UNEXPLAINED_SHARE = 0.02  # of the card


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAnswer:
    """The plan with the start's own constants, and what it advises. `longest_tokens`: the length that the advice is for."""

    plan: Plan
    advice: tuple[Advice, ...]
    longest_tokens: int | None = None  # None: for the length as asked


def measured_answer(general: Plan, documents: ModelDocuments, start: MeasuredStart) -> MeasuredAnswer:
    """The request of `general` planned again with the constants of `start`; where it starts, advice for the longest length.

    Raises `PlanError` where the pool that the start printed is not what its own constants leave: advice would be for another start.
    """
    learned = calibrated_start(general, start, "")
    calibration = Calibration(host=THIS_START, card=general.gpu_name, era=general.era, starts=(learned,))
    request = replace(general.request, calibration=calibration.identity)
    made, model = answer(request, documents, calibration=calibration)
    _check_explained(made, start)
    longest = model.max_position
    if not made.will_start or longest <= made.pool.max_model_len:
        return MeasuredAnswer(plan=made, advice=made.advice)
    return MeasuredAnswer(
        plan=made, advice=_for_length(request, documents, calibration, longest), longest_tokens=longest
    )


def _check_explained(made: Plan, start: MeasuredStart) -> None:
    rank = start.weakest
    if rank is None or rank.kv_pool is None:
        return
    planned = made.ranks[stage_of_rank(rank, made)].kv_pool
    allowed_bytes = max(_UNEXPLAINED_SHARE * made.gpu_total.best_bytes, (planned.high_bytes - planned.low_bytes) / 2)
    if abs(rank.kv_pool.best_bytes - planned.best_bytes) > allowed_bytes:
        text = (
            f"The printed pool of {rank.kv_pool.best_bytes / GIB:.2f} GiB is not what the other measured terms leave: "
            "the card, its utilisation or the flags are not those of the plan."
        )
        raise PlanError("log", None, text)


def _for_length(
    request: PlanRequest, documents: ModelDocuments, calibration: Calibration, longest: int
) -> tuple[Advice, ...]:
    """What makes the model's longest length start; one piece of advice where it starts as it is."""
    try:
        made, _ = answer(
            replace(request, flags=replace(request.flags, max_model_len=longest)), documents, calibration=calibration
        )
    except PlanError:
        return ()
    if not made.will_start:
        return tuple(each for each in made.advice if each.flag != "max_model_len")
    effect = f"starts: {made.pool.tokens:,} tokens, {made.pool.max_concurrency:.2f} requests of {longest:,} tokens"
    return (Advice(change=f"--max-model-len {longest}", effect=effect, flag="max_model_len", value=longest),)
