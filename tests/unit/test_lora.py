"""LoRA's buffers: a pair of matrices a projection, by how tensor parallelism divides it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from factories import make_resolved

from planner.inventory import Embedding, Experts, Linear, ModelFacts
from planner.lora import LoraShape, lora_tensors
from planner.model_catalog import catalogue_documents
from planner.model_config import read_model
from planner.request import EngineFlags
from planner.sharding import Split
from planner.versions import parse_version
from planner.weights import rank_weights

SHAPE = LoraShape(num_adapters=2, rank=8, is_fully_sharded=False, has_tables=True)
LORA = EngineFlags(enable_lora=True, max_loras=1, max_lora_rank=16)


def split(tp: int) -> Split:
    return Split(tp=tp, moe_tp=tp, ep=1)


def linear(parallel: str) -> Linear:
    sizes = (64, 64) if parallel == "column" else (64,)
    return Linear(
        name="x",
        role="mlp",
        in_features=32,
        out_features=sizes,
        parallel=parallel,
        prefixes=("x",),  # type: ignore[arg-type]  # a name that the test gives
    )


@pytest.mark.parametrize(
    ("parallel", "is_fully_sharded", "expected"),
    [
        # 2 adapters x 2 bytes x rank 8 = 32 bytes a row or column
        ("column", False, (32 * 32, 32 * 32, 32 * 32, 32 * 32)),
        ("column", True, (32 * 16, 32 * 32, 32 * 16, 32 * 32)),
        ("row", False, (32 * 16, 32 * 64)),
        ("row", True, (32 * 16, 32 * 32)),
        ("replicated", True, (32 * 32, 32 * 64)),
    ],
)
def test_pairs_are_divided_as_the_linear_is(parallel: str, is_fully_sharded: bool, expected: tuple[int, ...]) -> None:
    lora = replace(SHAPE, is_fully_sharded=is_fully_sharded)

    assert lora_tensors(linear(parallel), lora, split(2), 2) == expected


def test_a_table_is_whole_on_every_rank() -> None:
    table = Embedding(name="embed", role="embedding", num_rows=1000, dim=32)

    assert lora_tensors(table, SHAPE, split(4), 2) == (32 * 1000, 32 * 32)


def test_a_tied_table_is_wrapped_twice() -> None:
    table = Embedding(name="embed", role="embedding", num_rows=1000, dim=32)

    assert lora_tensors(table, replace(SHAPE, is_tied=True), split(1), 2) == (32 * 1000, 32 * 32) * 2


def test_experts_with_one_pair_for_gate_and_up_save_an_a_matrix() -> None:
    experts = Experts(name="e", num_experts=4, hidden_size=32, intermediate_size=16, top_k=2, prefixes=("e",))

    two = lora_tensors(experts, SHAPE, split(1), 2)
    one = lora_tensors(experts, replace(SHAPE, is_pair_shared=True), split(1), 2)

    assert sum(two) - sum(one) == 32 * 4 * 32


def _model(name: str) -> ModelFacts:
    return read_model(catalogue_documents(name))


def _added(name: str, version: str, flags: EngineFlags = LORA, tp: int = 1) -> int:
    model = _model(name)
    plain = rank_weights(model, make_resolved(version=version, tp=tp), 0)
    return (
        rank_weights(model, make_resolved(version=version, tp=tp, flags=flags), 0).post_load_bytes
        - plain.post_load_bytes
    )


def test_llama_adapters_are_counted_to_the_byte() -> None:
    # 32 layers: q and o 2 x (4096 + 4096), k and v 2 x (4096 + 1024), gate, up and down 3 x (4096 + 14336); both tables
    layers = 32 * (2 * 8192 + 2 * 5120 + 3 * 18432)
    tables = 2 * (128256 + 4096)

    assert _added("meta-llama/Llama-3.1-8B", "0.33.0") == 16 * 2 * (layers + tables)


def test_tables_of_qwen3_get_adapters_only_in_newer_releases() -> None:
    difference = _added("Qwen/Qwen3-8B", "0.19.0") - _added("Qwen/Qwen3-8B", "0.14.0")

    assert difference == 16 * 2 * 2 * (151936 + 4096)


def test_experts_get_adapters_only_in_newer_releases() -> None:
    model = _model("Qwen/Qwen3-30B-A3B")

    assert not LoraShape.of(LORA, model, parse_version("0.11.0")).has_experts  # type: ignore[union-attr]  # LoRA is on
    assert _added("Qwen/Qwen3-30B-A3B", "0.33.0") > 10 * _added("Qwen/Qwen3-30B-A3B", "0.11.0")


def test_a_ministral_sized_model_loses_what_a_log_shows() -> None:
    # A 0.21.0 log: 34 layers of 8 KV heads x 128, 27.91 GiB of pool without an adapter, 27.82 with one of rank 16.
    layers = 34 * (2 * 8192 + 2 * 5120 + 3 * 18432)

    assert round(16 * 2 * (layers + 2 * (131072 + 4096)) / 2**30, 2) == 0.09
