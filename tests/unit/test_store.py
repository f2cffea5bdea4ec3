"""Recordings on disk: what is written is read, gaps are gaps, the oldest goes first, nothing damaged is trusted."""

from __future__ import annotations

import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from live import recording_schema
from live.recording import Recording
from live.recording_schema import CHUNK_TICKS, RecordingError
from live.store import About, Retention, Store

START = 1_760_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.kvscope"


def write(path: Path, num_ticks: int, retention: Retention | None = None) -> None:
    store = Store.create(path, About(source="http://localhost:8000", title="calm"), retention)
    for tick in range(num_ticks):
        store.append(START + 1000 * tick, {"usage": tick / 8, "constant": 3.0}, '{"words": 1}')
    store.close()


def read(path: Path) -> Recording:
    return Recording.open(path)


def kind_of(fault: pytest.ExceptionInfo[RecordingError]) -> str:
    assert fault.value.text.endswith(".")
    return fault.value.kind


def test_what_was_appended_is_read(path):
    write(path, 5)

    window = read(path).window()

    assert window.time_ms.tolist() == [START + 1000 * tick for tick in range(5)]
    assert window.series("usage").tolist() == [0, 1 / 8, 2 / 8, 3 / 8, 4 / 8]
    assert window.series("constant").tolist() == [3.0] * 5


def test_folded_and_newest_ticks_read_as_one(path):
    write(path, 2 * CHUNK_TICKS + 7)

    window = read(path).window()

    assert window.series("usage").tolist() == [tick / 8 for tick in range(2 * CHUNK_TICKS + 7)]
    assert (np.diff(window.time_ms) == 1000).all()


def test_a_window_is_half_open_and_cuts_through_a_chunk(path):
    write(path, CHUNK_TICKS + 20)

    window = read(path).window(["usage"], START + 290_000, START + 310_000)

    assert window.names == ("usage",)
    assert window.series("usage").tolist() == [tick / 8 for tick in range(290, 310)]


def test_an_unknown_series_is_all_nan(path):
    write(path, CHUNK_TICKS + 2)

    window = read(path).window(["swapped"])

    assert np.isnan(window.series("swapped")).all()
    assert np.isnan(window.series("not asked for")).all()


def test_a_series_that_begins_later_is_nan_before(path):
    store = Store.create(path, About(source="x"))
    store.append(START, {"a": 1.0}, "")
    store.append(START + 1000, {"a": 1.0, "b": 2.0}, "")
    store.append(START + 2000, {"b": 2.0}, "")

    window = read(path).window()
    store.close()

    assert np.isnan(window.series("b")).tolist() == [True, False, False]
    assert np.isnan(window.series("a")).tolist() == [False, False, True]


def test_words_are_kept_where_they_change(path):
    store = Store.create(path, About(source="x"))
    for tick, words in enumerate(["one", "one", "two"]):
        store.append(START + 1000 * tick, {}, words)

    ticks = list(read(path).ticks())
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT count(*) FROM document").fetchone()[0]
    store.close()

    assert [tick.document for tick in ticks] == ["one", "one", "two"]
    assert rows == 2


def test_the_tick_at_a_time_is_the_last_one_not_after_it(path):
    write(path, CHUNK_TICKS + 2)
    recording = read(path)

    assert recording.tick_at(START - 1) is None
    assert recording.tick_at(START + 5_500).numbers == {"usage": 5 / 8, "constant": 3.0}
    assert recording.tick_at(START + 10**9).time_ms == START + (CHUNK_TICKS + 1) * 1000


def test_a_summary_counts_ticks_and_names_the_source(path):
    write(path, CHUNK_TICKS + 2)

    summary = read(path).summary()

    assert (summary.num_ticks, summary.start_ms, summary.end_ms) == (
        CHUNK_TICKS + 2,
        START,
        START + (CHUNK_TICKS + 1) * 1000,
    )
    assert (summary.source, summary.title, summary.interval_ms) == ("http://localhost:8000", "calm", 1000)
    assert summary.series == ("usage", "constant")
    assert summary.ended_ms is None


def test_an_empty_recording_has_no_times(path):
    write(path, 0)
    recording = read(path)

    assert recording.summary().start_ms is None
    assert recording.tick_at(START) is None
    assert list(recording.ticks()) == []


