"""The numbers of the watched engine now, each with what stands beside it. Only draws."""

from __future__ import annotations

import math
from dataclasses import dataclass

import streamlit as st

from pages.parts import watch_words, words
from pages.parts.language import t
from pages.parts.watch_seen import Seen, expectation_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One number of the engine: its name, the value as shown, and what stands beside it."""

    label: str
    shown: str
    beside: str


def cards_of(seen: Seen) -> tuple[tuple[Card, ...], ...]:
    """The engine's numbers in two rows; what is not exported is said, never shown as 0."""
    sample, facts = seen.sample, seen.evidence
    first = (
        _card(t("KV usage"), watch_words.percent(sample.kv_usage_fraction), _expected_words(seen)),
        _card(t("Running"), watch_words.number(sample.num_requests_running), _concurrency_words(seen)),
        _card(t("Waiting"), watch_words.number(sample.num_requests_waiting), t("in the queue")),
        _card(t("Preemptions"), watch_words.number(sample.num_preemptions), _preemption_words(seen)),
        _share_card(t("Prefix hits, last 5 min"), _hits(seen), t("of what was looked up")),
    )
    second = (
        _card(t("Stored to host"), _rate(sample.offload_store_bytes, facts.store_bytes_per_second), _tier_words(seen)),
        _card(t("Loaded from host"), _rate(sample.offload_load_bytes, facts.load_bytes_per_second), _tier_words(seen)),
        _card(t("Swapped requests"), watch_words.number(sample.num_requests_swapped), t("V0's swap space")),
        _share_card(t("External cache hits"), _external_hits(seen), t("of prompt tokens asked for")),
    )
    return first, second


def _card(label: str, shown: str, beside: str) -> Card:
    is_absent = shown == watch_words.not_exported()
    return Card(label=label, shown="–" if is_absent else shown, beside=shown if is_absent else beside)


def _share_card(label: str, shown: str | None, beside: str) -> Card:
    return (
        Card(label=label, shown="–", beside=t("nothing asked lately")) if shown is None else _card(label, shown, beside)
    )


def metrics(seen: Seen) -> None:
    """The engine's numbers as cards."""
    for row in cards_of(seen):
        with st.container(horizontal=True, gap="small"):
            for card in row:
                _metric(card)


def _metric(card: Card) -> None:
    st.metric(
        card.label,
        card.shown,
        card.beside or None,
        delta_color="off",
        delta_arrow="off",
        border=True,
        width="stretch",
    )


def _expected_words(seen: Seen) -> str:
    expected = expectation_of(seen)
    if expected is None or not len(expected.low) or math.isnan(expected.best[-1]):
        return t("no finished request yet to expect from") if seen.planned is not None else t("no plan for this model")
    span = watch_words.span(float(expected.low[-1]), float(expected.high[-1]))
    actual = seen.sample.kv_usage_fraction
    if actual is None:
        return t("expected {span}", span=span)
    error = watch_words.signed_points(float(expected.best[-1]) - actual)
    return t("expected {span} (error {error})", span=span, error=error)


def _concurrency_words(seen: Seen) -> str:
    if seen.plan is None:
        return t("requests")
    times = words.concurrency(seen.plan.pool.max_concurrency)
    return t("plan: {times} of the longest length fit", times=times)


def _preemption_words(seen: Seen) -> str:
    """The counter's growth, and what it does not tell yet: a preempted request is counted once it runs again."""
    facts = seen.evidence
    if facts.preemptions is None:
        return t("in all")
    lately = facts.preempted_lately or 0.0
    if lately > facts.preemptions:
        return t("{count} sent back lately, not counted yet", count=f"{lately:,.0f}")
    return t("{count} in the last 5 min", count=f"{facts.preemptions:,.0f}")


def _tier_words(seen: Seen) -> str:
    size_gib = None if seen.sample.cache_config is None else seen.sample.cache_config.kv_offloading_size_gib
    return t("no tier size told") if size_gib is None else t("tier of {size}", size=f"{size_gib:g} GiB")


def _hits(seen: Seen) -> str | None:
    """The share found in the last minutes; None where nothing was looked up in them."""
    sample = seen.sample
    is_exported = sample.prefix_cache_queries_tokens is not None or sample.prefix_cache_queries_blocks is not None
    if not is_exported:
        return watch_words.percent(sample.gpu_prefix_cache_hit_fraction)
    fraction = seen.evidence.hit_fraction
    return None if fraction is None else watch_words.percent(fraction)


def _external_hits(seen: Seen) -> str | None:
    if seen.sample.external_prefix_cache_queries_tokens is None:
        return watch_words.not_exported()
    fraction = seen.evidence.external_hit_fraction
    return None if fraction is None else watch_words.percent(fraction)


def _rate(exported: float | None, rate: float | None) -> str:
    if exported is None:
        return watch_words.not_exported()
    return "–" if rate is None else f"{words.small_bytes(rate)}/s"
