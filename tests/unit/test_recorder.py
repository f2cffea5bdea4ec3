"""The recorder with a clock that is passed in: states, gaps, restarts, time that jumps, storage that fails."""

from __future__ import annotations

import itertools
import sqlite3
import threading
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from live.alert_rules import AlertRule
from live.recorder import Clock, Extras, Recorder
from live.recording import Recording
from live.replay import snapshots
from live.samples import EngineIdentity, EngineSample, EngineSnapshot
from live.store import About, Store
from live.watched import SourceError
from planner.facts import PlanError

WALL = 1_760_000_000.0


@dataclass
class FakeTime:
    wall: float = WALL
    monotonic: float = 50.0

    def pass_(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds

    def clock(self) -> Clock:
        return Clock(wall=lambda: self.wall, monotonic=lambda: self.monotonic)


def snapshot(
    model: str = "llama", tokens: float = 0.0, version: str = "0.32.0", started: float | None = None, engines: int = 1
) -> EngineSnapshot:
    samples = tuple(
        EngineSample(
            time_unix_ns=1,
            identity=EngineIdentity(model_name=model, engine=str(number)),
            kv_usage_fraction=0.5,
            generation_tokens=tokens,
        )
        for number in range(engines)
    )
    return EngineSnapshot(
        time_unix_ns=1,
        source="http://localhost:8000",
        engines=samples,
        vllm_version=version,
        process_start_unix_seconds=started,
    )


@dataclass
class FakeSource:
    answers: list[EngineSnapshot | Exception] = field(default_factory=list)
    address: str = "http://localhost:8000"

    def read(self) -> EngineSnapshot:
        answer = self.answers.pop(0) if self.answers else snapshot()
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class Bench:
    time: FakeTime
    source: FakeSource
    recorder: Recorder
    path: Path

    def play(self, *answers: EngineSnapshot | Exception) -> list[str]:
        """The state after each answer, a second apart."""
        states = []
        for answer in answers:
            self.source.answers.append(answer)
            self.time.pass_(1)
            states.append(self.recorder.tick().state)
        return states

    def marks(self) -> list[tuple[str, str]]:
        return [(mark.kind, mark.text) for mark in self.recorder.marks()]


@pytest.fixture
def bench(tmp_path):
    time, source, path = FakeTime(), FakeSource(), tmp_path / "run.kvscope"
    recorder = Recorder(source, Store.create(path, About(source=source.address)), clock=time.clock())
    yield Bench(time, source, recorder, path)
    recorder.stop()


REFUSED = SourceError("refused", "Nothing answers.")


def test_a_recorder_begins_in_a_named_state(bench):
    status = bench.recorder.status()

    assert (status.state, status.snapshot, status.num_ticks) == ("starting", None, 0)
    assert status.snapshot_age_seconds is None


def test_a_tick_is_on_disk_when_it_returns(bench):
    bench.play(snapshot(tokens=7))

    with closing(sqlite3.connect(f"file:{bench.path}?mode=ro", uri=True)) as connection:
        assert connection.execute("SELECT count(*) FROM tick").fetchone()[0] == 1


def test_a_failure_is_a_state_and_the_next_answer_ends_it(bench):
    states = bench.play(snapshot(), REFUSED, SourceError("timed_out", "Slow."), snapshot())

    assert states == ["ok", "refused", "timed_out", "ok"]
    gaps = bench.recorder.recording.gaps()
    assert [(gap.state, gap.end_ms - gap.start_ms) for gap in gaps] == [("refused", 1000), ("timed_out", 1000)]


def test_a_gap_begins_when_the_engine_was_asked_that_gave_no_answer(bench):
    bench.play(snapshot())

    def slow() -> EngineSnapshot:
        bench.time.pass_(2)
        raise SourceError("timed_out", "Slow.")

    bench.source.read, answers = slow, bench.source.read
    bench.time.pass_(1)
    asked_ms = bench.recorder.now_ms()
    bench.recorder.tick()
    bench.source.read = answers
    bench.play(snapshot())

    (gap,) = bench.recorder.recording.gaps()
    assert (gap.state, gap.start_ms, gap.end_ms) == ("timed_out", asked_ms, asked_ms + 3000)


def test_a_state_is_dated_from_its_first_tick(bench):
    bench.play(snapshot(), REFUSED, REFUSED, REFUSED)

    status = bench.recorder.status()

    assert status.since_ms == int((WALL + 2) * 1000)
    assert status.snapshot_age_seconds == pytest.approx(3.0)


def test_the_last_good_snapshot_stays_during_a_failure(bench):
    bench.play(snapshot(tokens=7), REFUSED)

    assert bench.recorder.status().snapshot.engines[0].generation_tokens == 7


def test_a_server_without_vllm_metrics_is_named(bench):
    assert bench.play(replace(snapshot(), engines=())) == ["not_vllm"]


def test_an_unforeseen_error_does_not_end_the_recording(bench):
    assert bench.play(RuntimeError("secret token"), snapshot()) == ["failed", "ok"]
    assert "secret" not in bench.recorder.recording.gaps()[0].text


def test_an_answer_that_cannot_be_kept_does_not_end_the_recording(bench):
    assert bench.play(snapshot(model="half a sign \ud800"), snapshot()) == ["failed", "ok"]


@pytest.mark.parametrize(
    ("first", "second", "kinds"),
    [
        (snapshot(tokens=9), snapshot(tokens=10), []),
        (snapshot(tokens=9), snapshot(tokens=2), ["restarted"]),
        (snapshot(started=1.0), snapshot(started=2.0), ["restarted"]),
        (snapshot(tokens=9, started=1.0), snapshot(tokens=2, started=2.0), ["restarted"]),
        (snapshot(model="a", tokens=9), snapshot(model="b", tokens=2), ["model_changed"]),
        (snapshot(version="0.31.0"), snapshot(version="0.32.0"), ["version_changed"]),
        (snapshot(engines=1), snapshot(engines=2), ["engines_changed"]),
    ],
)
def test_what_changed_is_marked(bench, first, second, kinds):
    bench.play(first, second)

    assert [kind for kind, _ in bench.marks()] == kinds


def test_a_restart_behind_a_gap_is_still_noticed(bench):
    bench.play(snapshot(tokens=900), REFUSED, REFUSED, snapshot(tokens=3))

    assert bench.marks() == [("restarted", "The engine restarted: generation_tokens fell.")]


def test_time_never_goes_back_when_the_wall_clock_is_set_back(bench):
    bench.play(snapshot())
    bench.time.wall -= 3600
    bench.play(snapshot(), snapshot())

    times = bench.recorder.recording.times().tolist()

    assert [later - earlier for earlier, later in itertools.pairwise(times)] == [1000, 1000]


def test_a_machine_that_slept_leaves_a_gap(bench):
    bench.play(snapshot())
    bench.time.wall += 600
    bench.play(snapshot())

    (gap,) = bench.recorder.recording.gaps()

    assert (gap.state, gap.end_ms - gap.start_ms) == ("recorder_stopped", 600_000)


def test_two_ticks_in_one_millisecond_are_both_kept(bench):
    bench.recorder.tick()
    bench.recorder.tick()

    assert len(bench.recorder.recording.times()) == 2


def test_storage_that_fails_is_said_while_the_engine_is_still_shown(bench):
    with closing(sqlite3.connect(bench.path)) as other:
        other.execute("CREATE TRIGGER t BEFORE INSERT ON tick BEGIN SELECT RAISE(ABORT, 'disk full'); END")
    bench.play(snapshot(tokens=5))
    failing = bench.recorder.status()
    with closing(sqlite3.connect(bench.path)) as other:
        other.execute("DROP TRIGGER t")
    bench.play(snapshot(tokens=6))

    assert failing.state == "ok"
    assert "disk full" in failing.storage_text
    assert failing.snapshot.engines[0].generation_tokens == 5
    assert not bench.recorder.status().storage_text


def test_notes_stand_on_the_time_axis(bench):
    bench.play(snapshot())
    bench.recorder.mark("changed max_num_seqs")
    bench.recorder.mark("usage above 95 %", "alert")

    assert bench.marks() == [("note", "changed max_num_seqs"), ("alert", "usage above 95 %")]


def test_what_is_beside_is_kept_and_a_failing_one_costs_nothing(tmp_path):
    closed = []

    class Broken:
        def sample(self) -> Extras:
            raise OSError

        def close(self) -> None:
            closed.append("broken")
            raise OSError

    class Cards:
        def sample(self) -> Extras:
            return Extras(numbers={"gpu0/used_bytes": 5e9}, frames=(("tables", b"abc"),))

        def close(self) -> None:
            closed.append("cards")

    path = tmp_path / "run.kvscope"
    store = Store.create(path, About(source="x"))
    recorder = Recorder(FakeSource(), store, clock=FakeTime().clock(), beside=(Broken(), Cards()))
    recorder.tick()
    window, frames = recorder.window(["gpu0/used_bytes"]), list(recorder.recording.frames("tables"))
    recorder.stop()

    assert window.numbers.tolist() == [[5e9]]
    assert [payload for _, payload in frames] == [b"abc"]
    assert closed == ["broken", "cards"]


def test_a_replayed_recording_equals_the_live_run(bench):
    seen = []
    for tokens in range(400):
        bench.play(snapshot(tokens=float(tokens)) if tokens % 50 else REFUSED)
        seen.append(bench.recorder.status().snapshot)

    played = list(snapshots(bench.recorder.recording))

    assert played == [shown for number, shown in enumerate(seen) if number % 50]


def test_a_resumed_recorder_goes_on_in_the_same_file(bench):
    bench.play(snapshot(tokens=5))
    bench.recorder.stop()
    bench.time.pass_(30)
    again = Recorder(FakeSource(), Store.resume(bench.path), clock=bench.time.clock())
    again.tick()
    gaps = again.recording.gaps()
    again.stop(ended=True)

    assert [gap.state for gap in gaps] == ["recorder_stopped"]
    assert Recording.open(bench.path).summary().num_ticks == 2
    assert Recording.open(bench.path).summary().ended_ms is not None


def test_a_disk_that_waits_does_not_hold_up_who_looks(bench):
    bench.play(snapshot(tokens=5))

    with bench.recorder._store_lock:
        status = bench.recorder.status()
        window = bench.recorder.window(["llama#0/generation_tokens"])

    assert status.snapshot.engines[0].generation_tokens == 5
    assert window.numbers.tolist() == [[5]]


class Blocking:
    address = "http://localhost:8000"

    def __init__(self) -> None:
        self.asked, self.release = threading.Event(), threading.Event()

    def read(self) -> EngineSnapshot:
        self.asked.set()
        self.release.wait(30)
        return snapshot()


def test_a_poll_that_does_not_end_is_a_state(tmp_path):
    time, source = FakeTime(), Blocking()
    recorder = Recorder(source, Store.create(tmp_path / "run.kvscope", About(source="x")), clock=time.clock())
    recorder.start()
    assert source.asked.wait(5)
    time.pass_(25)

    status = recorder.status()
    recorder.stop(wait_seconds=0.01)
    source.release.set()

    assert status.state == "stalled"
    assert "25 s" in status.text
    assert recorder.status().state == "stopped"


def test_a_thread_polls_by_the_clock_until_it_is_stopped(tmp_path):
    path, source = tmp_path / "run.kvscope", FakeSource()
    recorder = Recorder(source, Store.create(path, About(source="x", interval_ms=10)), interval_seconds=0.01)
    enough = threading.Event()
    inner = source.read
    source.read = lambda: (enough.set() if recorder.status().num_ticks >= 5 else None, inner())[1]

    recorder.start()
    recorder.start()
    assert enough.wait(10)
    recorder.stop()

    assert not [thread for thread in threading.enumerate() if thread.name.startswith("recorder")]
    assert Recording.open(path).summary().num_ticks >= 5
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.kvscope"]


# -- alerts -------------------------------------------------------------------------------------------------------------


def test_the_first_look_can_be_waited_for(tmp_path):
    blocked = Blocking()
    recorder = Recorder(blocked, Store.create(tmp_path / "run.kvscope", About(source="http://x")))

    assert not recorder.wait_for_first(0.01)
    recorder.start()
    assert not recorder.wait_for_first(0.05)
    blocked.release.set()
    assert recorder.wait_for_first(10.0)
    recorder.stop()


def full(usage: float) -> EngineSnapshot:
    engine = replace(snapshot().engines[0], kv_usage_fraction=usage)
    return replace(snapshot(), engines=(engine,))


LIMIT = AlertRule(kind="kv_usage", limit=90, hold_seconds=2)


def test_an_alert_is_logged_without_a_browser(bench):
    bench.recorder.set_alert_rules([LIMIT])
    bench.play(*[full(0.95)] * 4)

    assert [kind for kind, _ in bench.marks()] == ["alert_limits", "alert"]
    assert bench.recorder.alert_standings()[0].state == "alert"


def test_limits_and_lasting_alerts_outlive_the_process(bench):
    bench.recorder.set_alert_rules([LIMIT])
    bench.play(*[full(0.95)] * 4)
    bench.recorder.stop()

    again = Recorder(bench.source, Store.resume(bench.path), clock=bench.time.clock())
    bench.recorder = again
    bench.play(*[full(0.2)] * 14)

    assert again.alert_rules[0] == LIMIT
    assert [kind for kind, _ in bench.marks()] == ["alert_limits", "alert", "alert_over"]
    again.stop()


def test_a_limit_that_cannot_be_changes_nothing(bench):
    with pytest.raises(PlanError):
        bench.recorder.set_alert_rules([replace(LIMIT, limit=0)])

    assert bench.recorder.alert_rules[0].limit == 95
