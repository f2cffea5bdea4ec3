"""One start's facts put together once its lines are read: what follows from them, and how it ended."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

from planner.startup_command import GivenCommand
from planner.startup_facts import LogLine, RankMemory, StartupLog, block_size_of
from planner.startup_findings import findings_of
from planner.startup_given import command_facts, release_with
from planner.startup_release import read_release
from planner.startup_start import Said, Start

_PLAIN = frozenset(field.name for field in fields(StartupLog)) - {
    "ranks", "release", "outcome", "failure", "failed_start", "arguments", "engine_config", "lines", "derived", "unread",
    "findings", "start_number", "num_starts", "command",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """What is known of the whole log that a start stands in."""

    num_starts: int
    environment: LogLine | None  # an environment report's line with the release
    is_cut: bool


def finish(start: Start, number: int, whole: Whole, command: GivenCommand | None) -> StartupLog:
    """The facts of a start that was read to its end, the log's number `number`, under the command above it."""
    facts = dict(start.facts)
    ending = start.ending.failed
    stated_length = ending.reading.max_model_len if ending is not None and ending.reading is not None else None
    if ending is not None and stated_length and "max_model_len" not in facts:
        facts["max_model_len"] = Said(value=stated_length, line=ending.line)
    release = release_with(read_release(facts.get("vllm_version"), start.sources, whole.environment), command)
    _translate(facts)
    values: dict[str, Any] = {name: said.value for name, said in facts.items() if name in _PLAIN}
    derived = _derive(start, values)
    if command is not None:
        for name, value in command_facts(command, release).items():
            if values.get(name) is None:
                facts[name] = Said(value=value, line=command.line)
    _name_model(facts)
    values |= {name: said.value for name, said in facts.items() if name in _PLAIN}
    log = StartupLog(
        ranks=tuple(_rank(name, said) for name, said in sorted(start.ranks.items())),
        release=release,
        outcome="started" if start.ending.is_started else "failed" if ending is not None else "unknown",
        failure=None if ending is None else ending.line.text,
        failed_start=ending,
        arguments=start.settings.get("arguments", ()),
        engine_config=start.settings.get("engine", ()),
        command=None if command is None else command.text,
        lines=tuple((name, said.line) for name, said in facts.items() if name in _PLAIN),
        derived=tuple(derived.items()),
        unread=tuple(start.unread),
        start_number=number,
        num_starts=whole.num_starts,
        **values,
    )
    return findings_of(log, start, is_cut=whole.is_cut)


# A message without a figure -> the fact it states; of two for one fact the first counts.
_STATED: tuple[tuple[str, str, Any], ...] = (
    ("compile_cold", "compile_cache", "cold"),
    ("compile_warm", "compile_cache", "warm"),
    ("runner_v2", "model_runner", "v2"),
    ("expert_parallel", "enable_expert_parallel", True),
    ("eager", "enforce_eager", True),
)


def _translate(facts: dict[str, Said]) -> None:
    """Adds the facts that messages state in words, and takes the length in force: auto-fit may have cut the configured one."""
    for said, name, value in _STATED:
        if said in facts and name not in facts:
            facts[name] = Said(value=value, line=facts[said].line)
    if "max_model_len_served" in facts:
        facts["max_model_len"] = facts["max_model_len_served"]


def _name_model(facts: dict[str, Said]) -> None:
    """Makes the model's name of its path, and keeps the path."""
    if "model_name" in facts:
        given = facts["model_name"]
        name = _model_name(given.value)
        if name != given.value.rstrip("/"):
            facts["model_path"] = Said(value=given.value, line=given.line)
        facts["model_name"] = Said(value=name, line=given.line)


def _rank(name: str, said: dict[str, Any]) -> RankMemory:
    figures = {figure: one.value for figure, one in said.items()}
    return RankMemory(rank=name, lines=tuple((figure, one.line) for figure, one in said.items()), **figures)


