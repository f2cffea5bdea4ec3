"""One watched engine at this moment, with all that the page's parts tell of it: made once a tick, shared by what is drawn."""

from __future__ import annotations

from dataclasses import dataclass

from live.recording import Recording, Window
from live.samples import EngineIdentity, EngineSample, EngineSnapshot
from live.watched import Watched, WatchStatus
from pages.parts import watch_expected, watch_plan, watch_prediction, watch_state
from pages.parts.watch_evidence import EVIDENCE_SECONDS, Evidence, evidence, watched_names
from pages.parts.watch_expected import NEEDED_BLOCKS, Expectation, KnownCurve, Points
from pages.parts.watch_plan import Planned
from pages.parts.watch_prediction import HeldTokens
from planner.answer import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The engine's sample, the last minutes in numbers, the plan of its model where there is one, and the load where it is known."""

    status: WatchStatus
    snapshot: EngineSnapshot
    sample: EngineSample
    window: Window
    evidence: Evidence
    planned: Planned | None
    held: HeldTokens | None
    known: KnownCurve | None

    @property
    def plan(self) -> Plan | None:
        """The plan of the engine's model."""
        return None if self.planned is None else self.planned.plan


def series_names(sample: EngineSample) -> tuple[str, ...]:
    """The series that the page reads of an engine."""
    return (*watched_names(sample.identity), NEEDED_BLOCKS)


def recording_of(watched: Watched) -> Recording | None:
    """The recording behind what is watched; None for a source that keeps none."""
    found: Recording | None = getattr(watched, "recording", None)
    return found


def sample_of(status: WatchStatus) -> EngineSample | None:
    """The engine that is looked at, of those that one server has."""
    if status.snapshot is None or not status.snapshot.engines:
        return None
    return status.snapshot.engines[min(watch_state.value("engine") or 0, len(status.snapshot.engines) - 1)]


def seen_of(watched: Watched, status: WatchStatus) -> Seen | None:
    """What is seen at `status`; None before the first sample."""
    sample, snapshot = sample_of(status), status.snapshot
    if sample is None or snapshot is None:
        return None
    window, facts = watched.shared.once(
        ("seen", status.moment, sample.identity), lambda: _measured(watched, sample.identity, series_names(sample))
    )
    return Seen(
        status=status,
        snapshot=snapshot,
        sample=sample,
        window=window,
        evidence=facts,
        planned=watch_plan.planned_now(sample, snapshot),
        held=watch_prediction.held_tokens(sample, facts.hit_fraction),
        known=watch_expected.known_curve(recording_of(watched), sample, status.time_ms),
    )


def _measured(watched: Watched, identity: EngineIdentity, names: tuple[str, ...]) -> tuple[Window, Evidence]:
    window = watched.window(names, EVIDENCE_SECONDS)
    return window, evidence(window, identity)


def expectation_of(seen: Seen) -> Expectation | None:
    """What is expected of the last minutes; its last point is the present one."""
    points = Points(time_ms=seen.window.time_ms.astype(float), series=seen.window.series, sample=seen.sample)
    return watch_expected.expectation(points, seen.known, seen.held)
