"""Rows of the page's tables and the files to download."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

from pages.parts import downloads, tables
from pages.parts.what_if import Trial, WhatIf
from planner.answer import BudgetLine, Plan
from planner.facts import Finding


def test_parts_carry_exact_bytes_and_their_source(fitting_plan: Plan) -> None:
    row = tables.line_rows(fitting_plan.ranks[0].lines)[1]

    assert row["Part"] == "Activation peak"
    assert row["Exact bytes"] == 2 * 2**30
    assert row["Where it comes from"] == r"1 \+ 1 \(derived by formula\: a formula\)"


def test_weights_are_listed_by_role_largest_first(fitting_plan: Plan) -> None:
    assert [row["Weights of"] for row in tables.role_rows(fitting_plan.ranks[0])] == ["MLP", "Embedding"]


def test_equal_groups_share_a_row(fitting_plan: Plan) -> None:
    group = fitting_plan.pool.groups[0]
    other = replace(group, kind="sliding", sliding_window=1024)
    pool = replace(fitting_plan.pool, groups=(other, other, group))

    rows = tables.group_rows(pool)

    assert [(row["KV cache group"], row["Groups"]) for row in rows] == [
        ("Sliding window, 1,024 tokens", 2),
        ("Full attention", 1),
    ]


def test_recurrent_state_is_shown_where_there_is_some(fitting_plan: Plan) -> None:
    plan = replace(fitting_plan, pool=replace(fitting_plan.pool, state_bytes_per_request=2**20))

    names = [row["On each card"] for row in tables.capacity_rows(plan)]

    assert "Recurrent state of one request" in names
    assert "Recurrent state of one request" not in [row["On each card"] for row in tables.capacity_rows(fitting_plan)]


def test_the_present_value_is_marked_in_words(fitting_plan: Plan) -> None:
    table = WhatIf(
        flag="max_model_len",
        title="Longest request",
        trials=(
            Trial(value=8192, is_present=False, plan=fitting_plan),
            Trial(value=32768, is_present=True, plan=fitting_plan),
        ),
    )

    assert [row["Value"] for row in tables.what_if_rows(table)] == ["8,192", "**32,768** (now)"]


def test_what_vllm_refuses_has_no_numbers(fitting_plan: Plan) -> None:
    refusal = Finding(code="x", severity="refusal", text="no")
    trials = (
        Trial(value="nvfp4", is_present=False, plan=replace(fitting_plan, findings=(refusal,))),
        Trial(value="odd", is_present=False, plan=None, refusal="no"),
    )

    rows = tables.what_if_rows(WhatIf(flag="kv_cache_dtype", title="Format", trials=trials))

    assert [(row["Starts"], row["KV tokens"]) for row in rows] == [("refused", None), ("refused", None)]


def test_given_flags_come_before_defaults(fitting_plan: Plan) -> None:
    rows = tables.resolved_rows(fitting_plan.resolved)

    assert [(row["Source"], row["Value"]) for row in rows] == [("given", "32,768"), ("default", "1,024")]


def test_the_csv_holds_every_line_with_exact_bytes(staged_plan: Plan) -> None:
    rows = list(csv.DictReader(io.StringIO(downloads.lines_csv(staged_plan))))

    assert len(rows) == sum(len(rank.lines) for rank in staged_plan.ranks)
    assert sum(int(row["bytes"]) for row in rows if row["pp_rank"] == "1") == 80 * 2**30


def test_a_text_in_the_csv_is_no_spreadsheet_formula(fitting_plan: Plan) -> None:
    rank = fitting_plan.ranks[0]
    line = BudgetLine(name="=1+1", estimate=rank.weights.load)
    plan = replace(fitting_plan, ranks=(replace(rank, lines=(line,)),))

    assert "'=1+1" in downloads.lines_csv(plan)


def test_a_file_name_is_harmless(fitting_plan: Plan) -> None:
    plan = replace(fitting_plan, request=replace(fitting_plan.request, model_id="../../etc/pass wd"))

    assert downloads.file_stem(plan) == "kvscope-pass-wd-Card-80"
