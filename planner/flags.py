"""vLLM's command-line flags by release: names, kinds, and when each came and went."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Literal

from planner.facts import Finding
from planner.request import EngineFlags
from planner.versions import Version

_DATA = Path(__file__).parent / "data" / "flags.json"
FlagKind = Literal["switch", "value", "list", "json"]

# Fields that other flags or the environment could set before they had a flag of their own.
_SPELT_OTHERWISE = frozenset(
    {
        "cudagraph_mode",
        "cudagraph_capture_sizes",
        "attention_backend",
        "speculative_config",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag. `first` and `gone` bound the releases that have it, as far as they were read; None: no bound."""

    name: str  # with dashes, without the leading two
    kind: FlagKind
    first: Version | None
    gone: Version | None
    aliases: tuple[str, ...] = ()

    def is_in(self, version: Version) -> bool:
        """Whether the release has the flag."""
        return (self.first is None or version >= self.first) and (self.gone is None or version < self.gone)

    def why_not_in(self, version: Version) -> str:
        """When the flag came, or went, in the reader's words."""
        if self.first is not None and version < self.first:
            return f"it came with {self.first.major}.{self.first.minor}"
        if self.gone is not None and version >= self.gone:
            return f"it was removed in {self.gone.major}.{self.gone.minor}"
        return "it is there"


@lru_cache(maxsize=1)
def all_flags() -> dict[str, Flag]:
    """Every flag by its name, with dashes and without the leading two."""
    rows = json.loads(_DATA.read_text(encoding="utf-8"))["flags"]
    return {
        name: Flag(name=name, kind=kind, first=_release(first), gone=_release(gone), aliases=tuple(aliases))
        for name, (kind, first, gone, *aliases) in rows.items()
    }


def _release(text: str | None) -> Version | None:
    if text is None:
        return None
    major, minor = text.split(".")
    return Version(int(major), int(minor), 0)


@lru_cache(maxsize=1)
def _aliases() -> dict[str, str]:
    return {alias.lstrip("-"): flag.name for flag in all_flags().values() for alias in flag.aliases}


def find_flag(name: str, version: Version) -> Flag | None:
    """The flag that `name` means: itself, an alias, or, as argparse reads it, the start of only one flag of the release."""
    plain = name.lstrip("-").replace("_", "-")
    flags = all_flags()
    if plain in flags:
        return flags[plain]
    if plain in _aliases():
        return flags[_aliases()[plain]]
    if len(plain) < 3 or not name.startswith("--"):
        return None
    begun = [flag for known, flag in flags.items() if known.startswith(plain) and flag.is_in(version)]
    return begun[0] if len(begun) == 1 else None


def absent_flags(flags: EngineFlags, version: Version) -> tuple[Finding, ...]:
    """A finding for each given flag that the release does not have: vLLM would not start with it, the plan ignores that."""
    return tuple(
        _absent(all_flags()[name], version)
        for field in fields(EngineFlags)
        if getattr(flags, field.name) != field.default and field.name not in _SPELT_OTHERWISE
        if not all_flags()[name := field.name.replace("_", "-")].is_in(version)
    )


def _absent(flag: Flag, version: Version) -> Finding:
    release = ".".join(map(str, version))
    text = f"vLLM {release} has no --{flag.name}: {flag.why_not_in(version)}. It would refuse to start with the flag."
    return Finding(code="flag-not-in-version", severity="warning", text=text, field=flag.name.replace("-", "_"))
