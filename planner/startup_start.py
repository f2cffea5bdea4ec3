"""One start while its lines are read: facts with their lines, by rank and for the whole, and how it ended."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from planner.facts import Basis, Estimate
from planner.startup_endings import Ending
from planner.startup_facts import LogLine
from planner.startup_lines import Record, joined
from planner.startup_matches import Found, find_messages, looks_like_memory, shown_line
from planner.startup_ranks import process_before
from planner.startup_settings import read_settings
from planner.startup_texts import BYTE_FACTS, COUNT_FACTS, GIB_FACTS, NUMBER_FACTS
from planner.units import GIB

_MOST_UNREAD = 200
_LARGEST_GIB = 100_000.0
_LEAST_OF_RANK = frozenset(["available_kv", "kv_given", "suggested_kv_to_fit", "suggested_kv_to_fill", "free_at_start"])
_LEAST_OF_START = frozenset(["kv_cache_tokens", "max_concurrency", "num_gpu_blocks", "max_model_len_served"])
_SERVERS = frozenset({"server", "logo", "arguments"})
_BEGINNINGS = _SERVERS | {"engine", "loading"}
# What a line was made for outweighs where it is repeated: the summary prints weights of four decimals with two.
_REPEATS = frozenset(
    [
        "summary_weight",
        "summary_graphs",
        "in_use",
        "graph_pool",
        "in_use_bytes",
        "weights_debug",
        "profile_v0",
        "weights_v0",
    ]
)

_UNFINISHED = ("LLM engine", "config:", ",", "...")  # how the engine's line ends where a paste broke it
_LINE_ENDS = re.compile(r"(?:\\[nrt])+$")  # of a text that was escaped
_LEFT_OUT = re.compile(r",\s*\.\.\.,?\s")


@dataclass(slots=True)
class Said:
    """A fact's value, its line and its weight: a line of more weight overrides another."""

    value: Any  # as the fact's type is
    line: LogLine
    weight: int = 1


