"""One start while its lines are read: facts with their lines, by rank and for the whole, and how it ended."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from planner.error_lines import ErrorReading, read_error
from planner.facts import Basis, Estimate
from planner.startup_config import arguments, engine_config, read_object_text
from planner.startup_facts import FailedStart, FailureKind, LogLine
from planner.startup_lines import Record, joined
from planner.startup_ranks import process_before, rank_name, source_before
from planner.startup_texts import COUNT_FACTS, GIB_FACTS, NUMBER_FACTS, TEXTS, MessageText
from planner.units import GIB

_LONGEST_SHOWN = 600
_MOST_UNREAD = 200
_LARGEST_GIB = 100_000.0
_LEAST = frozenset(
    ["available_kv", "kv_given", "suggested_kv_to_fit", "suggested_kv_to_fill", "kv_cache_tokens", "max_concurrency"]
)
_LEAST_OF_START = frozenset(["kv_cache_tokens", "max_concurrency", "num_gpu_blocks", "max_model_len_served"])
_STARTED = re.compile(
    r"Application startup complete|Starting vLLM (?:API )?server (?:\d+ )?on |Uvicorn running on|Avg prompt throughput: "
    r"|\"(?:GET|POST) /(?:v1|health|metrics)[^\"]* HTTP/1\.\d\" 200"
)
_MEMORY_FAILURE = re.compile(
    r"No available memory for the cache blocks|is larger than the available KV cache memory|max seq len|at least one request"
    r"|maximum number of tokens that can be stored in KV cache|is less than desired GPU memory util|OutOfMemoryError"
    r"|out of memory\. Tried|is less than the engine's budget"
)
_ENGINE_FAILURE = re.compile(
    r"Engine core initialization failed|Engine process failed to start|EngineCore failed to start|WorkerProc initialization failed"
)
_EXCEPTION = re.compile(r"(?:^|[\])] |\s)((?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)): \S")
_MEMORY_LOOK = re.compile(r"\d ?[GM]i?B\b|KV cache|(?:gpu|cpu|cuda|GPU|CPU) blocks", re.IGNORECASE)
_KNOWN_OTHERWISE = re.compile(
    r"KV cache usage|throughput: |page cache|Checkpoint size|GiB of cached|[Ss]leep mode|swap space|NFS|Downloading|it/s\]|s/it\]"
    r"|B/s|with config: |args: |Profiling CUDA graph memory|HTTP/1|KV connector|RAM|nvidia-smi|MiB /|first-capture|cpu_offload"
    r"|shared memory|shm|prefix cach|to store kv cache|reuses KV cache|kv_cache_dtype|--kv-cache-memory|[Ff]ree memory after profiling"
    r"|worker init memory snapshot|worker requested memory|Peak GPU memory after loading|ser(?:ver|ving)|Encoder graph capturing"
)
_BANNERS = frozenset({"engine"})
_SERVERS = frozenset({"server", "logo"})


@dataclass(slots=True)
class Said:
    """A fact's value, its line and its weight: a line of more weight overrides another."""

    value: Any
    line: LogLine
    weight: int = 1


