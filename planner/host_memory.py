"""What a plan takes of the host's memory, beside the cards: offloaded weights, offloaded KV cache, V0's swap space."""

from __future__ import annotations

from planner import kv_cache
from planner.answer import BudgetLine, RankPlan
from planner.defaults import Resolved
from planner.facts import Basis, Estimate
from planner.inventory import ModelFacts
from planner.units import GIB, round_up

_CHUNK_ALIGNMENT = 4096  # bytes (v1/kv_offload/cpu/spec.py, since 0.27.1)
_SWAP_DEFAULT_GIB = 4.0  # per card, V0 (config.py, CacheConfig)


def host_lines(
    model: ModelFacts, resolved: Resolved, ranks: tuple[RankPlan, ...], layout: kv_cache.KvLayout
) -> tuple[BudgetLine, ...]:
    """The host's lines over all cards of one engine; none of them is part of a card's sum."""
    lines = (_weights(resolved, ranks), _offloaded_cache(model, resolved, layout), _swap(resolved, layout))
    return tuple(line for line in lines if line is not None)


def _line(name: str, num_bytes: int, basis: Basis, formula: str) -> BudgetLine:
    return BudgetLine(name=name, estimate=Estimate.exact(num_bytes, basis, formula), is_inside_budget=False)


def _weights(resolved: Resolved, ranks: tuple[RankPlan, ...]) -> BudgetLine | None:
    total = resolved.tp * sum(rank.weights.offloaded_bytes for rank in ranks)
    if not total:
        return None
    basis = Basis(
        kind="derived", note="whole tensors from the first layer on, until cpu_offload_gb is reached on a card"
    )
    each = " + ".join(f"{rank.weights.offloaded_bytes / GIB:.3f}" for rank in ranks)
    return _line("host_weights", total, basis, f"({each}) GiB x {resolved.tp} tensor-parallel cards, pinned")


def _offloaded_cache(model: ModelFacts, resolved: Resolved, layout: kv_cache.KvLayout) -> BudgetLine | None:
    """`--kv-offloading-size`: blocks = size // (bytes per block x ranks); pure MLA keeps one copy for all ranks."""
    size = resolved.flags.kv_offloading_size
    if not size:
        return None
    has_one_copy = model.is_mla and resolved.pp == 1 and not model.is_hybrid and resolved.version >= (0, 33, 0)
    copies = 1 if has_one_copy else resolved.tp * resolved.pp
    block_bytes = max(layout.bytes_per_block, default=0) * copies
    if resolved.version >= (0, 27, 0):
        block_bytes = round_up(block_bytes, _CHUNK_ALIGNMENT)
    num_blocks = int(size * GIB) // block_bytes if block_bytes else 0
    tokens = num_blocks * layout.block_size // max(1, len(layout.groups))
    formula = f"{num_blocks:,} blocks of {block_bytes:,} B over {copies} ranks, about {tokens:,} tokens"
    return _line("host_kv_cache", int(size * GIB), Basis(kind="read", note="kv_offloading_size as given"), formula)


def _swap(resolved: Resolved, layout: kv_cache.KvLayout) -> BudgetLine | None:
    """V0 pins `--swap-space` on every card's behalf, 4 GiB unless told otherwise."""
    if resolved.runner != "v0":
        return None
    asked = resolved.flags.swap_space
    size_bytes = int((_SWAP_DEFAULT_GIB if asked is None else asked) * GIB)
    num_cards = resolved.tp * resolved.pp
    if not size_bytes:
        return None
    note = "swap_space as given" if asked is not None else "swap_space is 4 GiB a card in the V0 engine"
    formula = f"{kv_cache.host_blocks(layout, size_bytes):,} blocks a card, {num_cards} cards"
    return _line("host_swap", size_bytes * num_cards, Basis(kind="read", note=note), formula)
