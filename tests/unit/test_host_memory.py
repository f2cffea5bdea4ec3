"""Host memory: offloaded weights, offloaded KV cache and V0's swap space are told beside the cards, never in their sum."""

from __future__ import annotations

from typing import Any

import pytest

from planner.answer import Plan
from planner.model_catalog import catalogue_documents
from planner.offload import offloaded
from planner.planning import answer
from planner.request import EngineFlags, PlanRequest
from planner.units import GIB

LAYER = 218_112_000 * 2  # bytes of a Llama-3.1-8B layer
NORMS = 2 * 4096 * 2


def plan_of(model: str = "meta-llama/Llama-3.1-8B", *, version: str = "0.33.0", **flags: Any) -> Plan:
    request = PlanRequest(
        model_id=model, gpu="H100 80GB SXM", vllm_version=version, flags=EngineFlags(max_model_len=8192, **flags)
    )
    return answer(request, catalogue_documents(model))[0]


@pytest.mark.parametrize(("asked", "moved"), [(0, 0), (1, 300), (300, 300), (301, 800), (9999, 1000)])
def test_whole_tensors_go_until_the_amount_is_reached(asked: int, moved: int) -> None:
    assert offloaded((300, 500, 200), asked).tensor_bytes == moved


def test_offloaded_weights_leave_the_card_and_show_on_the_host() -> None:
    plain, offloading = plan_of(), plan_of(cpu_offload_gb=4.0)
    moved = offloading.ranks[0].weights.offloaded_bytes

    assert moved == 10 * LAYER - NORMS
    assert [(line.name, line.estimate.best_bytes) for line in offloading.host] == [("host_weights", moved)]
    assert plain.ranks[0].weights.load.best_bytes - offloading.ranks[0].weights.load.best_bytes == pytest.approx(
        moved, rel=1e-4
    )


def test_every_card_offloads_its_own_share() -> None:
    plan = plan_of(cpu_offload_gb=1.0, tensor_parallel_size=2)

    assert plan.host[0].estimate.best_bytes == 2 * plan.ranks[0].weights.offloaded_bytes
    assert plan.ranks[0].weights.offloaded_bytes >= GIB


def test_no_more_than_the_layers_can_go() -> None:
    assert plan_of(cpu_offload_gb=100.0).ranks[0].weights.offloaded_bytes == 32 * LAYER


def test_towers_go_first_in_newer_releases() -> None:
    old, new = (
        plan_of("Qwen/Qwen3.5-27B", version=version, cpu_offload_gb=1000.0).ranks[0].weights.offloaded_bytes
        for version in ("0.27.1", "0.33.0")
    )
    roles = dict(plan_of("Qwen/Qwen3.5-27B").ranks[0].weights.by_role)

    assert new - old == pytest.approx(roles["vision"] + roles["projector"], rel=1e-3)  # and the towers' norms


def test_the_offloaded_cache_takes_nothing_of_the_card() -> None:
    plain, offloading = plan_of(tensor_parallel_size=2), plan_of(tensor_parallel_size=2, kv_offloading_size=10.0)
    line = offloading.host[0]

    assert offloading.ranks[0].lines == plain.ranks[0].lines
    assert (line.name, line.estimate.best_bytes) == ("host_kv_cache", 10 * GIB)
    assert line.estimate.formula.startswith("5,120 blocks of 2,097,152 B over 2 ranks")


def test_v0_pins_its_swap_space_by_default() -> None:
    plan = plan_of(version="0.6.6", tensor_parallel_size=2)

    assert [(line.name, line.estimate.best_bytes) for line in plan.host] == [("host_swap", 8 * GIB)]
    assert plan_of(version="0.6.6", swap_space=0.0).host == ()


def test_nothing_is_told_without_such_flags() -> None:
    assert plan_of().host == ()