@dataclass(slots=True)
class Start:
    """One start while its lines are read."""

    facts: dict[str, Said] = field(default_factory=dict)
    ranks: dict[str, dict[str, Said]] = field(default_factory=dict)
    contradictions: dict[str, list[Said]] = field(default_factory=dict)
    sources: set[tuple[str, str, int]] = field(default_factory=set)  # (message's key, file, line of its log call)
    files: set[str] = field(default_factory=set)
    banners: set[str] = field(default_factory=set)
    unread: list[LogLine] = field(default_factory=list)
    arguments: tuple[tuple[str, object], ...] = ()
    engine_config: tuple[tuple[str, object], ...] = ()
    environment_version: LogLine | None = None
    is_started: bool = False
    is_folded: bool = False  # Ray left out the other ranks' equal lines
    failure: FailedStart | None = None
    exception: LogLine | None = None
    has_traceback: bool = False

    def take(self, record: Record) -> Start | None:
        """Puts what one record says into the start; the next start instead when it begins one."""
        text = record.text
        found, near = _matches(record)
        if found and self._is_over(found, text):
            following = Start()
            following.take(record)
            return following
        for message, match, line in found:
            self._put(message, match, line)
        if "onfig: " in text or "args: " in text or "Namespace(" in text:
            self._take_settings(record)
        is_ending = self._take_ending(record)
        if near and not found and not is_ending and len(self.unread) < _MOST_UNREAD:
            self.unread.append(_line(record.number, text))
        return None

    # -- facts

    def _is_over(self, found: list[tuple[MessageText, re.Match[str], LogLine]], text: str) -> bool:
        """Whether a message begins another start: a banner of a process that had one, or a load after an end."""
        has_ended = self.is_started or self.failure is not None
        for message, match, _line in found:
            process = process_before(text, match.start())
            if message.key in _BANNERS:
                name = "" if process is None else process["name"] + process["tag"]
                is_again = name in self.banners or (not name and bool(self.ranks))
                return has_ended or is_again
            if message.key in _SERVERS and (has_ended or self.banners or self.ranks):
                return True
            if message.key == "loading" and "weights" in self.ranks.get(rank_name(process), {}):
                return has_ended or "kv_cache_tokens" in self.facts or "num_gpu_blocks" in self.facts
        return False

    def _put(self, message: MessageText, match: re.Match[str], line: LogLine) -> None:
        text = match.string
        process = process_before(text, match.start())
        source = source_before(text, match.start())
        if source is not None:
            self.sources.add((message.key, *source))
            self.files.add(source[0])
        if message.key == "engine":
            self.banners.add("" if process is None else process["name"] + process["tag"])
            generation = "v0" if " V0 " in match[0] or (source and source[0] == "llm_engine.py") else "v1"
            self.say("engine", generation, line, weight=3)
        self.is_folded = self.is_folded or ("repeated " in text and "across cluster" in text)
        for name, given in match.groupdict().items():
            if given is None:
                continue
            if name == "environment_version":
                self.environment_version = line
            elif name in GIB_FACTS:
                self._say_rank(rank_name(process), name, given, line, message.key)
            elif name in COUNT_FACTS:
                self.say(name, int(given.replace(",", "")), line)
            elif name in NUMBER_FACTS:
                self.say(name, float(given), line)
            else:
                self.say(name, given.rstrip("/."), line, weight=3 if message.key == "engine" else 1)

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

    def _say_rank(self, rank: str, name: str, given: str, line: LogLine, key: str) -> None:
        if abs(float(given)) > _LARGEST_GIB:
            self.unread.append(line)
            return
        # What a line was made for outweighs what it repeats: the summary prints the weights rounded to two decimals.
        weight = 1 if key.startswith(("summary", "in_use", "graph_pool", "weights_debug", "profile")) else 2
        figures = self.ranks.setdefault(rank, {})
        before = figures.get(name)
        said = Said(value=_estimate(given, line), line=line, weight=weight)
        if before is not None and before.weight >= weight:
            is_less = said.value.best_bytes < before.value.best_bytes
            is_same = said.value.low_bytes <= before.value.best_bytes <= said.value.high_bytes
            if before.weight > weight or is_same or is_less != (name in _LEAST):
                return
        figures[name] = said

    # -- settings

    def _take_settings(self, record: Record) -> None:
        line = _line(record.number, record.text)
        if "with config: " in record.text and "engine" in record.text:
            self.engine_config = engine_config(record.text) or self.engine_config
            self._say_settings(dict(self.engine_config), _CONFIG_FACTS, record, weight=3)
            self._say_graphs(dict(self.engine_config).get("compilation_config"), line)
        elif "args: " in record.text or "Namespace(" in record.text:
            pairs = arguments(record.text)
            if pairs:
                self.arguments = pairs
                self._say_settings(dict(pairs), _ARGUMENT_FACTS, record, weight=2)

    def _say_settings(
        self, settings: dict[str, object], names: dict[str, tuple[str, type]], record: Record, weight: int
    ) -> None:
        for name, (fact, kind) in names.items():
            value = settings.get(name)
            if kind is float and isinstance(value, int) and not isinstance(value, bool):
                value = float(value)
            if type(value) is not kind or value == "" or (kind is int and not 0 < value < 10**15):  # type: ignore[operator]
                continue  # not said, or not as vLLM says it
            if isinstance(value, str):
                value = value.removeprefix("torch.")
                if value in ("None", "null"):
                    continue
            self.say(fact, value, _line(record.number, _around(record.text, name)), weight=weight)

    def _say_graphs(self, value: object, line: LogLine) -> None:
        settings = value if isinstance(value, dict) else read_object_text(value) if isinstance(value, str) else {}
        mode = settings.get("cudagraph_mode")
        if isinstance(mode, list | tuple):
            mode = _MODES.get(tuple(mode))
        elif isinstance(mode, int) and not isinstance(mode, bool):
            mode = _MODES.get((mode,))
        if isinstance(mode, str) and (name := mode.removeprefix("CUDAGraphMode.")).isupper():
            self.say("cudagraph_mode", name, line, weight=3)

    # -- the end

    def _take_ending(self, record: Record) -> bool:
        """Notes how the start ended; whether the record tells of it."""
        text = record.text
        if _STARTED.search(text):
            self.is_started = True
            return True
        if "Traceback (most recent call last)" in text:
            self.has_traceback = True
        if self.is_started:
            return False
        if _MEMORY_FAILURE.search(text):
            return self._fail_of_memory(record)
        line = _line(record.number, text)
        if _ENGINE_FAILURE.search(text):
            if self.failure is None:
                self.failure = FailedStart(kind="engine_failed", line=line)
            return True
        if (self.has_traceback or "ERROR" in text) and _EXCEPTION.search(text):
            if self.exception is None or self.failure is None:
                self.exception = line
            return True
        return False

    def _fail_of_memory(self, record: Record) -> bool:
        whole, reading = record.text, read_error(record.text)
        longer = joined(record)
        if (more := read_error(longer)) is not None and _has_more(more, reading):
            whole, reading = longer, more
        if reading is None:
            return False
        is_better = self.failure is None or self.failure.reading is None
        if is_better or _has_more(reading, self.failure.reading):  # type: ignore[union-attr]  # both are there
            self.failure = FailedStart(kind=reading.kind, line=_line(record.number, whole), reading=reading)
        return True

    @property
    def ending(self) -> FailedStart | None:
        """Why the start failed, the memory error or the first exception before the engine's own; None when it did not."""
        if self.is_started or (self.failure is None and self.exception is None):
            return None
        if self.failure is not None and (self.failure.kind != "engine_failed" or self.exception is None):
            return self.failure
        kind: FailureKind = "other" if self.exception is not None else "engine_failed"
        return FailedStart(kind=kind, line=self.exception or self.failure.line)  # type: ignore[union-attr]


