"""The facts of a start that only the command above it says: what the log itself prints always counts before it."""

from __future__ import annotations

from planner.command_line import parse_command
from planner.facts import PlanError
from planner.request_mapping import FLAG_READERS
from planner.startup_command import GivenCommand
from planner.startup_facts import ReleaseReading
from planner.versions import NEWEST, parse_version

# A request's key -> the fact of a start that it is.
_FACTS = {
    "max_model_len": "max_model_len",
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "data_parallel_size": "data_parallel_size",
    "enable_expert_parallel": "enable_expert_parallel",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "dtype": "dtype",
    "quantization": "quantization",
    "kv_cache_dtype": "kv_cache_dtype",
    "enforce_eager": "enforce_eager",
    "enable_prefix_caching": "enable_prefix_caching",
    "enable_chunked_prefill": "enable_chunked_prefill",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "cudagraph_mode": "cudagraph_mode",
}


def command_fields(text: str, version: str) -> dict[str, object]:
    """The fields of a request that a command gives, read as their flags read them; a shell variable is none."""
    fields: dict[str, object] = {}
    for name, value in parse_command(text, version).fields:
        if isinstance(value, str) and "$" in value:
            continue
        reader = FLAG_READERS.get(name)
        try:
            fields[name] = value if reader is None else reader(name, value)
        except PlanError:
            continue
    return fields


def command_facts(command: GivenCommand, release: ReleaseReading | None) -> dict[str, str | int | float | bool]:
    """The facts that a command gives, by their names in a start."""
    version = NEWEST if release is None else ".".join(map(str, release.last))
    fields = command_fields(command.text, version)
    facts = {fact: fields[name] for name, fact in _FACTS.items() if fields.get(name) not in (None, "auto", -1)}
    facts |= {"model_name": fields["model_id"]} if "model_id" in fields else {}
    if "VLLM_USE_V1=0" in command.text:
        facts["engine"] = "v0"
    return {name: value for name, value in facts.items() if isinstance(value, str | int | float)}


def image_release(command: GivenCommand) -> ReleaseReading | None:
    """The release that a container image's tag names, or None."""
    tag = dict(parse_command(command.text, NEWEST).fields).get("vllm_version")
    if not isinstance(tag, str):
        return None
    version = parse_version(tag)
    return ReleaseReading(basis="image tag", text=tag, first=version, last=version)


def release_with(read: ReleaseReading | None, command: GivenCommand | None) -> ReleaseReading | None:
    """The release that a log tells, or the image's where the log gives an interval that holds it, or nothing as good."""
    tagged = None if command is None else image_release(command)
    if tagged is None or (read is not None and read.basis == "banner"):
        return read
    is_apart = read is not None and read.basis == "source lines" and not read.first <= tagged.last <= read.last
    return read if is_apart else tagged
