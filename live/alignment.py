"""Where two recordings' time begins when they are laid over each other: at their starts, at a mark of each, or by the clock."""

from __future__ import annotations

from dataclasses import dataclass

from live.recording import Mark, Recording, Summary
from planner.facts import PlanError


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """Each side is drawn from `first_ms` and `second_ms` on, `lead_ms` before the moment 0, and measured from `…_measured_ms`."""

    first_ms: int
    second_ms: int
    lead_ms: int = 0
    first_measured_ms: int
    second_measured_ms: int


def by_start(first: Recording, second: Recording) -> Alignment:
    """Both from their first ticks on."""
    starts = _span(first)[0], _span(second)[0]
    return Alignment(first_ms=starts[0], second_ms=starts[1], first_measured_ms=starts[0], second_measured_ms=starts[1])


def by_mark(first: Recording, second: Recording, marks: tuple[Mark, Mark]) -> Alignment:
    """Both around a mark of theirs: drawn with the same lead before it, measured from the mark on."""
    starts = _span(first)[0], _span(second)[0]
    lead_ms = max(0, min(mark.time_ms - start for mark, start in zip(marks, starts, strict=True)))
    return Alignment(
        first_ms=marks[0].time_ms - lead_ms,
        second_ms=marks[1].time_ms - lead_ms,
        lead_ms=lead_ms,
        first_measured_ms=marks[0].time_ms,
        second_measured_ms=marks[1].time_ms,
    )


def by_clock(first: Recording, second: Recording) -> Alignment:
    """Both by the time of day: drawn from the earlier start on, measured while both are there."""
    (first_start, first_end), (second_start, second_end) = _span(first), _span(second)
    both_ms = max(first_start, second_start)
    if both_ms > min(first_end, second_end):
        text = "The two recordings share no moment; lay them over each other by their starts or by a mark."
        raise PlanError("alignment", "clock", text)
    start_ms = min(first_start, second_start)
    return Alignment(first_ms=start_ms, second_ms=start_ms, first_measured_ms=both_ms, second_measured_ms=both_ms)


def _span(recording: Recording) -> tuple[int, int]:
    summary: Summary = recording.summary()
    if summary.start_ms is None or summary.end_ms is None:
        text = f"{recording.path.name} holds no tick, so there is nothing to compare."
        raise PlanError("recording", recording.path.name, text)
    return summary.start_ms, summary.end_ms
