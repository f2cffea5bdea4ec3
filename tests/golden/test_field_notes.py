"""What practitioners say of vLLM's memory, beside what the planner computes: each claim's figure and the exact one.

"Claim" is a figure as it is repeated in articles; the exact value comes from catalogue models or from configs written here.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from factories import CATALOGUE, documents_for, make_documents, make_resolved

from planner.answer import Plan
from planner.command_line import parse_command
from planner.facts import PlanError
from planner.gpu_catalog import find_gpu
from planner.kv_cache import KvLayout, blocks_per_request, layout, max_concurrency, plan_pool
from planner.layer_specs import FullSpec
from planner.model_config import read_model
from planner.planning import answer
from planner.request import EngineFlags, PlanRequest
from planner.units import GIB, KIB, MIB
from planner.weights import rank_weights

LLAMA_7B = "meta-llama--Llama-2-7b-hf"
LLAMA_70B = "meta-llama--Llama-2-70b-hf"
MISTRAL = "mistralai--Mistral-7B-Instruct-v0.2"  # v0.1 slides over 4096 tokens, this one does not
PHI_3 = "microsoft--Phi-3-mini-128k-instruct"
RTX_4090 = "GeForce RTX 4090"
AWQ = {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}}
GEMMA_2B = {  # the first Gemma: one KV head
    "architectures": ["GemmaForCausalLM"], "model_type": "gemma", "torch_dtype": "bfloat16", "hidden_size": 2048,
    "num_hidden_layers": 18, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256,
    "intermediate_size": 16384, "vocab_size": 256000, "max_position_embeddings": 8192,
}  # fmt: skip


def config_of(name: str, **changes: Any) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((CATALOGUE / f"{name}.json").read_text(encoding="utf-8"))["config"]
    return {**config, **changes}


def half_layout(name: str) -> KvLayout:
    """The layout with a 16-bit cache."""
    model = read_model(documents_for(CATALOGUE / f"{name}.json"))
    return layout(model, make_resolved(dtype="float16", kv_cache_dtype="float16", max_model_len=2048))


def planned(config: dict[str, Any], *, gpu: str = RTX_4090, version: str = "0.33.0", **flags: Any) -> Plan:
    request = PlanRequest(model_id="test/model", gpu=gpu, vllm_version=version, flags=EngineFlags(**flags))
    return answer(request, make_documents(config))[0]


# -- the bill -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "claimed_gb", "exact_bytes"),
    [
        (LLAMA_7B, 14, 13_476_831_232),
        ("meta-llama--Llama-2-13b-hf", 26, 26_031_728_640),
        (LLAMA_70B, 140, 137_953_296_384),
    ],
)
def test_half_precision_weights_are_two_bytes_a_parameter(name: str, claimed_gb: int, exact_bytes: int) -> None:
    model = read_model(documents_for(CATALOGUE / f"{name}.json"))

    weights = rank_weights(model, make_resolved(dtype="float16"), 0)

    assert weights.parameter_bytes == exact_bytes
    assert weights.parameter_bytes / 1e9 == pytest.approx(claimed_gb, rel=0.04)


def test_folk_formula_with_hidden_size_overstates_a_70b_four_times() -> None:
    folk_bytes = 2 * 80 * 4096 * 2048 * 2  # 2 x layers x "hidden_dim" x tokens x bytes, with the article's 4096

    exact_bytes = half_layout(LLAMA_70B).kv_bytes_per_token * 2048

    assert round(folk_bytes / 1e9, 2) == 2.68
    assert exact_bytes / GIB == 0.625
    assert folk_bytes / exact_bytes == 4


def test_folk_formula_with_the_real_hidden_size_overstates_a_70b_eight_times() -> None:
    folk_bytes = 2 * 80 * config_of(LLAMA_70B)["hidden_size"] * 2048 * 2

    exact_bytes = half_layout(LLAMA_70B).kv_bytes_per_token * 2048

    assert folk_bytes / exact_bytes == 8  # 64 heads over 8 KV heads


def test_multi_head_attention_costs_512_kib_a_token() -> None:
    per_token = half_layout(LLAMA_7B).kv_bytes_per_token

    assert per_token == 2 * 32 * 32 * 128 * 2 == 512 * KIB
    assert per_token * 2048 == 1 * GIB
    assert per_token * 2048 * 16 == 16 * GIB


@pytest.mark.parametrize(
    ("config", "claimed_mb", "exact_bytes", "factor"),
    [
        (config_of(LLAMA_7B), 0.125, 524_288, 4.0),
        (config_of(MISTRAL), 0.118, 131_072, 1.06),
        (config_of("microsoft--phi-2"), 0.062, 327_680, 5.04),
        (GEMMA_2B, 0.057, 18_432, 0.31),
    ],
    ids=["Llama-2-7B", "Mistral-7B", "Phi-2", "Gemma-2B"],
)
def test_cost_per_token_beside_the_repeated_table(
    config: dict[str, Any], claimed_mb: float, exact_bytes: int, factor: float
) -> None:
    model = read_model(make_documents(config))

    per_token = layout(model, make_resolved(max_model_len=2048)).kv_bytes_per_token

    assert per_token == exact_bytes
    assert round(per_token / MIB / claimed_mb, 2) == factor


def test_cache_grows_with_length_times_batch() -> None:
    """The repeated total "weights + length x cost + batch x graphs" leaves the product out."""
    model_layout = half_layout(LLAMA_7B)
    for_one = blocks_per_request(model_layout, 2048) * model_layout.bytes_per_block[0]

    concurrency = max_concurrency(model_layout, 16 * for_one // model_layout.bytes_per_block[0], 2048)

    assert concurrency == 16
    assert 16 * for_one == 16 * GIB


def test_worked_card_of_24_gb_holds_16_requests() -> None:
    """Base 22, weights 14: 8 GiB of pool at 512 KiB a token."""
    pool = plan_pool(half_layout(LLAMA_7B), ((22 - 14) * GIB,), 1024)

    assert (pool.num_blocks, pool.tokens, pool.max_concurrency) == (1024, 16_384, 16.0)


def test_worked_card_redone_exactly() -> None:
    """With the driver's total, weights in GiB, the activation peak and graphs, on a 24 GB RTX 4090 and vLLM 0.33."""
    plan = planned(config_of(LLAMA_7B), max_model_len=1024)

    line = {part.name: part.estimate.best_bytes / GIB for part in plan.ranks[0].lines}
    assert line["weights"] == pytest.approx(12.55, abs=0.01)
    assert sum(line.values()) == pytest.approx(23.517, abs=0.001)
    assert 7.5 < line["kv_pool"] < 8.7
    assert 15_000 < plan.pool.tokens < 18_000


