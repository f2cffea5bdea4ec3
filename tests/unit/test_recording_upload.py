"""Uploads: capped, checked, and gone from the disk."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from live.recording import Recording
from live.recording_export import csv_text
from live.recording_schema import RecordingError
from live.recording_upload import open_bytes, open_upload
from live.store import About, Store


@pytest.fixture
def content(tmp_path) -> bytes:
    store = Store.create(tmp_path / "run.kvscope", About(source="http://x"))
    for tick in range(400):
        store.append(1_000_000 + 1000 * tick, {"a": tick / 3}, "")
    store.close()
    return (tmp_path / "run.kvscope").read_bytes()


@pytest.fixture(autouse=True)
def uploads(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "uploads"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_an_upload_is_read_and_leaves_nothing_behind(content, uploads):
    recording = open_bytes(content, "../../etc/my run.kvscope")

    assert recording.window().series("a")[399] == 399 / 3
    assert recording.path.name == "my_run.kvscope"
    assert list(uploads.iterdir()) == []


def test_a_csv_is_read_too(content, tmp_path, uploads):
    text = csv_text(Recording.open(tmp_path / "run.kvscope"))

    recording = open_bytes(text.encode(), "run.CSV")

    assert recording.window().series("a")[399] == 399 / 3
    assert list(uploads.iterdir()) == []
    assert content


def test_an_upload_can_be_copied_whole(content, tmp_path):
    open_bytes(content, "run.kvscope").save_copy(tmp_path / "copy.kvscope")

    assert Recording.open_untrusted(tmp_path / "copy.kvscope").summary().num_ticks == 400


def test_more_than_the_cap_is_refused_while_it_is_read(content, tmp_path, uploads):
    with (tmp_path / "run.kvscope").open("rb") as file, pytest.raises(RecordingError) as fault:
        open_upload(file, "run.kvscope", largest_bytes=len(content) - 1)

    assert fault.value.kind == "too_large"
    assert list(uploads.iterdir()) == []


@pytest.mark.parametrize("name", ["run.kvscope", "run.csv", "...", ""])
def test_garbage_is_a_sentence(name, uploads):
    with pytest.raises(RecordingError) as fault:
        open_bytes(b"\xff\xfe garbage", name)

    assert fault.value.kind in {"not_a_recording", "damaged"}
    assert fault.value.text.endswith(".")
    assert list(uploads.iterdir()) == []


@pytest.mark.parametrize("name", ["run.kvscope", "run.csv", "run.parquet"])
def test_an_empty_file_is_called_empty(name, uploads):
    with pytest.raises(RecordingError, match=r"is empty \(0 bytes\)"):
        open_bytes(b"", name)

    assert list(uploads.iterdir()) == []
