"""Session state of the Watch page's fleet: the Prometheus server, the engines it knows, and the past to begin with."""

from __future__ import annotations

from dataclasses import dataclass

from live.fleet import FleetEngine, fleet
from pages.parts import watch_state
from pages.parts.watch_state import keep, value

FIRST_SERVER = "http://localhost:9090"


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """How far back a fleet's engine is read, how fine, and the time that is shown then."""

    seconds: float
    step_seconds: float
    shown_minutes: int


PASTS = {
    "hour": Past(seconds=3600.0, step_seconds=5.0, shown_minutes=60),
    "day": Past(seconds=86_400.0, step_seconds=30.0, shown_minutes=1440),
    "none": Past(seconds=0.0, step_seconds=5.0, shown_minutes=15),
}


def start() -> None:
    """Fill the fields once a session."""
    for field, first in (("fleet_server", FIRST_SERVER), ("fleet_labels", ""), ("fleet_past", "hour")):
        keep(field, first if value(field) is None else value(field))


def engines() -> tuple[FleetEngine, ...]:
    """The engines that the last look found."""
    found: tuple[FleetEngine, ...] = value("fleet_engines") or ()
    return found


def look() -> None:
    """Ask the server for its engines; for a callback."""
    keep("fleet_engines", ())
    keep("fleet_engine", 0)

    def ask() -> None:
        keep("fleet_engines", fleet((value("fleet_server") or "").strip(), value("fleet_labels") or ""))

    watch_state.trying(ask)


def watch_chosen() -> None:
    """Record the chosen engine with its past, and show it; for a callback."""
    known, place = engines(), value("fleet_engine") or 0
    if place >= len(known):
        return
    past = PASTS[value("fleet_past") or "hour"]

    def begin() -> None:
        recorder = watch_state.monitor().watch_fleet(known[place].address, past.seconds, past.step_seconds)
        watch_state.show_engine(recorder.address)
        keep("minutes", past.shown_minutes)
        keep("fleet_place", False)  # the popover has done its part

    watch_state.trying(begin)