# -- the card -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "low_gib", "high_gib"),
    [
        (RTX_4090, 23.5, 23.7),
        ("GeForce RTX 3090", 23.5, 23.7),
        ("L4", 22.0, 22.5),
        ("A10G", 22.0, 22.5),
        ("H100 80GB SXM", 79.18, 79.20),
    ],
)
def test_drivers_total_is_below_the_marketed_size(name: str, low_gib: float, high_gib: float) -> None:
    gpu = find_gpu(name)

    assert low_gib <= gpu.total.best_bytes / GIB <= high_gib
    assert gpu.total.best_bytes / GIB < (gpu.marketed_gb or 0)


@pytest.mark.parametrize(
    ("version", "utilization"), [("0.6.6", 0.9), ("0.11.0", 0.9), ("0.19.0", 0.9), ("0.33.0", 0.92)]
)
def test_default_utilization_by_release(version: str, utilization: float) -> None:
    plan = planned(config_of(LLAMA_7B), version=version, max_model_len=1024)

    assert {item.name: item.value for item in plan.resolved}["gpu_memory_utilization"] == utilization


def test_context_lies_outside_the_budget() -> None:
    plan = planned(config_of(LLAMA_7B), gpu="H100 80GB SXM")

    (context,) = [line for line in plan.ranks[0].lines if line.name == "context"]
    assert not context.is_inside_budget
    assert context.estimate.low_bytes < GIB // 2 < context.estimate.high_bytes <= GIB


# -- quantisation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plain", "packed", "linear_saving", "total_saving"),
    [
        ("Qwen--Qwen2.5-7B-Instruct", "Qwen--Qwen2.5-7B-Instruct-AWQ", 0.740, 0.634),
        ("Qwen--Qwen2.5-14B", "Qwen--Qwen2.5-14B-Instruct-AWQ", 0.740, 0.662),
    ],
)
def test_awq_saves_more_than_half(plain: str, packed: str, linear_saving: float, total_saving: float) -> None:
    """ "AWQ saves 40-50 %" is too low: 0.52 of 2 bytes stay of each linear weight, embedding and head stay whole."""
    before = rank_weights(read_model(documents_for(CATALOGUE / f"{plain}.json")), make_resolved(), 0)
    after = rank_weights(read_model(documents_for(CATALOGUE / f"{packed}.json")), make_resolved(dtype="float16"), 0)

    mlp_before, mlp_after = dict(before.by_role)["mlp"], dict(after.by_role)["mlp"]
    assert 1 - mlp_after / mlp_before == pytest.approx(linear_saving, abs=0.001)
    assert 1 - after.parameter_bytes / before.parameter_bytes == pytest.approx(total_saving, abs=0.001)