def test_a_gap_lasts_from_its_first_failure_to_the_next_tick(path):
    store = Store.create(path, About(source="x"))
    store.append(START, {"a": 1.0}, "")
    store.append_gap(START + 1000, "refused", "Nothing listens.")
    store.append_gap(START + 2000, "refused", "Nothing listens.")
    store.append_gap(START + 3000, "slow", "No answer in time.")
    store.append(START + 4000, {"a": 1.0}, "")
    store.close()

    gaps = read(path).gaps()

    assert [(gap.start_ms - START, gap.end_ms - START, gap.state) for gap in gaps] == [
        (1000, 3000, "refused"),
        (3000, 4000, "slow"),
    ]


def test_time_without_any_tick_becomes_a_gap(path):
    write(path, 3)
    store = Store.resume(path)
    store.append(START + 60_000, {"usage": 0.5}, "")
    store.close()

    (gap,) = read(path).gaps()

    assert (gap.start_ms - START, gap.end_ms - START, gap.state) == (3000, 60_000, "recorder_stopped")


def test_a_slow_poll_is_no_gap_but_a_short_stop_of_the_recorder_is(path):
    store = Store.create(path, About(source="x", interval_ms=200))
    store.append(START, {"a": 1.0}, "")
    store.append(START + 2000, {"a": 1.0}, "")
    store.close()
    store = Store.resume(path)
    store.append(START + 4000, {"a": 1.0}, "")
    store.append(START + 6000, {"a": 1.0}, "")
    store.close()

    assert [(gap.start_ms - START, gap.end_ms - START) for gap in read(path).gaps()] == [(2200, 4000)]


def test_a_resumed_recording_keeps_its_series_and_words(path):
    write(path, 2)
    store = Store.resume(path)
    store.append(START + 2000, {"usage": 0.5, "more": 1.0}, '{"words": 1}')
    store.end(START + 2500)
    store.close()

    recording = read(path)

    assert recording.summary().series == ("usage", "constant", "more")
    assert recording.summary().ended_ms == START + 2500
    assert recording.window().series("usage").tolist() == [0, 1 / 8, 0.5]


def test_time_never_goes_back(path):
    store = Store.create(path, About(source="x"))
    store.append(START, {}, "")

    with pytest.raises(RecordingError) as fault:
        store.append(START, {}, "")
    store.close()

    assert kind_of(fault) == "wrong_time"


def test_what_is_older_than_the_retention_is_dropped(path):
    write(path, 1000, Retention(seconds=350))

    summary = read(path).summary()

    assert START + 300_000 <= summary.start_ms <= START + 610_000
    assert summary.end_ms == START + 999_000


def test_the_size_limit_drops_the_oldest_first(path):
    random = np.random.default_rng(1).normal(size=(3000, 40))
    store = Store.create(path, About(source="x"), Retention(largest_bytes=400_000))
    for tick, row in enumerate(random.tolist()):
        store.append(START + 1000 * tick, {f"s{number}": value for number, value in enumerate(row)}, "")
    store.close()

    recording = read(path)

    assert path.stat().st_size < 600_000
    assert recording.summary().start_ms > START + 1_000_000
    assert recording.window(["s3"]).numbers[0, -1] == random[-1, 3]


def test_frames_alone_cannot_pass_the_size_limit(path):
    store = Store.create(path, About(source="x"), Retention(largest_bytes=300_000))
    for tick in range(130):
        store.append_frame(START + 1000 * tick, "tables", bytes(10_000))
        store.append(START + 1000 * tick, {"a": 1.0}, "")
    store.close()

    assert len(list(read(path).frames("tables"))) < 30


def test_old_frames_go_before_numbers_do(path):
    store = Store.create(path, About(source="x"), Retention(largest_bytes=1_000_000))
    for tick in range(700):
        store.append_frame(START + 10_000 * tick, "tables", bytes(1_500))
        store.append(START + 10_000 * tick, {"a": 1.0}, "")
    store.close()

    recording = read(path)

    assert recording.summary().start_ms == START  # two hours of numbers, and the tables of the last one
    assert min(time_ms for time_ms, _ in recording.frames("tables")) > START + 2_900_000


