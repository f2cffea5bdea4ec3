"""Rows of start-up logs become the requests that those engines were started with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner.facts import PlanError
from planner.inventory import ModelDocuments
from planner.truth import TruthRow, read_rows
from planner.truth_request import documents_for, request_for, with_length
from planner.units import GIB, MIB

_DOCUMENTS = ModelDocuments(model_id="org/model", config_json='{"max_position_embeddings": 4096}')


def _row(**values: Any) -> TruthRow:
    return TruthRow(
        values={"id": "row", "model_id": "Qwen/Qwen2.5-7B-Instruct", "gpu_name": "NVIDIA H100 80GB", **values}
    )


def test_a_printed_total_overrides_the_catalogue_card() -> None:
    request = request_for(_row(gpu_mem_gib_total=79.19), _DOCUMENTS, "0.19.0")

    assert request.gpu_memory_bytes == round(79.19 * GIB)
    assert request.gpu == "NVIDIA H100 80GB"


def test_printed_terms_give_the_total_of_a_card_that_is_not_named() -> None:
    row = _row(
        gpu_name=None,
        gpu_memory_utilization=0.9,
        model_load_gib=14.99,
        activation_peak_gib=4.76,
        non_torch_gib=0.13,
        available_kv_gib=51.38,
    )

    request = request_for(row, _DOCUMENTS, "0.11.0")

    assert request.gpu_memory_bytes == round((14.99 + 4.76 + 0.13 + 51.38) / 0.9 * GIB)


def test_graph_estimate_over_shifted_utilisation_names_the_usual_card() -> None:
    row = _row(gpu_name=None, gpu_memory_utilization=0.9, util_equivalent=0.8667, cudagraph_est_gib=0.79)

    assert request_for(row, _DOCUMENTS, "0.22.1").gpu_memory_bytes == round(23.55 * GIB)


def test_a_row_without_any_sign_of_a_card_is_refused() -> None:
    with pytest.raises(PlanError, match="names no card"):
        request_for(_row(gpu_name=None), _DOCUMENTS, "0.19.0")


@pytest.mark.parametrize(
    ("text", "pool_bytes"),
    [
        ("--kv-cache-memory-bytes 15032385536", 15032385536),
        ("--kv-cache-memory-bytes 500M", 500 * MIB),
        ("other", None),
    ],
)
def test_a_given_pool_is_read_from_the_flags(text: str, pool_bytes: int | None) -> None:
    request = request_for(_row(other_flags=text), _DOCUMENTS, "0.28.0")

    assert request.flags.kv_cache_memory_bytes == pool_bytes


@pytest.mark.parametrize(
    ("notes", "cache"),
    [("warm torch.compile cache", "warm"), ("cold torch.compile in a fresh container", "cold"), ("", "unknown")],
)
def test_compile_cache_is_taken_from_the_notes(notes: str, cache: str) -> None:
    assert request_for(_row(notes=notes), _DOCUMENTS, "0.29.0").compile_cache == cache


def test_the_engine_line_names_the_model_runner() -> None:
    row = _row(engine="v1 (V2 model runner: model_runner.py)")

    assert request_for(row, _DOCUMENTS, "0.29.0").model_runner == "v2"


def test_memory_lost_to_others_is_what_free_memory_lacks() -> None:
    row = _row(gpu_mem_gib_total=63.63, free_at_start_gib=6.56)

    assert request_for(row, _DOCUMENTS, "0.29.0").other_processes_bytes == round(63.63 * GIB) - round(6.56 * GIB)


def test_a_remark_in_brackets_does_not_hide_the_model() -> None:
    assert documents_for(_row(model_id="Qwen/Qwen3-0.6B (28 x 8 x 128)")).model_id == "Qwen/Qwen3-0.6B"


def test_an_unnamed_model_is_refused() -> None:
    with pytest.raises(PlanError, match="names no model"):
        documents_for(_row(model_id=None))


def test_a_lifted_length_reaches_the_config() -> None:
    assert json.loads(with_length(_DOCUMENTS, 9000).config_json)["max_position_embeddings"] == 9000


@pytest.mark.parametrize(
    ("line", "problem"), [("{", "not JSON"), ("[1]", "not a JSON object"), ("[" * 9999, "not JSON")]
)
def test_a_line_that_is_no_object_is_a_row_with_its_problem(line: str, problem: str) -> None:
    first, second = read_rows(["{}", line], "rows.jsonl")

    assert first.problem is None
    assert second.row_id == "rows.jsonl line 2"
    assert problem in str(second.problem)


@pytest.mark.parametrize(
    ("evidence", "grade"),
    [("A: whole log", "A"), ("B", "B"), ("c: inferred", "A"), ("excerpt", "A"), (None, "A"), ("Do", "A")],
)
def test_a_grade_is_a_letter_of_its_own(evidence: str | None, grade: str) -> None:
    assert _row(evidence=evidence).grade == grade


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e300, True, "eight", None])
def test_what_is_no_measurement_is_absent(number: object) -> None:
    assert _row(tp=number).integer("tp") is None


def test_failures_of_memory_are_told_from_others() -> None:
    assert _row(error_text_kind="max_model_len does not fit (v0 tokens)").is_memory_failure
    assert _row(error_text_kind="CUDA OOM").is_other_failure


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("0.19.0 nightly", "0.19.0"),
        ("~0.8", "0.8"),
        (">=0.20", "0.20"),
        ("0.10.1-0.10.2", "0.10.1"),
        ("nightly", None),
        ("main (2026-08)", None),
        ("0.1.dev15727+g081754de3.d20260413", None),
        ("0.18.1rc1.dev147+g290809456", "0.18.1rc1.dev147+g290809456"),
        (None, None),
    ],
)
def test_a_release_is_read_however_it_is_written(written: str | None, read: str | None) -> None:
    assert _row(vllm_version=written).version == read


@pytest.mark.parametrize(
    ("name", "value"),
    [("tp", "two"), ("tp", 0), ("pp", 10**30), ("max_num_seqs", 1e99), ("gpu_memory_utilization", "high")],
)
def test_a_flag_that_no_engine_ran_with_is_named_and_never_taken_for_its_default(name: str, value: object) -> None:
    row = _row(**{name: value})

    with pytest.raises(PlanError, match=name):
        request_for(row, documents_for(row), "0.19.0")


def test_flags_are_read_as_numbers_texts_and_remarks() -> None:
    row = _row(
        tp="2", enforce_eager="true", prefix_caching="false", dtype="torch.float16", max_model_len="auto", ep=1,
        other_flags="--enable-lora --max-lora-rank 32 --cpu-offload-gb 4",
    )  # fmt: skip
    flags = request_for(row, documents_for(row), "0.19.0").flags

    assert (flags.tensor_parallel_size, flags.enforce_eager, flags.enable_prefix_caching) == (2, True, False)
    assert (flags.dtype, flags.max_model_len, flags.enable_expert_parallel) == ("float16", None, False)
    assert (flags.enable_lora, flags.max_lora_rank, flags.cpu_offload_gb) == (True, 32, 4.0)