def test_awq_saves_least_where_the_vocabulary_is_large() -> None:
    small = config_of("Qwen--Qwen2.5-0.5B")
    before = planned(small).ranks[0].weights
    after = planned({**small, **AWQ}).ranks[0].weights

    assert 1 - after.parameter_bytes / before.parameter_bytes == pytest.approx(0.536, abs=0.001)
    assert dict(after.by_role)["embedding"] == dict(before.by_role)["embedding"]


def test_kv_dtype_doubles_concurrency_whatever_the_weights_are() -> None:
    config = config_of(LLAMA_7B)
    concurrency = {
        (weights, kv): planned({**config, **extra}, max_model_len=2048, kv_cache_dtype=kv).pool.max_concurrency
        for weights, extra in (("fp16", {}), ("awq", AWQ))
        for kv in ("auto", "fp8")
    }

    for weights in ("fp16", "awq"):
        assert concurrency[weights, "fp8"] == pytest.approx(2 * concurrency[weights, "auto"], rel=0.002)
    assert 1.9 < concurrency["awq", "auto"] / concurrency["fp16", "auto"] < 2.3


# -- what fits on a 24 GB RTX 4090 --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "length_tokens", "claimed", "holds"),
    [
        (config_of(LLAMA_7B), 2048, 4, True),
        (config_of(LLAMA_7B, **AWQ), 4096, 8, True),
        (config_of(MISTRAL), 4096, 6, True),
        (config_of(PHI_3), 8192, 12, False),  # multi-head attention: 384 KiB a token, about 4.5 requests
    ],
    ids=["Llama2-7B", "Llama2-7B-AWQ", "Mistral-7B", "Phi-3"],
)
def test_what_fits_on_24_gb(config: dict[str, Any], length_tokens: int, claimed: int, *, holds: bool) -> None:
    plan = planned(config, max_model_len=length_tokens)

    assert plan.will_start
    assert (plan.pool.max_concurrency >= claimed) is holds
    assert (plan.pool_high.max_concurrency >= claimed) is holds


# -- paging -------------------------------------------------------------------------------------------------------------


def test_a_page_is_tokens_not_16_kb() -> None:
    """ "page = hidden_dim x 2 x 2" is one token's keys and values in one layer; a page holds block_size of them."""
    model_layout = half_layout(LLAMA_7B)
    (group,) = model_layout.groups
    assert isinstance(group.spec, FullSpec)

    one_token_bytes = 4096 * 2 * 2

    assert one_token_bytes == 16 * KIB
    assert group.page_bytes == model_layout.block_size * one_token_bytes == 256 * KIB
    assert model_layout.bytes_per_block == (8 * MIB,)


@pytest.mark.parametrize(("version", "is_accepted"), [("0.6.6", True), ("0.33.0", False)])
def test_blocks_of_eight_tokens_are_a_thing_of_the_past(version: str, *, is_accepted: bool) -> None:
    def plan() -> Plan:
        return planned(config_of(LLAMA_7B), version=version, max_model_len=1024, block_size=8)

    if is_accepted:
        assert plan().pool.block_size == 8
    else:
        with pytest.raises(PlanError, match="multiples of 16"):
            plan()


# -- swap, offload, dry run ---------------------------------------------------------------------------------------------


def codes_of(command: str, version: str) -> set[str]:
    return {finding.code for finding in parse_command(command, version).findings}


def test_swap_space_is_a_flag_of_older_releases() -> None:
    command = "vllm serve meta-llama/Llama-2-7b-hf --swap-space 16"

    assert "flag-not-in-version" in codes_of(command, "0.33.0")
    assert "flag-not-in-version" not in codes_of(command, "0.6.6")


def test_dry_run_mode_does_not_exist() -> None:
    assert "flag-unknown" in codes_of("vllm serve meta-llama/Llama-2-7b-hf --dry-run", "0.33.0")


def test_weight_offload_gives_its_bytes_to_the_cache() -> None:
    without = planned(config_of(LLAMA_7B), max_model_len=2048).ranks[0]
    with_offload = planned(config_of(LLAMA_7B), max_model_len=2048, cpu_offload_gb=4.0).ranks[0]

    moved, largest_tensor = with_offload.weights.offloaded_bytes, 2 * 11008 * 4096 * 2

    assert 4 * GIB <= moved < 4 * GIB + largest_tensor  # whole tensors, until the amount is reached
    assert with_offload.weights.load.best_bytes == without.weights.load.best_bytes - moved
    assert with_offload.kv_pool.best_bytes == without.kv_pool.best_bytes + moved
