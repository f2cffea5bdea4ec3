"""The settings in which a running engine differs from a plan, each as a cause with the change that would undo it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from live.samples import CacheConfig
from planner.answer import Plan
from planner.facts import PlanError
from planner.request import EngineFlags, PlanRequest
from planner.versions import era_of, parse_version

CauseKind = Literal["era", "release", "length", "override", "flag"]

_SAME_DTYPES = {"fp8": "fp8_e4m3"}
_LAST_SWAP_MINOR = 7  # V0's releases; V1 keeps the label and has no swap space


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One difference: `changes` are the flags (or `vllm_version`) to plan with instead."""

    kind: CauseKind
    text: str
    changes: tuple[tuple[str, object], ...]


def with_causes(request: PlanRequest, causes: Iterable[Cause]) -> PlanRequest:
    """The request with the engine's settings in place of the plan's."""
    changes = dict(pair for cause in causes for pair in cause.changes)
    version = changes.pop("vllm_version", request.vllm_version)
    flags: EngineFlags = replace(request.flags, **changes)  # type: ignore[arg-type]  # each value is of its flag's type
    return replace(request, vllm_version=str(version), flags=flags)


def _planned(plan: Plan, name: str) -> object:
    """The flag as the plan resolved it, or as it was given."""
    resolved = next((entry.value for entry in plan.resolved if entry.name == name), None)
    return getattr(plan.request.flags, name) if resolved is None else resolved


def cause_of_version(version: str | None, plan: Plan) -> list[Cause]:
    """The release: its era if that differs, for then the rules do."""
    if version is None:
        return []
    try:
        theirs, ours = parse_version(version), parse_version(plan.request.vllm_version)
    except PlanError:
        return []
    if theirs == ours:
        return []
    changes = (("vllm_version", ".".join(map(str, theirs))),)
    if era_of(theirs) is era_of(ours):
        text = f"The engine is vLLM {version}, the plan {plan.request.vllm_version}."
        return [Cause(kind="release", text=text, changes=changes)]
    text = (
        f"The engine is vLLM {version} (memory rules of {era_of(theirs).label}), the plan {plan.request.vllm_version} "
        f"({era_of(ours).label})."
    )
    return [Cause(kind="era", text=text, changes=changes)]


def cause_of_length(served: int | None, plan: Plan) -> list[Cause]:
    """max_model_len, after the engine's automatic fitting."""
    planned = plan.pool.max_model_len
    if served is None or served == planned:
        return []
    text = f"The engine serves max_model_len {served:,}, the plan {planned:,}."
    return [Cause(kind="length", text=text, changes=(("max_model_len", served),))]


def _flag(name: str, actual: object, planned: object, kind: CauseKind = "flag", why: str = "") -> Cause:
    shown = "not given" if planned is None else planned
    return Cause(kind=kind, text=f"The engine has {name}={actual}, the plan {shown}.{why}", changes=((name, actual),))


def _utilization(config: CacheConfig, plan: Plan) -> list[Cause]:
    actual, planned = config.gpu_memory_utilization, _planned(plan, "gpu_memory_utilization")
    if actual is None or (isinstance(planned, float) and abs(actual - planned) < 1e-9):
        return []
    return [_flag("gpu_memory_utilization", actual, planned)]


def _dtype(config: CacheConfig, plan: Plan) -> list[Cause]:
    actual, given = config.cache_dtype, plan.request.flags.kv_cache_dtype
    alike = {_SAME_DTYPES.get(str(name), str(name)) for name in (given, _planned(plan, "kv_cache_dtype"))}
    if actual is None or _SAME_DTYPES.get(actual, actual) in alike:
        return []
    return [_flag("kv_cache_dtype", actual, given)]


def _overrides(config: CacheConfig, plan: Plan) -> list[Cause]:
    """The pool that the user gave, in place of a profile."""
    found = []
    for name in ("num_gpu_blocks_override", "kv_cache_memory_bytes"):
        actual, planned = getattr(config, name), getattr(plan.request.flags, name)
        # A label that the engine does not have says nothing; one that says "None" says "not given".
        is_said = name in dict(config.labels)
        if is_said and actual != planned:
            why = " The pool is given, not profiled." if actual is not None else ""
            found.append(_flag(name, actual, planned, "override", why))
    return found


def _prefix_caching(config: CacheConfig, plan: Plan) -> list[Cause]:
    actual, planned = config.enable_prefix_caching, _planned(plan, "enable_prefix_caching")
    return [] if actual is None or actual == planned else [_flag("enable_prefix_caching", actual, planned)]


def _block_size(config: CacheConfig, plan: Plan) -> list[Cause]:
    """Only what the user chose: otherwise the label is what planning made of it, which may be larger."""
    is_chosen = config.label("user_specified_block_size") == "True"
    if not is_chosen or config.block_size is None or config.block_size == plan.request.flags.block_size:
        return []
    if config.block_size == plan.pool.block_size:
        return []
    return [_flag("block_size", config.block_size, plan.request.flags.block_size)]


def _offloading(config: CacheConfig, plan: Plan) -> list[Cause]:
    actual, planned = config.kv_offloading_size_gib, plan.request.flags.kv_offloading_size
    if "kv_offloading_size" not in dict(config.labels) or actual == planned:
        return []
    return [_flag("kv_offloading_size", actual, planned, why=" That is host memory and leaves the pool as it is.")]


def _swap(config: CacheConfig, plan: Plan) -> list[Cause]:
    is_v0 = parse_version(plan.request.vllm_version) < (0, _LAST_SWAP_MINOR + 1, 0)
    if not is_v0 or config.swap_space_bytes is None:
        return []
    actual, planned = config.swap_space_bytes / 2**30, plan.request.flags.swap_space
    return [] if actual == (4.0 if planned is None else planned) else [_flag("swap_space", actual, planned)]


def flag_causes(config: CacheConfig, plan: Plan) -> list[Cause]:
    """The flags that cache_config_info shows and in which the plan differs."""
    readers = (_utilization, _dtype, _overrides, _prefix_caching, _block_size, _offloading, _swap)
    return [cause for read in readers for cause in read(config, plan)]