@dataclass(slots=True)
class Start:
    """One start while its lines are read."""

    facts: dict[str, Said] = field(default_factory=dict)
    ranks: dict[str, dict[str, Said]] = field(default_factory=dict)
    contradictions: dict[str, list[Said]] = field(default_factory=dict)
    sources: set[tuple[str, str, int]] = field(default_factory=set)  # (message, file, line of its log call)
    places: set[str] = field(default_factory=set)  # "rank 1 in world size 2 is assigned as ... TP rank 1"
    workers: set[str] = field(default_factory=set)  # the places that workers' names state, whatever they print
    banners: set[str] = field(default_factory=set)  # the processes that printed one
    unread: list[LogLine] = field(default_factory=list)
    settings: dict[str, tuple[tuple[str, object], ...]] = field(default_factory=dict)
    ending: Ending = field(default_factory=Ending)
    environment_version: LogLine | None = None
    first_number: int = 0  # the line of its first message; 0 while none was read
    last_wrapped: int = 0  # the last line that a wrapped message took in
    num_left_out: int = 0  # lines of a kind that the start holds thousands of
    is_folded: bool = False  # Ray left out the other ranks' equal lines

    def take(self, record: Record) -> Start | None:
        """Puts what one record says into the start; the next start instead, when the record begins one."""
        found = find_messages(record)
        if found and (self._is_over(found) or self._asks_for_another(found, record)):
            following = Start()
            following.take(record)
            return following
        if not self.first_number and any(one.key != "environment" for one in found):
            self.first_number = record.number
        if "(Worker" in record.text:
            self.workers.add(process_before(record.text, 0).rank)
        for one in found:
            self._put(one)
            self.last_wrapped = max(self.last_wrapped, one.last_number)
        self._take_settings(record)
        is_ending = self.ending.take(record)
        is_known = bool(found) or is_ending or record.number <= max(self.last_wrapped, self.ending.last_number)
        if not is_known and len(self.unread) < _MOST_UNREAD and looks_like_memory(record.text):
            self.unread.append(shown_line(record.number, record.text))
        return None

    def _is_over(self, found: list[Found]) -> bool:
        """Whether a message begins another start: a banner of a process that had one, or a load after an end."""
        for one in found:
            if one.key not in _BEGINNINGS:
                continue
            process = one.process
            if one.key == "engine":
                is_again = process.name in self.banners or (not process.name and bool(self.ranks))
                is_other = bool(self.banners) and not any(_kind(name) == _kind(process.name) for name in self.banners)
                return self.ending.has_ended or is_again or is_other
            if one.key in _SERVERS and (self.ending.has_ended or self.banners or self.ranks):
                return True
            if one.key == "loading" and "weights" in self.ranks.get(process.rank, {}):
                return self.ending.has_ended or "kv_cache_tokens" in self.facts or "num_gpu_blocks" in self.facts
        return False

    def _asks_for_another(self, found: list[Found], record: Record) -> bool:
        """Whether the arguments name another model than the start's own: one process tries one model after the other."""
        asked = dict(self.settings.get("arguments", ())).get("model")
        if asked is None or not any(one.key == "arguments" for one in found):
            return False
        settings = read_settings(record.number, record.text)
        return settings is not None and dict(settings.pairs).get("model") not in (None, asked)

    def _put(self, found: Found) -> None:
        text, process, source = found.match.string, found.process, found.source
        if source is not None:
            self.sources.add((found.key, *source))
        if found.key == "engine":
            self.banners.add(process.name)
            is_v1 = " V1 " in found.match[0] or (source is not None and source[0] == "core.py")
            self.say("engine", "v1" if is_v1 else "v0", found.line, weight=3)
        self.is_folded = self.is_folded or ("repeated " in text and "across cluster" in text)
        for name, given in found.match.groupdict().items():
            if given is None:
                continue
            if name in GIB_FACTS or name in BYTE_FACTS:
                self._say_rank(process.rank, name, given, found)
                self.ending.forget_exception()
            else:
                self._say_plain(name, given, found)

    def _say_plain(self, name: str, given: str, found: Found) -> None:
        if name == "environment_version":
            self.environment_version = found.line
        elif name == "place":
            self.places.add(found.match[0])
        elif name in COUNT_FACTS:
            self.say(name, int(given.replace(",", "")), found.line)
        elif name in NUMBER_FACTS:
            self.say(name, float(given), found.line)
        else:
            self.say(
                name, _LINE_ENDS.sub("", given).rstrip("/.…"), found.line, weight=3 if found.key == "engine" else 1
            )

    def say(self, name: str, value: Any, line: LogLine, weight: int = 1) -> None:
        """Keeps a fact: more weight overrides; of equal weight the least bounds a pool, and else the last counts."""
        before = self.facts.get(name)
        said = Said(value=value, line=line, weight=weight)
        if before is not None and before.value != value:
            self.contradictions.setdefault(name, [before]).append(said)
            if before.weight > weight or (name in _LEAST_OF_START and before.value < value):
                return
        elif before is not None and before.weight >= weight:
            return
        self.facts[name] = said

    def _say_rank(self, rank: str, name: str, given: str, found: Found) -> None:
        """Keeps a rank's figure: what repeats it, or bounds it less, is left out."""
        figure = _exact(given, found.line) if name in BYTE_FACTS else _estimate(given, found.line)
        name = name.removesuffix("_in_bytes")
        if abs(figure.best_bytes) > _LARGEST_GIB * GIB:
            self.unread.append(found.line)
            return
        weight = 1 if found.key in _REPEATS else 2
        figures = self.ranks.setdefault(rank, {})
        before = figures.get(name)
        said = Said(value=figure, line=found.line, weight=weight)
        if before is not None and before.weight >= weight:
            is_less = said.value.best_bytes < before.value.best_bytes
            is_same = said.value.low_bytes <= before.value.best_bytes <= said.value.high_bytes
            if before.weight > weight or is_same or is_less != (name in _LEAST_OF_RANK):
                return
        figures[name] = said

    def _take_settings(self, record: Record) -> None:
        text = record.text
        if "LLM engine" in text and text.rstrip().endswith(_UNFINISHED):
            text = _LEFT_OUT.sub(", ", joined(record))
        if "onfig: " not in text and "args: " not in text and "Namespace(" not in text:
            return
        settings = read_settings(record.number, text)
        if settings is not None:
            self.settings[settings.kind] = settings.pairs
            for one in settings.facts:
                self.say(one.fact, one.value, one.line, one.weight)

    def files(self) -> set[str]:
        """The source files whose messages were read."""
        return {file for _, file, _ in self.sources}


def _kind(process: str) -> str:
    """A process's name without its place: of the data-parallel engines each prints a banner."""
    return process.partition("_")[0]


def _exact(text: str, line: LogLine) -> Estimate:
    """A printed number of bytes."""
    note = f"the start-up log, line {line.number}: {line.text[-120:]}"
    return Estimate.exact(int(text.replace(",", "")), Basis(kind="read", note=note), f"{text} bytes")


def _estimate(text: str, line: LogLine) -> Estimate:
    """The bytes of a printed number of GiB, with the interval that its rounding leaves."""
    value, digits = float(text), len(text.partition(".")[2])
    half = 0.5 * 10 ** -max(digits, 2)  # newer releases round to two decimals and print 16.5 or 16.0
    note = f"the start-up log, line {line.number}: {line.text[-120:]}"
    return Estimate(
        best_bytes=round(value * GIB),
        low_bytes=round((value - half) * GIB),
        high_bytes=round((value + half) * GIB),
        basis=Basis(kind="read", note=note),
        formula=f"{text} GiB",
    )
