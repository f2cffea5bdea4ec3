"""A replay against a clock that is passed in: speed, pause, seek, gaps, the end."""

from __future__ import annotations

import pytest

from live.recording import Recording
from live.recording_schema import RecordingError
from live.replay import Replay
from live.sample_codec import encode, stamped
from live.samples import EngineIdentity, EngineSample, EngineSnapshot
from live.store import About, Store
from live.watched import SourceError
from planner.facts import PlanError

START = 1_760_000_000_000


class FakeClock:
    now = 10.0

    def __call__(self) -> float:
        return self.now


def snapshot(tick: int) -> EngineSnapshot:
    engine = EngineSample(
        time_unix_ns=0, identity=EngineIdentity(model_name="llama", engine="0"), num_requests_running=float(tick)
    )
    return stamped(EngineSnapshot(time_unix_ns=0, source="http://x", engines=(engine,)), START + 1000 * tick)


@pytest.fixture
def recording(tmp_path):
    store = Store.create(tmp_path / "run.kvscope", About(source="http://x"))
    for tick in range(100):
        encoded = encode(snapshot(tick))
        if 50 <= tick < 60:
            store.append_gap(encoded.time_ms, "refused", "Nothing answers.")
        else:
            store.append(encoded.time_ms, encoded.numbers, encoded.document)
    store.mark(START + 20_000, "note", "hello")
    store.close()
    recording = Recording.open_untrusted(tmp_path / "run.kvscope")
    yield recording
    recording.close()


@pytest.mark.parametrize(("speed", "tick"), [(1.0, 1), (10.0, 10), (60.0, 60)])
def test_it_plays_at_its_speed(recording, speed, tick):
    clock = FakeClock()
    replay = Replay(recording, speed=speed, clock=clock)
    clock.now += 1.0

    assert replay.read() == snapshot(tick)
    assert replay.speed == speed


@pytest.mark.parametrize("speed", [0, 0.5, 61, float("nan")])
def test_a_speed_out_of_range_is_refused(recording, speed):
    with pytest.raises(PlanError) as fault:
        Replay(recording, speed=speed)

    assert "1 to 60" in fault.value.text


def test_a_gap_replays_as_its_state(recording):
    clock = FakeClock()
    replay = Replay(recording, clock=clock)
    clock.now += 55

    with pytest.raises(SourceError) as fault:
        replay.read()

    status = replay.status()
    assert (fault.value.kind, status.text, status.since_ms) == ("refused", "Nothing answers.", START + 50_000)
    assert status.snapshot == snapshot(49)
    assert status.snapshot_age_seconds == pytest.approx(6.0)


def test_a_pause_holds_time_and_play_lets_it_go(recording):
    clock = FakeClock()
    replay = Replay(recording, speed=2, clock=clock)
    clock.now += 5
    replay.pause()
    clock.now += 30
    held = replay.position_ms()
    paused = replay.status()
    replay.play()
    replay.play()
    clock.now += 1

    assert held == START + 10_000
    assert (paused.state, replay.is_paused) == ("paused", False)
    assert replay.position_ms() == START + 12_000


def test_a_paused_replay_still_shows_its_snapshot(recording):
    replay = Replay(recording, clock=FakeClock())
    replay.pause()

    assert replay.read() == snapshot(0)


def test_a_new_speed_goes_on_from_here(recording):
    clock = FakeClock()
    replay = Replay(recording, clock=clock)
    clock.now += 10
    replay.set_speed(20)
    clock.now += 1

    assert replay.position_ms() == START + 30_000


@pytest.mark.parametrize(("asked", "got"), [(START + 40_000, 40), (0, 0), (START * 2, 99)])
def test_seeking_goes_to_the_nearest_time_there_is(recording, asked, got):
    replay = Replay(recording, clock=FakeClock())
    replay.seek(asked)

    assert replay.position_ms() == START + 1000 * got


def test_it_stops_at_the_end_or_begins_again(recording):
    clock = FakeClock()
    stopping, looping = Replay(recording, clock=clock), Replay(recording, clock=clock, at_end="loop")
    clock.now += 105

    assert stopping.position_ms() == START + 99_000
    assert looping.position_ms() == START + 5000


def test_windows_and_marks_end_at_the_position(recording):
    clock = FakeClock()
    replay = Replay(recording, clock=clock)
    clock.now += 30

    window = replay.window(["llama#0/num_requests_running"], seconds=5)

    assert window.numbers.tolist() == [[25, 26, 27, 28, 29, 30]]
    assert [mark.text for mark in replay.marks()] == ["hello"]
    assert replay.marks(seconds=5) == ()


def test_nothing_recorded_is_nothing_to_play(tmp_path):
    Store.create(tmp_path / "empty.kvscope", About(source="x")).close()

    with pytest.raises(RecordingError, match="nothing to play"):
        Replay(Recording.open(tmp_path / "empty.kvscope"))
