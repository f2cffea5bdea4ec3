"""What all readers of one watched engine share: whatever was made for one of them at a moment is there for the others."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

Made = TypeVar("Made")
_MOST_KEPT = 128


class Shared:
    """The last made values by their keys. A key holds all that its value depends on; values are never changed."""

    def __init__(self, most_kept: int = _MOST_KEPT) -> None:
        self._most_kept = most_kept
        self._lock = threading.RLock()  # while something is made, the others who want it wait for it
        self._made: OrderedDict[Hashable, object] = OrderedDict()

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make` gave for `key`, now or before; what it raises is raised and not kept."""
        with self._lock:
            if key in self._made:
                self._made.move_to_end(key)
                return self._made[key]  # type: ignore[return-value]  # it was made for this key
            made = make()
            self._made[key] = made
            while len(self._made) > self._most_kept:
                self._made.popitem(last=False)
            return made
