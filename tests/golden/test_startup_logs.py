"""Real start-up logs, and what a careful reader reads from them; the command line says the same by the same keys."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from planner.log_cli import main

LOGS = Path(__file__).parents[2].parent / "shared" / "groundtruth" / "logs"


def rows() -> list[dict[str, Any]]:
    index = LOGS / "index.jsonl"
    records = [json.loads(line) for line in index.read_text().splitlines()] if index.exists() else []
    return [record for record in records if "kv_cache_tokens" in record["expected"]]


def test_the_logs_are_there() -> None:
    if not rows() and os.environ.get("CI") != "true":
        pytest.skip("the checkout has no shared folder beside it")

    assert rows()


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["file"])
def test_the_command_line_says_what_a_careful_reader_reads(
    row: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    status = main([str(LOGS / row["file"]), "--json"])

    record = json.loads(capsys.readouterr().out)
    expected = {key: value for key, value in row["expected"].items() if key != "model"}
    assert status == 0
    assert {key: record[key] for key in expected} == expected
    assert (record["model"] or "").split("/")[-1] == (row["expected"]["model"] or "").split("/")[-1]
    assert record["engine"] == row["engine"]
    assert record["vllm_version"] == row["vllm_version"]
    assert record["unread"] == []


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["file"])
def test_each_number_has_its_line_or_its_derivation(row: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    main([str(LOGS / row["file"]), "--json"])

    record = json.loads(capsys.readouterr().out)
    told = {key for key, value in record.items() if isinstance(value, int | float) and not isinstance(value, bool)}
    derived = {"tensor_parallel": "tensor_parallel_size", "data_parallel": "data_parallel_size"}
    unexplained = told - record["lines"].keys() - {"start_number", "num_starts"}
    assert {derived.get(key, key) for key in unexplained} <= record["derived"].keys()


# What the three files' source lines tell; only the first has a banner.
RELEASES = {
    "docker-compose-prefix-rocm-gemma3.txt": ("banner", "0.11.0rc2.dev98+g393de22d2"),
    "tp4-interleaved-ranks-repeated-size.txt": ("source lines", "0.11.0 by source lines"),
    "v0-cpu-two-cpu-block-counts.txt": ("source lines", "0.8.3 to 0.9.0.1 by source lines"),
}


@pytest.mark.parametrize("row", [row for row in rows() if row["file"] in RELEASES], ids=lambda row: row["file"])
def test_the_release_is_no_more_exact_than_the_log(row: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    main([str(LOGS / row["file"]), "--json"])

    record = json.loads(capsys.readouterr().out)
    assert (record["version_basis"], record["release"]) == RELEASES[row["file"]]
