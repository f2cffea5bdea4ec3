"""Session state of the Watch page: what is watched, the recording that plays, and what went wrong.

Widgets are keyed `watch_<field>`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import streamlit as st

import live
from live import local_engines, nvml
from live.beside import BesideEndpoints
from live.engine import demo_session
from live.engine.demo_plan import demo_request
from live.engine.demo_process import MODEL_NAME
from live.engine.demo_session import KnownLoad
from live.monitor import Monitor, process_monitor
from live.recorder import Recorder
from live.recording import Recording
from live.recording_schema import RecordingError
from live.recording_upload import open_upload
from live.replay import End, Replay
from pages.parts import state
from pages.parts.page_state import PageState
from planner import planning
from planner.facts import PlanError
from planner.model_catalog import catalogue_ids, config_documents
from planner.startup_log import StartupLog, read_startup_log

FIRST_ADDRESS = "http://localhost:8000"
FIRST_SPEED = 10
FIRST_PLAY_SPEED = 2
_FIRST_PLAY_BEGINS_MS = 15_000  # into the packaged session: what came before is drawn at once
MOST_LISTED = 200
_NVML_SECONDS = 5.0
FIRST_SECONDS = 1.0  # that a press waits for an engine's first answer
_REMEMBERED = "remembered_"
Made = TypeVar("Made")
_ENDPOINT_FIELDS = ("probe", "kv_events", "kv_replay")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A vLLM server found on this machine, and the models it serves."""

    address: str
    models: tuple[str, ...]


_PAGE = PageState("watch")
key, value, keep = _PAGE.key, _PAGE.value, _PAGE.keep


def start_page() -> None:
    """Fill the form once a session, and keep it while other pages are open."""
    forget()
    for field, first in (("address", FIRST_ADDRESS), ("speed", FIRST_SPEED), ("minutes", 15), ("is_paused", False)):
        keep(field, first if value(field) is None else value(field))
    for field in _ENDPOINT_FIELDS:
        keep(field, value(field) or "")
    _first_play()


def _first_play() -> None:
    """Let the project's recorded session play, once a session and only where nothing is watched."""
    is_first, packaged = value("was_opened") is None, packaged_recordings()
    keep("was_opened", True)
    if not is_first or not packaged or replay() is not None or shown_recorder() is not None:
        return
    keep("speed", FIRST_PLAY_SPEED)
    trying(lambda: _begin_replay(Recording.open(packaged[0]), at_end="loop"))
    begun = replay()
    if begun is not None:
        begun.seek(begun.start_ms + _FIRST_PLAY_BEGINS_MS)
        keep("is_first_play", True)


def is_first_play() -> bool:
    """Whether what plays was begun by the page itself, for a reader who has chosen nothing."""
    return bool(value("is_first_play")) and replay() is not None


def problem() -> str | None:
    """The sentence of what the last press could not do."""
    text: str | None = value("problem")
    return text


def trying(action: Callable[[], object]) -> None:
    """Do what a press asks for; what it cannot do is the page's problem, a sentence."""
    keep("problem", None)
    try:
        action()
    except (PlanError, RecordingError) as error:
        keep("problem", error.text)


def remembered(name: str, asked: object, make: Callable[[], Made]) -> Made:
    """What `make` gave for `asked` since the page last ran as a whole: a tick does not work out again what stands still."""
    held: tuple[object, Made] | None = value(_REMEMBERED + name)
    if held is None or held[0] != asked:
        held = (asked, make())
        keep(_REMEMBERED + name, held)
    return held[1]


def forget() -> None:
    """Let all be worked out again that depends on the Plan page's form."""
    for name in ("planned", "compared"):
        keep(_REMEMBERED + name, None)


# -- engines ----------------------------------------------------------------------------------------------------------


def monitor() -> Monitor:
    """The recorders of this process."""
    return process_monitor()


def watch_typed() -> None:
    """Record the engine at the typed address with what is typed beside it; for a callback."""
    typed = BesideEndpoints.from_fields({field: value(field) for field in _ENDPOINT_FIELDS})
    watch(value("address") or "", typed if typed or typed.kv_replay else None)


def watch(address: str, endpoints: BesideEndpoints | None = None) -> None:
    """Record the engine at `address` and show it in place of what plays; None leaves what is beside it as it is."""

    def begin() -> None:
        recorder = monitor().watch(address, endpoints=endpoints)
        recorder.wait_for_first(FIRST_SECONDS)  # so that the page comes with numbers, not with their promise
        show_engine(recorder.address)

    trying(begin)


def show_engine(address: str) -> None:
    """Show the engine that is recorded at `address`."""
    close_replay()
    keep("ended_path", None)
    keep("engine_address", address)


def shown_recorder() -> Recorder | None:
    """The recorder to show: the chosen one, else the first there is."""
    address = value("engine_address")
    chosen = None if address is None else monitor().recorder(address)
    return chosen or next(iter(monitor().recorders()), None)


def end_recording(address: str) -> None:
    """End the recording of the engine at `address`; its file stays."""
    recorder = monitor().recorder(address)
    monitor().unwatch(address)
    if recorder is not None:
        note_end(recorder)


def note_end(recorder: Recorder) -> None:
    """Say that this recording has ended, and offer it for a replay."""
    keep("ended_path", recorder.path)
    keep("recording_to_offer", recorder.path)  # a fragment's press cannot set a widget outside of it


def offer_recording(paths: Sequence[Path]) -> None:
    """Let the list of recordings have a choice that there is: the one that has just ended, else as before, else the first."""
    offered = value("recording_to_offer")
    keep("recording_to_offer", None)
    chosen = offered if offered in paths else value("recording")
    keep("recording", chosen if chosen in paths else next(iter(paths), None))


