"""vLLM versions and the eras whose memory rules differ."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from planner.facts import PlanError


class Version(NamedTuple):
    """A vLLM release as (major, minor, patch); pre-release and local parts are dropped."""

    major: int
    minor: int
    patch: int


@dataclass(frozen=True, slots=True)
class _EraFacts:
    label: str
    first: Version


class Era(Enum):
    """Spans of releases that share memory rules, oldest first (docs/formulas.md says what changed)."""

    V0 = _EraFacts("V0 (to 0.7)", Version(0, 0, 0))
    V1_TO_016 = _EraFacts("V1, 0.8 to 0.16", Version(0, 8, 0))
    V017_020 = _EraFacts("0.17 to 0.20", Version(0, 17, 0))
    V021_026 = _EraFacts("0.21 to 0.26", Version(0, 21, 0))
    V027_031 = _EraFacts("0.27 to 0.31", Version(0, 27, 0))
    V032 = _EraFacts("0.32 and newer", Version(0, 32, 0))

    @property
    def label(self) -> str:
        """The span as a reader would write it."""
        return self.value.label

    def __ge__(self, other: Era) -> bool:
        return self.value.first >= other.value.first


NEWEST = "0.33.0"
# A number with what builds append: "0.11.0rc2", "0.33.0.dev12+g1a2b3c", "0.32.0+cu130".
_PATTERN = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}|x))?(?:[-.]?[a-z]+\d*)*(?:\+[\w.]+)?", re.ASCII)


@lru_cache(maxsize=128)
def parse_version(text: str) -> Version:
    """The release that `text` names ("0.19", "v0.11.0rc2"); raises `PlanError` for anything else."""
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        raise PlanError(
            "vllm_version", text, f"vllm_version {text!r:.40} is not a release number; write one like 0.33.0."
        )
    patch = match[3]
    return Version(int(match[1]), int(match[2]), int(patch) if patch and patch != "x" else 0)


@lru_cache(maxsize=128)
def era_of(version: Version) -> Era:
    """The era whose rules `version` follows."""
    return next(era for era in reversed(Era) if version >= era.value.first)
