"""Rows of the page's tables: values in, columns of words out. Pure; knows no Streamlit."""

from __future__ import annotations

from collections.abc import Sequence

from pages.parts import charts, words
from pages.parts.what_if import Trial, WhatIf
from planner.answer import KvGroup, KvPool, Plan, RankPlan, ResolvedDefault

Row = dict[str, str]

GROUP_WORDS = {
    "full": "Full attention",
    "sliding": "Sliding window",
    "chunked": "Chunked local attention",
    "mla": "Latent attention (MLA)",
    "indexer": "Sparse-attention index",
    "mamba1": "Mamba state",
    "mamba2": "Mamba-2 state",
    "mamba": "Recurrent state",
    "gdn": "Gated delta-net state",
    "kda": "Kimi delta state",
    "linear_attention": "Linear-attention state",
    "short_conv": "Short-convolution state",
    "cross": "Cross-attention",
}


def line_rows(rank: RankPlan) -> list[Row]:
    """Every part of a card exactly: bytes, band, formula and where the number comes from."""
    return [
        {
            "Part": words.part_words(line.name).label,
            "Size": words.gib(line.estimate.best_bytes),
            "90 % band": words.band(line.estimate),
            "Exact bytes": words.count(line.estimate.best_bytes),
            "Where it comes from": words.plain(_source(line.estimate.formula, words.basis(line.estimate.basis))),
        }
        for line in charts.ordered_lines(rank)
    ]


def role_rows(rank: RankPlan) -> list[Row]:
    """The weights of a card by what they are for, largest first."""
    roles = sorted(rank.weights.by_role, key=lambda pair: -pair[1])
    return [
        {
            "Weights of": role.replace("_", " ").capitalize(),
            "Size": words.gib(num_bytes),
            "Exact bytes": words.count(num_bytes),
        }
        for role, num_bytes in roles
        if num_bytes
    ]


def group_rows(pool: KvPool) -> list[Row]:
    """The KV cache groups as vLLM's planner makes them."""
    return [
        {
            "KV group": _group_title(group),
            "Layers": words.count(group.num_layers),
            "Tokens per block": words.count(group.block_size),
            "Page, one layer": words.small_bytes(group.page_bytes),
            "Blocks per request": words.count(group.blocks_per_request),
        }
        for group in pool.groups
    ]


def capacity_rows(plan: Plan) -> list[Row]:
    """The pool's figures: what one block, one token and one request take, and the longest that fits."""
    pool = plan.pool
    rows = [
        ("Tokens in a block", words.count(pool.block_size), ""),
        ("Bytes of a block, all layers", words.small_bytes(pool.bytes_per_block), words.count(pool.bytes_per_block)),
        ("Cache of one token", words.small_bytes(pool.kv_bytes_per_token), words.count(pool.kv_bytes_per_token)),
        ("One request of the longest length", words.gib(pool.needed_bytes, "up"), words.count(pool.needed_bytes)),
        ("Longest length that would fit", f"{words.count(pool.estimated_max_model_len)} tokens", ""),
    ]
    if pool.state_bytes_per_request:
        state_bytes = pool.state_bytes_per_request
        rows.insert(3, ("Recurrent state of one request", words.small_bytes(state_bytes), words.count(state_bytes)))
    return [{"Per card": name, "Size": size, "Exact bytes": exact or "–"} for name, size, exact in rows]


def what_if_rows(table: WhatIf) -> list[Row]:
    """One row a tried value; the present one is marked in words."""
    return [_trial_row(table.flag, trial) for trial in table.trials]


def resolved_rows(defaults: Sequence[ResolvedDefault]) -> list[Row]:
    """Every flag as vLLM resolves it, the given ones first."""
    ordered = sorted(defaults, key=lambda default: not default.is_given)
    return [
        {
            "Flag": words.plain(words.flag_name(default.name)),
            "Value": words.plain(words.shown_value(default.value)),
            "Source": words.resolved_source(default),
            "Why": words.plain(default.basis.note),
        }
        for default in ordered
    ]


def _source(formula: str, basis: str) -> str:
    return f"{formula} ({basis})" if formula else basis.capitalize()


def _group_title(group: KvGroup) -> str:
    kinds = " + ".join(GROUP_WORDS.get(kind, kind.replace("_", " ")) for kind in group.kind.split("+"))
    return f"{kinds}, {words.count(group.sliding_window)} tokens" if group.sliding_window else kinds


def _trial_row(flag: str, trial: Trial) -> Row:
    value = words.shown_value(trial.value)
    row = {words.plain(words.flag_name(flag)): f"**{value}** (now)" if trial.is_present else value}
    if trial.plan is None:
        return row | {"Starts": "refused", "KV tokens": "–", "Requests at once": "–"}
    pool = trial.plan.pool
    return row | {
        "Starts": words.start_word(trial.plan),
        "KV tokens": words.count(pool.tokens),
        "Requests at once": words.concurrency(pool.max_concurrency),
    }
