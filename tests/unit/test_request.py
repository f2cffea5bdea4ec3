"""Requests from records and links: what is read, and what is refused by name."""

from __future__ import annotations

import pytest

from planner.facts import PlanError
from planner.request import EngineFlags, PlanRequest, SpeculativeConfig
from planner.request_values import read_counts, read_flag, read_integer, read_length
from planner.units import GIB
from planner.versions import parse_version


def test_a_batch_line_is_read() -> None:
    record = {
        "model": "org/m",
        "gpu": "H100",
        "gpu_memory_gib": 79.19,
        "vllm_version": "0.19.0",
        "tensor_parallel_size": 2,
        "max_model_len": "32k",
        "max_num_seqs": None,
        "speculative_config": {"method": "mtp", "num_speculative_tokens": 1},
    }

    assert PlanRequest.from_mapping(record) == PlanRequest(
        model_id="org/m",
        gpu="H100",
        gpu_memory_bytes=round(79.19 * GIB),
        vllm_version="0.19.0",
        flags=EngineFlags(
            tensor_parallel_size=2,
            max_model_len=32000,
            speculative_config=SpeculativeConfig(method="mtp", num_speculative_tokens=1),
        ),
    )


@pytest.mark.parametrize(
    ("record", "field", "said"),
    [
        ({"model": "m", "max_modellen": 1}, "max_modellen", "max_model_len"),
        ({"gpu": "L4"}, "model", "names no model"),
        ({"model": "m", "max_num_seqs": 1.5}, "max_num_seqs", "whole number"),
        ({"model": "m", "max_num_seqs": True}, "max_num_seqs", "whole number"),
        ({"model": "m", "max_num_seqs": "1.5K"}, "max_num_seqs", "1.5k"),
        ({"model": "m", "gpu_memory_utilization": float("nan")}, "gpu_memory_utilization", "a number"),
        ({"model": "m", "gpu_memory_gib": -1}, "gpu_memory_gib", "GiB"),
        ({"model": "m", "enforce_eager": "maybe"}, "enforce_eager", "true or false"),
        ({"model": "m\nn"}, "model", "one line"),
        ({"model": "m", "usage_context": "chat"}, "usage_context", "llm_class"),
        ({"model": "m", "speculative_config": {"num_speculative_tokens": 2}}, "speculative_config", "method"),
        ({"model": "m", "speculative_config": {"method": "mtp"}}, "speculative_config", "num_speculative_tokens"),
        (
            {"model": "m", "speculative_config": {"method": "magic", "num_speculative_tokens": 2}},
            "speculative_config.method",
            "eagle3",
        ),
        ({"model": "m", "mean_length_tokens": 0}, "mean_length_tokens", "at least 1"),
        ({"model": "m", "attention_backend": "NOPE"}, "attention_backend", "FLASH_ATTN"),
        ({"model": "m", "moe_backend": "nope"}, "moe_backend", "cutlass"),
        ({"model": "m", "mamba_cache_dtype": "int4"}, "mamba_cache_dtype", "float32"),
        ({"model": "m", "speculative_config": "{"}, "speculative_config", "JSON object"),
        ({"model": "m", "limit_mm_per_prompt": {"image": -1}}, "limit_mm_per_prompt", "at least 0"),
        ({"model": "m", "cudagraph_capture_sizes": "1,x"}, "cudagraph_capture_sizes", "whole number"),
    ],
)
def test_a_mistake_is_refused_by_name(record: dict[str, object], field: str, said: str) -> None:
    with pytest.raises(PlanError, match=said) as refusal:
        PlanRequest.from_mapping(record)

    assert refusal.value.field == field


def test_a_config_alone_names_the_model() -> None:
    assert PlanRequest.from_mapping({"config_json": "{}"}).model_id == "uploaded config.json"


@pytest.mark.parametrize(
    ("text", "number"),
    [("32k", 32000), ("32K", 32768), ("25.6k", 25600), ("1M", 2**20), ("1m", 10**6), ("25G", 25 * GIB), (" 7 ", 7)],
)
def test_suffixes_are_vllms(text: str, number: int) -> None:
    assert read_integer("n", text) == number


@pytest.mark.parametrize(
    ("written", "length"), [("auto", "auto"), ("-1", "auto"), (-1, "auto"), ("8k", 8000), (4096, 4096)]
)
def test_lengths_may_be_auto(written: object, length: object) -> None:
    assert read_length("max_model_len", written) == length


def test_flags_and_counts_take_the_spellings_people_use() -> None:
    assert [read_flag("f", word) for word in ("yes", "0", "TRUE", 1)] == [True, False, True, True]
    assert read_counts("limit_mm_per_prompt", "video=0,image=2") == (("image", 2), ("video", 0))


def test_a_link_is_readable_and_short() -> None:
    request = PlanRequest(
        model_id="org/m",
        gpu="L4",
        gpu_memory_bytes=22 * GIB,
        flags=EngineFlags(tensor_parallel_size=2, gpu_memory_utilization=0.9, enable_prefix_caching=False),
    )

    assert request.to_query() == {
        "model": "org/m",
        "gpu": "L4",
        "gpu_memory_gib": "22",
        "tensor_parallel_size": "2",
        "gpu_memory_utilization": "0.9",
        "enable_prefix_caching": "false",
    }


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"model": "m", "config": "!!"}, "config"),
        ({"model": "m", "config": "eJw"}, "config"),
        ({"model": "m", "config_json": "{}"}, "config_json"),
        ({"model": "m", "unknown": "1"}, "unknown"),
        ({"model": "m" * 5000}, "model"),
        ({}, "model"),
    ],
)
def test_a_damaged_link_is_refused_by_name(query: dict[str, str], field: str) -> None:
    with pytest.raises(PlanError) as refusal:
        PlanRequest.from_query(query)

    assert refusal.value.field == field


@pytest.mark.parametrize(("written", "read"), [("flash_attn", "FLASH_ATTN"), ("auto", None)])
def test_an_attention_backend_is_read_as_vllm_reads_it(written: str, read: str | None) -> None:
    request = PlanRequest.from_mapping({"model": "m", "attention_backend": written})

    assert request.flags.attention_backend == read


def test_a_moe_backend_is_read_as_vllm_reads_it() -> None:
    request = PlanRequest.from_mapping({"model": "m", "moe_backend": "Deep-GEMM"})

    assert request.flags.moe_backend == "deep_gemm"


@pytest.mark.parametrize("text", ["0.33.0", "v0.33", "0.11.0rc2", "0.33.0.dev12+g1a2b3c", "0.32.0+cu130", "0.19.x"])
def test_a_release_is_read_with_what_builds_append(text: str) -> None:
    assert parse_version(text).minor in (11, 19, 32, 33)


@pytest.mark.parametrize("text", ["latest", "0.33.0; rm", "33", "9" * 5000 + ".1", "0.33.0 or so"])
def test_what_is_no_release_is_refused_in_a_short_sentence(text: str) -> None:
    with pytest.raises(PlanError, match="release number") as refusal:
        parse_version(text)

    assert len(refusal.value.text) < 150
