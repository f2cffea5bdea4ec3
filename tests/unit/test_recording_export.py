"""Recordings as tables, and tables as recordings."""

from __future__ import annotations

import csv
import io

import pandas as pd
import pytest

from live.recording import Recording
from live.recording_export import csv_text, read_csv
from live.recording_parquet import write_parquet
from live.recording_schema import RecordingError
from live.replay import snapshots
from live.sample_codec import encode, stamped
from live.samples import EngineIdentity, EngineSample, EngineSnapshot
from live.store import About, Store

START = 1_760_000_000_000
ABOUT = About(source="http://x")


@pytest.fixture
def recording(tmp_path):
    store = Store.create(tmp_path / "run.kvscope", ABOUT)
    for tick in range(30):
        usage = None if tick < 5 else tick / 7
        engine = EngineSample(time_unix_ns=0, identity=EngineIdentity(model_name="=cmd()"), kv_usage_fraction=usage)
        version = "0.32.0" if tick < 20 else "0.33.0"
        snapshot = EngineSnapshot(time_unix_ns=0, source="http://x", engines=(engine,), vllm_version=version)
        encoded = encode(stamped(snapshot, START + 1000 * tick))
        if 10 <= tick < 13:
            store.append_gap(encoded.time_ms, "refused", "Nothing answers.")
        else:
            store.append(encoded.time_ms, encoded.numbers, encoded.document)
    store.mark(START + 4500, "note", "=1+1, said 'he'")
    store.mark(START + 4501, "note", "'quoted")
    store.close()
    recording = Recording.open(tmp_path / "run.kvscope")
    yield recording
    recording.close()


def test_a_csv_becomes_the_same_recording(recording, tmp_path):
    copy = read_csv(io.StringIO(csv_text(recording), newline=""), tmp_path / "copy.kvscope", ABOUT)

    assert list(snapshots(copy)) == list(snapshots(recording))
    assert copy.gaps() == recording.gaps()
    assert copy.marks() == recording.marks()


def test_no_cell_is_taken_for_a_formula(recording):
    rows = list(csv.reader(io.StringIO(csv_text(recording), newline="")))

    assert not [cell for row in rows for cell in row if cell[:1] in {"=", "+", "@"}]


def test_rows_stand_in_the_order_of_time(recording):
    rows = list(csv.DictReader(io.StringIO(csv_text(recording), newline="")))

    times = [int(row["time_ms"]) for row in rows]
    assert times == sorted(times)
    assert rows[0]["time_utc"] == "2025-10-09T08:53:20.000+00:00"
    assert [row["event"] for row in rows if row["event"]] == ["mark:note", "mark:note", "gap:refused", "gap_end"]


def test_parquet_holds_the_same_table(recording, tmp_path):
    num_rows = write_parquet(recording, tmp_path / "run.parquet")

    table = pd.read_parquet(tmp_path / "run.parquet")
    assert len(table) == num_rows == 27 + 2 + 2
    assert table["=cmd()#/kv_usage_fraction"].max() == 29 / 7
    assert table["=cmd()#/kv_usage_fraction"].isna().sum() == 5 + 4


HEAD = "time_ms,time_utc,event,event_text,document"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "not_a_recording"),
        ("a,b,c\n1,2,3\n", "not_a_recording"),
        (f"{HEAD},s,s\n", "not_a_recording"),
        (f"{HEAD},s\n1,,,,\n", "damaged"),
        (f"{HEAD},s\nsoon,,,,,1\n", "damaged"),
        (f"{HEAD},s\n1,,,,,one\n", "damaged"),
        (f"{HEAD},s\n1,,,,,\n1,,,,,\n", "wrong_time"),
        (f"{HEAD},s\n1,,,,{{,1\n", "damaged"),
        (f"{HEAD},s\n1,,,,{'x' * 9 * 2**20},1\n", "damaged"),
    ],
)
def test_a_csv_that_is_wrong_is_a_sentence_and_leaves_no_file(tmp_path, text, kind):
    with pytest.raises(RecordingError) as fault:
        read_csv(io.StringIO(text, newline=""), tmp_path / "copy.kvscope", ABOUT)

    assert fault.value.kind == kind
    assert fault.value.text.endswith(".")
    assert list(tmp_path.iterdir()) == []
