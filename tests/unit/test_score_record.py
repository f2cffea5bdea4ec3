"""The recorded scores: what is written is read again, and the file that the Accuracy page reads is of today's rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.score import Comparison, Scored, score_rows
from planner.score_cli import carried_files, rows_of
from planner.score_record import RECORD, read_record, record_of, record_text
from tests.score_rows import scored


def kept_row(model_id: str, logged: float) -> Scored:
    pool = Comparison(name="kv_pool", predicted=10.0, logged=logged, low=9.0, high=11.0)
    return scored(f"{model_id}-{logged}", model_id, pool, Comparison(name="tokens", predicted=5.0, logged=6.0))


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    rows = [kept_row("a", 10.5), kept_row("b", 9.5), Scored(**base_of_skipped())]
    path = tmp_path / "record.json"

    path.write_text(record_text(rows), encoding="utf-8")

    kept = read_record(path)

    assert kept.scored == record_of(rows).scored
    moved = [(pool.predicted, pool.low) for item in kept.left_out if (pool := item.find("kv_pool")) is not None]
    expected = [
        (pool.predicted, pool.low) for item in record_of(rows).left_out if (pool := item.find("kv_pool")) is not None
    ]
    assert moved == [pytest.approx(each) for each in expected]


def base_of_skipped() -> dict:
    kept = kept_row("c", 1.0)
    fields = {name: getattr(kept, name) for name in kept.__slots__}
    return fields | {"comparisons": (), "reason": "no config"}


@pytest.fixture(scope="module")
def fresh() -> dict[str, Scored]:
    rows = score_rows([row for path in carried_files() for row in rows_of(path) if row.grade in "AB"])
    return {item.row_id: item for item in rows}


def test_the_recorded_scores_are_those_of_the_rows_and_rules_of_today(fresh: dict[str, Scored]) -> None:
    """`make score` writes planner/data/accuracy.json again."""
    kept = {item.row_id: item for item in read_record(RECORD).scored}

    assert list(kept) == list(fresh)
    for row_id, item in fresh.items():
        assert kept[row_id].reason == item.reason
        assert [each.name for each in kept[row_id].comparisons] == [each.name for each in item.comparisons]
        for mine, theirs in zip(kept[row_id].comparisons, item.comparisons, strict=True):
            assert mine.predicted == pytest.approx(theirs.predicted, rel=1e-5, abs=1e-5), f"{row_id}: run `make score`"
