"""Parameters, buffers and load bytes against vLLM's own classes, for every row whose architecture a family knows."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from factories import documents_for, make_documents, make_gpu, make_resolved, shared_file

from planner.families import builder_for
from planner.inventory import ModelFacts
from planner.model_config import read_model
from planner.request import EngineFlags
from planner.weights import rank_weights

TRUTH = [
    ("oracle.jsonl", (9, 0)),
    ("oracle_blackwell.jsonl", (10, 0)),
    ("oracle_synthetic.jsonl", (9, 0)),
]
# Rows that are no truth, and why.
NO_TRUTH = {
    "nvidia/GLM-5-NVFP4": "its config at hand has no quantisation, so vLLM built another model than the one named",
}
CATALOGUE = shared_file("catalogue", "README.md").parent / "models"


def _rows() -> list[Any]:
    rows = []
    for name, capability in TRUTH:
        for line in shared_file("groundtruth", name).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if "total_param_bytes" not in row or row["model_id"] in NO_TRUTH or row.get("config_patched"):
                continue
            if row["model_id"].startswith("synthetic/") or not builder_for(row["architecture"]):
                continue
            if not _entry(row["model_id"]).get("config_complete", True):
                continue
            card = (10, 0) if "10.0" in row["platform"] else capability  # oracle.jsonl has a few rows of the other card
            mark = f"{row['model_id']}-{card[0]}-tp{row['tp']}-pp{row['pp']}-{row['rank']}"
            rows.append(pytest.param(row, card, id=mark))
    return rows


def _path(model_id: str) -> Path:
    return CATALOGUE / f"{model_id.replace('/', '--')}.json"


def _entry(model_id: str) -> dict[str, Any]:
    entry: dict[str, Any] = json.loads(_path(model_id).read_text(encoding="utf-8"))
    return entry


@cache
def _model(model_id: str) -> ModelFacts:
    return read_model(documents_for(_path(model_id)), vllm_minor=32)


def _moe_backend(row: dict[str, Any]) -> str | None:
    """The kernel that the stand-in fell back to for want of Triton's, where that one stores more."""
    return "marlin" if any("Mxfp4MoeBackend.MARLIN" in kernel for kernel in row["kernels"]) else None


@pytest.mark.parametrize(("row", "capability"), _rows())
def test_weights_equal_those_vllm_builds(row: dict[str, Any], capability: tuple[int, int]) -> None:
    model = _model(row["model_id"])
    resolved = make_resolved(
        tp=row["tp"],
        pp=row["pp"],
        version="0.32.0",
        dtype=row["dtype"],
        quantization=row["quant"],
        kv_cache_dtype=row["dtype"] if row["cache_dtype"] == "auto" else row["cache_dtype"],
        gpu=make_gpu(capability=capability),
        # The rows were built in eager mode; FlashInfer, which then keeps some rotary caches in float32, was there at 10.0 only.
        flags=EngineFlags(enforce_eager=capability >= (10, 0), moe_backend=_moe_backend(row)),
    )

    weights = rank_weights(model, resolved, row["rank"])

    assert weights.parameter_bytes == pytest.approx(row["total_param_bytes"], rel=1e-6)
    assert weights.buffer_bytes == row["buffers_bytes"]
    expected = row["alloc_estimate_bytes"]["default"] + row["post_load"]["mla_absorbed_bytes"]
    expected += 8192 * model.text_config.get("index_topk", 0) * 4  # sparse attention's table is no registered buffer
    assert weights.load.best_bytes == pytest.approx(expected, rel=1e-6)


_PACKED = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True, "dynamic": False}
_TOKENS = {"num_bits": 8, "strategy": "token", "symmetric": True, "dynamic": True}
_CHANNELS = {"num_bits": 8, "strategy": "channel", "symmetric": True, "dynamic": False}


def _compressed(weights: dict[str, Any], inputs: dict[str, Any] | None, form: str) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"], "config_groups": {"g": group}}


SYNTHETIC = {
    "CT-fp8dyn": _compressed(_CHANNELS | {"type": "float"}, _TOKENS | {"type": "float"}, "float-quantized"),
    "CT-w8a8": _compressed(_CHANNELS | {"type": "int"}, _TOKENS | {"type": "int"}, "int-quantized"),
    "CT-w4a16": _compressed(_PACKED, None, "pack-quantized"),
    "AWQ": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"},
    "GPTQ": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True},
}


def _synthetic_rows() -> list[Any]:
    rows = map(
        json.loads, shared_file("groundtruth", "oracle_synthetic.jsonl").read_text(encoding="utf-8").splitlines()
    )
    return [pytest.param(row, id=f"{row['model_id']}-tp{row['tp']}") for row in rows if "total_param_bytes" in row]


@pytest.mark.parametrize("row", _synthetic_rows())
def test_a_quantisation_added_to_a_catalogue_model_is_sized_as_vllm_does(row: dict[str, Any]) -> None:
    name = row["model_id"].removeprefix("synthetic/")
    suffix = next(suffix for suffix in SYNTHETIC if name.endswith(suffix))
    base = name.removesuffix(f"-{suffix}")
    path = next(path for path in sorted(CATALOGUE.glob(f"*--{base}.json")))
    config = json.loads(path.read_text(encoding="utf-8"))["config"] | {"quantization_config": SYNTHETIC[suffix]}
    model = read_model(make_documents(config), vllm_minor=32)

    weights = rank_weights(model, make_resolved(tp=row["tp"], version="0.32.0", dtype=row["dtype"]), 0)

    assert weights.parameter_bytes == row["total_param_bytes"]
