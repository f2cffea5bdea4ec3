"""The cards of an engine's machine as a recording holds them: memory as series, what a card is called as a frame now and then."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import numpy as np

from live.nvml import DetectedGpu, ProcessMemory
from live.recording import Recording, Window

CARDS_FRAME = "nvml_cards"
MOST_CARDS = 64
_LONGEST_LOOK_MS = 60_000  # before the moment: NVML is asked every few seconds, and may take its time
_INDEX = re.compile(r"[0-9]{1,4}")
_LARGEST = "largest_process_bytes"
_NO_PID = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CardName:
    """What stays the same of a card."""

    index: int
    name: str
    reserved_bytes: int | None = None


def series_of(index: int, field: str) -> str:
    """The name of one of a card's series."""
    return f"nvml/{index}/{field}"


def names_to_bytes(gpus: Sequence[DetectedGpu]) -> bytes:
    """The cards' names as a frame."""
    return msgspec.json.encode(
        [CardName(index=gpu.index, name=gpu.name, reserved_bytes=gpu.reserved_bytes) for gpu in gpus]
    )


def names_from_bytes(payload: bytes) -> tuple[CardName, ...]:
    """The names that `names_to_bytes` wrote; none for anything else."""
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(payload, type=tuple[CardName, ...])
    return ()


def holds_cards(recording: Recording) -> bool:
    """Whether the recording tells of any card."""
    return bool(_indices(recording.series_names()))


def recorded_cards(recording: Recording, time_ms: int) -> tuple[DetectedGpu, ...]:
    """The cards at `time_ms`; of processes only the largest is recorded, without its number (0). Empty where none was seen."""
    indices = _indices(recording.series_names())
    names = [series_of(index, field) for index in indices for field in ("used_bytes", "total_bytes", _LARGEST)]
    window = recording.window(names, time_ms - _LONGEST_LOOK_MS, time_ms + 1)
    frame = recording.frame_at(CARDS_FRAME, time_ms)
    known = {each.index: each for each in (() if frame is None else names_from_bytes(frame[1]))}
    found = (_card(window, index, known.get(index)) for index in indices)
    return tuple(card for card in found if card is not None)


def _indices(names: Sequence[str]) -> list[int]:
    parts = [name.split("/") for name in names]
    found = {int(each[1]) for each in parts if len(each) == 3 and each[0] == "nvml" and _INDEX.fullmatch(each[1])}
    return sorted(found)[:MOST_CARDS]


def _card(window: Window, index: int, told: CardName | None) -> DetectedGpu | None:
    used_bytes, total_bytes = (_last(window, index, field) for field in ("used_bytes", "total_bytes"))
    if used_bytes is None or not total_bytes:
        return None
    largest_bytes, reserved_bytes = _last(window, index, _LARGEST), None if told is None else told.reserved_bytes
    return DetectedGpu(
        index=index,
        name="" if told is None else told.name,
        total_bytes=total_bytes,
        used_bytes=used_bytes,
        free_bytes=max(0, total_bytes - used_bytes - (reserved_bytes or 0)),
        reserved_bytes=reserved_bytes,
        compute_capability=None,
        is_mig_enabled=False,
        processes=() if largest_bytes is None else (ProcessMemory(pid=_NO_PID, used_bytes=largest_bytes),),
    )


def _last(window: Window, index: int, field: str) -> int | None:
    numbers = window.series(series_of(index, field))
    known = np.flatnonzero(np.isfinite(numbers))
    return int(numbers[known[-1]]) if len(known) else None
