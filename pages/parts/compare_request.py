"""What the Compare page is asked, as one value that a link holds; values at their start are left out of it.

Pure; knows no Streamlit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import Any

from pages.parts.language import t
from planner.facts import PlanError
from planner.gpu_catalog import gpu_names
from planner.model_catalog import catalogue_ids

FITS, SCENARIOS, CARDS, DRY = VIEWS = ("fits", "scenarios", "cards", "dry_run")
LONGEST, REQUESTS = MEASURES = ("longest", "requests")
USERS, RATE = LOADS = ("users", "rate")
PUBLISHED = "published"
WEIGHTS = (PUBLISHED, "fp8", "bitsandbytes")
COUNTS = (1, 2, 4, 8, 16)
KV_DTYPES = ("auto", "fp8", "fp8_e5m2", "nvfp4", "turboquant_4bit_nc", "int8_per_token_head")
FIRST_CARDS = ("GeForce RTX 4090", "L40S", "A100 80GB SXM", "H100 80GB SXM", "H200 141GB SXM", "Instinct MI300X")
# the Plan page's flags that mean the same for every model
KEPT_FLAGS = ("gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "enforce_eager", "block_size")
_BETWEEN, _INSIDE, _LIST = "~", "!", "|"
_LONGEST_LINK = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareInput:
    """The page's choices. Lengths in tokens; percentages as written."""

    view: str = FITS
    # what fits
    measure: str = LONGEST
    num_requests: int = 1
    length_tokens: int = 8_192
    has_all_models: bool = True
    models: tuple[str, ...] = ()
    cards: tuple[str, ...] = FIRST_CARDS
    counts: tuple[int, ...] = (1, 2, 4, 8)
    kv_dtypes: tuple[str, ...] = ("auto",)
    weights: tuple[str, ...] = (PUBLISHED,)
    only_starting: bool = False
    # fewest cards and dry run
    prompt_p50: int = 600
    prompt_p95: int = 2_000
    prompt_p99: int = 4_000
    output_p50: int = 250
    output_p95: int = 700
    output_p99: int = 1_200
    prefix_tokens: int = 0
    load: str = USERS
    users: int = 64
    rate: float = 4.0
    most_preempted_percent: float = 1.0
    search_cards: tuple[str, ...] = ("GeForce RTX 4090", "L40S", "H100 80GB SXM")
    most_cards: int = 8
    most_users: int = 512


FIRST = CompareInput()
_FIELDS = {field.name: field for field in fields(CompareInput)}


def to_link(asked: CompareInput) -> str | None:
    """The compact text of what differs from the first visit; None when nothing does."""
    parts = [
        f"{name}{_INSIDE}{_text(getattr(asked, name))}"
        for name in _FIELDS
        if getattr(asked, name) != getattr(FIRST, name)
    ]
    return _BETWEEN.join(parts) or None


def from_link(text: str) -> CompareInput:
    """What a link's text asks; raises `PlanError` for anything that no link of ours holds."""
    if len(text) > _LONGEST_LINK:
        raise PlanError("fit", None, t("The link's comparison is longer than {most} characters.", most=_LONGEST_LINK))
    found: dict[str, Any] = {}
    for part in text.split(_BETWEEN):
        name, _, value = part.partition(_INSIDE)
        if name not in _FIELDS:
            raise PlanError("fit", name[:40], t("The link's comparison has no field {name}.", name=name[:40]))
        found[name] = _value(name, value)
    return replace(FIRST, **found)


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return _LIST.join(str(entry) for entry in value)
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _value(name: str, text: str) -> object:
    like = getattr(FIRST, name)
    if isinstance(like, tuple):
        entries = tuple(dict.fromkeys(text.split(_LIST))) if text else ()
        if name == "counts":
            return tuple(int(entry) for entry in (_choice(name, entry, tuple(map(str, COUNTS))) for entry in entries))
        return tuple(_choice(name, entry, _allowed(name)) for entry in entries)
    if isinstance(like, bool):
        return _choice(name, text, ("on", "off")) == "on"
    if isinstance(like, str):
        return _choice(name, text, _allowed(name))
    pattern = r"\d{1,12}" if isinstance(like, int) else r"\d{1,9}(\.\d{1,6})?"
    if not re.fullmatch(pattern, text):
        raise PlanError("fit", text[:40], t("The link's {name} is not a number.", name=name))
    return type(like)(text)


def _allowed(name: str) -> tuple[str, ...]:
    match name:
        case "models":
            return catalogue_ids()
        case "cards" | "search_cards":
            return gpu_names()
        case _:
            return _CHOICES[name]


_CHOICES: dict[str, tuple[str, ...]] = {
    "view": VIEWS,
    "measure": MEASURES,
    "load": LOADS,
    "weights": WEIGHTS,
    "kv_dtypes": KV_DTYPES,
}


def _choice(name: str, text: str, choices: tuple[str, ...]) -> str:
    if text not in choices:
        raise PlanError("fit", text[:40], t("The link's {name} is none that this page knows.", name=name))
    return text
