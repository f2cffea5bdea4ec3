"""The form and the request turn into each other without loss."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from pages.parts import form
from pages.parts.fields import ALL_FIELDS, GROUPS, MAIN_FIELDS, SPECULATIVE_FIELDS
from planner.facts import PlanError
from planner.request import EngineFlags, PlanRequest, SpeculativeConfig
from planner.units import GIB

BASE = PlanRequest(model_id="org/model", gpu="H100 80GB SXM")


def through_the_form(request: PlanRequest) -> PlanRequest:
    values = form.values_from(request)
    return form.request_from(
        values, model_id=request.model_id, revision=request.revision, config_json=request.config_json
    )


def test_every_flag_has_a_field() -> None:
    names = {field.name for field in fields(EngineFlags)} - {"speculative_config"}

    assert names == form.FLAG_NAMES
    assert {field.name for field in fields(SpeculativeConfig)} == {field.name for field in SPECULATIVE_FIELDS}


def test_no_flag_has_two_fields() -> None:
    names = [field.name for field in (*MAIN_FIELDS, *(field for group in GROUPS for field in group.fields))]

    assert len(names) == len(set(names))


def test_every_field_says_what_it_does() -> None:
    assert all(field.meaning.endswith(".") for field in (*ALL_FIELDS, *SPECULATIVE_FIELDS))


FLAGS: tuple[dict[str, object], ...] = (
    {"tensor_parallel_size": 8, "pipeline_parallel_size": 2, "data_parallel_size": 4, "enable_expert_parallel": True},
    {"gpu_memory_utilization": 0.87, "cpu_offload_gb": 12.5, "kv_offloading_size": 30.0, "swap_space": 4.0},
    {"max_model_len": "auto", "kv_cache_memory_bytes": 50 * GIB + 1, "num_gpu_blocks_override": 512},
    {"max_model_len": 131_072, "max_num_seqs": 64, "max_num_batched_tokens": 2048, "block_size": 32},
    {"kv_cache_dtype": "fp8_e4m3", "dtype": "float16", "quantization": "awq_marlin", "attention_backend": "FLASHINFER"},
    {"enforce_eager": True, "enable_prefix_caching": False, "async_scheduling": False, "language_model_only": True},
    {"cudagraph_capture_sizes": (1, 2, 4, 8), "max_cudagraph_capture_size": 256, "cudagraph_mode": "FULL"},
    {"enable_lora": True, "max_loras": 4, "max_lora_rank": 64, "fully_sharded_loras": True},
    {"limit_mm_per_prompt": (("image", 2), ("video", 0)), "mamba_cache_mode": "align"},
    {"speculative_config": SpeculativeConfig(method="eagle3", num_speculative_tokens=5, model="org/head")},
    {"speculative_config": SpeculativeConfig(method="ngram", num_speculative_tokens=3)},
)


@pytest.mark.parametrize("flags", FLAGS)
def test_flags_survive_the_form(flags: dict[str, object]) -> None:
    request = replace(BASE, flags=replace(EngineFlags(), **flags))

    assert through_the_form(request) == request


@pytest.mark.parametrize(
    "changes",
    [
        {"gpu": None, "gpu_memory_bytes": 48 * GIB + 12_345},
        {"other_processes_bytes": 3 * GIB + 1},
        {"vllm_version": "0.11.2", "usage_context": "llm_class", "model_runner": "v1", "compile_cache": "warm"},
        {"mean_length_tokens": 1500, "allow_long_max_model_len": True},
        {"config_json": "{}", "revision": "main"},
    ],
)
def test_the_rest_of_a_request_survives_the_form(changes: dict[str, object]) -> None:
    request = replace(BASE, **changes)  # type: ignore[arg-type]

    assert through_the_form(request) == request


def test_a_short_card_name_becomes_the_catalogues() -> None:
    assert form.values_from(replace(BASE, gpu="H100"))["gpu"] == "H100 80GB SXM"


def test_a_card_that_only_has_a_size_is_a_custom_one() -> None:
    request = replace(BASE, gpu="Some future card", gpu_memory_bytes=200 * GIB)

    assert form.values_from(request)["gpu"] == form.CUSTOM_CARD


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        ({"tensor_parallel_size": 0}, "tensor_parallel_size"),
        ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization"),
        ({"cpu_offload_gb": -1.0}, "cpu_offload_gb"),
        ({"max_num_seqs": 2**60}, "max_num_seqs"),
    ],
)
def test_what_no_field_can_hold_is_refused_by_name(flags: dict[str, object], field: str) -> None:
    with pytest.raises(PlanError) as refusal:
        form.values_from(replace(BASE, flags=replace(EngineFlags(), **flags)))

    assert refusal.value.field == field
    assert field in refusal.value.text


def test_an_unreadable_text_names_its_field() -> None:
    values = form.values_from(BASE) | {"max_model_len": "very long"}

    with pytest.raises(PlanError, match="max_model_len is 'very long'"):
        form.request_from(values, model_id="m", revision=None, config_json=None)


def test_a_custom_card_without_a_size_is_refused() -> None:
    values = form.values_from(BASE) | {"gpu": form.CUSTOM_CARD}

    with pytest.raises(PlanError) as refusal:
        form.request_from(values, model_id="m", revision=None, config_json=None)

    assert refusal.value.field == "gpu_memory_gib"


def test_a_flag_at_its_default_leaves_its_field_empty() -> None:
    values = form.values_from(BASE)

    assert all(values[name] is None for name in form.FLAG_NAMES)
