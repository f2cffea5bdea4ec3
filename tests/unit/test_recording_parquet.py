"""Recordings as Parquet and back, and Parquet files that are none."""

from __future__ import annotations

import io
import itertools
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from live.recording import Recording
from live.recording_export import csv_text, read_csv
from live.recording_parquet import read_parquet, write_parquet
from live.recording_rows import FIXED_COLUMNS, Row, store_rows
from live.recording_schema import RecordingError
from live.recording_tables import copy_bytes, table_bytes
from live.recording_upload import open_bytes
from live.replay import snapshots
from live.sample_codec import encode, stamped
from live.samples import EngineIdentity, EngineSample, EngineSnapshot
from live.store import About, Store

START = 1_760_000_000_000


@pytest.fixture
def slow(tmp_path):
    """A recording every 20 s with a gap that ends between two ticks, changed words and marks."""
    store = Store.create(tmp_path / "slow.kvscope", About(source="http://localhost:8000", interval_ms=20_000))
    for tick in range(40):
        engine = EngineSample(
            time_unix_ns=0,
            identity=EngineIdentity(model_name="m", engine="0"),
            kv_usage_fraction=None if tick % 7 == 0 else tick / 40,
        )
        snapshot = EngineSnapshot(
            time_unix_ns=0,
            source="http://localhost:8000",
            engines=(engine,),
            vllm_version="0.32.0" if tick < 20 else "0.33.0",
        )
        encoded = encode(stamped(snapshot, START + 20_000 * tick))
        store.append(encoded.time_ms, encoded.numbers, encoded.document)
    store.keep_gap(START + 30_000, START + 31_000, "refused", "Nothing answers.")
    store.append_gap(START + 900_000, "timed_out", "Slow.")
    store.append_gap(START + 920_000, "timed_out", "Slow.")
    store.mark(START + 5, "alert", "KV usage of m, engine 0: 97 %.")
    store.close()
    recording = Recording.open(tmp_path / "slow.kvscope")
    yield recording
    recording.close()


def same(one: Recording, other: Recording) -> bool:
    first, second = one.window(), other.window()
    summaries = [(each.summary().source, each.summary().interval_ms, each.summary().series) for each in (one, other)]
    return (
        np.array_equal(first.time_ms, second.time_ms)
        and np.array_equal(first.numbers, second.numbers, equal_nan=True)
        and summaries[0] == summaries[1]
        and one.gaps() == other.gaps()
        and one.marks() == other.marks()
        and list(snapshots(one)) == list(snapshots(other))
    )


def test_parquet_comes_back_equal(slow, tmp_path):
    write_parquet(slow, tmp_path / "run.parquet")

    assert same(read_parquet(tmp_path / "run.parquet", tmp_path / "back.kvscope"), slow)


def test_a_table_that_takes_too_long_is_refused_and_leaves_no_file(tmp_path):
    moments = itertools.count(0.0, 1.0)
    found = (Row(time_ms=START + 1000 * tick, numbers=(0.0,)) for tick in itertools.count())

    with pytest.raises(RecordingError, match="takes more than 120 s") as refusal:
        store_rows(found, ["s"], tmp_path / "back.kvscope", None, clock=lambda: next(moments))

    assert refusal.value.kind == "too_large"
    assert list(tmp_path.iterdir()) == []


def test_csv_comes_back_equal(slow, tmp_path):
    back = read_csv(io.StringIO(csv_text(slow), newline=""), tmp_path / "back.kvscope")

    assert same(back, slow)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_download_can_be_uploaded(slow, kind):
    again = open_bytes(table_bytes(slow, kind), f"run.{kind}")

    assert same(again, slow)
    again.close()


def test_a_whole_copy_can_be_uploaded(slow):
    again = open_bytes(copy_bytes(slow), "run.kvscope")

    assert same(again, slow)
    again.close()


def table(**columns: object) -> pa.Table:
    fixed = {"time_ms": [START], "time_utc": [""], "event": [""], "event_text": [""], "document": [""], "s": [1.0]}
    return pa.table(fixed | columns)


def refused(tmp_path, content: pa.Table | bytes) -> RecordingError:
    source = tmp_path / "in.parquet"
    if isinstance(content, bytes):
        source.write_bytes(content)
    else:
        pq.write_table(content, source)
    with pytest.raises(RecordingError) as fault:
        read_parquet(source, tmp_path / "out.kvscope")
    assert not (tmp_path / "out.kvscope").exists()
    return fault.value


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "damaged"),
        (b"PAR1" + bytes(60) + b"PAR1", "damaged"),
        (pa.table({"a": [1]}), "not_a_recording"),
        (table(time_ms=["soon"]), "not_a_recording"),
        (table(s=["one"]), "not_a_recording"),
        (table(document=[7]), "not_a_recording"),
        (table(time_ms=pa.array([None], pa.int64())), "damaged"),
        (table(time_ms=[-5]), "damaged"),
        (table(time_ms=[2**62]), "damaged"),
        (table(event=["explode"]), "damaged"),
        (table(document=["{"]), "damaged"),
        (table(document=["x" * 9 * 2**20]), "too_much_text"),
    ],
)
def test_a_parquet_file_that_is_wrong_is_a_sentence(tmp_path, content, kind):
    fault = refused(tmp_path, content)

    assert (fault.kind, fault.text[-1]) == (kind, ".")


def test_a_cut_parquet_file_is_a_sentence(slow, tmp_path):
    content = table_bytes(slow, "parquet")

    assert refused(tmp_path, content[: len(content) // 2]).kind == "damaged"


def test_a_text_repeated_a_million_times_is_unpacked_once(tmp_path):
    rows = 200_000
    repeated = pa.table(
        {
            "time_ms": list(range(START, START + rows)),
            "time_utc": [""] * rows,
            "event": [""] * rows,
            "event_text": pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["x" * 9_000_000]),
            "document": [""] * rows,
        }
    )

    assert refused(tmp_path, repeated).kind == "too_much_text"


def test_an_infinite_number_stays_one(tmp_path):
    pq.write_table(table(s=[math.inf]), tmp_path / "in.parquet")

    back = read_parquet(tmp_path / "in.parquet", tmp_path / "out.kvscope")

    assert back.window().numbers.tolist() == [[math.inf]]
    assert tuple(table().schema.names[: len(FIXED_COLUMNS)]) == FIXED_COLUMNS
