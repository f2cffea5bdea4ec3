"""What the real planner says, collected: findings, reasons, advice, notes, formulas and refusals of many plans."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from planner.answer import Plan
from planner.error_lines import explain, read_error
from planner.facts import Basis, Estimate, PlanError
from planner.failure_presets import KINDS, failure_preset, remedies
from planner.model_catalog import catalogue_documents, catalogue_ids
from planner.planning import answer
from planner.request import EngineFlags, PlanRequest
from planner.simulate import simulate
from planner.simulator_pool import engine_of_plan

CARDS = ("H100 80GB SXM", "RTX 4090", "Tesla T4", "MI300X", "L4")
RELEASES = ("0.33.0", "0.27.1", "0.19.0", "0.11.0", "0.8.5", "0.6.6")
CHOICES: dict[str, tuple[Any, ...]] = {
    "tensor_parallel_size": (1, 2, 3, 8),
    "pipeline_parallel_size": (1, 2, 500),
    "max_model_len": (None, 1024, 100_000_000),
    "gpu_memory_utilization": (None, 0.3, 0.99, 1.5),
    "max_num_seqs": (None, 1, 4096),
    "max_num_batched_tokens": (None, 64, 32_768),
    "kv_cache_dtype": ("auto", "fp8", "fp8_e5m2", "nvfp4", "int3"),
    "quantization": (None, "fp8", "awq", "bitsandbytes", "squeezellm"),
    "dtype": ("auto", "half", "float32", "int2"),
    "enforce_eager": (None, True),
    "enable_lora": (None, True),
    "enable_expert_parallel": (None, True),
    "cpu_offload_gb": (None, 8.0),
    "kv_offloading_size": (None, 4.0),
    "swap_space": (None, 4.0),
    "block_size": (None, 7, 32),
    "disable_hybrid_kv_cache_manager": (None, True),
    "num_gpu_blocks_override": (None, 10, 10_000_000),
    "kv_cache_memory_bytes": (None, 2**30, 2**38),
    "enable_prefix_caching": (None, True, False),
    "async_scheduling": (None, True, False),
    "performance_mode": (None, "throughput"),
}


def texts_of(plan: Plan) -> Iterator[str]:
    """Every sentence of a plan that a page shows."""
    yield plan.reason
    yield plan.era
    for finding in plan.findings:
        yield finding.text
    for advice in plan.advice:
        yield advice.change
        yield advice.effect
    for default in plan.resolved:
        yield default.basis.note
    for line in (*plan.host, *(line for rank in plan.ranks for line in rank.lines)):
        yield from _of_estimate(line.estimate)


def _of_estimate(estimate: Estimate) -> Iterator[str]:
    yield from _of_basis(estimate.basis)
    yield estimate.formula


def _of_basis(basis: Basis) -> Iterator[str]:
    yield basis.note


def planner_texts(num_fuzzed: int, seed: int = 20) -> Iterator[str]:
    """The sentences of every catalogue model on some cards, and of fuzzed requests."""
    for place, model_id in enumerate(catalogue_ids()):
        yield from _of_request(PlanRequest(model_id=model_id, gpu=CARDS[place % len(CARDS)]))
    draw = random.Random(seed)  # noqa: S311 - the same requests every time
    for _ in range(num_fuzzed):
        changed = draw.sample(sorted(CHOICES), 3)
        given = {name: draw.choice(CHOICES[name]) for name in changed}
        flags = EngineFlags(**{name: value for name, value in given.items() if value is not None})
        request = PlanRequest(model_id=draw.choice(catalogue_ids()), gpu=draw.choice(CARDS), flags=flags)
        yield from _of_request(replace(request, vllm_version=draw.choice(RELEASES)))


def _of_request(request: PlanRequest) -> Iterator[str]:
    try:
        plan, _ = answer(request, catalogue_documents(request.model_id))
    except PlanError as problem:
        yield problem.text
        return
    yield from texts_of(plan)
    if plan.vllm_error:
        reading = read_error(plan.vllm_error)
        yield from () if reading is None else explain(reading, plan)


def simulator_texts() -> Iterator[str]:
    """The sentences of the presets that break a pool, and of the events of one run."""
    for kind in KINDS:
        preset = failure_preset(kind, seed=7)
        yield preset.story
        yield preset.metric
        for event in itertools.islice(simulate(preset.config, preset.requests).timeline.events, 400):
            yield event.text
    for remedy in remedies(failure_preset(KINDS[0], seed=7)):
        yield remedy.why
    plan, _ = answer(
        PlanRequest(model_id="google/gemma-3-27b-it", gpu=CARDS[0]), catalogue_documents("google/gemma-3-27b-it")
    )
    yield from (finding.text for finding in engine_of_plan(plan).findings)
