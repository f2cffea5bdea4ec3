"""Caches that speculative decoding adds to the target's own: MTP layers, EAGLE's layer, a draft model's layers."""

from __future__ import annotations

from planner.facts import Finding
from planner.inventory import Cache, ModelFacts
from planner.request import SpeculativeConfig

_NO_CACHE_METHODS = frozenset({"ngram", "ngram_gpu", "suffix", "medusa", "mlp_speculator"})


def draft_caches(
    model: ModelFacts, config: SpeculativeConfig | None, draft: ModelFacts | None
) -> tuple[tuple[Cache, ...], tuple[Finding, ...]]:
    """The caches of the speculative layers, in the order vLLM builds them, and what had to be assumed of them."""
    if config is None or config.method in _NO_CACHE_METHODS:
        return (), ()
    if draft is not None:
        return tuple(cache for layer in draft.layers for cache in layer.caches), ()
    if config.model is None and model.draft_layers:
        return tuple(cache for layer in model.draft_layers for cache in layer.caches), ()
    target = next((cache for layer in model.layers for cache in layer.caches if cache.kind in ("full", "mla")), None)
    if config.method in ("eagle", "eagle3") and target is not None:
        return (target,), (_EAGLE_ASSUMED,)
    return (), (_NOT_COUNTED,)


_EAGLE_ASSUMED = Finding(
    code="kv_draft_layer_assumed",
    severity="info",
    text="The EAGLE head's config is not known; its one layer is taken to keep KV of the target's shape.",
    field="speculative_config",
)
_NOT_COUNTED = Finding(
    code="kv_draft_not_counted",
    severity="warning",
    text="The draft model's config is not known, so the KV cache of its layers is not counted; the pool will hold less.",
    field="speculative_config",
)
