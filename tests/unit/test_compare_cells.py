"""The table of what fits as values: numbers to sort by, words to read, shades to see."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

from pages.parts import compare_grid
from pages.parts.compare_cells import (
    SHADES,
    UNBOUNDED,
    WHY_NOT,
    FitTable,
    column_title,
    columns_of,
    filtered,
    model_titles,
    rows_of,
    shown,
    summary,
)
from pages.parts.compare_request import LONGEST, PUBLISHED, REQUESTS
from planner.gpu_catalog import find_gpu
from planner.matrix import MatrixQuestion, Split, sheet
from planner.model_catalog import catalogue_documents
from planner.planning import facts_for
from planner.request import EngineFlags, PlanRequest
from planner.units import GIB

MODELS = ("meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-7B-Instruct-AWQ", "deepseek-ai/DeepSeek-V3")
CARDS = ("T4", "L40S", "H100 80GB SXM")


def table(measure: str = LONGEST, **flags: object) -> FitTable:
    made = EngineFlags(**({"max_model_len": "auto"} | flags))  # type: ignore[arg-type]  # as each test names them
    question = MatrixQuestion(
        request=PlanRequest(model_id="", flags=made),
        gpus=tuple(find_gpu(name) for name in CARDS),
        splits=(Split(), Split(tensor_parallel_size=8)),
        kv_dtypes=("auto", "fp8"),
    )
    rows = []
    for model_id in MODELS:
        model = facts_for(PlanRequest(model_id=model_id), catalogue_documents(model_id))
        found = sheet(question, model)
        rows += list(rows_of(found, measure, PUBLISHED, model))
    return FitTable(measure=measure, num_requests=1, length_tokens=8192, columns=columns_of(found), rows=tuple(rows))


def texts(found: FitTable, row: int) -> list[str]:
    return [shown(value, found.measure) for value in found.rows[row].numbers]


def test_a_model_is_named_without_its_owner_where_that_is_enough() -> None:
    rows = table().rows
    other = replace(rows[0], model_id="someone/Llama-3.1-8B")

    assert model_titles(rows)[0] == "Llama-3.1-8B"
    assert model_titles((rows[0], other)) == ["meta-llama/Llama-3.1-8B", "someone/Llama-3.1-8B"]


def test_columns_are_cards_by_count() -> None:
    assert [column_title(column) for column in table().columns] == [
        "T4 ×1", "T4 ×8", "L40S ×1", "L40S ×8", "H100 80GB SXM ×1", "H100 80GB SXM ×8",
    ]  # fmt: skip


def test_a_row_tells_lengths_and_why_not() -> None:
    found = table()

    llama, awq, deepseek = texts(found, 0), texts(found, 2), texts(found, 4)
    assert llama[0] == "✕ weights"
    assert llama[4:] == ["131,072", "131,072"]
    assert awq[1] == "✕ TP"  # 28 heads do not divide by 8
    assert deepseek[2] == "✕ weights"


def test_every_cell_points_at_its_own_plan() -> None:
    found = table()

    for column, (card, number) in enumerate(found.columns):
        made, cell = found.cell(3, column)
        request = made.request(cell)
        assert (request.model_id, request.gpu) == (MODELS[1], card)
        assert request.flags.tensor_parallel_size == number
        assert request.flags.kv_cache_dtype == "fp8"


def test_requests_at_once_are_read_as_times() -> None:
    found = table(REQUESTS, max_model_len=8192)

    assert texts(found, 0)[4].endswith("×")
    assert found.rows[0].numbers[4] > found.rows[0].numbers[2]


def test_a_length_beyond_the_models_own_is_said_in_the_cell() -> None:
    assert set(texts(table(REQUESTS, max_model_len=120_000), 2)) <= {"✕ model limit", "✕ TP"}


def test_shades_rise_with_the_share_of_the_models_own_limit() -> None:
    found = table()
    row = replace(found.rows[0], numbers=np.array([-2.0, 1.0]))

    assert found.rows[0].shades[0] == 0
    assert found.rows[0].shades.tolist()[4:] == [SHADES, SHADES]
    assert row.starts_somewhere


def test_what_is_filtered_out_by_name_or_by_not_starting() -> None:
    found = table()

    assert {row.model_id for row in filtered(found, "qwen awq", only_starting=False).rows} == {MODELS[1]}
    assert {row.kv_dtype for row in filtered(found, "llama fp8", only_starting=False).rows} == {"fp8"}
    assert not filtered(found, "nothing of the kind", only_starting=False).rows
    assert all(row.starts_somewhere for row in filtered(found, "", only_starting=True).rows)


def test_the_summary_counts_what_starts() -> None:
    found = table()
    starting = sum(int((row.numbers >= 0).sum()) for row in found.rows)

    assert summary(found) == f"{starting} of 36 combinations start."


@pytest.mark.parametrize("place", range(len(WHY_NOT)))
def test_every_reason_has_its_word(place: int) -> None:
    assert shown(-1.0 - place, LONGEST) == f"✕ {WHY_NOT[place]}"


def test_fewer_blocks_than_sequences_of_full_graphs_have_a_word_of_their_own() -> None:
    flags = EngineFlags(max_model_len=131_072, kv_cache_memory_bytes=round(8.82 * GIB))
    asked = PlanRequest(model_id="Qwen/Qwen3.8-27B-FP8", vllm_version="0.26.0", flags=flags)
    model = facts_for(asked, catalogue_documents(asked.model_id))
    found = sheet(MatrixQuestion(request=asked, gpus=(find_gpu("L40S"),), splits=(Split(),)), model)

    assert [shown(value, LONGEST) for row in rows_of(found, LONGEST, PUBLISHED, model) for value in row.numbers] == [
        "✕ state blocks"
    ]


def test_a_split_that_heads_do_not_divide_by_is_named() -> None:
    question = MatrixQuestion(
        request=PlanRequest(model_id="", flags=EngineFlags(max_model_len="auto")),
        gpus=(find_gpu("H100 80GB SXM"),),
        splits=(Split(tensor_parallel_size=3),),
    )
    model = facts_for(PlanRequest(model_id=MODELS[0]), catalogue_documents(MODELS[0]))

    (row,) = rows_of(sheet(question, model), LONGEST, PUBLISHED, model)
    assert [shown(value, LONGEST) for value in row.numbers] == ["✕ TP"]


def test_a_model_without_a_cache_says_so() -> None:
    assert shown(UNBOUNDED, REQUESTS) == "no cache"


def test_the_csv_holds_every_cell_exactly() -> None:
    found = table()

    rows = list(csv.reader(io.StringIO(compare_grid.csv_text(found))))

    assert rows[0][:4] == ["model", "weights", "kv_cache_dtype", "own_limit_tokens"]
    assert len(rows) == 1 + len(found.rows)
    assert rows[1][4:] == ["✕ weights", *(f"{value:.10g}" for value in found.rows[0].numbers[1:])]


def test_the_frame_sorts_what_does_not_start_below_every_number() -> None:
    data = compare_grid.frame(table())

    assert data["L40S ×1"].min() < 0 < data["L40S ×1"].max()
    assert list(data.columns[:3]) == ["Model", "Weights", "KV"]
    assert data.columns[-1] == "Own limit"
    assert list(data["Weights"][::2]) == ["not quantised", "awq", "fp8"]
