"""Whether a plan uses a calibration, and what it says of it: never without the request naming it, never on another card or era."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.calibration import Calibration, calibrated_card, why_not
from planner.facts import Finding
from planner.gpu_catalog import GpuFacts
from planner.request import PlanRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """The constants that a plan is made with: `calibration` is None for the general ones."""

    gpu: GpuFacts
    model_id: str
    calibration: Calibration | None = None
    findings: tuple[Finding, ...] = ()


def choose(request: PlanRequest, gpu: GpuFacts, calibration: Calibration | None) -> Use:
    """The constants for `request`: those of `calibration` if the request names it and it fits, else the general ones."""
    general = Use(gpu=gpu, model_id=request.model_id)
    if request.calibration is None:
        return general
    if calibration is None or calibration.identity != request.calibration:
        return replace(general, findings=(_not_held(request.calibration, calibration),))
    reason = why_not(calibration, gpu, request.vllm_version)
    if reason is not None:
        return replace(general, findings=(_not_for_this(calibration, reason),))
    is_total_given = request.gpu_memory_bytes is not None
    return Use(
        gpu=gpu if is_total_given else calibrated_card(gpu, calibration),
        model_id=request.model_id,
        calibration=calibration,
        findings=(_calibrated(calibration),),
    )


def _calibrated(calibration: Calibration) -> Finding:
    starts = calibration.starts
    models = ", ".join(dict.fromkeys(start.model_id for start in starts))
    count = "one start" if len(starts) == 1 else f"{len(starts)} starts"
    text = (
        f"Constants measured on {calibration.host} are used (calibration {calibration.identity}: {count} of {models}, "
        f"{calibration.card}, vLLM {calibration.era}). Lines marked measured name it; without it the general ones count."
    )
    return Finding(code="host-calibrated", severity="info", text=text)


def _not_held(named: str, held: Calibration | None) -> Finding:
    here = "no calibration of this card and release is held" if held is None else f"{held.identity} is held"
    text = (
        f"The request's numbers were made with calibration {named}; here {here}. "
        "The general constants are used, so numbers may differ from those that were seen there."
    )
    return Finding(code="calibration-not-held", severity="warning", text=text)


def _not_for_this(calibration: Calibration, reason: str) -> Finding:
    text = f"Calibration {calibration.identity} is not used. {reason} The general constants are used."
    return Finding(code="calibration-not-for-this", severity="warning", text=text)
