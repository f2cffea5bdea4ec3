"""Whatever the planner answers for a model of the catalogue, the page has words and figures for it."""

from __future__ import annotations

import pytest

from pages.parts import charts, downloads, tables, what_if, words
from planner.facts import PlanError
from planner.model_catalog import catalogue_documents, search
from planner.planning import answer
from planner.request import EngineFlags, PlanRequest

MODELS = [entry.model_id for entry in search() if entry.is_plannable]


@pytest.mark.parametrize("model_id", MODELS)
def test_every_catalogue_model_can_be_shown(model_id: str) -> None:
    request = PlanRequest(model_id=model_id, gpu="H200 141GB SXM", flags=EngineFlags(tensor_parallel_size=8))
    try:
        plan, model = answer(request, catalogue_documents(model_id))
    except PlanError:
        request = PlanRequest(model_id=model_id, gpu="H200 141GB SXM")
        plan, model = answer(request, catalogue_documents(model_id))

    total = sum(line.estimate.best_bytes for line in charts.ordered_lines(plan.ranks[0]))
    shown = [words.part_words(line.name).meaning for line in charts.ordered_lines(plan.ranks[0])]
    assert total == plan.gpu_total.best_bytes
    assert all(shown), "a part of the card has no words"
    assert charts.budget_waterfall(plan.ranks[0]).data
    assert all(str(row["KV cache group"])[0].isupper() for row in tables.group_rows(plan.pool))
    assert tables.capacity_rows(plan)
    assert [tables.what_if_rows(table) for table in what_if.what_ifs(request, model, plan)]
    assert charts.length_alt(what_if.length_sweep(request, model, plan))
    assert downloads.plan_json(plan, model)
