"""Requests survive a record, a link and the command line; pasted text never breaks the reader."""

from __future__ import annotations

import base64
import json
import random
import zlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.command_line import parse_command
from planner.defaults import resolve
from planner.dtype_rules import KV_DTYPES
from planner.facts import PlanError
from planner.gpu_catalog import find_gpu, gpu_names
from planner.inventory import Cache, Layer, ModelFacts
from planner.request import EngineFlags, PlanRequest, SpeculativeConfig
from planner.serve_command import serve_command
from planner.units import GIB

MODEL = ModelFacts(
    model_id="org/model",
    architecture="LlamaForCausalLM",
    model_type="llama",
    dtype="bfloat16",
    hidden_size=4096,
    intermediate_size=14336,
    vocab_size=128256,
    num_attention_heads=64,
    max_position=2**24,
    layers=tuple(
        Layer(index=index, prefix=f"l.{index}", modules=(), caches=(Cache(kind="full", num_kv_heads=8, head_size=128),))
        for index in range(64)
    ),
    parts=(),
    quantization=None,
    is_moe=True,
)
WORDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._/ '\"$#&-]{0,20}[A-Za-z0-9]", fullmatch=True)
ODDS = st.booleans() | st.none()


def optional(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | strategy


SPECULATION = st.builds(
    SpeculativeConfig,
    method=st.sampled_from(["ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash"]),
    num_speculative_tokens=st.integers(1, 16),
    model=optional(WORDS),
    draft_tensor_parallel_size=optional(st.integers(1, 8)),
)
FLAGS = st.builds(
    EngineFlags,
    tensor_parallel_size=st.sampled_from([1, 2, 4, 8]),
    pipeline_parallel_size=st.integers(1, 8),
    data_parallel_size=st.integers(1, 8),
    enable_expert_parallel=st.booleans(),
    gpu_memory_utilization=optional(st.floats(0.01, 1)),
    kv_cache_memory_bytes=optional(st.integers(0, 2**40)),
    num_gpu_blocks_override=optional(st.integers(1, 10**6)),
    max_model_len=st.none() | st.just("auto") | st.integers(1, 2**24),
    max_num_seqs=optional(st.integers(1, 2048)),
    max_num_batched_tokens=optional(st.integers(2048, 2**20)),
    block_size=optional(st.sampled_from([16, 32, 64, 128])),
    kv_cache_dtype=st.sampled_from(sorted(KV_DTYPES)),
    dtype=st.sampled_from(["auto", "half", "bfloat16", "float32"]),
    quantization=optional(st.sampled_from(["fp8", "awq", "compressed-tensors"])),
    enforce_eager=st.booleans(),
    cudagraph_mode=optional(st.sampled_from(["NONE", "PIECEWISE", "FULL", "FULL_AND_PIECEWISE"])),
    cudagraph_capture_sizes=optional(st.lists(st.integers(1, 512), min_size=1, max_size=9).map(tuple)),
    enable_prefix_caching=ODDS,
    enable_chunked_prefill=st.none() | st.just(value=True),
    disable_hybrid_kv_cache_manager=ODDS,
    async_scheduling=ODDS,
    cpu_offload_gb=st.floats(0, 1000),
    kv_offloading_size=optional(st.floats(0, 1000)),
    enable_lora=st.booleans(),
    max_loras=st.integers(1, 64),
    max_lora_rank=st.sampled_from([8, 16, 64]),
    fully_sharded_loras=st.booleans(),
    speculative_config=optional(SPECULATION),
    limit_mm_per_prompt=st.dictionaries(st.sampled_from(["image", "video", "audio"]), st.integers(0, 99)).map(
        lambda counts: tuple(sorted(counts.items()))
    ),
    language_model_only=st.booleans(),
    skip_mm_profiling=st.booleans(),
    mamba_cache_mode=optional(st.sampled_from(["none", "align", "all"])),
    performance_mode=optional(st.sampled_from(["balanced", "interactivity", "throughput"])),
    moe_backend=optional(st.sampled_from(["marlin", "triton"])),
    attention_backend=optional(st.sampled_from(["FLASHINFER", "FLASH_ATTN"])),
    disable_sliding_window=st.booleans(),
)  # fmt: skip
REQUESTS = st.builds(
    PlanRequest,
    model_id=WORDS,
    revision=optional(WORDS),
    config_json=optional(st.dictionaries(st.text(max_size=5), st.integers()).map(json.dumps)),
    gpu=optional(st.sampled_from(gpu_names())),
    gpu_memory_bytes=optional(st.integers(GIB, 300 * GIB)),
    other_processes_bytes=st.integers(0, 40 * GIB),
    vllm_version=st.sampled_from(["0.33.0", "0.27.1", "0.19.0"]),
    usage_context=st.sampled_from(["api_server", "llm_class"]),
    model_runner=st.sampled_from(["auto", "v1", "v2"]),
    compile_cache=st.sampled_from(["unknown", "cold", "warm"]),
    mean_length_tokens=optional(st.integers(1, 10**6)),
    allow_long_max_model_len=st.booleans(),
    flags=FLAGS,
)


@given(REQUESTS)
def test_a_record_gives_the_request_back(request: PlanRequest) -> None:
    assert PlanRequest.from_mapping(json.loads(json.dumps(request.to_mapping()))) == request


@given(REQUESTS)
def test_a_link_gives_the_request_back(request: PlanRequest) -> None:
    assert PlanRequest.from_query(request.to_query()) == request


@given(REQUESTS)
def test_the_serve_line_gives_the_request_back(request: PlanRequest) -> None:
    newest = replace(request, config_json=None, vllm_version="0.33.0", model_runner="v2")
    resolved = resolve_or_none(newest)
    if resolved is None:
        return

    command = parse_command(serve_command(newest, resolved), "0.33.0")

    blank = replace(newest, model_id="another", revision=None, flags=EngineFlags())
    assert command.apply(blank) == newest
    assert command.findings == ()


def resolve_or_none(request: PlanRequest) -> object:
    try:
        return resolve(request, MODEL, find_gpu("H100"))
    except PlanError:
        return None


@settings(max_examples=300)
@given(
    st.text(alphabet=st.characters(codec="utf-8"), max_size=300),
    st.sampled_from(["", "vllm serve ", "docker run ", "a: "]),
)
def test_any_text_is_read_without_breaking(text: str, start: str) -> None:
    command = parse_command(start + text, "0.33.0")

    assert isinstance(command.apply(PlanRequest(model_id="base")), PlanRequest)


FRAGMENTS = st.lists(
    st.sampled_from(
        ["vllm", "serve", "--model", "--no-", "-O", "-O=3", "-tp", "=", "'", '"', "\\", "\n", "{", "}", "[", "]", "- ", ": ", "#",
         "--speculative-config", ".", "--limit-mm-per-prompt", "--compilation-config", "docker", "run", "-e", "image:v1", "a:",
         "args:", "  ", "nan", "1e400", "-1", "true", "$X", "&&", ";", "bash", "-c", "--max-model-len"]
    ),
    max_size=30,
)  # fmt: skip


@settings(max_examples=300)
@given(FRAGMENTS, st.sampled_from(["", " "]))
def test_broken_commands_are_read_without_breaking(parts: list[str], glue: str) -> None:
    command = parse_command(glue.join(parts), "0.11.0")

    assert isinstance(command.apply(PlanRequest(model_id="base")), PlanRequest)


@given(
    st.dictionaries(
        st.text(max_size=12), st.text(max_size=30) | st.integers() | st.floats() | st.none() | st.lists(st.integers())
    )
)
def test_any_record_is_a_request_or_refused_by_name(record: dict[str, object]) -> None:
    try:
        request = PlanRequest.from_mapping(record)
    except PlanError as refusal:
        request = refusal.text  # type: ignore[assignment]

    assert request


@given(
    st.sampled_from(["config", "gpu_memory_gib", "max_model_len", "speculative_config", "limit_mm_per_prompt"]),
    st.text(max_size=60),
)
def test_a_hostile_link_is_read_or_refused(name: str, value: str) -> None:
    try:
        request = PlanRequest.from_query({"model": "m", name: value})
    except PlanError as refusal:
        request = refusal.text  # type: ignore[assignment]

    assert request


def test_a_link_that_unpacks_to_a_bomb_is_refused() -> None:
    bomb = base64.urlsafe_b64encode(zlib.compress(b"0" * (20 * 2**20), 9)).decode().rstrip("=")
    with pytest.raises(PlanError, match="config"):
        PlanRequest.from_query({"model": "m", "config": bomb})


def test_a_config_too_large_for_a_link_says_so() -> None:
    noise = "".join(random.Random(7).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=40_000))  # noqa: S311 - no secret
    with pytest.raises(PlanError, match="too large for a link"):
        PlanRequest(model_id="m", config_json=json.dumps({"noise": noise})).to_query()
