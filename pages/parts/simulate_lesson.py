"""The first lesson: at which steps to look, and what is seen there. Pure; knows no Streamlit."""

from __future__ import annotations

from dataclasses import dataclass

from pages.parts.language import mark
from planner.block_events import EventKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A step worth a look; `kind` is the event that it shows."""

    step: int
    title: str
    text: str
    kind: EventKind


STOPS = (
    Stop(
        step=0,
        title=mark("Paging"),
        kind="admitted",
        text=mark(
            "r1 brings 18 tokens. It gets five blocks of four tokens: any free ones, one when it is needed. Only its "
            "last block has room to spare, and that is all that paging wastes."
        ),
    ),
    Stop(
        step=2,
        title=mark("Sharing"),
        kind="shared",
        text=mark(
            "r2 begins with the same system prompt. Its first three logical blocks are r1's physical ones (dashed "
            "frame): nothing is computed or stored twice."
        ),
    ),
    Stop(
        step=12,
        title=mark("Preemption"),
        kind="preempted",
        text=mark(
            "The pool is full and r1 needs one more block. The latest request, r3, gives all its blocks back and "
            "waits. They are hatched: free, but what stands in them can still be found."
        ),
    ),
    Stop(
        step=18,
        title=mark("Comeback"),
        kind="resumed",
        text=mark(
            "r2 has finished, so r3 starts over. Six of its blocks are still there: 24 tokens are found in the cache, "
            "and only the rest, whose blocks were given to others meanwhile, is computed again."
        ),
    ),
    Stop(
        step=30,
        title=mark("Cache hit"),
        kind="shared",
        text=mark(
            "r1 and r2 are long gone, but the system prompt's blocks were never needed by others. r5 takes them back "
            "into use."
        ),
    ),
)


def stop_at(step: int) -> Stop:
    """The last stop at or before `step`."""
    return max((stop for stop in STOPS if stop.step <= step), key=lambda stop: stop.step, default=STOPS[0])
