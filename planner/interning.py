"""Equal parts of a model made one object, so that work per part (bytes, specs) is done once and found by identity."""

from __future__ import annotations

from planner.inventory import Cache, Layer, Module


def share_equal_parts(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """The same layers, with equal module tuples, cache tuples and caches replaced by the first of their kind."""
    caches: dict[Cache, Cache] = {}
    cache_tuples: dict[tuple[Cache, ...], tuple[Cache, ...]] = {}
    module_tuples: dict[tuple[Module, ...], tuple[Module, ...]] = {}
    shared = []
    for layer in layers:
        own = tuple(caches.setdefault(cache, cache) for cache in layer.caches)
        shared.append(
            Layer(
                index=layer.index,
                prefix=layer.prefix,
                modules=module_tuples.setdefault(layer.modules, layer.modules),
                caches=cache_tuples.setdefault(own, own),
            )
        )
    return tuple(shared)
