"""Cards in a recording: as NVML told them at a moment, with what was not recorded left open."""

from __future__ import annotations

from pathlib import Path

import pytest

from live.nvml import DetectedGpu, NvmlState, ProcessMemory
from live.nvml_beside import NvmlBeside
from live.recorded_cards import CARDS_FRAME, holds_cards, names_from_bytes, names_to_bytes, recorded_cards
from live.recording import Recording
from live.store import About, Store
from planner.units import GIB

FIRST_MS = 1_760_000_000_000


def gpu(index: int = 0, used_gib: int = 18) -> DetectedGpu:
    return DetectedGpu(
        index=index,
        name="L40S",
        total_bytes=48 * GIB,
        used_bytes=used_gib * GIB,
        free_bytes=(47 - used_gib) * GIB,
        reserved_bytes=GIB,
        compute_capability=(8, 9),
        is_mig_enabled=False,
        processes=(ProcessMemory(pid=41, used_bytes=(used_gib - 1) * GIB),),
    )


def recorded(path: Path, *ticks: tuple[DetectedGpu, ...]) -> Recording:
    store = Store.create(path, About(source="http://x"))
    for place, gpus in enumerate(ticks):
        beside = NvmlBeside(lambda gpus=gpus: NvmlState(kind="ok", gpus=gpus), 3600)
        while not (extras := beside.sample()).numbers and gpus:
            pass
        beside.close()
        store.append(FIRST_MS + 1000 * place, extras.numbers, "")
        for kind, payload in extras.frames:
            store.append_frame(FIRST_MS + 1000 * place, kind, payload)
    store.close()
    return Recording.open(path)


def test_the_cards_of_a_moment_are_those_that_were_seen_then(tmp_path: Path) -> None:
    recording = recorded(tmp_path / "run.kvscope", (gpu(), gpu(1)), (gpu(used_gib=30), gpu(1)))

    first, second = (recorded_cards(recording, FIRST_MS + 1000 * place) for place in (0, 1))

    assert holds_cards(recording)
    assert [card.index for card in first] == [0, 1]
    assert (first[0].used_bytes, second[0].used_bytes) == (18 * GIB, 30 * GIB)
    assert second[0].name == "L40S"
    assert second[0].free_bytes == 17 * GIB
    assert second[0].processes == (ProcessMemory(pid=0, used_bytes=29 * GIB),)


def test_long_after_the_last_look_no_card_is_known(tmp_path: Path) -> None:
    recording = recorded(tmp_path / "run.kvscope", (gpu(),))

    assert recorded_cards(recording, FIRST_MS + 120_000) == ()


def test_a_recording_without_names_still_has_its_numbers(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "old.kvscope", About(source="http://x"))
    store.append(FIRST_MS, {"nvml/0/used_bytes": 5.0 * GIB, "nvml/0/total_bytes": 24.0 * GIB}, "")
    store.close()

    (card,) = recorded_cards(Recording.open(tmp_path / "old.kvscope"), FIRST_MS)

    assert (card.name, card.used_bytes, card.free_bytes, card.processes) == ("", 5 * GIB, 19 * GIB, ())


def test_a_recording_of_another_machine_holds_no_cards(tmp_path: Path) -> None:
    recording = recorded(tmp_path / "run.kvscope", ())

    assert not holds_cards(recording)
    assert recorded_cards(recording, FIRST_MS) == ()


@pytest.mark.parametrize("payload", [b"", b"[1]", b"{}", b'[{"index": "x"}]', b"\xff"])
def test_names_from_elsewhere_are_read_with_care(payload: bytes) -> None:
    assert names_from_bytes(payload) == ()


def test_names_come_back_and_are_written_once() -> None:
    gpus = (gpu(),)
    beside = NvmlBeside(lambda: NvmlState(kind="ok", gpus=gpus), 3600)
    while not (extras := beside.sample()).numbers:
        pass
    beside.close()

    assert extras.frames == ((CARDS_FRAME, names_to_bytes(gpus)),)
    assert names_from_bytes(extras.frames[0][1])[0].name == "L40S"
    assert beside.sample().frames == ()


def test_what_no_recorder_writes_is_no_card(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "odd.kvscope", About(source="http://x"))
    names = ("nvml/" + "9" * 5000, "nvml/\u0663", "nvml/0")
    store.append(
        FIRST_MS, {f"{name}/{field}": float("inf") for name in names for field in ("used_bytes", "total_bytes")}, ""
    )
    store.close()

    assert recorded_cards(Recording.open(tmp_path / "odd.kvscope"), FIRST_MS) == ()
