"""Copies the block tables out of vLLM's manager. A table that only grew is copied from where the last copy ended."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np

from live.probe_frames import RequestBlocks

_MOST_TABLE_ENTRIES = 262_144  # block ids in one frame: 1 MiB


class TableCopier:
    """The tables of the last copy; used by one thread."""

    def __init__(self, manager: Any) -> None:
        # vLLM's types are not known where this project is checked
        self._manager = manager
        self._grows_only = tuple(
            type(single).__name__ == "FullAttentionManager" for single in manager.coordinator.single_type_managers
        )
        self._copies: dict[tuple[str, int], tuple[array[int], ...]] = {}

    def copy(self, requests: Iterable[Any]) -> tuple[tuple[RequestBlocks, ...], int]:
        """Each request's tables, and how many requests were left out of a frame too large."""
        copies: dict[tuple[str, int], tuple[array[int], ...]] = {}
        found: list[RequestBlocks] = []
        num_entries = left_out = 0
        for request in requests:
            groups = self._manager.coordinator.get_blocks(request.request_id)
            num_entries += sum(map(len, groups))
            if num_entries > _MOST_TABLE_ENTRIES:
                left_out += 1
                continue
            key = request.request_id, request.num_preemptions
            known = self._copies.get(key) or tuple(array("I") for _ in groups)
            tables = tuple(map(_copied, known, groups, self._grows_only))
            copies[key] = tables
            found.append(_request_blocks(request, tables))
        self._copies = copies
        return tuple(found), left_out

    def shared(self, requests: tuple[RequestBlocks, ...], *, is_exhaustive: bool) -> dict[int, int]:
        """The blocks that more than one holds, with vLLM's own count.

        They are sought among the blocks that stand in two tables; with `is_exhaustive`, where a connector may hold blocks
        too, among all.
        """
        ids = np.frombuffer(b"".join(table for request in requests for table in request.tables), "<u4")
        candidates = np.unique(ids) if is_exhaustive else np.flatnonzero(np.bincount(ids) > 1)
        blocks = self._manager.block_pool.blocks
        counts = ((int(block), blocks[block].ref_cnt) for block in candidates if block)
        return {block: count for block, count in counts if count > 1}


def _copied(known: array[int], blocks: Any, grows_only: bool) -> array[int]:
    """`known` grown to what `blocks` holds, or a fresh copy where the table did anything but grow."""
    size = len(known)
    if grows_only and size <= len(blocks) and (not size or known[-1] == blocks[size - 1].block_id):
        known.extend([block.block_id for block in blocks[size:]])
        return known
    return array("I", [block.block_id for block in blocks])


def _packed(table: array[int]) -> bytes:
    if sys.byteorder == "big":
        table = table[:]
        table.byteswap()
    return table.tobytes()


def _request_blocks(request: Any, tables: tuple[array[int], ...]) -> RequestBlocks:
    return RequestBlocks(
        request_id=request.request_id,
        is_running=request.status.name == "RUNNING",
        num_prompt_tokens=request.num_prompt_tokens,
        num_tokens=request.num_tokens,
        num_computed_tokens=request.num_computed_tokens,
        num_preemptions=request.num_preemptions,
        tables=tuple(map(_packed, tables)),
    )