# Setting of the engine's config line -> (fact, type it has there).
_CONFIG_FACTS: dict[str, tuple[str, type]] = {
    "model": ("model_name", str),
    "dtype": ("dtype", str),
    "max_seq_len": ("max_model_len", int),
    "tensor_parallel_size": ("tensor_parallel_size", int),
    "pipeline_parallel_size": ("pipeline_parallel_size", int),
    "data_parallel_size": ("data_parallel_size", int),
    "quantization": ("quantization", str),
    "enforce_eager": ("enforce_eager", bool),
    "kv_cache_dtype": ("kv_cache_dtype", str),
    "device_config": ("device", str),
    "served_model_name": ("served_model_name", str),
    "enable_prefix_caching": ("enable_prefix_caching", bool),
    "chunked_prefill_enabled": ("enable_chunked_prefill", bool),
    "enable_chunked_prefill": ("enable_chunked_prefill", bool),
}
_ARGUMENT_FACTS: dict[str, tuple[str, type]] = {
    "model_tag": ("model_name", str),
    "model": ("model_name", str),
    "dtype": ("dtype_given", str),
    "max_model_len": ("max_model_len", int),
    "tensor_parallel_size": ("tensor_parallel_size", int),
    "pipeline_parallel_size": ("pipeline_parallel_size", int),
    "data_parallel_size": ("data_parallel_size", int),
    "enable_expert_parallel": ("enable_expert_parallel", bool),
    "gpu_memory_utilization": ("gpu_memory_utilization", float),
    "quantization": ("quantization", str),
    "enforce_eager": ("enforce_eager", bool),
    "kv_cache_dtype": ("kv_cache_dtype", str),
    "enable_prefix_caching": ("enable_prefix_caching", bool),
    "enable_chunked_prefill": ("enable_chunked_prefill", bool),
    "max_num_seqs": ("max_num_seqs", int),
    "max_num_batched_tokens": ("max_num_batched_tokens", int),
    "block_size": ("given_block_size", int),
}
# CUDAGraphMode's values (vllm/config/compilation.py); a pair is (mode of mixed batches' opposite, as the enum writes it).
_MODES: dict[tuple[object, ...], str] = {
    (0,): "NONE",
    (1,): "PIECEWISE",
    (2,): "FULL",
    (2, 0): "FULL_DECODE_ONLY",
    (2, 1): "FULL_AND_PIECEWISE",
}


