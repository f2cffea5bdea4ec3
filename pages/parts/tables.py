"""Rows of the page's tables: values in, columns of words out. Pure; knows no Streamlit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pages.parts import words
from pages.parts.language import mark, t
from pages.parts.said import said
from pages.parts.what_if import Trial, WhatIf
from planner.answer import BudgetLine, KvGroup, KvPool, Plan, RankPlan, ResolvedDefault

Cell = str | float | None  # a number is shown by its column's format, None as a dash
Row = dict[str, Cell]

# The columns' headings are English here; the table that draws them says them in the reader's language.
HEADINGS = (
    mark("Part"), mark("Size"), mark("90 % band"), mark("Exact bytes"), mark("Where it comes from"), mark("Weights of"),
    mark("KV cache group"), mark("Groups"), mark("Layers in each"), mark("Tokens per block"), mark("Page of one layer"),
    mark("Blocks per request"), mark("On each card"), mark("Amount"), mark("Flag"), mark("Value"), mark("Source"),
    mark("Why"), mark("Starts"), mark("KV tokens"), mark("At once"),
)  # fmt: skip

# How the numbers of a column are written; a column of numbers is set flush right.
FORMATS: Mapping[str, Callable[[Any], str]] = {
    "Exact bytes": words.count,
    "Groups": words.count,
    "Layers in each": words.count,
    "Tokens per block": words.count,
    "Page of one layer": words.small_bytes,
    "Blocks per request": words.count,
    "KV tokens": words.count,
    "At once": words.concurrency,
    "Size": words.gib,
}

ROLE_WORDS = {
    "embedding": mark("Embedding"),
    "head": mark("Output head"),
    "attention": mark("Attention"),
    "mlp": "MLP",
    "experts": mark("Experts"),
    "shared_experts": mark("Shared experts"),
    "router": mark("Router"),
    "norm": mark("Norms"),
    "mamba": mark("State-space layers"),
    "indexer": mark("Indexer"),
    "vision": mark("Vision tower"),
    "audio": mark("Audio tower"),
    "projector": mark("Projector"),
    "draft": mark("Draft layers"),
    "other": mark("Other weights"),
}
GROUP_WORDS = {
    "full": mark("Full attention"),
    "mla": mark("Latent attention (MLA)"),
    "sliding": mark("Sliding window"),
    "sliding_mla": mark("Sliding window of latents"),
    "chunked": mark("Chunked local attention"),
    "cross": mark("Cross-attention"),
    "ring": mark("Ring of a compressor"),
    "mamba": mark("Recurrent state"),
}


def line_rows(lines: Sequence[BudgetLine]) -> list[Row]:
    """Every part exactly: bytes, band, formula and where the number comes from."""
    return [
        {
            "Part": words.part_words(line.name).label,
            "Size": line.estimate.best_bytes,
            "90 % band": words.band(line.estimate),
            "Exact bytes": line.estimate.best_bytes,
            "Where it comes from": words.plain(_source(said(line.estimate.formula), words.basis(line.estimate.basis))),
        }
        for line in lines
    ]


def role_word(role: str) -> str:
    """What weights of that role are called."""
    return said(ROLE_WORDS.get(role, role))


def role_rows(rank: RankPlan) -> list[Row]:
    """The weights of a card by what they are for, largest first."""
    roles = sorted(rank.weights.by_role, key=lambda pair: -pair[1])
    return [
        {
            "Weights of": role_word(role),
            "Size": num_bytes,
            "Exact bytes": num_bytes,
        }
        for role, num_bytes in roles
        if num_bytes
    ]


def group_rows(pool: KvPool) -> list[Row]:
    """The KV cache groups as vLLM's planner makes them; equal ones share a row."""
    return [
        {
            "KV cache group": _group_title(group),
            "Groups": number,
            "Layers in each": group.num_layers,
            "Tokens per block": group.block_size,
            "Page of one layer": group.page_bytes,
            "Blocks per request": group.blocks_per_request,
        }
        for group, number in Counter(pool.groups).items()
    ]


def capacity_rows(plan: Plan) -> list[Row]:
    """The pool's figures: what one block, one token and one request take, and the longest that fits."""
    pool = plan.pool
    rows: list[tuple[str, str, int | None]] = [
        (t("Tokens in a block"), words.count(pool.block_size), None),
        (t("A block, all layers"), words.small_bytes(pool.bytes_per_block), pool.bytes_per_block),
        (t("Cache of one token"), words.small_bytes(pool.kv_bytes_per_token), pool.kv_bytes_per_token),
        (t("One request of the longest length"), words.small_bytes(pool.needed_bytes), pool.needed_bytes),
        (
            t("Longest length that would fit"),
            t("{estimated_max_model_len} tokens", estimated_max_model_len=words.count(pool.estimated_max_model_len)),
            None,
        ),
    ]
    if pool.state_bytes_per_request:
        state_bytes = pool.state_bytes_per_request
        rows.insert(3, (t("Recurrent state of one request"), words.small_bytes(state_bytes), state_bytes))
    return [{"On each card": name, "Amount": amount, "Exact bytes": exact} for name, amount, exact in rows]


def what_if_rows(table: WhatIf) -> list[Row]:
    """One row a tried value; the present one is marked in words."""
    return [_trial_row(trial) for trial in table.trials]


def resolved_rows(defaults: Sequence[ResolvedDefault]) -> list[Row]:
    """Every flag as vLLM resolves it, the given ones first."""
    ordered = sorted(defaults, key=lambda default: not default.is_given)
    return [
        {
            "Flag": words.plain(words.flag_name(default.name)),
            "Value": words.plain(words.shown_value(default.value)),
            "Source": words.resolved_source(default),
            "Why": words.plain(said(default.basis.note)),
        }
        for default in ordered
    ]


def _source(formula: str, basis: str) -> str:
    return f"{formula} ({basis})" if formula else basis.capitalize()


def _group_title(group: KvGroup) -> str:
    kinds = " + ".join(said(GROUP_WORDS.get(kind, kind.replace("_", " "))) for kind in group.kind.split("+"))
    return (
        t("{kinds}, {sliding_window} tokens", kinds=kinds, sliding_window=words.count(group.sliding_window))
        if group.sliding_window
        else kinds
    )


def _trial_row(trial: Trial) -> Row:
    shown = words.plain(words.shown_value(trial.value))
    row: Row = {"Value": f"**{shown}** ({t('now')})" if trial.is_present else shown}
    if trial.plan is None or any(finding.severity == "refusal" for finding in trial.plan.findings):
        return row | {"Starts": t("refused"), "KV tokens": None, "At once": None}
    pool = trial.plan.pool
    return row | {
        "Starts": words.start_word(trial.plan),
        "KV tokens": pool.tokens,
        "At once": pool.max_concurrency,
    }
