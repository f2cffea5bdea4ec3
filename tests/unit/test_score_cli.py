"""`python -m planner score`: what it prints of good rows, of bad lines, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.score_cli import main
from tests.score_rows import LLAMA

QWEN = LLAMA | {"id": "qwen", "model_id": "Qwen/Qwen3-8B", "model_load_gib": 15.27, "available_kv_gib": 57.5}
BAD_LINES = [
    "nonsense",
    "[1]",
    "{}",
    '{"model_id": "no/such", "gpu_name": "L4"}',
    '{"model_id": "Qwen/Qwen3-8B", "tp": -1}',
]


@pytest.fixture
def rows_file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join([json.dumps(LLAMA), *BAD_LINES, json.dumps(QWEN)]) + "\n", encoding="utf-8")
    return path


def printed_json(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main([str(path), "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_every_bad_line_is_skipped_with_its_reason(rows_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = printed_json(rows_file, capsys)

    reasons = [each["reason"] for each in answer["skipped"]]
    assert answer["counts"] == {"rows": 7, "predicted": 2, "models": 2}
    assert len(reasons) == len(BAD_LINES)
    assert "not JSON" in reasons[0]
    assert reasons[2] == "the row names no model"
    assert "no config of 'no/such'" in reasons[3]


def test_json_holds_errors_coverage_verdicts_and_splits(rows_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = printed_json(rows_file, capsys)

    assert answer["errors"]["weights"]["rows"] == 2
    assert set(answer["errors"]["kv_pool"]) == {"rows", "models", "mean", "median", "p90"}
    assert answer["coverage"]["rows"] == 2
    assert answer["verdicts"]["starts"] == 2
    assert list(answer["by_card"]) == ["H100 80GB SXM"]
    assert set(answer["by_family"]) == {"LlamaForCausalLM", "Qwen3ForCausalLM"}
    assert answer["leave_one_model_out"]["coverage"]["rows"] == 2


def test_the_table_of_quantities_has_mean_median_and_p90(rows_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(rows_file)])

    out = capsys.readouterr().out
    assert "| quantity | rows | models | mean | median | p90 |" in out
    assert "| Weights | 2 | 2 |" in out
    assert "| TP 1, PP 1 | 2 | 2 |" in out


def test_rows_of_other_grades_are_counted_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(LLAMA)}\n{json.dumps(LLAMA | {'id': 'guess', 'evidence': 'C: inferred'})}\n")

    assert main([str(path)]) == 0
    assert "1 rows of other grades than AB are not counted" in capsys.readouterr().out


def test_nothing_predicted_ends_with_one(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("{}\n")

    assert main([str(path)]) == 1


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00binary"])
def test_an_unreadable_file_is_one_line_on_stderr(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    if content is not None:
        path.write_bytes(content)

    assert main([str(path)]) == 2
    error = capsys.readouterr().err
    assert "cannot be read" in error
    assert error.count("\n") == 1


def test_a_repeated_row_counts_once_and_two_starts_of_one_name_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    other = LLAMA | {"gpu_memory_utilization": 0.8, "available_kv_gib": 40.0}
    path.write_text("\n".join(map(json.dumps, [LLAMA, LLAMA, other])), encoding="utf-8")

    answer = printed_json(path, capsys)

    assert answer["counts"] == {"rows": 3, "predicted": 2, "models": 1}
    assert [each["reason"] for each in answer["skipped"]] == ["the row repeats rows.jsonl line 1, which counts once"]
    assert [row["row_id"] for row in answer["rows"]][2] == f"{LLAMA['id']} (rows.jsonl line 3)"


def test_a_file_given_twice_counts_once(rows_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(rows_file), str(rows_file), "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["counts"]["predicted"] == 2


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + json.dumps(LLAMA).encode() + b"\r\n" + json.dumps(QWEN).encode() + b"\r\n",
        "\n".join(map(json.dumps, [LLAMA, QWEN])).encode("utf-16"),
        (json.dumps(LLAMA | {"notes": "café"}, ensure_ascii=False) + "\n" + json.dumps(QWEN)).encode("latin-1"),
        (json.dumps(LLAMA | {"notes": "a\u2028b\x85c"}, ensure_ascii=False) + "\n" + json.dumps(QWEN)).encode(),
        json.dumps([LLAMA, QWEN], indent=2).encode(),
    ],
    ids=["mark and CRLF", "UTF-16", "Latin-1", "line separators in a text", "one array"],
)
def test_rows_are_read_in_the_forms_that_files_have(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)

    assert printed_json(path, capsys)["counts"] == {"rows": 2, "predicted": 2, "models": 2}


def test_numbers_as_texts_are_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.jsonl"
    texts = {name: str(value) for name, value in LLAMA.items() if isinstance(value, int | float)}
    path.write_text(json.dumps(LLAMA | texts | {"model_load_gib": "14.99 GiB", "kv_cache_tokens": "952,032"}))

    (row,) = printed_json(path, capsys)["rows"]

    logged = {each["name"]: each["logged"] for each in row["comparisons"]}
    assert (logged["weights"], logged["tokens"]) == (14.99, 952032.0)