class _Derived:
    """What no line prints but follows: put into `values`, with a sentence that says how."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
        self.reasons: dict[str, str] = {}

    def add(self, name: str, value: object, how: str) -> None:
        """Keeps `value` where no line states the fact."""
        if self.values.get(name) is None and value is not None:
            self.values[name] = value
            self.reasons[name] = how


def _derive(start: Start, values: dict[str, Any]) -> dict[str, str]:
    """Adds to `values` what follows from what was printed; returns the sentences that say how."""
    derived = _Derived(values)
    _derive_split(start, derived)
    derived.add("engine", _engine(start), "the form of its lines")
    derived.add("platform", _platform(start), "the engine's device and the source files of its lines")
    runner = {"model_runner.py": "v2", "gpu_model_runner.py": "v1"}
    loads = {runner[file] for key, file, _ in start.sources if key == "load" and file in runner}
    if len(loads) == 1 and values.get("engine") == "v1":
        derived.add("model_runner", loads.pop(), "the source file that printed the load")
    _derive_pool(start, derived)
    return derived.reasons


def _derive_split(start: Start, derived: _Derived) -> None:
    places = start.ranks.keys() | start.workers
    for name, tag in (("tensor_parallel_size", "TP"), ("pipeline_parallel_size", "PP"), ("data_parallel_size", "DP")):
        numbers = [int(found[1]) for rank in places if (found := re.search(rf"{tag}(\d+)", rank)) is not None]
        if numbers and max(numbers) > 0:  # a name states its place only along an axis of several
            derived.add(name, max(numbers) + 1, f"the workers' names run to {tag}{max(numbers)}")
    for name, tag in (("tensor_parallel_size", "TP"), ("pipeline_parallel_size", "PP")):
        derived.add(name, _num_places(start.places, tag), "every rank of the world prints its place")
    if any(re.search(r"(?<![A-Z])EP\d", rank) for rank in start.ranks):
        derived.add("enable_expert_parallel", True, "the workers' names count expert-parallel ranks")


def _derive_pool(start: Start, derived: _Derived) -> None:
    """V0 prints blocks and no tokens; the block size is printed seldom."""
    values = derived.values
    blocks = values.get("num_gpu_blocks")
    is_printed_as_blocks = any(key == "blocks_v0" for key, _, _ in start.sources)  # V0, and V1 of 0.7
    if blocks and (values.get("engine") == "v0" or is_printed_as_blocks):
        size = values.get("printed_block_size") or block_size_of(
            blocks, values.get("max_model_len"), values.get("max_concurrency")
        )
        if size is not None:
            derived.add("kv_cache_tokens", blocks * size, f"{blocks:,} blocks of {size} tokens")
    if "printed_block_size" not in values and StartupLog(**values).block_size is not None:
        derived.reasons["block_size"] = f"the only one that fits {blocks:,} blocks and the capacity"


def _num_places(places: set[str], tag: str) -> int | None:
    """The ranks along one axis, where each rank of the world printed its place; None where some did not."""
    worlds = {int(found[1]) for place in places if (found := re.search(r"world size (\d+)", place)) is not None}
    numbers = [int(found[1]) for place in places if (found := re.search(rf"\b{tag} rank (\d+)", place)) is not None]
    is_whole = len(worlds) == 1 and len(numbers) == max(worlds)
    return max(numbers) + 1 if is_whole else None


# Files that only one generation of the engine has (0.6 to 0.10 hold both).
_V0_FILES = frozenset(
    [
        "executor_base.py",
        "gpu_executor.py",
        "distributed_gpu_executor.py",
        "llm_engine.py",
        "worker.py",
        "cpu_executor.py",
    ]
)
_V1_FILES = frozenset(["gpu_worker.py", "gpu_model_runner.py", "kv_cache_utils.py", "kv_cache_planning.py", "core.py"])


def _engine(start: Start) -> str | None:
    """v0 or v1 by its source files, else by what only one generation prints."""
    files, keys = start.files(), {key for key, _, _ in start.sources}
    if files & _V1_FILES:
        return "v1"
    if files & _V0_FILES or "num_cpu_blocks" in start.facts or keys & {"profile_v0", "share_v0"}:
        return "v0"
    return "v1" if "kv_cache_tokens" in start.facts else None


def _platform(start: Start) -> str | None:
    if any("rocm" in file for file in start.files()):
        return "rocm"
    device = start.facts.get("device")
    return None if device is None else str(device.value).split(":")[0]


# Folders that people keep models in: no owner of a model on the Hub.
_FOLDERS = frozenset(
    [
        "models", "model", "data", "weights", "mnt", "workspace", "cache", "huggingface", "hf", "tmp", "root", "home", "input",
        "checkpoints", "llm", "llms", "opt", "app", "snapshots", "hub", "pretrained", "modelscope", "ckpt", "storage", "share",
    ]
)  # fmt: skip


def _model_name(path: str) -> str:
    """A Hub id stays; of a local path the last two parts are the id where they look like one."""
    path = path.rstrip("/")
    if snapshot := re.search(r"models--([^/]+)--([^/]+)/snapshots/", path):
        return f"{snapshot[1]}/{snapshot[2]}"
    if not path.startswith(("/", "~", ".")) and not re.match(r"[A-Za-z]:\\", path):
        return path
    *parents, name = path.replace("\\", "/").strip("/").split("/")
    owner = parents[-1] if parents else ""
    return f"{owner}/{name}" if owner.strip(".~") and owner.lower() not in _FOLDERS else name
