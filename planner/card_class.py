"""Which cards vLLM cannot tell apart but by their memory: what is planned for one of a class holds for all of it."""

from __future__ import annotations

from typing import NamedTuple

from planner.activation import num_sms
from planner.batch_defaults import card_tier
from planner.gpu_catalog import GpuFacts
from planner.request import UsageContext
from planner.versions import Era, Version, era_of


class CardClass(NamedTuple):
    """All that flags, weights, overhead and cache layout ask of a card, its total memory apart.

    A tuple by type: it is the key of many small tables, and compared far more often than read.
    """

    vendor: str
    capability: tuple[int, int] | None
    is_unified_memory: bool
    num_multiprocessors: int | None  # where the release's overhead depends on it
    tier: tuple[int, int, str] | None  # of the default batch limits
    link: str | None

    def for_flags(self) -> CardClass:
        """The class as far as resolving flags goes: how cards are linked is no question there."""
        return self._replace(link=None)


def card_class(gpu: GpuFacts, version: Version, usage: UsageContext) -> CardClass:
    """The class of `gpu` under a release and usage."""
    return CardClass(
        vendor=gpu.vendor,
        capability=gpu.capability,
        is_unified_memory=gpu.is_unified_memory,
        num_multiprocessors=num_sms(gpu) if era_of(version) is Era.V017_020 else None,
        tier=card_tier(gpu, version, usage),
        link=gpu.link,
    )
