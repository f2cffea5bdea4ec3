"""What to change, by the constants that one start measured: the planner's own advice, made again with them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.answer import Advice, Plan
from planner.calibration import Calibration
from planner.calibration_evidence import calibrated_start
from planner.facts import PlanError
from planner.inventory import ModelDocuments
from planner.measured_start import MeasuredStart
from planner.planning import answer
from planner.request import PlanRequest

THIS_START = "this-start"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAnswer:
    """The plan with the start's own constants, and what it advises. `longest_tokens`: the length that the advice is for."""

    plan: Plan
    advice: tuple[Advice, ...]
    longest_tokens: int | None = None  # None: for the length as asked


def measured_answer(general: Plan, documents: ModelDocuments, start: MeasuredStart) -> MeasuredAnswer:
    """The request of `general` planned again with the constants of `start`; where it starts, advice for the longest length."""
    learned = calibrated_start(general, start, "")
    calibration = Calibration(host=THIS_START, card=general.gpu_name, era=general.era, starts=(learned,))
    request = replace(general.request, calibration=calibration.identity)
    made, model = answer(request, documents, calibration=calibration)
    longest = model.max_position
    if not made.will_start or longest <= made.pool.max_model_len:
        return MeasuredAnswer(plan=made, advice=made.advice)
    return MeasuredAnswer(
        plan=made, advice=_for_length(request, documents, calibration, longest), longest_tokens=longest
    )


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