def mark(recorder: Recorder) -> None:
    """Put the typed note on the time axis."""
    text = (value("note") or "").strip()
    if text:
        trying(lambda: recorder.mark(text[:200]))
        keep("note", "")


def find_engines() -> None:
    """Look for vLLM servers on this machine, and watch the only one; for a callback."""
    own = st.get_option("server.port")
    found = local_engines.find_local_engines(own_ports=() if own is None else (int(own),))
    keep("found", tuple(_found(server.shown, reading.snapshot) for server, reading in found))
    if len(found) == 1:
        watch(found[0][0].shown)


def _found(address: str, snapshot: Any) -> Found:  # an EngineSnapshot, or None
    engines = () if snapshot is None else snapshot.engines
    names = dict.fromkeys(engine.identity.model_name for engine in engines if engine.identity.model_name)
    return Found(address=address, models=tuple(names))


def found_engines() -> tuple[Found, ...] | None:
    """What the last look found; None before the first."""
    found: tuple[Found, ...] | None = value("found")
    return found


# -- recordings -------------------------------------------------------------------------------------------------------


def packaged_recordings() -> tuple[Path, ...]:
    """The recorded sessions that are part of the project."""
    return tuple(sorted((Path(live.__file__).parent / "data").glob("*.kvscope")))


def recordings() -> tuple[Path, ...]:
    """All recordings that can be played: the latest of the folder, then those of the project."""
    return (*monitor().recordings()[:MOST_LISTED], *packaged_recordings())


def replay() -> Replay | None:
    """The recording that plays in this session."""
    held: Replay | None = value("replay")
    return held


def close_replay() -> None:
    """Let the recording that plays go."""
    held = replay()
    if held is not None:
        held.recording.close()
    keep("replay", None)
    keep("is_first_play", False)


def play_chosen() -> None:
    """Play the recording that is chosen in the list; for a callback."""
    path = value("recording")
    if path is not None:
        play(path)


def play(path: Path) -> None:
    """Play the recording at `path`."""
    trying(lambda: _begin_replay(Recording.open(path)))


def play_upload(content: BinaryIO, file_name: str) -> None:
    """Play an uploaded recording, which is checked as a file from elsewhere."""
    trying(lambda: _begin_replay(open_upload(content, file_name)))


def _begin_replay(recording: Recording, at_end: End = "stop") -> None:
    try:
        begun = Replay(recording, speed=float(value("speed") or FIRST_SPEED), at_end=at_end)
    except (RecordingError, PlanError):
        recording.close()
        raise
    close_replay()
    keep("replay", begun)
    keep("is_demo_replay", demo_session.is_of_demo(recording))


def set_speed() -> None:
    """Play at the chosen speed; for a callback."""
    held = replay()
    if held is not None:
        held.set_speed(float(value("speed")))


def seek() -> None:
    """Go to the place of the slider; for a callback."""
    held = replay()
    if held is not None:
        held.seek(held.start_ms + int(value("place") * 1000))


def length_seconds(played: Replay) -> int:
    """How long a recording lasts, in whole seconds and at least one."""
    return max(1, (played.end_ms - played.start_ms) // 1000)


def follow_place(played: Replay) -> None:
    """Put the slider where the recording is; only before it is drawn."""
    keep("place", min(length_seconds(played), (played.position_ms() - played.start_ms) // 1000))


# -- the plan ---------------------------------------------------------------------------------------------------------


def plan_answer() -> state.Answer | PlanError:
    """The plan of the Plan page's form, or why there is none; while a demo engine is shown, that engine's own plan."""
    return _demo_answer() if is_demo_shown() else state.answer()


def is_demo_shown() -> bool:
    """Whether what is shown is a demo engine, live or in a recording."""
    played = replay()
    if played is not None:
        return bool(value("is_demo_replay"))
    recorder = shown_recorder()
    snapshot = None if recorder is None else recorder.status().snapshot
    return snapshot is not None and any(each.identity.model_name == MODEL_NAME for each in snapshot.engines)


@st.cache_data(max_entries=1, show_spinner=False)
def _demo_answer() -> state.Answer:
    request = demo_request()
    documents = config_documents(request.config_json or "", request.model_id)
    plan, model = planning.answer(request, documents)
    return state.Answer(request=request, model=model, documents=documents, digest="demo engine", plan=plan)


def known_load() -> KnownLoad | None:
    """The load of the demo engine that is shown, live or in a recording, with the moment from which its arrivals count."""
    watched = replay() or shown_recorder()
    return demo_session.known_load(watched.recording) if watched is not None and is_demo_shown() else None


@st.cache_data(max_entries=4, show_spinner=False)
def read_log(text: str) -> StartupLog:
    """What a start-up log says."""
    return read_startup_log(text)


def catalogue_id(names: Sequence[str]) -> str | None:
    """The catalogue's model that one of `names` means, by its whole id or the last part of it."""
    wanted = {name.lower().rstrip("/").rsplit("/", 1)[-1] for name in names if name}
    return next((each for each in catalogue_ids() if each.lower().rsplit("/", 1)[-1] in wanted), None)


def plan_for(model_id: str) -> None:
    """Put `model_id` into the Plan page's form, with its card and flags as they are; for a callback."""
    request = state.request_or_first()
    state.fill(replace(request, model_id=model_id, revision=None, config_json=None))
    forget()


@st.cache_data(ttl=_NVML_SECONDS, max_entries=1, show_spinner=False)
def cards() -> nvml.NvmlState:
    """The cards of this machine, asked for every few seconds at most."""
    return nvml.detect()
