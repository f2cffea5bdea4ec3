"""Session state of the comparison of two recordings: which ones there are, which are chosen, and their open files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from live.compare_recordings import engine_keys
from live.recording import Recording
from live.recording_schema import RecordingError
from pages.parts import watch_state
from pages.parts.watch_state import keep, value

SIDES = ("A", "B")


def field(side: str, part: str) -> str:
    """The name of a widget's field of one side."""
    return f"compare_{side}_{part}"


def choices() -> tuple[Path, ...]:
    """What can be compared: what is recorded now, what plays, and the recordings of the list."""
    replay = watch_state.replay()
    running = [recorder.path for recorder in watch_state.monitor().recorders()]
    playing = [] if replay is None else [replay.recording.path]
    return tuple(dict.fromkeys([*running, *playing, *watch_state.recordings()]))


def is_running(path: Path) -> bool:
    """Whether the recording is being written now."""
    return any(recorder.path == path for recorder in watch_state.monitor().recorders())


def fill(paths: Sequence[Path]) -> None:
    """Choose two where the kept choice is gone, so before the widgets are drawn: the first two that hold an engine's series."""
    kept = [value(field(side, "path")) for side in SIDES]
    if not all(path in paths for path in kept):
        offered = list(islice(filter(_holds_series, paths), len(SIDES))) or list(paths[: len(SIDES)])
        kept = [path if path in paths else offered[min(place, len(offered) - 1)] for place, path in enumerate(kept)]
    for side, path in zip(SIDES, kept, strict=True):
        keep(field(side, "path"), path)
    keep("compare_by", value("compare_by") or "start")


def _holds_series(path: Path) -> bool:
    try:
        with opened(path) as recording:
            return bool(engine_keys(recording))
    except RecordingError:
        return False


def hold(name: str, options: Sequence[object]) -> None:
    """Keep a widget's choice where it still is one of `options`, else the first; before the widget is drawn."""
    chosen = value(name)
    keep(name, chosen if chosen in options else options[0])


@contextmanager
def opened(path: Path) -> Iterator[Recording]:
    """The recording at `path`: the one that is open already, else one that is closed afterwards."""
    replay = watch_state.replay()
    if replay is not None and replay.recording.path == path:
        yield replay.recording
        return
    for recorder in watch_state.monitor().recorders():
        if recorder.path == path:
            yield recorder.recording
            return
    recording = Recording.open(path)
    try:
        yield recording
    finally:
        recording.close()
