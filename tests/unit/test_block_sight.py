"""What a recording shows of an engine's blocks: the probe's tables, what KV events add up to, or neither, by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.probe_publisher import PROBE_FRAME, frame, probed_request

from live.block_sight import BlockWatcher
from live.cache_summary import SUMMARY_KIND, encode_summary, summarize
from live.cached_blocks import CachedBlocks
from live.probe_frames import ProbeFrame, encode_frame
from live.recording import Recording
from live.samples import CacheConfig, EngineIdentity, EngineSample
from live.store import About, Store

START_MS = 1_760_000_000_000


def sample(num_gpu_blocks: int | None = 11, engine: str = "0") -> EngineSample:
    return EngineSample(
        time_unix_ns=0,
        identity=EngineIdentity(model_name="tiny", engine=engine),
        cache_config=CacheConfig(num_gpu_blocks=num_gpu_blocks),
    )


class Written:
    """A recording that a test fills second by second."""

    def __init__(self, path: Path) -> None:
        self.store = Store.create(path, About(source="http://localhost:8000"))
        self.recording = Recording.open(path)

    def tick(self, second: int, *, kind: str = "probe", frame: ProbeFrame | None = None, payload: bytes = b"") -> None:
        time_ms = START_MS + 1000 * second
        numbers = {f"{kind}/step": float(second)} if frame or payload else {"other": 1.0}
        self.store.append(time_ms, numbers, "{}")
        if frame is not None or payload:
            self.store.append_frame(time_ms, kind, payload or encode_frame(frame))  # type: ignore[arg-type]

    def close(self) -> None:
        self.recording.close()
        self.store.close()


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    made = Written(tmp_path / "a.kvscope")
    yield made
    made.close()


def test_the_tables_of_the_last_frame_are_shown(written: Written) -> None:
    written.tick(0, frame=PROBE_FRAME)

    sight = BlockWatcher(written.recording, sample()).look(START_MS + 500, sample())

    assert sight.kind == "tables"
    assert sight.moment is not None
    assert sight.moment.names == {0: "a", 1: "b"}
    assert sight.text == ""


def test_events_of_all_frames_since_the_last_look_are_told(written: Written) -> None:
    watcher = BlockWatcher(written.recording, sample())
    written.tick(0, frame=frame(1, probed_request("a", [1]), probed_request("b", [2])))
    watcher.look(START_MS, sample())
    written.tick(1, frame=frame(2, probed_request("b", [2])))
    written.tick(2, frame=frame(3))

    sight = watcher.look(START_MS + 2000, sample())

    assert [event.text for event in sight.events] == ["a finished: 1 block freed", "b finished: 1 block freed"]


def test_what_happened_is_not_told_for_ever(written: Written) -> None:
    watcher = BlockWatcher(written.recording, sample())
    written.tick(0, frame=frame(1, probed_request("a", [1])))
    watcher.look(START_MS, sample())
    written.tick(1, frame=frame(2))
    written.store.append(START_MS + 8000, {"probe/step": 2.0}, "{}")

    assert watcher.look(START_MS + 1000, sample()).events != ()
    assert watcher.look(START_MS + 8000, sample()).events == ()


def test_a_jump_back_shows_the_tables_of_then(written: Written) -> None:
    watcher = BlockWatcher(written.recording, sample())
    written.tick(0, frame=frame(1, probed_request("a", [1])))
    written.tick(5, frame=frame(2, probed_request("b", [2])))
    watcher.look(START_MS + 5000, sample())

    sight = watcher.look(START_MS + 1000, sample())

    assert sight.moment is not None
    assert sight.moment.step == 1
    assert set(sight.moment.names.values()) == {"a"}


def test_a_probe_that_fell_silent_is_no_longer_shown(written: Written) -> None:
    written.tick(0, frame=PROBE_FRAME)
    written.tick(1)

    assert BlockWatcher(written.recording, sample()).look(START_MS + 1000, sample()).kind == "none"


def test_a_probe_of_another_engine_is_refused_in_a_sentence(written: Written) -> None:
    written.tick(0, frame=PROBE_FRAME)

    sight = BlockWatcher(written.recording, sample(4096)).look(START_MS, sample(4096))

    assert sight.kind == "none"
    assert "belongs to another engine" in sight.text


def test_each_data_parallel_rank_has_its_own_probe(written: Written) -> None:
    written.tick(0, kind="probe/1", frame=replace(PROBE_FRAME, data_parallel_rank=1))

    assert BlockWatcher(written.recording, sample(engine="1")).look(START_MS, sample(engine="1")).kind == "tables"
    assert BlockWatcher(written.recording, sample()).look(START_MS, sample()).kind == "none"


def test_a_frame_that_is_none_is_said(written: Written) -> None:
    written.tick(0, payload=b"no frame")

    sight = BlockWatcher(written.recording, sample()).look(START_MS, sample())

    assert sight.kind == "none"
    assert "no frame of KVScope's probe" in sight.text


def test_without_a_probe_the_events_sum_is_shown(written: Written) -> None:
    written.store.append(START_MS, {f"{SUMMARY_KIND}/num_batches": 3.0}, "{}")
    written.store.append_frame(START_MS, SUMMARY_KIND, encode_summary(summarize(CachedBlocks(num_batches=3))))

    sight = BlockWatcher(written.recording, sample()).look(START_MS + 1000, sample())

    assert sight.kind == "events"
    assert sight.summary is not None
    assert sight.summary.num_batches == 3


def test_a_recording_with_neither_shows_neither(written: Written) -> None:
    written.tick(0)

    assert BlockWatcher(written.recording, sample()).look(START_MS, sample()).kind == "none"
