"""Activation peak, non-torch memory and graphs against the start-up logs that the rules were read from."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from planner import overhead
from planner.activation import (
    indexer_workspace_bytes,
    mla_context_bytes,
    moe_workspace_bytes,
    sampler_bytes_per_logit,
)
from planner.defaults import Resolved, resolve
from planner.encoder_activation import encoder_peak
from planner.gpu_catalog import find_gpu
from planner.inventory import ModelFacts
from planner.model_catalog import catalogue_documents
from planner.model_config import read_model
from planner.non_torch import persistent_tensor_bytes
from planner.request import EngineFlags, PlanRequest
from planner.truth import CONFIGS
from planner.units import GIB, MIB
from planner.wrapped_config import wrapped_documents


def _case(model_id: str, version: str, gpu: str = "H100 80GB SXM", **flags: object) -> tuple[ModelFacts, Resolved]:
    model = read_model(catalogue_documents(model_id))
    given = EngineFlags(max_model_len=8192, **flags)  # type: ignore[arg-type]
    request = PlanRequest(model_id=model_id, gpu=gpu, vllm_version=version, flags=given)
    return model, resolve(request, model, find_gpu(gpu))


@pytest.mark.parametrize(
    ("model_id", "version", "logged_gib"),
    [  # H100 80GB, defaults of the API server, as logged
        ("meta-llama/Llama-3.1-8B-Instruct", "0.19.0", 1.89),
        ("Qwen/Qwen2.5-7B-Instruct", "0.19.0", 2.21),
        ("Qwen/Qwen3-8B", "0.19.0", 2.21),
        ("google/gemma-2-27b-it", "0.19.0", 3.66),
        ("google/gemma-7b", "0.19.0", 3.63),
        ("ibm-granite/granite-3.1-2b-instruct", "0.19.0", 0.75),
        ("openai/gpt-oss-20b", "0.19.0", 2.87),
        ("Qwen/Qwen1.5-MoE-A2.7B", "0.19.0", 2.47),
        ("deepseek-ai/DeepSeek-V2-Lite-Chat", "0.19.0", 1.93),
        ("meta-llama/Llama-3.1-8B-Instruct", "0.11.0", 4.76),
        ("Qwen/Qwen3-0.6B", "0.11.0", 5.56),
        ("openai/gpt-oss-20b", "0.11.0", 7.38),
    ],
)
def test_activation_peak_equals_the_logged_one(model_id: str, version: str, logged_gib: float) -> None:
    model, resolved = _case(model_id, version)

    peak = overhead.activation(model, resolved, 0)

    assert peak.best_bytes / GIB == pytest.approx(logged_gib, abs=0.011)
    assert peak.low_bytes / GIB - 0.005 <= logged_gib <= peak.high_bytes / GIB + 0.005


def test_the_first_stage_holds_a_second_embedding_while_compiling() -> None:
    model, resolved = _case("meta-llama/Llama-3.1-8B-Instruct", "0.19.0", pipeline_parallel_size=2)

    assert overhead.activation(model, resolved, 0).best_bytes / GIB == pytest.approx(1.10, abs=0.01)


def test_the_last_stage_samples_beside_what_it_was_handed() -> None:
    model, resolved = _case("meta-llama/Llama-3.1-8B-Instruct", "0.19.0", pipeline_parallel_size=2)

    assert overhead.activation(model, resolved, 1).best_bytes / GIB == pytest.approx(2.01, abs=0.01)


def test_float32_logits_cost_four_copies() -> None:
    _, resolved = _case("meta-llama/Llama-3.1-8B-Instruct", "0.19.0", dtype="float32")

    assert sampler_bytes_per_logit(resolved)[0] == 16


def test_a_warm_compile_cache_leaves_the_layers_as_the_peak() -> None:
    model = read_model(catalogue_documents("Qwen/Qwen3-8B"))
    request = PlanRequest(
        model_id="Qwen/Qwen3-8B",
        gpu="GeForce RTX 4090",
        vllm_version="0.27.1",
        compile_cache="warm",
        flags=EngineFlags(max_model_len=8192),
    )
    resolved = resolve(request, model, find_gpu("GeForce RTX 4090"))

    # 0.27.1, RTX 4090, second start: 0.19 GiB printed, 1.18 on the first
    assert overhead.activation(model, resolved, 0).best_bytes / GIB == pytest.approx(0.19, abs=0.01)


def test_moe_workspace_follows_slots_and_the_wider_of_expert_and_hidden() -> None:
    model, resolved = _case("Qwen/Qwen1.5-MoE-A2.7B", "0.19.0")

    # 8192 tokens x 4 experts x (max(1408, 2048) + max(2816, 2048)) x 2 B
    assert moe_workspace_bytes(model, resolved, 0) == 8192 * 4 * (2048 + 2816) * 2


def test_latent_attention_profiles_its_longest_context() -> None:
    model, resolved = _case("deepseek-ai/DeepSeek-V2-Lite-Chat", "0.19.0")

    assert mla_context_bytes(model, resolved) == 65536 * 16 * (128 + 128) * 2


def test_the_sparse_indexer_reserves_by_length() -> None:
    model, resolved = _case("deepseek-ai/DeepSeek-V3.2", "0.19.0", gpu="H200 141GB SXM", tensor_parallel_size=8)

    assert indexer_workspace_bytes(model, resolved) == 8192 * 40 * 132
    assert mla_context_bytes(model, resolved) == 0


def test_mxfp4_experts_on_hopper_need_no_workspace() -> None:
    model, resolved = _case("openai/gpt-oss-20b", "0.19.0")

    assert moe_workspace_bytes(model, resolved, 0) == 0


@pytest.mark.parametrize(("ranks", "logged_gib"), [(1, 0.25), (2, 2.07), (4, 2.13)])
def test_non_torch_on_hopper_equals_the_logged_one(ranks: int, logged_gib: float) -> None:
    model, resolved = _case("meta-llama/Llama-3.1-8B-Instruct", "0.19.0", tensor_parallel_size=ranks)

    assert overhead.non_torch(model, resolved, 0).best_bytes / GIB == pytest.approx(logged_gib, abs=0.011)


@pytest.mark.parametrize(
    ("model_id", "logged_gib"),
    [
        ("ibm-granite/granite-3.1-2b-instruct", 0.46),
        ("ibm-granite/granite-vision-3.3-2b", 0.25),
    ],  # 49,155 and 49,156 wide
)
def test_rows_of_logits_off_16_bytes_reserve_local_memory(model_id: str, logged_gib: float) -> None:
    model, resolved = _case(model_id, "0.19.0")

    assert overhead.non_torch(model, resolved, 0).best_bytes / GIB == pytest.approx(logged_gib, abs=0.011)


def test_the_v2_runner_keeps_penalty_tables_for_every_sequence() -> None:
    model, resolved = _case("meta-llama/Llama-3.1-8B-Instruct", "0.31.0", gpu="A100 80GB SXM")

    # 0.31.0, A100 80GB: 15.26 consumed less 15.00 loaded
    assert overhead.non_torch(model, resolved, 0).best_bytes / GIB == pytest.approx(0.26, abs=0.015)


def test_small_vocabularies_leave_the_layers_as_the_peak_of_the_v1_runner() -> None:
    model, resolved = _case("llava-hf/llava-v1.6-mistral-7b-hf", "0.10.2", max_num_batched_tokens=16384)

    # 0.10.2, H100, five images: 1.97 GiB; gate, up and product, 3.75 vectors of the stream and the first product's workspace
    assert overhead.activation(model, resolved, 0).best_bytes / GIB == pytest.approx(1.97, abs=0.035)


def test_graphs_are_charged_from_020_on() -> None:
    model, before = _case("meta-llama/Llama-3.1-8B-Instruct", "0.19.1")
    _, after = _case("meta-llama/Llama-3.1-8B-Instruct", "0.20.0")

    assert overhead.cuda_graphs(model, before, 0).best_bytes == 0
    # vLLM 0.19 prints 0.84 GiB for this model on an H100 without charging it
    assert overhead.cuda_graphs(model, after, 0).best_bytes / GIB == pytest.approx(0.84, abs=0.15)


def test_the_v2_runner_charges_graphs_from_029_on() -> None:
    for version, is_charged in (("0.28.0", False), ("0.29.0", True)):
        model, resolved = _case("Qwen/Qwen3-14B", version, gpu="L40S")
        assert resolved.runner == "v2"
        assert (overhead.cuda_graphs(model, resolved, 0).best_bytes > 0) is is_charged


def test_experts_widen_the_graph_estimate_upwards() -> None:
    model, resolved = _case("google/gemma-4-26B-A4B-it", "0.25.1", gpu="L40S")
    charge = overhead.cuda_graphs(model, resolved, 0)

    assert charge.best_bytes / GIB == pytest.approx(0.66, abs=0.2)  # as printed
    assert charge.high_bytes - charge.best_bytes > 1.5 * (charge.best_bytes - charge.low_bytes)


def test_the_sampler_may_be_flashinfers_up_to_011_only() -> None:
    for version, may_be in (("0.10.0", True), ("0.11.0", True), ("0.12.0", False), ("0.13.0", False)):
        _, resolved = _case("meta-llama/Llama-3.2-1B", version)
        best, low, _ = sampler_bytes_per_logit(resolved)
        assert best == 38
        assert (low < 20) is may_be


def test_unified_memory_also_loses_what_loading_read() -> None:
    small, on_small = _case("Qwen/Qwen3-0.6B", "0.19.0", gpu="DGX Spark (GB10)")
    large, on_large = _case("Qwen/Qwen3-30B-A3B-FP8", "0.19.0", gpu="DGX Spark (GB10)")

    grown = overhead.non_torch(large, on_large, 0).best_bytes - overhead.non_torch(small, on_small, 0).best_bytes
    assert grown / GIB == pytest.approx(0.06 * (29.04 - 1.12), abs=0.05)


def test_graphs_are_outside_the_budget_before_020() -> None:
    model, resolved = _case("meta-llama/Llama-3.1-8B-Instruct", "0.19.0")

    assert overhead.cuda_graphs(model, resolved, 0).best_bytes == 0
    assert overhead.cuda_graphs_actual(model, resolved, 0).best_bytes / GIB == pytest.approx(0.91, rel=0.25)


def test_eager_mode_has_no_graphs() -> None:
    model, resolved = _case("meta-llama/Llama-3.1-8B-Instruct", "0.23.0", enforce_eager=True)

    assert overhead.cuda_graphs(model, resolved, 0).best_bytes == 0
    assert overhead.cuda_graphs_actual(model, resolved, 0).best_bytes == 0


def test_fewer_capture_sizes_cost_less() -> None:
    model, many = _case("Qwen/Qwen2.5-7B-Instruct", "0.24.0", gpu="GeForce RTX 4090")
    _, few = _case("Qwen/Qwen2.5-7B-Instruct", "0.24.0", gpu="GeForce RTX 4090", max_num_seqs=2)

    assert (
        overhead.cuda_graphs_actual(model, few, 0).best_bytes < overhead.cuda_graphs_actual(model, many, 0).best_bytes
    )
    assert overhead.cuda_graphs_actual(model, few, 0).best_bytes <= 200 * MIB


def test_every_estimate_has_its_best_value_inside_the_band() -> None:
    model, resolved = _case("deepseek-ai/DeepSeek-V2-Lite-Chat", "0.33.0")

    for part in (overhead.activation, overhead.non_torch, overhead.cuda_graphs, overhead.cuda_graphs_actual):
        estimate = part(model, resolved, 0)
        assert 0 <= estimate.low_bytes <= estimate.best_bytes <= estimate.high_bytes
        assert estimate.formula
        assert estimate.basis.note


@pytest.mark.parametrize(
    ("flags", "cache", "tables"),
    [({}, "cold", 1), ({}, "unknown", 1), ({}, "warm", 0), ({"enforce_eager": True}, "cold", 0)],
)
def test_a_tied_table_is_left_once_more_by_a_compile_of_027_and_later(
    flags: dict[str, Any], cache: Any, tables: int
) -> None:
    tied, resolved = _case("Qwen/Qwen2.5-1.5B", "0.28.0", "GeForce RTX 4090", **flags)
    resolved = replace(resolved, compile_cache=cache)
    untied, other = _case("Qwen/Qwen3-8B", "0.28.0", "GeForce RTX 4090", **flags)

    left = overhead.non_torch(tied, resolved, 0).best_bytes - persistent_tensor_bytes(tied, resolved, 0)
    usual = overhead.non_torch(untied, other, 0).best_bytes - persistent_tensor_bytes(untied, other, 0)

    # 1.5B, 0.28.0, RTX 4090 D, first start: 0.44 GiB beyond an untied model's; 0.30.0 eager: nothing
    assert (left - usual) / GIB == pytest.approx(tables * 151_936 * 1_536 * 2 / GIB, abs=0.001)


def _qwen3_vl(version: str, **flags: object) -> tuple[ModelFacts, Resolved]:
    document = json.loads((CONFIGS / "Qwen--Qwen3-VL-30B-A3B-Instruct.json").read_text(encoding="utf-8"))
    model = read_model(wrapped_documents(document, source="truth"))
    given = EngineFlags(max_model_len=65_536, tensor_parallel_size=4, max_num_batched_tokens=2048, **flags)  # type: ignore[arg-type]
    request = PlanRequest(model_id=model.model_id, gpu="GeForce RTX 3090", vllm_version=version, flags=given)
    return model, resolve(request, model, find_gpu("GeForce RTX 3090"))


def test_0110_keeps_room_for_a_videos_tokens_and_the_text_around_them() -> None:
    # 0.11.0 prints a budget of 153,600 tokens; each is four vectors of 2,048: the embedding and three inner layers'
    kept = 153_600 * 2_048 * 4 * 2

    with_video, image_only, later = (
        encoder_peak(*_qwen3_vl("0.11.0")),
        encoder_peak(*_qwen3_vl("0.11.0", limit_mm_per_prompt=(("video", 0),))),
        encoder_peak(*_qwen3_vl("0.13.0")),
    )

    assert with_video is not None
    assert image_only is not None
    assert with_video.kept_bytes - 49_152 * 1_536 * 2 == kept
    assert image_only.kept_bytes - 65_536 * 1_536 * 2 == 16_384 * 2_048 * 4 * 2
    assert later == image_only


def test_0110_scatters_each_item_over_the_whole_budget() -> None:
    model, resolved = _case("google/gemma-3-4b-it", "0.11.0", max_num_batched_tokens=8192)
    _, later = _case("google/gemma-3-4b-it", "0.14.0", max_num_batched_tokens=8192)

    scattered, plain = encoder_peak(model, resolved), encoder_peak(model, later)

    assert scattered is not None
    assert plain is not None
    assert scattered.kept_bytes - plain.kept_bytes == 32 * (8192 - 256) * 2560 * 2


@pytest.mark.parametrize(("version", "tables"), [("0.23.0", 1.5), ("0.28.0", 2.0)])
def test_a_cold_compile_holds_more_tables_on_a_card_of_12(version: str, tables: float) -> None:
    # Qwen3-32B on an RTX PRO 6000 (0.27.1), 32B-AWQ and 14B-AWQ on an RTX 5090 (0.28): 1.9 to 2.1 tables of 1.45 GiB
    model, resolved = _case("Qwen/Qwen3-32B", version, "RTX PRO 6000 Blackwell Server")

    peak = overhead.activation(model, resolved, 0)

    held = peak.best_bytes - 2 * 8_192 * 5_120 * 2  # and the batch's vectors twice
    assert held / (151_936 * 5_120 * 2) == pytest.approx(tables, abs=0.01)
    assert peak.high_bytes - peak.best_bytes == 151_936 * 5_120
