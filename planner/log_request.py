"""A start-up log as a request: what the start asked for, so that a plan can be set beside it.

The user's own arguments count where the log prints them; the engine's settings fill in what they decide, and then the
command that was pasted above the log. What cannot be known from the log is a finding, and the field stays as it was.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from planner.command_line import parse_command
from planner.facts import Finding, PlanError
from planner.flags import Flag, find_flag
from planner.gpu_catalog import find_gpu, gpu_names
from planner.model_catalog import catalogue_ids
from planner.request import PlanRequest
from planner.request_mapping import FLAG_READERS, request_from_mapping, request_to_mapping
from planner.startup_facts import StartupLog
from planner.startup_given import command_fields
from planner.units import GIB
from planner.versions import NEWEST, Version, parse_version

# A card's total differs by driver and by what the firmware keeps: half a percent of it.
_SAME_CARD_SHARE = 0.005
# What an engine's own context may take before the first measurement; what is lost beyond it is held by others.
_LARGEST_CONTEXT_GIB, _LARGEST_CONTEXT_SHARE = 2.0, 0.1
_CARD_FIELDS = ("gpu", "gpu_memory_bytes", "other_processes_bytes")
# Facts that decide memory, by the flag they are: taken where the arguments do not name it.
_FLAG_FACTS = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "enable_expert_parallel",
    "gpu_memory_utilization",
    "max_model_len",
    "max_num_batched_tokens",
    "enforce_eager",
    "enable_prefix_caching",
    "dtype",
    "kv_cache_dtype",
)
# Two spellings of one value: a command's and the engine's.
_SAME = {"half": "float16", "float": "float32", "fp8_e4m3": "fp8"}
_OF_A_COMMAND = frozenset({"command-not-found", "model-not-named", "image-without-version"})
_NOT_FLAGS = frozenset({"model", "model_tag", "subparser", "func", "config", "host", "port", "served_model_name"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRequest:
    """What a log says of its start's request: `fields` by a request's keys, and findings for what it does not say."""

    fields: tuple[tuple[str, object], ...]
    findings: tuple[Finding, ...]

    def apply(self, base: PlanRequest) -> PlanRequest:
        """`base` with the log's model, release, card and flags; flags that the log does not give are vLLM's defaults."""
        given = dict(self.fields)
        dropped = set(FLAG_READERS) | {"model_runner", "compile_cache"}
        if "model_id" in given:
            dropped |= {"revision", "config_json"}
        if any(name in given for name in _CARD_FIELDS):
            dropped |= set(_CARD_FIELDS)
        kept = {name: value for name, value in request_to_mapping(base).items() if name not in dropped}
        return request_from_mapping({**kept, **given})


def request_of_log(log: StartupLog) -> LoggedRequest:
    """The request that a log's start answered, as far as the log says it."""
    version = log.release.last if log.release is not None else parse_version(NEWEST)
    release = ".".join(map(str, version))
    parsed = parse_command(_command(log, version), release)
    typed = parse_command(log.command or "", release)
    own = {name: value for name, value in parsed.fields if name != "vllm_version"}
    above = {} if log.command is None else command_fields(log.command, release)
    fields = {name: value for name, value in typed.fields if name in above and name != "vllm_version"} | own
    for name in _FLAG_FACTS:
        value = getattr(log, name)
        is_said = value is not None and (value is not False or name in above)
        if is_said and (name not in own or name == "max_model_len"):
            fields[name] = value
    if fields.get("kv_cache_dtype") == "auto":
        del fields["kv_cache_dtype"]
    if log.model_name is not None:
        fields["model_id"] = _model_id(log.model_name)
    if log.release is not None:
        fields["vllm_version"] = release
    for name in ("model_runner", "compile_cache"):
        if (value := getattr(log, name)) is not None:
            fields[name] = value
    fields |= _card(log)
    said = [
        finding for finding in dict.fromkeys((*parsed.findings, *typed.findings)) if finding.code not in _OF_A_COMMAND
    ]
    findings = (*said, *_differing(above, fields), *_unknown(log, fields))
    return LoggedRequest(fields=tuple(fields.items()), findings=findings)


def _differing(above: Mapping[str, object], fields: Mapping[str, object]) -> Iterator[Finding]:
    """A finding for each field that the command above the log gives another value than the log itself."""
    for name, value in above.items():
        typed, own = _comparable(name, value), _comparable(name, fields.get(name))
        if own is None or typed in (own, "auto", "-1", None):
            continue
        text = f"The command above the log gives {name} as {typed}, the log itself as {own}; the log's own counts."
        yield Finding(code="log-command-differs", severity="warning", text=text, field=name)


def _comparable(name: str, value: object) -> str | None:
    """A value as both a command and a log spell it; None for none, or for what is no such value."""
    try:
        value = FLAG_READERS[name](name, value) if name in FLAG_READERS and value is not None else value
    except PlanError:
        return None
    if value is None:
        return None
    text = str(value).removeprefix("torch.")[:80]
    if name == "vllm_version":
        return ".".join(map(str, parse_version(text)))
    if name == "model_id":
        return text.rstrip("/").replace("\\", "/").rsplit("/", maxsplit=1)[-1]
    return _SAME.get(text, text)


