"""The pools of many cells at once and the first start-up check that fails in each, as `kv_cache` and `verdict` have them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from planner import kv_cache
from planner.baseline import context_bytes
from planner.kv_cache import KvLayout
from planner.kv_rules import rules_of
from planner.matrix_terms import MatrixQuestion, Term
from planner.page_steps import Integers, page_table
from planner.verdict import FIRST_WITH_FREE_CHECK
from planner.versions import parse_version

Stop = Literal["starts", "refused", "too_little_free", "weights", "fixed_pool", "no_room", "too_long", "few_blocks"]
STOPS: tuple[Stop, ...] = get_args(Stop)
_STARTS, _REFUSED, _FREE, _WEIGHTS, _FIXED, _NO_ROOM, _TOO_LONG, _FEW_BLOCKS = range(len(STOPS))
_BOUNDLESS = 2**60  # bytes or blocks where nothing bounds
_MORE_THAN_ANY_CARD = 2**50  # bytes; what a nonsensical configuration takes beyond that would not fit an integer


class Cells:
    """The cells of a table in one row, with what their terms and cards say of them; a cell's arrays share an index."""

    def __init__(self, question: MatrixQuestion, terms: tuple[Term, ...], term_of: Integers) -> None:
        self.question, self.terms = question, terms
        self.term = term_of.ravel()
        splits, _, cards = (axis.ravel() for axis in np.indices(term_of.shape))
        totals = np.array([gpu.total.best_bytes for gpu in question.gpus], dtype=np.int64)
        contexts = np.array(
            [[context_bytes(gpu, split.num_ranks) for gpu in question.gpus] for split in question.splits],
            dtype=np.int64,
        )
        others = question.request.other_processes_bytes
        self.free_bytes: Integers = totals[cards] - others - contexts[splits, cards]
        utilization = np.array([term.gpu_memory_utilization for term in terms])
        self.requested_bytes: Integers = np.ceil(totals[cards] * utilization[self.term]).astype(np.int64)
        self.num_stages = max((len(term.load_bytes) for term in terms), default=0) or 1
        self.loads = self._staged(lambda term: term.load_bytes)
        self.non_torch = self._staged(lambda term: term.non_torch_bytes)
        self.block_bytes = self._staged(lambda term: term.layout.bytes_per_block if term.layout else ())
        given = question.request.flags.kv_cache_memory_bytes
        charged = self._staged(lambda term: term.charged_bytes)
        self.available: Integers = (
            self.requested_bytes[:, None] - charged if given is None else np.full_like(charged, given)
        )
        self.least_blocks: Integers = np.array([term.least_blocks for term in terms], dtype=np.int64)[self.term]
        self.is_planned = np.array([term.layout is not None for term in terms], dtype=np.bool_)[self.term]
        whole = np.maximum(self.available // np.maximum(self.block_bytes, 1), 0)
        self.stage_blocks: Integers = np.where(self.block_bytes > 0, whole, _BOUNDLESS)

    def _staged(self, pick: Callable[[Term], tuple[int, ...]]) -> Integers:
        """Values `[cell, stage]`, 0 for stages that a split does not have."""
        table = np.zeros((len(self.terms), self.num_stages), dtype=np.int64)
        for row, term in enumerate(self.terms):
            values = [min(size_bytes, _MORE_THAN_ANY_CARD) for size_bytes in pick(term)]
            table[row, : len(values)] = values
        picked: Integers = table[self.term]
        return picked

    def at_bounding_stage(self, values: Integers) -> Integers:
        """The entry of `values` `[cell, stage]` at the stage with the fewest blocks, the first of equals."""
        bounding = self.stage_blocks.argmin(axis=1)
        picked: Integers = np.take_along_axis(values, bounding[:, None], axis=1)[:, 0]
        return picked

    def of_term(self, name: str) -> Integers:
        """A whole number of each cell's term."""
        values: Integers = np.array([getattr(term, name) for term in self.terms], dtype=np.int64)[self.term]
        return values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pools:
    """The pools of all cells."""

    num_blocks: Integers
    tokens: Integers
    max_model_len: Integers
    max_concurrency: NDArray[np.float64]
    longest_tokens: Integers
    pool_bytes: Integers
    fits: NDArray[np.bool_]


def pools_of(cells: Cells) -> Pools:
    """The pool of every planned cell: the fewest blocks of its stages, and what these hold; old releases one by one."""
    rules = rules_of(parse_version(cells.question.request.vllm_version))
    is_old = rules.is_v0 or not rules.can_group or rules.needs_layer_by_layer
    if is_old or not cells.is_planned.any():
        return _one_by_one(cells)
    keeps = cells.block_bytes > 0
    sizes = np.maximum(cells.block_bytes, 1)
    override = cells.question.request.flags.num_gpu_blocks_override
    num_blocks = np.where(keeps.any(axis=1), cells.stage_blocks.min(axis=1), 1)
    if override is not None:
        num_blocks = np.full_like(num_blocks, override)
    is_override_checked = override is not None and rules.override_limits_fit
    counted = num_blocks[:, None] * sizes if is_override_checked else cells.available
    check = counted - (sizes if rules.counts_null_block else 0)
    most_blocks = np.where(keeps, np.where(check > 0, check // sizes, -1), _BOUNDLESS).min(axis=1)
    return _measured(cells, num_blocks, most_blocks)


def _measured(cells: Cells, num_blocks: Integers, most_blocks: Integers) -> Pools:
    """Length, concurrency and tokens of pools of which one request may hold `most_blocks`."""
    request = cells.question.request
    layouts, layout_of = _layouts(cells)
    table = page_table(layouts)
    has_cache = np.array([bool(each.groups) for each in layouts], dtype=np.bool_)[layout_of]
    asked = cells.of_term("max_model_len")
    limit = np.array([each.options.longest_model_len for each in layouts], dtype=np.int64)[layout_of]
    fits = ~has_cache | (table.blocks(layout_of, asked) <= most_blocks)
    upper = np.where(fits, np.maximum(asked, limit), asked)
    longest = np.where(has_cache, table.longest(layout_of, most_blocks, upper), upper)
    length = asked
    if request.flags.max_model_len == "auto":
        length, fits = np.where(fits | (longest == 0), asked, longest), fits | (longest > 0)
    needed = np.maximum(table.blocks(layout_of, np.maximum(length, 1)), 1)
    concurrency = np.where(has_cache, num_blocks / needed, 0.0)
    rules = rules_of(parse_version(request.vllm_version))
    if rules.tokens_by_concurrency:
        tokens = (concurrency * length).astype(np.int64)
    else:
        tokens = np.where(has_cache, num_blocks // _per_layout(layouts, layout_of, _num_groups), 0)
        tokens *= _per_layout(layouts, layout_of, _tokens_per_block)
    if cells.question.num_requests > 1:
        held = np.minimum(most_blocks, num_blocks // cells.question.num_requests)
        longest = np.where(has_cache, table.longest(layout_of, held, upper), upper)
    return Pools(
        num_blocks=num_blocks,
        tokens=tokens,
        max_model_len=length,
        max_concurrency=concurrency,
        longest_tokens=longest,
        pool_bytes=cells.at_bounding_stage(cells.available),
        fits=fits,
    )


def _layouts(cells: Cells) -> tuple[tuple[KvLayout, ...], Integers]:
    """The distinct layouts, and each cell's place among them; a cell that vLLM refuses points at any."""
    places: dict[KvLayout, int] = {}
    of_term = [0 if term.layout is None else places.setdefault(term.layout, len(places)) for term in cells.terms]
    return tuple(places), np.array(of_term, dtype=np.int64)[cells.term]


def _per_layout(layouts: tuple[KvLayout, ...], layout_of: Integers, pick: Callable[[KvLayout], int]) -> Integers:
    values: Integers = np.array([pick(each) for each in layouts], dtype=np.int64)[layout_of]
    return values


def _num_groups(layout: KvLayout) -> int:
    return max(1, len(layout.groups))


def _tokens_per_block(layout: KvLayout) -> int:
    return layout.block_size * layout.options.serving.dcp


def _one_by_one(cells: Cells) -> Pools:
    """Releases before 0.14 check fit layer by layer or by tokens: each distinct pool is asked for by itself."""
    seen: dict[tuple[int, tuple[int, ...]], tuple[int, int, int, float, int, int, bool]] = {}
    rows = []
    for place, available in zip(cells.term.tolist(), cells.available.tolist(), strict=True):
        key = (place, tuple(available))
        if key not in seen:
            seen[key] = _one_pool(cells.terms[place], key[1], cells.question.num_requests)
        rows.append(seen[key])
    blocks, tokens, length, concurrency, longest, pool_bytes, fits = zip(*rows, strict=True)
    return Pools(
        num_blocks=np.array(blocks, dtype=np.int64),
        tokens=np.array(tokens, dtype=np.int64),
        max_model_len=np.array(length, dtype=np.int64),
        max_concurrency=np.array(concurrency),
        longest_tokens=np.array(longest, dtype=np.int64),
        pool_bytes=np.array(pool_bytes, dtype=np.int64),
        fits=np.array(fits, dtype=np.bool_),
    )


def _one_pool(term: Term, available: tuple[int, ...], num_requests: int) -> tuple[int, int, int, float, int, int, bool]:
    layout = term.layout
    if layout is None:
        return 0, 0, term.max_model_len, 0.0, 0, 0, False
    own = available[: len(layout.bytes_per_block)]
    pool = kv_cache.plan_pool(layout, own, term.max_model_len)
    longest = pool.estimated_max_model_len
    if num_requests > 1 and pool.groups:
        longest = _longest_for(layout, pool.num_blocks, num_requests, longest)
    size = min(own, key=lambda num_bytes: num_bytes)
    return (
        *(pool.num_blocks, pool.tokens, pool.max_model_len, pool.max_concurrency),
        *(longest, size, pool.fits),
    )


def _longest_for(layout: KvLayout, num_blocks: int, num_requests: int, upper_tokens: int) -> int:
    low, high = 0, upper_tokens
    while low < high:
        middle = (low + high + 1) // 2
        if kv_cache.max_concurrency(layout, num_blocks, middle) >= num_requests:
            low = middle
        else:
            high = middle - 1
    return low


def stops_of(cells: Cells, pools: Pools) -> NDArray[np.int8]:
    """The first of vLLM's start-up checks that fails in each cell, in `verdict.judge`'s order."""
    request = cells.question.request
    is_checked = parse_version(request.vllm_version) >= FIRST_WITH_FREE_CHECK
    refused = np.array([term.refusal is not None for term in cells.terms], dtype=np.bool_)[cells.term]
    cache_refused = np.array([term.cache_refusal is not None for term in cells.terms], dtype=np.bool_)[cells.term]
    checks = (
        (refused, _REFUSED),
        ((cells.free_bytes < cells.requested_bytes) & is_checked, _FREE),
        (cache_refused, _REFUSED),
        (cells.loads.max(axis=1) > cells.free_bytes, _WEIGHTS),
        (_is_fixed_pool_too_large(cells, pools), _FIXED),
        (~pools.fits & (pools.num_blocks <= 0), _NO_ROOM),
        (~pools.fits, _TOO_LONG),
        (pools.num_blocks < cells.least_blocks, _FEW_BLOCKS),
    )
    found = np.select([check for check, _ in checks], [np.int8(code) for _, code in checks], default=np.int8(_STARTS))
    return found.astype(np.int8)


def _is_fixed_pool_too_large(cells: Cells, pools: Pools) -> NDArray[np.bool_]:
    flags = cells.question.request.flags
    fixed: Integers
    if flags.num_gpu_blocks_override is not None:
        fixed = flags.num_gpu_blocks_override * cells.at_bounding_stage(cells.block_bytes)
    elif flags.kv_cache_memory_bytes is not None:
        fixed = np.full_like(pools.num_blocks, flags.kv_cache_memory_bytes)
    else:
        return np.zeros_like(pools.fits)
    needed = cells.loads + cells.non_torch + fixed[:, None]
    is_over: NDArray[np.bool_] = (needed.max(axis=1)) > cells.free_bytes
    return is_over
