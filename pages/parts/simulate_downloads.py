"""A simulation's event log as files. Pure; knows no Streamlit."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

from pages.parts.downloads import inert
from planner.block_events import BlockEvent, blocks_in_words

_COLUMNS = ("step", "kind", "request_id", "other_request_id", "num_blocks", "num_kept", "num_tokens", "blocks", "text")


def events_jsonl(events: Sequence[BlockEvent]) -> str:
    """One JSON object an event; `blocks` are inclusive ranges of physical block ids."""
    return "".join(json.dumps(_mapping(event), ensure_ascii=False) + "\n" for event in events)


def events_csv(events: Sequence[BlockEvent]) -> str:
    """One row an event, with the sentence that the page shows."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for event in events:
        row = _mapping(event) | {"blocks": blocks_in_words(event.blocks, max_ranges=10_000) if event.blocks else ""}
        writer.writerow([inert(row[name]) for name in _COLUMNS])
    return text.getvalue()


def _mapping(event: BlockEvent) -> dict[str, object]:
    return {
        "step": event.step,
        "kind": event.kind,
        "request_id": event.request_id,
        "other_request_id": event.other_request_id,
        "num_blocks": event.num_blocks,
        "num_kept": event.num_kept,
        "num_tokens": event.num_tokens,
        "blocks": [list(pair) for pair in event.blocks],
        "text": event.text,
    }
