"""Caches that speculative decoding adds to the target's own: MTP layers, EAGLE's layer, a draft model's layers."""

from __future__ import annotations

from planner.defaults import Resolved
from planner.drafts import speculation
from planner.facts import Finding
from planner.inventory import Cache, ModelFacts


def draft_caches(model: ModelFacts, resolved: Resolved) -> tuple[tuple[Cache, ...], tuple[Finding, ...]]:
    """The caches of the drafter's layers, in the order vLLM builds them, and what had to be assumed of them."""
    found = speculation(model, resolved)
    if found.facts is None:
        return (), found.findings
    return tuple(cache for layer in found.facts.layers for cache in layer.caches), found.findings