def test_words_that_still_hold_outlive_the_retention(path):
    write(path, 1000, Retention(seconds=60))

    recording = read(path)

    assert recording.tick_at(START + 999_000).document == '{"words": 1}'


def test_marks_and_frames_come_back_in_order(path):
    store = Store.create(path, About(source="x"))
    store.mark(START + 5, "note", "changed max_num_seqs")
    store.mark(START + 9, "restarted", "The engine restarted.")
    store.append_frame(START + 1, "tables", b"one")
    store.append_frame(START + 1, "tables", b"two")
    store.append_frame(START + 2, "events", b"other")
    store.close()

    recording = read(path)

    assert [mark.text for mark in recording.marks()] == ["changed max_num_seqs", "The engine restarted."]
    assert list(recording.frames("tables")) == [(START + 1, b"one"), (START + 1, b"two")]
    assert recording.marks(START + 6)[0].kind == "restarted"


@pytest.mark.parametrize(
    ("work", "kind"),
    [
        (lambda store: store.append(START, {f"s{n}": 1.0 for n in range(20_000)}, ""), "too_many_series"),
        (lambda store: store.append(START, {}, "x" * 5 * 2**20), "too_much_text"),
        (lambda store: store.append_frame(START, "tables", bytes(9 * 2**20)), "too_much_text"),
    ],
)
def test_what_is_too_much_is_refused_and_the_recording_goes_on(path, work, kind):
    store = Store.create(path, About(source="x"))

    with pytest.raises(RecordingError) as fault:
        work(store)
    store.append(START + 1000, {"a": 1.0}, "")
    store.close()

    assert kind_of(fault) == kind
    assert read(path).summary().num_ticks == 1


def test_a_failed_commit_loses_only_its_tick(path):
    store = Store.create(path, About(source="x"))
    store.append(START, {"a": 1.0}, "")
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TRIGGER t BEFORE INSERT ON series BEGIN SELECT RAISE(ABORT, 'disk full'); END")
    with pytest.raises(RecordingError) as fault:
        store.append(START + 1000, {"b": 1.0}, "")
    with closing(sqlite3.connect(path)) as other:
        other.execute("DROP TRIGGER t")
    store.append(START + 2000, {"b": 2.0}, "")
    store.close()

    window = read(path).window()

    assert kind_of(fault) == "disk"
    assert window.time_ms.tolist() == [START, START + 2000]
    assert window.series("b")[1] == 2.0


def test_one_recording_has_one_writer(path):
    store = Store.create(path, About(source="x"))

    with pytest.raises(RecordingError) as fault:
        Store.resume(path)
    store.close()
    store.close()
    Store.resume(path).close()

    assert kind_of(fault) == "in_use"
    assert [entry.name for entry in path.parent.iterdir()] == ["run.kvscope"]


@pytest.mark.parametrize(("content", "kind"), [(None, "absent"), (b"no database" * 99, "not_a_recording")])
def test_only_a_recording_is_gone_on_with(path, content, kind):
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(RecordingError) as fault:
        Store.resume(path)

    assert kind_of(fault) == kind
    assert not path.with_name("run.kvscope.lock").exists()


def test_a_recording_is_never_written_over(path):
    write(path, 1)

    with pytest.raises(RecordingError) as fault:
        Store.create(path, About(source="x"))

    assert kind_of(fault) == "exists"


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(RecordingError) as fault:
        Store.create(tmp_path / "file" / "run.kvscope", About(source="x"))

    assert kind_of(fault) == "disk"


def test_a_copy_of_a_recording_under_way_is_whole(path, tmp_path):
    store = Store.create(path, About(source="x"))
    store.append(START, {"a": 1.0}, "")
    recording = read(path)
    recording.save_copy(tmp_path / "copy.kvscope")
    with pytest.raises(RecordingError) as fault:
        recording.save_copy(tmp_path / "copy.kvscope")
    store.close()

    assert Recording.open_untrusted(tmp_path / "copy.kvscope").summary().num_ticks == 1
    assert kind_of(fault) == "exists"


def test_a_closed_recording_says_so(path):
    write(path, 1)
    recording = read(path)
    recording.close()

    with pytest.raises(RecordingError):
        recording.summary()


