"""What other planners publish of their own accuracy, as they state it, with the conditions and the source."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

_FILE = Path(__file__).parent / "data" / "peers.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerFigure:
    """One published figure. It was measured by its authors under `conditions`, never by us."""

    name: str
    quantity: str
    figure: str
    conditions: str
    source: str


def peer_figures() -> tuple[PeerFigure, ...]:
    """All figures, in the order in which they are shown."""
    return tuple(PeerFigure(**entry) for entry in json.loads(_FILE.read_text(encoding="utf-8")))
