"""The line to run: only what is not at its default, in the spelling of the release."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.defaults import Resolved, resolve
from planner.gpu_catalog import find_gpu
from planner.inventory import Cache, Layer, ModelFacts
from planner.request import EngineFlags, PlanRequest, SpeculativeConfig
from planner.serve_command import serve_command

MODEL = ModelFacts(
    model_id="org/m",
    architecture="LlamaForCausalLM",
    model_type="llama",
    dtype="bfloat16",
    hidden_size=64,
    intermediate_size=64,
    vocab_size=64,
    num_attention_heads=8,
    max_position=4096,
    layers=(Layer(index=0, prefix="l", modules=(), caches=(Cache(kind="full", num_kv_heads=8, head_size=8),)),),
    parts=(),
    quantization=None,
)


def line(version: str = "0.33.0", **changes: object) -> str:
    request = replace(PlanRequest(model_id="org/m", vllm_version=version), **changes)  # type: ignore[arg-type]
    resolved: Resolved = resolve(request, MODEL, find_gpu("H100"))
    return serve_command(request, resolved)


def test_defaults_are_left_out() -> None:
    assert line() == "vllm serve org/m"


@pytest.mark.parametrize(
    ("version", "flags", "written"),
    [
        ("0.33.0", EngineFlags(gpu_memory_utilization=0.85, tensor_parallel_size=2), "--tensor-parallel-size 2 --gpu-memory-utilization 0.85"),
        ("0.33.0", EngineFlags(enable_prefix_caching=False), "--no-enable-prefix-caching"),
        ("0.33.0", EngineFlags(cudagraph_mode="NONE"), """--compilation-config '{"cudagraph_mode":"NONE"}'"""),
        ("0.33.0", EngineFlags(cudagraph_capture_sizes=(1, 2)), "--cudagraph-capture-sizes 1 2"),
        ("0.11.0", EngineFlags(cudagraph_capture_sizes=(1, 2)), """--compilation-config '{"cudagraph_capture_sizes":[1,2]}'"""),
        ("0.33.0", EngineFlags(limit_mm_per_prompt=(("image", 2),)), """--limit-mm-per-prompt '{"image":2}'"""),
        (
            "0.33.0",
            EngineFlags(speculative_config=SpeculativeConfig(method="mtp", num_speculative_tokens=2)),
            """--speculative-config '{"method":"mtp","num_speculative_tokens":2}'""",
        ),
        ("0.7.3", EngineFlags(limit_mm_per_prompt=(("image", 2), ("video", 0))), "--limit-mm-per-prompt image=2,video=0"),
        ("0.6.6", EngineFlags(enable_chunked_prefill=False), "--enable-chunked-prefill False"),
        (
            "0.7.3",
            EngineFlags(speculative_config=SpeculativeConfig(method="ngram", num_speculative_tokens=2)),
            "--speculative-model '[ngram]' --num-speculative-tokens 2",
        ),
    ],
)  # fmt: skip
def test_flags_are_spelt_as_the_release_takes_them(version: str, flags: EngineFlags, written: str) -> None:
    assert line(version, flags=flags) == f"vllm serve org/m {written}"


def test_environment_comes_first() -> None:
    written = line("0.12.0", model_runner="v1", flags=EngineFlags(attention_backend="FLASHINFER"))

    assert written == "VLLM_USE_V2_MODEL_RUNNER=0 VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve org/m"


def test_odd_names_are_quoted() -> None:
    assert line(model_id="my model; rm -rf /") == "vllm serve 'my model; rm -rf /'"


def test_a_largest_capture_size_is_left_out_and_said_where_no_flag_takes_it() -> None:
    request = PlanRequest(model_id="org/m", vllm_version="0.11.0", flags=EngineFlags(max_cudagraph_capture_size=64))

    resolved = resolve(request, MODEL, find_gpu("H100"))

    assert serve_command(request, resolved) == "vllm serve org/m"
    assert [finding.field for finding in resolved.findings] == ["max_cudagraph_capture_size"]