def damaged(path: Path, statement: str, values: tuple[object, ...] = ()) -> Path:
    write(path, 2 * CHUNK_TICKS + 5)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement, values)
        connection.commit()
    return path


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("PRAGMA application_id = 1", "not_a_recording"),
        ("PRAGMA user_version = 99", "newer_version"),
        ("PRAGMA user_version = 0", "damaged"),
        ("CREATE VIEW v AS SELECT 1", "damaged"),
        ("CREATE TRIGGER t AFTER INSERT ON tick BEGIN DELETE FROM tick; END", "damaged"),
        ("DROP TABLE gap", "damaged"),
        ("DELETE FROM about", "damaged"),
        ("UPDATE about SET value = 'often' WHERE key = 'interval_ms'", "damaged"),
        ("UPDATE series SET series_id = 7 WHERE series_id = 1", "damaged"),
    ],
)
def test_an_upload_that_breaks_the_format_is_refused_at_once(path, statement, kind):
    damaged(path, statement)

    with pytest.raises(RecordingError) as fault:
        Recording.open_untrusted(path)

    assert kind_of(fault) == kind


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        ("UPDATE span SET num_ticks = 1000000", ()),
        ("UPDATE span SET num_ticks = -5", ()),
        ("UPDATE span SET num_ticks = 299", ()),
        ("UPDATE span SET num_ticks = 'many'", ()),
        ("UPDATE span SET times = ?", (zlib.compress(bytes(8 * CHUNK_TICKS)),)),
        ("UPDATE span SET times = ?", (zlib.compress(b"\x7f" * 8 * CHUNK_TICKS),)),
        ("UPDATE span SET times = ?", (zlib.compress(bytes(50_000_000)),)),
        ("UPDATE chunk SET numbers = ?", (b"garbage!!",)),
        ("UPDATE chunk SET numbers = ?", (zlib.compress(bytes(50_000_000)),)),
        ("UPDATE chunk SET start_ms = start_ms + 1", ()),
        ("UPDATE tick SET numbers = ?", (bytes(80),)),
        ("UPDATE tick SET numbers = ?", (bytes(7),)),
        ("UPDATE tick SET numbers = 12", ()),
    ],
)
def test_damaged_content_is_an_error_where_it_is_read(path, statement, values):
    damaged(path, statement, values)

    with pytest.raises(RecordingError) as fault:
        Recording.open_untrusted(path).window()

    assert kind_of(fault) in {"damaged", "too_large"}


def test_a_chunk_of_no_span_is_left_alone(path):
    damaged(path, "INSERT INTO chunk VALUES (0, 5, x'00')")

    assert Recording.open_untrusted(path).summary().num_ticks == 2 * CHUNK_TICKS + 5


def test_too_many_numbers_at_once_are_refused(path, monkeypatch):
    write(path, 40)
    monkeypatch.setattr("live.recording.LARGEST_WINDOW_NUMBERS", 50)

    with pytest.raises(RecordingError) as fault:
        read(path).window()

    assert kind_of(fault) == "too_large"


@pytest.mark.parametrize(
    ("content", "kind"),
    [(b"", "not_a_recording"), (b"hello, world" * 100, "not_a_recording"), (None, "absent")],
)
def test_a_file_of_another_kind_is_named(path, content, kind):
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(RecordingError) as fault:
        Recording.open_untrusted(path)
    with pytest.raises(RecordingError):
        Recording.open(path)

    assert kind_of(fault) == kind


def test_a_folder_is_no_recording(tmp_path):
    with pytest.raises(RecordingError) as fault:
        Recording.open(tmp_path)

    assert kind_of(fault) == "not_a_recording"


def test_an_upload_may_not_be_larger_than_the_cap(path):
    write(path, 1)

    with pytest.raises(RecordingError) as fault:
        Recording.open_untrusted(path, largest_bytes=1000)

    assert kind_of(fault) == "too_large"


@pytest.mark.parametrize("cut", [5000, 20_000])
def test_a_truncated_upload_is_damaged(path, cut):
    write(path, 3000)
    path.write_bytes(path.read_bytes()[:cut])

    with pytest.raises(RecordingError) as fault:
        Recording.open_untrusted(path)

    assert kind_of(fault) in {"damaged", "not_a_recording"}


