"""Every cell of a table of plans equals the plan of its request."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from zlib import crc32

import pytest

from planner.budget import plan
from planner.facts import PlanError
from planner.gpu_catalog import find_gpu, gpu_names
from planner.inventory import ModelFacts
from planner.matrix import MatrixQuestion, Sheet, Split, sheet
from planner.matrix_terms import model_terms
from planner.model_catalog import catalogue_documents, config_documents, search
from planner.planning import facts_for
from planner.request import EngineFlags, PlanRequest

ALL_GPUS = tuple(find_gpu(name) for name in gpu_names())
SPLITS = tuple(
    Split(tensor_parallel_size=tp, pipeline_parallel_size=pp, data_parallel_size=dp)
    for tp, pp, dp in ((1, 1, 1), (2, 1, 1), (4, 1, 1), (8, 1, 1), (2, 2, 1), (1, 4, 1), (2, 1, 2))
)
KV_DTYPES = ("auto", "fp8", "fp8_e5m2", "turboquant_4bit_nc")
Cell = tuple[int, int, int]


def _models(vllm_version: str, number: int, seed: int) -> Iterator[tuple[ModelFacts, str]]:
    source = random.Random(seed)  # noqa: S311 - a repeatable sample, not a secret
    ids = [entry.model_id for entry in search() if entry.is_plannable]
    for model_id in source.sample(ids, number):
        request = PlanRequest(model_id=model_id, vllm_version=vllm_version)
        try:
            yield facts_for(request, catalogue_documents(model_id)), model_id
        except PlanError:
            continue  # the release does not know the model


def _question(vllm_version: str, flags: EngineFlags, num_requests: int = 1) -> MatrixQuestion:
    request = PlanRequest(model_id="any", vllm_version=vllm_version, flags=flags)
    return MatrixQuestion(request=request, gpus=ALL_GPUS, splits=SPLITS, kv_dtypes=KV_DTYPES, num_requests=num_requests)


def _cells(found: Sheet, number: int, seed: int) -> list[Cell]:
    source = random.Random(seed)  # noqa: S311 - a repeatable sample, not a secret
    splits, dtypes, cards = found.stops.shape
    return [(source.randrange(splits), source.randrange(dtypes), source.randrange(cards)) for _ in range(number)]


def _of_cell(found: Sheet, cell: Cell) -> tuple[object, ...]:
    if found.terms[int(found.term_of[cell])].layout is None:
        return ("unreadable", found.refusal(cell))
    return (
        found.stop(cell) == "starts",
        int(found.num_blocks[cell]),
        int(found.tokens[cell]),
        int(found.max_model_len[cell]),
        float(found.max_concurrency[cell]),
        int(found.longest_tokens[cell]),
        int(found.max_num_seqs[cell]),
    )


def _of_plan(found: Sheet, cell: Cell, model: ModelFacts) -> tuple[object, ...]:
    try:
        made = plan(found.request(cell), model)
    except PlanError as error:
        return ("unreadable", error.text)
    pool = made.pool
    seqs = next(item.value for item in made.resolved if item.name == "max_num_seqs")
    return (
        made.will_start,
        pool.num_blocks,
        pool.tokens,
        pool.max_model_len,
        pool.max_concurrency,
        pool.estimated_max_model_len,
        seqs,
    )


@pytest.mark.parametrize(
    ("vllm_version", "flags"),
    [
        ("0.33.0", EngineFlags(max_model_len="auto")),
        ("0.33.0", EngineFlags(max_model_len=8192)),
        ("0.32.0", EngineFlags()),
        ("0.27.1", EngineFlags(max_model_len=4096, gpu_memory_utilization=0.7, max_num_seqs=64)),
        ("0.26.0", EngineFlags(max_model_len="auto", enforce_eager=True)),
        ("0.20.0", EngineFlags(max_model_len=16384, max_num_batched_tokens=4096)),
        ("0.19.0", EngineFlags(max_model_len="auto")),
        ("0.12.0", EngineFlags(max_model_len=4096)),
        ("0.9.0", EngineFlags(max_model_len=4096)),
        ("0.6.6", EngineFlags(max_model_len=4096)),
        ("0.33.0", EngineFlags(max_model_len=4096, kv_cache_memory_bytes=12 * 2**30)),
        ("0.33.0", EngineFlags(max_model_len=4096, num_gpu_blocks_override=5000)),
        ("0.19.0", EngineFlags(max_model_len=4096, num_gpu_blocks_override=5000)),
        ("0.31.0", EngineFlags(max_model_len=4096, gpu_memory_utilization=0.99, enable_expert_parallel=True)),
    ],
)
def test_every_cell_is_the_plan_of_its_request(vllm_version: str, flags: EngineFlags) -> None:
    question = _question(vllm_version, flags)
    seed = crc32(f"{vllm_version} {flags}".encode())

    found = [(sheet(question, model), model) for model, _ in _models(vllm_version, 6, seed)]
    pairs = [
        (_of_cell(each, cell), _of_plan(each, cell, model)) for each, model in found for cell in _cells(each, 16, seed)
    ]

    assert len(pairs) >= 48
    assert [ours for ours, _ in pairs] == [planned for _, planned in pairs]


def test_a_stopped_cell_names_the_check_that_the_plan_names() -> None:
    question = _question("0.33.0", EngineFlags(max_model_len=32768, gpu_memory_utilization=0.95))
    signs = {
        "weights": "The weights take",
        "too_little_free": "vLLM asks for",
        "no_room": "Nothing is left",
        "too_long": "One request of",
        "few_blocks": "Full CUDA graphs need a state block",
    }
    found = [(sheet(question, model), model) for model, _ in _models("0.33.0", 8, seed=5)]
    stopped = [
        (each.stop(cell), each.refusal(cell), plan(each.request(cell), model).reason)
        for each, model in found
        for cell in _cells(each, 40, seed=6)
        if each.terms[int(each.term_of[cell])].layout is not None and each.stop(cell) != "starts"
    ]

    assert {stop for stop, _, _ in stopped} >= {"weights", "refused"}
    for stop, refusal, reason in stopped:
        assert reason == refusal if stop == "refused" else reason.startswith(signs[stop])


def test_a_refusal_names_the_cells_own_card() -> None:
    question = MatrixQuestion(
        request=PlanRequest(model_id="any"),
        gpus=tuple(find_gpu(name) for name in ("V100 16GB SXM2", "V100 32GB SXM2", "V100 16GB PCIe")),
        splits=(Split(),),
    )
    model = facts_for(PlanRequest(model_id="google/gemma-2-2b"), catalogue_documents("google/gemma-2-2b"))

    found = sheet(question, model)

    assert [found.stop((0, 0, card)) for card in range(3)] == ["refused"] * 3
    assert [gpu.name in (found.refusal((0, 0, card)) or "") for card, gpu in enumerate(question.gpus)] == [True] * 3
    assert found.refusal_field((0, 0, 0)) == "dtype"


def test_the_longest_length_of_many_requests_is_held_and_one_block_more_is_not() -> None:
    model_id = "meta-llama/Llama-3.1-8B"
    request = PlanRequest(model_id=model_id, gpu="L40S", flags=EngineFlags(max_model_len="auto"))
    model = facts_for(request, catalogue_documents(model_id))
    question = MatrixQuestion(request=request, gpus=(find_gpu("L40S"),), splits=(Split(),), num_requests=12)

    longest = int(sheet(question, model).longest_tokens[0, 0, 0])
    block_size = plan(request, model).pool.block_size

    def at_once(length: int) -> float:
        return plan(replace(request, flags=EngineFlags(max_model_len=length)), model).pool.max_concurrency

    assert at_once(longest) >= 12
    assert at_once(longest + block_size) < 12


def test_a_table_asked_again_computes_no_term_anew() -> None:
    question = _question("0.33.0", EngineFlags(max_model_len="auto"))
    model, _ = next(_models("0.33.0", 1, seed=9))
    first = sheet(question, model)

    again = sheet(replace(question, num_requests=4), model)

    assert again.terms == first.terms
    assert model_terms.cache_info().hits > 0


def test_a_model_without_a_cache_is_bound_by_nothing_here() -> None:
    config = {
        "architectures": ["BertModel"], "model_type": "bert", "hidden_size": 384, "num_hidden_layers": 6, "vocab_size": 30522,
        "num_attention_heads": 12, "intermediate_size": 1536, "max_position_embeddings": 512, "torch_dtype": "float16",
    }  # fmt: skip
    request = PlanRequest(model_id="org/bert")
    model = facts_for(request, config_documents(json.dumps(config), "org/bert"))
    question = MatrixQuestion(request=request, gpus=(find_gpu("L4"),), splits=(Split(),), num_requests=50)

    found = sheet(question, model)

    assert found.stop((0, 0, 0)) == "starts"
    assert int(found.tokens[0, 0, 0]) == 0
    assert int(found.longest_tokens[0, 0, 0]) == model.max_position
