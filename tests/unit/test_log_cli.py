"""The log command: one object of stable keys, a short text, and one sentence for what is no log."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path

import pytest

from planner.log_cli import main
from planner.log_file import LARGEST_TEXT_BYTES
from planner.log_json import GIB_KEYS, PLAIN_KEYS

TEXT = (
    "INFO 09-01 10:00:00 [gpu_worker.py:773] Available KV cache memory: 16.46 GiB\n"
    "INFO:     Application startup complete. 100 % — ok é\n"
)


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    status = main(argv)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252"])
def test_a_file_is_read_in_its_encoding(tmp_path: Path, capsys: pytest.CaptureFixture[str], encoding: str) -> None:
    path = tmp_path / "vllm.log"
    path.write_bytes(TEXT.replace("\n", "\r\n").encode(encoding))

    status, out, _ = run(capsys, str(path), "--json")

    record = json.loads(out)
    assert (status, record["available_kv_gib_per_gpu"], record["started_ok"]) == (0, 16.46, True)
    assert record["lines"]["available_kv_gib_per_gpu"][0] == 1


def test_every_key_is_always_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "empty.log"
    path.write_text("nothing of interest\n")

    _, out, _ = run(capsys, str(path), "--json")

    record = json.loads(out)
    assert PLAIN_KEYS.keys() | GIB_KEYS.keys() <= record.keys()
    assert {record[key] for key in (*PLAIN_KEYS, *GIB_KEYS)} == {None}
    assert record["lines"] == {}
    assert "log-empty" in [finding["code"] for finding in record["findings"]]


def test_the_text_names_the_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(TEXT)

    status, out, _ = run(capsys, str(path))

    assert status == 0
    assert "available_kv_gib_per_gpu: 16.46  (line 1)" in out.splitlines()


def test_all_starts_are_objects_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "vllm.log"
    path.write_text("".join(f"INFO vLLM API server version 0.11.{patch}\n{TEXT}" for patch in range(3)))

    _, out, _ = run(capsys, str(path), "--json", "--all-starts")

    assert [json.loads(line)["vllm_version"] for line in out.splitlines()] == ["0.11.0", "0.11.1", "0.11.2"]


def test_standard_input_is_read(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))

    status, out, _ = run(capsys, "-", "--json")

    assert (status, json.loads(out)["started_ok"]) == (0, True)


def test_a_file_too_large_to_hold_is_read_piece_by_piece(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "vllm.log"
    line = "é" * 90 + "\n"
    path.write_text(line * (LARGEST_TEXT_BYTES // len(line.encode()) + 10) + TEXT, encoding="utf-8")

    status, out, _ = run(capsys, str(path), "--json")

    record = json.loads(out)
    assert (status, record["available_kv_gib_per_gpu"]) == (0, 16.46)
    assert record["lines"]["available_kv_gib_per_gpu"][0] == LARGEST_TEXT_BYTES // len(line.encode()) + 11


@pytest.mark.parametrize(
    "content",
    [gzip.compress(TEXT.encode() * 50), bytes(range(256)) * 40, b"\x7fELF" + bytes(4000)],
    ids=["gzip", "every byte", "program"],
)
def test_what_is_no_text_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    path = tmp_path / "vllm.log"
    path.write_bytes(content)

    status, out, error = run(capsys, str(path))

    assert (status, out, error.count("\n")) == (2, "", 1)
    assert error.startswith("The file is not text")


@pytest.mark.parametrize("name", ["missing.log", ".", "nul\0name"])
def test_what_cannot_be_opened_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    status, out, error = run(capsys, str(tmp_path / name))

    assert (status, out, error.count("\n")) == (2, "", 1)


def test_zero_bytes_that_a_rotation_left_are_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "vllm.log"
    path.write_bytes(bytes(5000) + TEXT.encode())

    status, out, _ = run(capsys, str(path), "--json")

    assert (status, json.loads(out)["available_kv_gib_per_gpu"]) == (0, 16.46)


def test_the_text_tells_failure_derivation_and_what_was_not_understood(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(
        "INFO 05-11 12:04:07 [executor_base.py:112] # cpu blocks: 1170, # CPU blocks: 0\n"
        "INFO 05-11 12:04:07 [executor_base.py:117] Maximum concurrency for 32768 tokens per request: 4.57x\n"
        "INFO 05-11 12:04:07 [worker.py:1] Spare buffers hold 3.5 GiB of device memory\n"
        "ValueError: No available memory for the cache blocks.\n"
    )

    _, out, _ = run(capsys, str(path))

    assert "kv_cache_tokens: 149760  (derived: 1,170 blocks of 128 tokens)" in out
    assert "failure: no_cache_memory, line 4: ValueError: No available memory" in out
    assert "not understood, line 3: INFO" in out


def test_settings_of_any_kind_are_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(
        "INFO non-default args: {'a': 1e99, 'b': (1, [2, {'c': None}]), 'd': {1, 2}, 'e': <E.X: 3>, 'f': 10.5}\n"
    )

    _, out, _ = run(capsys, str(path), "--json")

    assert json.loads(out)["arguments"] == {"a": 1e99, "b": [1, [2, {"c": None}]], "d": "{1, 2}", "e": "E.X", "f": 10.5}