def test_flipped_bytes_never_raise_anything_else(path):
    write(path, 400)
    whole = path.read_bytes()
    random = np.random.default_rng(3)
    seen = set()
    for _ in range(60):
        content = bytearray(whole)
        for place in random.integers(0, len(content), 30):
            content[place] ^= int(random.integers(1, 256))
        path.write_bytes(content)
        try:
            recording = Recording.open_untrusted(path)
            recording.window()
            list(recording.ticks(START, START + 10_000))
            seen.add("read")
        except RecordingError as error:
            seen.add(error.kind)

    assert seen & {"damaged", "not_a_recording"}


class Refusing:
    """A connection whose every statement fails as SQLite's do."""

    def __init__(self, error: sqlite3.Error) -> None:
        self.error = error

    def execute(self, _statement: str) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (sqlite3.OperationalError("interrupted"), "too_large"),
        (sqlite3.OperationalError("disk I/O error"), "damaged"),
        (sqlite3.DatabaseError("database disk image is malformed"), "damaged"),
    ],
)
def test_a_check_that_fails_is_a_sentence(error, kind):
    with pytest.raises(RecordingError) as fault:
        recording_schema.check_integrity(Refusing(error), "run.kvscope")

    assert kind_of(fault) == kind


def test_a_hardened_database_stops_at_its_deadline(path):
    write(path, 10)
    connection = sqlite3.connect(path)
    recording_schema.harden(connection, deadline=5.0, clock=lambda: 6.0)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"

    with pytest.raises(sqlite3.OperationalError, match="interrupted"):
        connection.execute(endless)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("DELETE FROM tick")
    connection.close()


def test_an_upload_is_opened_without_writing_beside_it(path):
    write(path, 10)
    path.chmod(0o400)

    Recording.open_untrusted(path).window()

    assert [entry.name for entry in path.parent.iterdir()] == ["run.kvscope"]


def long_words(tick: int) -> str:
    return "".join(f"label {number}={number * 7919 % 1000}," for number in range(300)) + f" value {tick}"


def test_words_that_change_a_little_at_each_tick_cost_little(path):
    store = Store.create(path, About(source="x"))
    for tick in range(1000):
        store.append(START + 1000 * tick, {"a": 1.0}, long_words(tick))
    store.close()
    recording = read(path)

    assert recording.tick_at(START + 777_000).document == long_words(777)
    assert [tick.document for tick in recording.ticks(START + 500_000, START + 503_000)] == [
        long_words(tick) for tick in (500, 501, 502)
    ]
    assert path.stat().st_size < 150_000


def test_words_outlive_the_retention_of_those_they_are_stored_against(path):
    store = Store.create(path, About(source="x"), Retention(seconds=100))
    for tick in range(1000):
        store.append(START + 1000 * tick, {"a": 1.0}, long_words(tick))
    store.close()
    store = Store.resume(path, Retention(seconds=100))
    store.append(START + 1_000_000, {"a": 1.0}, long_words(1000))
    store.close()
    recording = read(path)

    assert recording.tick_at(START + 999_000).document == long_words(999)
    assert recording.tick_at(START + 1_000_000).document == long_words(1000)


def test_quite_other_words_are_stored_whole(path):
    store = Store.create(path, About(source="x"))
    for tick, words in enumerate([long_words(1), "short", "x" * 500, long_words(2)]):
        store.append(START + 1000 * tick, {"a": 1.0}, words)
    store.close()

    assert [tick.document for tick in read(path).ticks()] == [long_words(1), "short", "x" * 500, long_words(2)]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM document WHERE base_ms IS NULL",
        "UPDATE document SET content = x'00'",
        "UPDATE document SET content = 'text'",
    ],
)
def test_damaged_words_are_an_error_where_they_are_read(path, statement):
    store = Store.create(path, About(source="x"))
    for tick in range(3):
        store.append(START + 1000 * tick, {"a": 1.0}, long_words(tick))
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()

    with pytest.raises(RecordingError) as fault:
        list(Recording.open_untrusted(path).ticks())

    assert kind_of(fault) == "damaged"
