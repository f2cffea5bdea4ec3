"""Which calibration a request of the form names: the one held for its card and release, the one that a link named, or none.

Knows no Streamlit: what the reader chose comes in as values.
"""

from __future__ import annotations

from live.calibration_store import CalibrationStore, process_store
from planner.budget import card_of
from planner.calibration import Calibration, why_not
from planner.facts import PlanError
from planner.request import PlanRequest
from planner.versions import era_of, parse_version


def held_for(request: PlanRequest, store: CalibrationStore | None = None) -> Calibration | None:
    """The calibration held for the card and era of `request`; None where there is none, or the file cannot be read."""
    try:
        era = era_of(parse_version(request.vllm_version)).label
        gpu = card_of(request)
        found = (store or process_store()).of(gpu.name, era)
    except PlanError:
        return None
    return found if found is not None and why_not(found, gpu, request.vllm_version) is None else None


def named(identity: str | None, store: CalibrationStore | None = None) -> Calibration | None:
    """The calibration of that name, None where it is not held."""
    try:
        return None if identity is None else (store or process_store()).named(identity)
    except PlanError:
        return None


def choose(request: PlanRequest, *, is_used: bool, linked: str | None) -> str | None:
    """The name that `request` gives: a link's own while it is not held or fits, else what is held; None when switched off."""
    if not is_used:
        return None
    if linked is not None:
        brought = named(linked)
        if brought is None or _fits(brought, request):
            return linked
    held = held_for(request)
    return None if held is None else held.identity


def _fits(calibration: Calibration, request: PlanRequest) -> bool:
    try:
        return why_not(calibration, card_of(request), request.vllm_version) is None
    except PlanError:
        return False
