"""The plan request that a running engine itself makes: its model, its flags as far as it exports them, the card it runs on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from live.nvml import DetectedGpu
from live.plan_causes import cause_of_length, cause_of_version, flag_causes, with_causes
from live.plan_comparison import EngineFacts, Replan, served_length
from live.samples import EngineSample
from planner.answer import Plan
from planner.facts import PlanError
from planner.gpu_catalog import find_gpu
from planner.request import EngineFlags, PlanRequest

_TENSOR_PARALLEL = re.compile(r"tensor_parallel_size[\"'\s:=]+(\d{1,3})\b")
_SIZES = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlan:
    """A plan for the engine's own model at its own flags; `notes` say in sentences what was not exported and how it was chosen."""

    plan: Plan
    notes: tuple[str, ...]


def card_of(gpus: Sequence[DetectedGpu] | None, base: PlanRequest) -> tuple[PlanRequest, str]:
    """`base` on the machine's own card where there is one kind that the catalogue knows, and a sentence on which card it is.

    `gpus` is None where the engine runs elsewhere, or ran.
    """
    shown = base.gpu or "the size given there"
    if gpus is None:
        return base, f"The engine's card is not known here; it is taken to be the Plan page's: {shown}."
    kinds = {gpu.name for gpu in gpus}
    if len(kinds) == 1:
        (name,) = kinds
        try:
            found = find_gpu(name).name
        except PlanError:
            total_bytes = min(gpu.total_bytes - (gpu.reserved_bytes or 0) for gpu in gpus)
            text = f"The card is the {name} that NVML sees here, which the catalogue does not know."
            return replace(base, gpu=None, gpu_memory_bytes=total_bytes), text
        return replace(base, gpu=found, gpu_memory_bytes=None), f"The card is the {found} that NVML sees here."
    why = "NVML sees no card here" if not kinds else "NVML sees several kinds of cards here"
    return base, f"{why}; the card is the Plan page's: {shown}."


def parallel_size(server_info: str | None) -> int | None:
    """tensor_parallel_size as /server_info tells it; None where it does not."""
    found = _TENSOR_PARALLEL.search(server_info or "")
    return int(found[1]) if found else None


def engine_plan(base: PlanRequest, sample: EngineSample, facts: EngineFacts, replan: Replan) -> EnginePlan:
    """The plan of `base`'s model and card at the engine's flags; raises `PlanError` where there can be none."""
    request = replace(base, flags=EngineFlags(), revision=None, config_json=None, other_processes_bytes=0)
    told = parallel_size(facts.server_info)
    if told is not None:
        plan = _with_own_flags(request, told, sample, facts, replan)
        return EnginePlan(plan=plan, notes=(f"tensor_parallel_size={told}, as /server_info says.",))
    plan = _with_own_flags(request, 1, sample, facts, replan)
    if _is_as_large(plan, sample):
        return EnginePlan(plan=plan, notes=("tensor_parallel_size is not exported; the plan takes 1.",))
    for size in _SIZES[1:]:
        try:
            other = _with_own_flags(request, size, sample, facts, replan)
        except PlanError:
            continue
        if _is_as_large(other, sample):
            text = (
                f"tensor_parallel_size is not exported; of those tried, {size} makes the pool as large as the engine's."
            )
            return EnginePlan(plan=other, notes=(text,))
    text = "tensor_parallel_size is not exported and no size makes the pool as large as the engine's; the plan takes 1."
    return EnginePlan(plan=plan, notes=(text,))


def _with_own_flags(
    request: PlanRequest, tensor_parallel_size: int, sample: EngineSample, facts: EngineFacts, replan: Replan
) -> Plan:
    first = replan(replace(request, flags=EngineFlags(tensor_parallel_size=tensor_parallel_size)))
    config = sample.cache_config
    causes = [
        *cause_of_version(facts.vllm_version, first),
        *cause_of_length(served_length(sample, facts.models), first),
        *(flag_causes(config, first) if config is not None else ()),
    ]
    return replan(with_causes(first.request, causes)) if causes else first


def _is_as_large(plan: Plan, sample: EngineSample) -> bool:
    """Whether the engine's blocks lie in the plan's band; True where the engine does not say."""
    actual = None if sample.cache_config is None else sample.cache_config.num_gpu_blocks
    low, high = sorted((plan.pool_low.num_blocks, plan.pool_high.num_blocks))
    return actual is None or min(low, plan.pool.num_blocks) <= actual <= max(high, plan.pool.num_blocks)
