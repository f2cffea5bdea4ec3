"""What a page may ask of anything that plays on a time axis: a running engine's recorder and a recording that is replayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from live.recording import Mark, Window
from live.samples import EngineSnapshot
from live.shared import Shared

STARTING = "starting"
OK = "ok"
NOT_VLLM = "not_vllm"
FAILED = "failed"
STALLED = "stalled"
STOPPED = "stopped"
PAUSED = "paused"


class SourceError(Exception):
    """A source gave no snapshot: `kind` names the state, the text is one sentence with the remedy."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


class Source(Protocol):
    """One engine's server. `address` has no user, password or query."""

    @property
    def address(self) -> str: ...

    def read(self) -> EngineSnapshot:
        """The snapshot now; raises `SourceError`, within the source's own limits of time and size."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchStatus:
    """How it stands at `time_ms`. `snapshot` is the last good one, also while `state` is not "ok"."""

    address: str
    time_ms: int
    state: str  # "ok", or the name of what is wrong
    text: str  # one sentence; empty while all is well
    since_ms: int  # when this state began
    snapshot: EngineSnapshot | None
    num_ticks: int
    storage_text: str = ""  # why nothing is being kept, though the engine answers

    @property
    def moment(self) -> tuple[str, int, int]:
        """What all that is drawn of this status depends on: the state, the snapshot and the second."""
        snapshot_ns = 0 if self.snapshot is None else self.snapshot.time_unix_ns
        return self.state, snapshot_ns, self.time_ms // 1000

    @property
    def snapshot_age_seconds(self) -> float | None:
        """How old the snapshot is; None where there is none."""
        return None if self.snapshot is None else self.time_ms / 1e3 - self.snapshot.time_unix_ns / 1e9


class Watched(Protocol):
    """A recorder or a replay. `shared` is for its readers, who draw the same of it."""

    @property
    def shared(self) -> Shared: ...

    def status(self) -> WatchStatus: ...

    def window(self, names: Sequence[str] | None = None, seconds: float = 900.0) -> Window:
        """The last `seconds` of the series `names` (None: all) before now."""
        ...

    def marks(self, seconds: float = 900.0) -> tuple[Mark, ...]:
        """The marks of the last `seconds`."""
        ...
