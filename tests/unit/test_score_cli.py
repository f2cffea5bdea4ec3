"""`python -m planner score`: what it prints of good rows, of bad lines, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

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


def printed_json(path: Path, capsys: pytest.CaptureFixture[str]) -> dict:
    assert main([str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


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
