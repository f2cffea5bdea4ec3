"""Defaults by release, card and usage, against what the sources of each release say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.defaults import Resolved, resolve
from planner.facts import PlanError
from planner.gpu_catalog import GpuFacts, custom_gpu, find_gpu
from planner.inventory import Cache, Layer, ModelFacts, QuantFacts
from planner.request import EngineFlags, PlanRequest, SpeculativeConfig
from planner.units import GIB


def make_model(*, kind: str = "full", kv_heads: int = 8, **changes: object) -> ModelFacts:
    cache = Cache(kind=kind, num_kv_heads=kv_heads, head_size=128)  # type: ignore[arg-type]
    layers = tuple(
        Layer(index=index, prefix=f"model.layers.{index}", modules=(), caches=(cache,)) for index in range(32)
    )
    base = ModelFacts(
        model_id="org/model",
        architecture="LlamaForCausalLM",
        model_type="llama",
        dtype="bfloat16",
        hidden_size=4096,
        intermediate_size=14336,
        vocab_size=128256,
        num_attention_heads=32,
        max_position=131072,
        layers=layers,
        parts=(),
        quantization=None,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def resolved(
    version: str = "0.33.0", gpu: str | GpuFacts = "H100", model: ModelFacts | None = None, **flags: object
) -> Resolved:
    card = find_gpu(gpu) if isinstance(gpu, str) else gpu
    request = PlanRequest(model_id="org/model", vllm_version=version, flags=EngineFlags(**flags))  # type: ignore[arg-type]
    return resolve(request, model or make_model(), card)


@pytest.mark.parametrize(
    ("version", "utilization"), [("0.6.6", 0.9), ("0.19.1", 0.9), ("0.20.0", 0.92), ("0.33.0", 0.92)]
)
def test_utilization_default_changed_at_0_20(version: str, utilization: float) -> None:
    assert resolved(version).gpu_memory_utilization == utilization


@pytest.mark.parametrize(
    ("version", "gpu", "tokens", "seqs"),
    [
        ("0.33.0", "H100", 8192, 1024),
        ("0.33.0", "B200", 16384, 1024),
        ("0.27.1", "B200", 8192, 1024),
        ("0.33.0", "A100 80GB SXM", 2048, 256),
        ("0.8.5", "A100 80GB SXM", 8192, 1024),
        ("0.33.0", "L4", 2048, 256),
        ("0.33.0", "GB10", 2048, 256),
        ("0.11.0", "H200", 8192, 1024),
        ("0.6.6", "H100", 2048, 256),
    ],
)
def test_batch_limits_follow_release_and_card(version: str, gpu: str, tokens: int, seqs: int) -> None:
    answer = resolved(version, gpu)

    assert (answer.max_num_batched_tokens, answer.max_num_seqs) == (tokens, seqs)


def test_offline_use_takes_larger_batches() -> None:
    request = PlanRequest(model_id="m", usage_context="llm_class")

    assert resolve(request, make_model(), find_gpu("H100")).max_num_batched_tokens == 16384
    assert resolve(request, make_model(), find_gpu("L4")).max_num_batched_tokens == 8192


def test_throughput_mode_doubles_both_limits() -> None:
    answer = resolved(performance_mode="throughput")

    assert (answer.max_num_batched_tokens, answer.max_num_seqs) == (16384, 2048)


def test_few_sequences_of_a_short_model_lower_the_batch() -> None:
    answer = resolved(max_model_len=512, max_num_seqs=2)

    assert answer.max_num_batched_tokens == 1024


def test_sequences_default_never_exceeds_batched_tokens() -> None:
    assert resolved(max_num_batched_tokens=256).max_num_seqs == 256


@pytest.mark.parametrize(
    ("version", "architecture", "is_moe", "quantised", "runner"),
    [
        ("0.7.3", "LlamaForCausalLM", False, False, "v0"),
        ("0.19.0", "LlamaForCausalLM", False, False, "v1"),
        ("0.22.0", "Qwen3ForCausalLM", False, False, "v2"),
        ("0.22.0", "LlamaForCausalLM", False, False, "v1"),
        ("0.23.0", "LlamaForCausalLM", False, False, "v2"),
        ("0.23.0", "LlamaForCausalLM", False, True, "v1"),
        ("0.24.0", "LlamaForCausalLM", False, True, "v2"),
        ("0.24.0", "Qwen2ForCausalLM", False, False, "v1"),
        ("0.25.1", "Qwen2ForCausalLM", False, False, "v2"),
        ("0.27.1", "Qwen3MoeForCausalLM", True, False, "v1"),
        ("0.27.1", "DeepseekV2ForCausalLM", True, False, "v2"),
        ("0.29.0", "Qwen3MoeForCausalLM", True, False, "v2"),
    ],
)
def test_runner_default_by_release_and_model(
    version: str, architecture: str, is_moe: bool, quantised: bool, runner: str
) -> None:
    quantization = QuantFacts(method="fp8") if quantised else None
    model = make_model(architecture=architecture, is_moe=is_moe, quantization=quantization)

    assert resolved(version, model=model).runner == runner


def test_a_turing_card_takes_the_v0_engine_while_there_was_one() -> None:
    assert resolved("0.8.5", "T4").runner == "v0"
    assert resolved("0.11.0", "T4").runner == "v1"


@pytest.mark.parametrize(
    ("version", "pp", "is_async", "batches", "in_flight"),
    [
        ("0.33.0", 1, True, 2, 16384),
        ("0.33.0", 2, True, 3, 24576),
        ("0.26.0", 1, True, 2, 16384),
        ("0.25.1", 1, True, 2, 8192),
        ("0.19.0", 1, True, 2, 8192),
        ("0.19.0", 2, True, 2, 8192),
        ("0.14.0", 2, False, 2, 8192),
        ("0.11.0", 1, False, 1, 8192),
    ],
)
def test_batches_in_flight(version: str, pp: int, is_async: bool, batches: int, in_flight: int) -> None:
    answer = resolved(version, pipeline_parallel_size=pp)

    assert (answer.async_scheduling, answer.max_concurrent_batches) == (is_async, batches)
    assert answer.max_in_flight_tokens == in_flight


def test_ngram_turns_async_scheduling_off_on_the_v1_runner() -> None:
    speculation = SpeculativeConfig(method="ngram", num_speculative_tokens=3)

    assert not resolved("0.19.0", speculative_config=speculation).async_scheduling
    assert resolved("0.33.0", speculative_config=speculation).async_scheduling


@pytest.mark.parametrize(
    ("version", "gpu", "flags", "count", "largest"),
    [
        ("0.33.0", "H100", {}, 51, 512),  # 3 + 31 + 17, up to 512
        ("0.33.0", "B200", {}, 83, 1024),  # 3 + 31 + 49
        ("0.27.1", "B200", {}, 51, 512),
        ("0.8.5", "H100", {}, 67, 512),  # 3 + 64
        ("0.11.0", "L4", {"max_num_seqs": 100}, 28, 200),  # 3 + 25
        ("0.19.0", "L4", {"max_num_seqs": 5}, 4, 8),  # 1, 2, 4, 8 (to 10)
        ("0.33.0", "L4", {"max_num_seqs": 5}, 5, 8),  # 5 itself too
        ("0.33.0", "L4", {"max_num_batched_tokens": 300}, 38, 300),  # 3 + 31 + 256, 272, 288 and 300 itself
        ("0.33.0", "H100", {"enforce_eager": True}, 0, 0),
        ("0.33.0", "H100", {"cudagraph_capture_sizes": (8, 2, 2, 99999)}, 2, 8),
        ("0.33.0", "H100", {"performance_mode": "interactivity"}, 76, 512),  # 1 to 32, 27 more below 256, 17
        ("0.6.6", "H100", {"max_num_seqs": 20}, 6, 24),
    ],
)
def test_capture_sizes_follow_the_release(
    version: str, gpu: str, flags: dict[str, object], count: int, largest: int
) -> None:
    sizes = resolved(version, gpu, **flags).capture_sizes

    assert (len(sizes), max(sizes, default=0)) == (count, largest)


def test_gpt_oss_captures_larger_batches() -> None:
    model = make_model(architecture="GptOssForCausalLM")

    assert max(resolved("0.33.0", model=model).capture_sizes) == 1024
    assert max(resolved("0.11.0", model=model).capture_sizes) == 992


def test_graph_mode_by_release() -> None:
    modes = [resolved(version).cudagraph_mode for version in ("0.6.6", "0.10.2", "0.11.0", "0.33.0")]

    assert modes == ["FULL_DECODE_ONLY", "PIECEWISE", "FULL_AND_PIECEWISE", "FULL_AND_PIECEWISE"]


@pytest.mark.parametrize(
    ("version", "architecture", "asked", "caching", "mode"),
    [
        ("0.33.0", "Qwen3NextForCausalLM", None, True, "align"),
        ("0.26.0", "Qwen3NextForCausalLM", None, False, "none"),
        ("0.28.0", "Qwen3NextForCausalLM", None, True, "align"),
        ("0.25.1", "Qwen3NextForCausalLM", None, False, "none"),
        ("0.19.0", "Qwen3NextForCausalLM", True, True, "align"),
        ("0.19.0", "NemotronHForCausalLM", True, True, "all"),
        ("0.33.0", "NemotronHForCausalLM", None, True, "align"),
        ("0.11.0", "NemotronHForCausalLM", True, False, "none"),
        ("0.33.0", "Qwen3NextForCausalLM", False, False, "none"),
    ],
)
def test_prefix_caching_of_hybrids(
    version: str, architecture: str, asked: bool | None, caching: bool, mode: str
) -> None:
    model = make_model(architecture=architecture, is_hybrid=True)
    answer = resolved(version, model=model, enable_prefix_caching=asked)

    assert (answer.enable_prefix_caching, answer.mamba_cache_mode) == (caching, mode)


@pytest.mark.parametrize(
    ("version", "gpu", "config_dtype", "asked", "dtype"),
    [
        ("0.33.0", "H100", "float32", "auto", "bfloat16"),
        ("0.8.5", "H100", "float32", "auto", "float16"),
        ("0.33.0", "T4", "bfloat16", "auto", "float16"),
        ("0.33.0", "T4", "float32", "auto", "float16"),
        ("0.33.0", "H100", "bfloat16", "half", "float16"),
        ("0.33.0", "H100", "float16", "auto", "float16"),
    ],
)
def test_dtype_follows_checkpoint_and_card(version: str, gpu: str, config_dtype: str, asked: str, dtype: str) -> None:
    assert resolved(version, gpu, make_model(dtype=config_dtype), dtype=asked).dtype == dtype


def test_bfloat16_on_a_turing_card_is_a_refusal() -> None:
    findings = resolved("0.33.0", "T4", dtype="bfloat16").findings

    assert [(finding.code, finding.severity) for finding in findings] == [("no-bfloat16", "refusal")]


def test_a_modelopt_checkpoint_brings_its_own_kv_dtype() -> None:
    settings = {"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "FP8"}}
    model = make_model(quantization=QuantFacts(method="modelopt", settings=settings))

    assert resolved("0.33.0", model=model).kv_cache_dtype == "fp8_e4m3"
    assert resolved("0.11.0", model=model).kv_cache_dtype == "bfloat16"
    assert resolved("0.33.0", model=model, kv_cache_dtype="bfloat16").kv_cache_dtype == "bfloat16"


def test_a_method_that_was_removed_is_a_refusal() -> None:
    model = make_model(quantization=QuantFacts(method="bitsandbytes"))

    assert resolved("0.27.1", model=model).findings == ()
    assert "removed in 0.28" in resolved("0.33.0", model=model).findings[0].text


def test_yarn_length_was_multiplied_up_to_0_29() -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    model = make_model(max_position=40960, config={"rope_scaling": scaling}, text_config={"rope_scaling": scaling})

    assert resolved("0.29.0", model=model).max_model_len == 131072
    assert resolved("0.30.0", model=model).max_model_len == 40960


def test_auto_length_is_marked() -> None:
    answer = resolved(max_model_len="auto")

    assert answer.is_auto_length
    assert answer.max_model_len == 131072


def test_a_length_beyond_the_model_needs_the_environment_variable() -> None:
    with pytest.raises(PlanError, match=r"User-specified max_model_len \(200000\).*VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"):
        resolved(max_model_len=200000)

    request = PlanRequest(model_id="m", allow_long_max_model_len=True, flags=EngineFlags(max_model_len=200000))
    assert resolve(request, make_model(), find_gpu("H100")).max_model_len == 200000


def test_chunked_attention_turns_the_hybrid_manager_off_before_0_14() -> None:
    model = make_model(kind="chunked")

    assert not resolved("0.13.0", model=model).is_hybrid_manager_enabled
    assert resolved("0.33.0", model=model).is_hybrid_manager_enabled
    assert not resolved("0.33.0", model=model, disable_hybrid_kv_cache_manager=True).is_hybrid_manager_enabled


@pytest.mark.parametrize(
    ("field", "flags"),
    [
        ("tensor_parallel_size", {"tensor_parallel_size": 3}),
        ("tensor_parallel_size", {"tensor_parallel_size": 0}),
        ("pipeline_parallel_size", {"pipeline_parallel_size": 33}),
        ("decode_context_parallel_size", {"decode_context_parallel_size": 3, "tensor_parallel_size": 4}),
        ("decode_context_parallel_size", {"decode_context_parallel_size": 4, "tensor_parallel_size": 16}),
        ("enable_expert_parallel", {"enable_expert_parallel": True}),
        ("gpu_memory_utilization", {"gpu_memory_utilization": 1.2}),
        ("gpu_memory_utilization", {"gpu_memory_utilization": 0.0}),
        ("gpu_memory_utilization", {"gpu_memory_utilization": float("nan")}),
        ("kv_cache_dtype", {"kv_cache_dtype": "int3"}),
        ("quantization", {"quantization": "magic"}),
        ("dtype", {"dtype": "int8"}),
        ("block_size", {"block_size": 8}),
        ("max_num_seqs", {"max_num_seqs": -4}),
        ("max_num_batched_tokens", {"max_num_batched_tokens": 64, "max_num_seqs": 128}),
        ("max_num_batched_tokens", {"max_num_batched_tokens": 2**70}),
        ("max_lora_rank", {"enable_lora": True, "max_lora_rank": 24}),
        ("max_model_len", {"max_model_len": 0}),
        ("cudagraph_mode", {"cudagraph_mode": "SOME"}),
        ("max_cudagraph_capture_size", {"cudagraph_capture_sizes": (1, 2), "max_cudagraph_capture_size": 8}),
    ],
)
def test_what_vllm_refuses_is_refused_by_name(field: str, flags: dict[str, object]) -> None:
    with pytest.raises(PlanError) as refusal:
        resolved(**flags)

    assert refusal.value.field == field


def test_context_parallelism_of_grouped_heads_within_bounds_is_allowed() -> None:
    assert resolved(decode_context_parallel_size=2, tensor_parallel_size=16).dcp == 2


def test_each_resolved_flag_says_why() -> None:
    answer = resolved(max_num_seqs=64)
    lines = {line.name: line for line in answer.defaults}

    assert lines["max_num_seqs"].is_given
    assert lines["max_num_batched_tokens"].value == answer.max_num_batched_tokens
    assert all(line.basis.note for line in answer.defaults)


def test_a_custom_card_takes_the_tier_of_its_size() -> None:
    assert resolved(gpu=custom_gpu(75 * GIB)).max_num_seqs == 1024
    assert resolved(gpu=custom_gpu(24 * GIB)).max_num_seqs == 256


@pytest.mark.parametrize("version", ["0.34.0", "1.0.0", "0.5.4"])
def test_a_release_that_was_not_read_is_said(version: str) -> None:
    assert [finding.code for finding in resolved(version).findings] == ["version-not-read"]


def test_flags_the_release_lacks_are_said() -> None:
    findings = resolved("0.33.0", swap_space=4.0, performance_mode="balanced").findings

    assert [(finding.code, finding.field) for finding in findings] == [("flag-not-in-version", "swap_space")]
    assert "removed in 0.18" in findings[0].text


def test_auto_length_came_with_0_14() -> None:
    with pytest.raises(PlanError, match=r"came with vLLM 0\.14"):
        resolved("0.13.0", max_model_len="auto")


def test_mamba_mode_all_was_removed_in_0_32() -> None:
    model = make_model(architecture="NemotronHForCausalLM", is_hybrid=True)

    assert resolved("0.31.0", model=model, mamba_cache_mode="all").mamba_cache_mode == "all"
    with pytest.raises(PlanError, match="mamba_cache_mode"):
        resolved("0.32.0", model=model, mamba_cache_mode="all")


@pytest.mark.parametrize(("gpu", "tokens"), [("L4", 2496), ("H100", 8192)])
def test_gemma4_takes_a_whole_video_in_one_batch(gpu: str, tokens: int) -> None:
    model = make_model(model_type="gemma4", is_multimodal=True, text_config={"use_bidirectional_attention": "vision"})

    assert resolved(gpu=gpu, model=model).max_num_batched_tokens == tokens
    assert resolved(gpu="L4", model=model, language_model_only=True).max_num_batched_tokens == 2048


def test_uniform_decode_sizes_come_with_speculation() -> None:
    speculation = SpeculativeConfig(method="mtp", num_speculative_tokens=2)
    sizes = resolved("0.33.0", "L4", max_num_seqs=10, speculative_config=speculation).capture_sizes

    # up to 10 x 3 x 2 = 60: the usual steps, and 3 tokens a request for 1, 2, 4, 8 and 10 requests
    assert sizes == (1, 2, 3, 4, 6, 8, 12, 16, 24, 30, 32, 40, 48, 56)