def _model_id(name: str) -> str:
    """The catalogue's id for a name, where only one ends so; else the name."""
    end = name.rsplit("/", maxsplit=1)[-1].lower()
    ends = [known for known in catalogue_ids() if known.rsplit("/", maxsplit=1)[-1].lower() == end]
    return ends[0] if len(ends) == 1 and name not in catalogue_ids() else name


def _command(log: StartupLog, version: Version) -> str:
    """The user's arguments as the command that gives them."""
    words = ["vllm", "serve"]
    is_whole_namespace = any(name == "port" and value == 8000 for name, value in log.arguments)
    for name, value in log.arguments:
        flag = find_flag(name, version)
        if flag is None or name in _NOT_FLAGS or value is None:
            continue
        if value is False and (flag.kind != "switch" or is_whole_namespace):
            continue  # the default of an older release's every switch
        words += _words(flag, value)
    return shlex.join(words)


def _words(flag: Flag, value: object) -> list[str]:
    if isinstance(value, bool) and flag.kind == "switch":
        return [f"--{flag.name}"] if value else [f"--no-{flag.name}"]
    if isinstance(value, dict):
        try:
            return [f"--{flag.name}", json.dumps(value)]
        except (TypeError, ValueError):
            return []
    if isinstance(value, list | tuple):
        return [f"--{flag.name}", *(str(item) for item in value)] if value else []
    if isinstance(value, str) and value.startswith(("{", "<", "(")) and flag.kind != "json":
        return []
    return [f"--{flag.name}", str(value)]


def card_total_bytes(log: StartupLog) -> int | None:
    """The card's CUDA total: printed, or what the printed share or its parts are a share of."""
    printed, utilization = log.memory("card_total"), log.gpu_memory_utilization
    if printed is not None:
        return printed.best_bytes
    if not utilization or not 0 < utilization <= 1:
        return None
    requested = log.memory("requested")
    if requested is not None:
        return round(requested.best_bytes / utilization)
    rank = log.bounding_rank("available_kv")
    if rank is None or rank.cuda_graphs_estimate is not None:
        return None
    parts = [
        part.best_bytes if part is not None else None
        for part in (rank.weights, rank.activation_peak, rank.non_torch, rank.available_kv)
    ]
    known = [part for part in parts if part is not None]
    return round(sum(known) / utilization) if len(known) == len(parts) else None


def cards_of_total(total_bytes: int) -> tuple[str, ...]:
    """The catalogue's cards whose CUDA total is `total_bytes`, to half a percent."""
    off = _SAME_CARD_SHARE * total_bytes
    return tuple(name for name in gpu_names() if abs(find_gpu(name).total.best_bytes - total_bytes) <= off)


def _card(log: StartupLog) -> dict[str, object]:
    total_bytes = card_total_bytes(log)
    fields: dict[str, object] = {}
    if log.card_name is not None:
        try:
            fields["gpu"] = find_gpu(log.card_name.replace("_", " ")).name
        except PlanError:
            fields = {}
    if total_bytes is None or total_bytes <= 0:
        return fields
    fields["gpu_memory_bytes"] = total_bytes
    free = log.memory("free_at_start")
    if free is not None:
        lost_bytes = total_bytes - free.best_bytes
        if lost_bytes > _LARGEST_CONTEXT_GIB * GIB + _LARGEST_CONTEXT_SHARE * total_bytes:
            fields["other_processes_bytes"] = lost_bytes
    return fields


def _unknown(log: StartupLog, fields: dict[str, object]) -> Iterator[Finding]:
    if log.model_name is None:
        text = "The log names no model; choose it."
        yield Finding(code="log-without-model", severity="warning", text=text, field="model_id")
    elif log.model_path is not None:
        text = f"The log names the model by a path ({log.model_path[-80:]}), read as {fields['model_id']}; check that it is meant."
        yield Finding(code="log-model-by-path", severity="info", text=text, field="model_id")
    if log.release is None:
        text = f"The log does not tell its vLLM release; {NEWEST} is assumed."
        yield Finding(code="log-without-release", severity="warning", text=text, field="vllm_version")
    elif log.release.basis != "banner":
        text = (
            f"No banner names the vLLM release: {log.release.text} ({log.release.basis}); the newest of these is taken."
        )
        yield Finding(code="log-release-inferred", severity="info", text=text, field="vllm_version")
    if "gpu" not in fields and "gpu_memory_bytes" in fields:
        same = cards_of_total(int(str(fields["gpu_memory_bytes"])))
        which = f" It may be {', '.join(same[:6])}." if same else ""
        text = f"The log gives the card's memory and not its name.{which}"
        yield Finding(code="log-card-by-memory", severity="info", text=text, field="gpu")
    elif "gpu" not in fields:
        text = "The log neither names the card nor tells its memory; choose it."
        yield Finding(code="log-without-card", severity="warning", text=text, field="gpu")
