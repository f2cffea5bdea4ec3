"""What may be recorded beside an engine's metrics, and where it is published: the probe's tables and KV events."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from live.kv_events import KvEventEndpoints
from live.kv_events_beside import KvEventsBeside
from live.probe_feed import ProbeBeside
from live.recorder import Beside, Extras, sample_all
from planner.facts import PlanError

ENDPOINTS_KEY = "beside"  # of a recording's `about`


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideEndpoints:
    """Where an engine publishes, such as tcp://127.0.0.1:5557; None: it does not, or nobody said where."""

    probe: str | None = None
    kv_events: str | None = None
    kv_replay: str | None = None  # of the KV events: where missed ones are asked for

    def __bool__(self) -> bool:
        return self.probe is not None or self.kv_events is not None

    @classmethod
    def from_fields(cls, fields: Mapping[str, str | None]) -> BesideEndpoints:
        """The endpoints as typed; blank ones are None."""
        return cls(**{name: (text or "").strip() or None for name, text in fields.items()})

    @classmethod
    def from_text(cls, text: str) -> BesideEndpoints:
        """The endpoints that `to_text` wrote; none for anything else."""
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(text, type=cls)
        return cls()

    def to_text(self) -> str:
        """The endpoints as a recording keeps them."""
        return msgspec.json.encode(self).decode()


def open_beside(endpoints: BesideEndpoints) -> tuple[Beside, ...]:
    """Readers of what is published there, all of them or none.

    Raises `PlanError` for an endpoint that is none, or whose host may not be read.
    """
    if endpoints.kv_replay is not None and endpoints.kv_events is None:
        text = "A replay endpoint goes with an endpoint of KV events; give that one too."
        raise PlanError("kv_replay", endpoints.kv_replay, text)
    opened: list[Beside] = []
    try:
        if endpoints.probe is not None:
            opened.append(ProbeBeside(endpoints.probe))
        if endpoints.kv_events is not None:
            events = KvEventEndpoints(endpoint=endpoints.kv_events, replay_endpoint=endpoints.kv_replay)
            opened.append(KvEventsBeside(events))
    except PlanError:
        for each in opened:
            each.close()
        raise
    return tuple(opened)


class BesideSet:
    """What is recorded beside one engine now; it can change while the engine is recorded."""

    def __init__(self, members: Sequence[Beside] = ()) -> None:
        self._lock = threading.Lock()
        self._members = tuple(members)
        self._is_closed = False

    def replace(self, members: Sequence[Beside]) -> None:
        """Record `members` from now on, in place of those before."""
        with self._lock:
            old, self._members = (tuple(members), ()) if self._is_closed else (self._members, tuple(members))
        _close(old)

    def sample(self) -> Extras:
        """What all of them have now; one that fails costs the others nothing."""
        with self._lock:
            return sample_all(self._members)

    def sayings(self) -> tuple[str, ...]:
        """A sentence of each that has something to say, such as that its publisher is not heard."""
        return tuple(text for member in self._members if (text := getattr(member, "text", "")))

    def close(self) -> None:
        """Let all of them go."""
        with self._lock:
            self._is_closed = True
            old, self._members = self._members, ()
        _close(old)


def _close(members: Sequence[Beside]) -> None:
    for member in members:
        with suppress(Exception):  # each gets its turn
            member.close()
