"""Which block a full tier drops: least recently used, or ARC, which also weighs how often one was wanted."""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal, Protocol

EvictionPolicy = Literal["lru", "arc"]


class Store(Protocol):
    """A tier's contents by number, at most `capacity` of them."""

    def __contains__(self, content: int) -> bool: ...

    def __len__(self) -> int: ...

    def use(self, content: int) -> None:
        """A held content was wanted."""

    def put(self, content: int) -> int | None:
        """The content that had to go for this one; None: none had to."""


class LeastRecentlyUsed:
    """Drops what was wanted longest ago."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._order: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, content: int) -> bool:
        return content in self._order

    def __len__(self) -> int:
        return len(self._order)

    def use(self, content: int) -> None:
        self._order.move_to_end(content)

    def put(self, content: int) -> int | None:
        if self._capacity == 0:
            return content
        self._order[content] = None
        self._order.move_to_end(content)
        if len(self._order) <= self._capacity:
            return None
        return self._order.popitem(last=False)[0]


class AdaptiveReplacement:
    """ARC: one list of contents wanted once, one of those wanted again, and a memory of what each lost lately."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._target = 0.0  # wished length of the once-wanted list
        self._once: OrderedDict[int, None] = OrderedDict()
        self._again: OrderedDict[int, None] = OrderedDict()
        self._lost_once: OrderedDict[int, None] = OrderedDict()
        self._lost_again: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, content: int) -> bool:
        return content in self._once or content in self._again

    def __len__(self) -> int:
        return len(self._once) + len(self._again)

    def use(self, content: int) -> None:
        self._once.pop(content, None)
        self._again.pop(content, None)
        self._again[content] = None

    def put(self, content: int) -> int | None:
        if self._capacity == 0:
            return content
        if content in self:
            self.use(content)
            return None
        was_lost_again = content in self._lost_again
        is_known = self._learn(content)
        dropped = self._drop(was_lost_again=was_lost_again) if len(self) >= self._capacity else None
        (self._again if is_known else self._once)[content] = None
        while len(self._lost_once) > self._capacity:
            self._lost_once.popitem(last=False)
        while len(self._lost_again) > self._capacity:
            self._lost_again.popitem(last=False)
        return dropped

    def _learn(self, content: int) -> bool:
        """Whether the content was lost lately; then the lists' share shifts towards the one that lost it."""
        if content in self._lost_once:
            step = max(1.0, len(self._lost_again) / len(self._lost_once))
            self._target = min(self._target + step, float(self._capacity))
            del self._lost_once[content]
            return True
        if content in self._lost_again:
            step = max(1.0, len(self._lost_once) / len(self._lost_again))
            self._target = max(self._target - step, 0.0)
            del self._lost_again[content]
            return True
        return False

    def _drop(self, *, was_lost_again: bool) -> int:
        once = len(self._once)
        takes_once = once > 0 and (once > self._target or (was_lost_again and once == self._target))
        if takes_once or not self._again:
            content, _ = self._once.popitem(last=False)
            self._lost_once[content] = None
        else:
            content, _ = self._again.popitem(last=False)
            self._lost_again[content] = None
        return content


def make_store(policy: EvictionPolicy, capacity: int) -> Store:
    """An empty store of at most `capacity` blocks."""
    return AdaptiveReplacement(capacity) if policy == "arc" else LeastRecentlyUsed(capacity)
