"""How many pages a request holds as a function of its length, for many lengths and pools at once, in arrays.

Each spec of `layer_specs` answers `ceil(min(length, cap) / divisor) + constant`; here that is written down as numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.kv_cache import KvLayout
from planner.layer_specs import (
    AttentionSpec,
    ChunkedSpec,
    CrossSpec,
    LayerSpec,
    MambaSpec,
    RingSpec,
    Serving,
    SlidingSpec,
)
from planner.units import div_ceil

Integers = NDArray[np.int64]
UNCAPPED = 2**52  # tokens; more than any length


@dataclass(frozen=True, slots=True)
class PageSteps:
    """pages(length) = ceil(min(length, cap_tokens) / tokens_per_page) + constant_pages."""

    tokens_per_page: int
    cap_tokens: int
    constant_pages: int

    def pages(self, length_tokens: int) -> int:
        """Pages of one request of `length_tokens`."""
        return div_ceil(min(length_tokens, self.cap_tokens), self.tokens_per_page) + self.constant_pages


def steps_of(spec: LayerSpec, serving: Serving) -> PageSteps:
    """`spec.pages` as numbers."""
    match spec:
        case MambaSpec(cache_mode="all"):
            return PageSteps(spec.block_size, UNCAPPED, spec.num_speculative_blocks)
        case MambaSpec() | CrossSpec() | RingSpec():
            return PageSteps(1, 0, spec.pages(1, serving))
        case SlidingSpec():
            held = spec.sliding_window - 1 + spec.extra_retained_tokens + serving.max_in_flight_tokens
            return PageSteps(spec.block_size, held, 1)
        case ChunkedSpec():
            return PageSteps(spec.block_size, spec.chunk_size + serving.max_in_flight_tokens, 0)
        case AttentionSpec():
            ranks = serving.dcp if spec.is_dcp_sharded else 1
            return PageSteps(spec.block_size * ranks, UNCAPPED, 0)
    raise TypeError(type(spec).__name__)  # a new spec that nobody wrote down here


@dataclass(frozen=True, slots=True, eq=False)
class PageTable:
    """The steps of several layouts: arrays `[layout, group]`, short rows filled with groups that hold nothing."""

    tokens_per_page: Integers
    cap_tokens: Integers
    constant_pages: Integers
    num_groups: Integers

    def blocks(self, layouts: Integers, lengths: Integers) -> Integers:
        """Blocks of one request: the sum over groups, for each pair of a layout's row and a length."""
        capped = np.minimum(lengths[:, None], self.cap_tokens[layouts])
        pages = -(-capped // self.tokens_per_page[layouts]) + self.constant_pages[layouts]
        total: Integers = (pages * self.num_groups[layouts]).sum(axis=1)
        return total

    def longest(self, layouts: Integers, most_blocks: Integers, upper: Integers) -> Integers:
        """The largest length up to `upper` whose blocks are at most `most_blocks`; 0 where one token has no room."""
        low, high = np.zeros_like(upper), upper.copy()
        while bool((low < high).any()):
            middle = (low + high + 1) // 2
            has_room = self.blocks(layouts, middle) <= most_blocks
            low = np.where(has_room, middle, low)
            high = np.where(has_room, high, middle - 1)
        return low


def page_table(layouts: tuple[KvLayout, ...]) -> PageTable:
    """The table of `layouts`, a row each, in their order."""
    rows = [[(steps_of(spec, each.options.serving), number) for spec, number in each.needs] for each in layouts]
    width = max((len(row) for row in rows), default=1) or 1
    shape = (len(rows), width)
    table = PageTable(np.ones(shape, np.int64), *(np.zeros(shape, np.int64) for _ in range(3)))
    for index, row in enumerate(rows):
        for place, (steps, number) in enumerate(row):
            table.tokens_per_page[index, place] = steps.tokens_per_page
            table.cap_tokens[index, place] = steps.cap_tokens
            table.constant_pages[index, place] = steps.constant_pages
            table.num_groups[index, place] = number
    return table