def _matches(record: Record) -> tuple[list[tuple[MessageText, re.Match[str], LogLine]], bool]:
    """The messages of a record with the lines they stand on, and whether it looks like a memory line."""
    text, missed = record.text, False
    found: list[tuple[MessageText, re.Match[str], LogLine]] = []
    for message in TEXTS:
        if message.anchor not in text:
            continue
        here = [(message, match, _line(record.number, text, match)) for match in message.pattern.finditer(text)]
        missed = missed or not here
        found += here
    if missed and record.below and not found:
        whole = joined(record)
        for message in TEXTS:
            if message.anchor in text and (wrapped := message.pattern.search(whole)) is not None:
                found.append((message, wrapped, _line(record.number, whole, wrapped)))
    looks = bool(_MEMORY_LOOK.search(text)) and not _KNOWN_OTHERWISE.search(text)
    return found, looks and any(character.isdigit() for character in text)


def _line(number: int, text: str, match: re.Match[str] | None = None) -> LogLine:
    """The line as it is shown: around the match where it is long."""
    text = text.strip() if match is None else text
    if len(text) <= _LONGEST_SHOWN or match is None:
        return LogLine(number=number, text=text[:_LONGEST_SHOWN].strip())
    begin = max(0, min(match.start() - 100, match.end() + 40 - _LONGEST_SHOWN))
    return LogLine(number=number, text=text[begin : max(begin + _LONGEST_SHOWN, match.end())].strip())


def _around(text: str, name: str) -> str:
    """The part of a settings line around the setting `name`."""
    position = text.find(f"{name}=")
    position = text.find(f"'{name}'") if position < 0 else position
    begin = max(0, position - 60) if len(text) > _LONGEST_SHOWN else 0
    return text[begin : begin + _LONGEST_SHOWN]


def _has_more(reading: ErrorReading, before: ErrorReading | None) -> bool:
    def said(one: ErrorReading | None) -> int:
        return 0 if one is None else sum(getattr(one, name) is not None for name in ErrorReading.__dataclass_fields__)

    return said(reading) > said(before)


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
