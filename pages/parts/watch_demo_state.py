"""Session state of the Watch page's demo engine: which load is chosen, and whether this session waits to see it."""

from __future__ import annotations

from live.engine.demo_plan import demo_request
from live.engine.demo_session import DemoSession, SessionStatus, process_demo
from pages.parts import state, watch_state
from pages.parts.watch_state import keep, value

FIRST_LOAD = "tour"


def demo() -> DemoSession:
    """The demo engine of this process."""
    return process_demo()


def chosen_load() -> str:
    """The load that is chosen, the tour at first."""
    if value("demo_load") is None:
        keep("demo_load", FIRST_LOAD)
    return str(value("demo_load"))


def start() -> None:
    """Start the demo engine, and show it as soon as it answers; for a callback."""
    keep("demo_is_awaited", True)
    watch_state.trying(lambda: demo().start(chosen_load()))


def run_load() -> None:
    """Begin the chosen load, and show the engine; for a callback."""
    watch_state.trying(lambda: demo().run_load(chosen_load()))
    show()


def show() -> None:
    """Show the demo engine; for a callback."""
    address = demo().status().address
    if address is not None:
        watch_state.show_engine(address)


def stop() -> None:
    """End the demo engine with its recording; for a callback."""
    keep("demo_is_awaited", False)
    address = demo().status().address
    recorder = None if address is None else watch_state.monitor().recorder(address)
    if recorder is not None:
        watch_state.note_end(recorder)
    demo().stop()


def follow() -> None:
    """Show the demo engine as soon as it is watched, where this session has waited for it; before the page is drawn."""
    if value("demo_is_awaited") and demo().status().address is not None:
        keep("demo_is_awaited", False)
        show()


def is_shown(status: SessionStatus) -> bool:
    """Whether the page shows the demo engine that runs."""
    recorder = watch_state.shown_recorder()
    return watch_state.replay() is None and recorder is not None and recorder.address == status.address


def plan() -> None:
    """Put the demo engine's request into the Plan page's form; for a callback."""
    state.fill(demo_request())
    watch_state.forget()
