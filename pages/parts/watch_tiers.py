"""What lies below the card's pool: swap, offload to the host and beyond, external caches, each beside the plan's tier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from live.samples import EngineSample, LabelledValue
from pages.parts import watch_words, words
from pages.parts.language import t
from pages.parts.watch_evidence import Evidence
from pages.parts.watch_seen import Seen
from pages.parts.watch_state import key
from planner.answer import Plan
from planner.units import GIB

_TIERING = "vllm:kv_offload_tiering_"
_BY_SOURCE = "vllm:prompt_tokens_cached_by_source"
_MOST_TIER_ROWS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRow:
    """One number of one tier: so far or now, in the last minutes, and the plan's size where it has one."""

    tier: str
    name: str
    shown: str
    lately: str = ""
    plan: str = ""


def tiers(seen: Seen) -> None:
    """The section of the page."""
    st.markdown(f"**{t('Below the card')}**")
    rows = tier_rows(seen.sample, seen.evidence, seen.plan)
    if rows:
        st.dataframe(pd.DataFrame([_shown(row) for row in rows]), hide_index=True, key=key("tiers"))
    absent = words.listed(absent_tiers(seen.sample))
    if absent:
        text = t(
            "Not exported by this engine: {tiers}. It has no such tier, or its version does not tell of it.",
            tiers=absent,
        )
        st.caption(text)


def _shown(row: TierRow) -> dict[str, str]:
    return {
        t("Tier"): row.tier,
        t("What"): row.name,
        t("Now or so far"): row.shown,
        t("Last 5 min"): row.lately,
        t("Plan"): row.plan,
    }


def tier_rows(sample: EngineSample, facts: Evidence, plan: Plan | None) -> tuple[TierRow, ...]:
    """What the engine exports of each tier."""
    return (
        *_swap_rows(sample, plan),
        *_offload_rows(sample, facts, plan),
        *_simple_rows(sample),
        *_tiering_rows(sample),
        *_external_rows(sample, facts),
    )


def absent_tiers(sample: EngineSample) -> tuple[str, ...]:
    """The tiers of which nothing is exported."""
    known = (
        (t("swap space (V0)"), sample.num_requests_swapped),
        (t("native offload"), sample.offload_store_bytes),
        (t("simple offload connector"), sample.simple_offload_used_blocks),
        (t("tiers below the host"), 1.0 if _tiering(sample) else None),
        (t("external prefix cache"), sample.external_prefix_cache_queries_tokens),
    )
    return tuple(name for name, number in known if number is None)


def _planned(plan: Plan | None, name: str) -> str:
    found = None if plan is None else next((line for line in plan.host if line.name == name), None)
    return "" if found is None else words.gib(found.estimate.best_bytes)


def _swap_rows(sample: EngineSample, plan: Plan | None) -> Iterator[TierRow]:
    tier = t("Swap space (V0)")
    if sample.num_requests_swapped is not None:
        yield TierRow(tier=tier, name=t("requests swapped out"), shown=words.count(sample.num_requests_swapped))
    if sample.cpu_kv_usage_fraction is not None:
        config = sample.cache_config
        num_blocks = None if config is None else config.num_cpu_blocks
        blocks = "" if num_blocks is None else t("of {count} blocks", count=words.count(num_blocks))
        size = None if config is None else config.swap_space_bytes
        planned = _planned(plan, "host_swap")
        yield TierRow(
            tier=tier,
            name=t("in use"),
            shown=f"{watch_words.percent(sample.cpu_kv_usage_fraction)} {blocks}".strip(),
            plan=planned or ("" if size is None else t("engine: {size}", size=words.gib(size))),
        )


def _offload_rows(sample: EngineSample, facts: Evidence, plan: Plan | None) -> Iterator[TierRow]:
    tier, planned = t("Host (native offload)"), _planned(plan, "host_kv_cache")
    size_gib = None if sample.cache_config is None else sample.cache_config.kv_offloading_size_gib
    told = "" if size_gib is None else t("engine: {size}", size=words.gib(size_gib * GIB))
    moved = (
        (t("stored"), sample.offload_store_bytes, facts.store_bytes_per_second, facts.store_seconds_per_second),
        (t("loaded"), sample.offload_load_bytes, facts.load_bytes_per_second, facts.load_seconds_per_second),
    )
    for name, total, rate, busy in moved:
        if total is not None:
            lately = "" if rate is None else f"{words.small_bytes(rate)}/s"
            share = "" if busy is None else t("; transferring {share} of the time", share=f"{busy:.1%}")
            yield TierRow(
                tier=tier, name=name, shown=words.small_bytes(total), lately=lately + share, plan=planned or told
            )
    shares = (
        (t("pinned by transfers"), sample.kv_offload_cpu_pinned_fraction),
        (t("being read"), sample.kv_offload_cpu_read_fraction),
        (t("being written"), sample.kv_offload_cpu_write_fraction),
        (t("HiSparse host cache in use"), sample.hisparse_host_usage_fraction),
    )
    for name, share_of in shares:
        if share_of is not None:
            yield TierRow(tier=tier, name=name, shown=watch_words.percent(share_of))
    failures = (
        (t("stores skipped"), sample.offload_stores_skipped, facts.offload_stores_skipped),
        (t("allocations failed"), sample.offload_allocation_failures, facts.offload_allocation_failures),
    )
    for name, total, added in failures:
        if total is not None:
            yield TierRow(
                tier=tier, name=name, shown=words.count(total), lately="" if added is None else words.count(added)
            )


def _simple_rows(sample: EngineSample) -> Iterator[TierRow]:
    tier = t("Host (simple connector)")
    numbers = (
        (t("blocks in use"), sample.simple_offload_used_blocks),
        (t("blocks waiting to be stored"), sample.simple_offload_pending_store_blocks),
        (t("blocks loaded"), sample.simple_offload_load_blocks),
    )
    for name, number in numbers:
        if number is not None:
            yield TierRow(tier=tier, name=name, shown=words.count(number))


def _tiering(sample: EngineSample) -> list[LabelledValue]:
    return [each for each in sample.labelled if each.name.startswith(_TIERING)]


def _tiering_rows(sample: EngineSample) -> Iterator[TierRow]:
    """The tiers below the host, by the `tier` label that vLLM gives them."""
    for each in _tiering(sample)[:_MOST_TIER_ROWS]:
        labels = dict(each.labels)
        tier = labels.pop("tier", None)
        others = ", ".join(f"{name} {value}" for name, value in sorted(labels.items()))
        what = each.name.removeprefix(_TIERING).replace("_", " ")
        is_bytes = what.endswith("bytes")
        yield TierRow(
            tier=t("Tier {name}", name=tier) if tier else t("Tiers"),
            name=f"{what} ({others})" if others else what,
            shown=words.small_bytes(each.value) if is_bytes else f"{each.value:,.6g}",
        )


def _external_rows(sample: EngineSample, facts: Evidence) -> Iterator[TierRow]:
    tier, asked = t("External prefix cache"), sample.external_prefix_cache_queries_tokens
    if asked is not None:
        hits = sample.external_prefix_cache_hits_tokens
        share = facts.external_hit_fraction
        yield TierRow(
            tier=tier,
            name=t("prompt tokens found of those asked for"),
            shown=f"{words.count(hits or 0.0)} / {words.count(asked)}",
            lately="" if share is None else watch_words.percent(share),
        )
    for each in sample.labelled_values(_BY_SOURCE):
        if each.value:
            source = dict(each.labels).get("source", "")
            name = t("prompt tokens found, source {name}", name=source)
            yield TierRow(tier=t("Prefix caches by source"), name=name, shown=words.count(each.value))
