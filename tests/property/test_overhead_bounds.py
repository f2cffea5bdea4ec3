"""Overheads of any model, card and release: ordered, never negative, and growing with what they are made of."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from planner import overhead
from planner.defaults import Resolved, resolve
from planner.facts import PlanError
from planner.gpu_catalog import find_gpu
from planner.inventory import ModelFacts
from planner.model_catalog import catalogue_documents
from planner.model_config import read_model
from planner.request import EngineFlags, PlanRequest

_MODELS = [
    "meta-llama/Llama-3.1-8B-Instruct",
    "Qwen/Qwen3-30B-A3B",
    "deepseek-ai/DeepSeek-V3.2",
    "google/gemma-3-27b-it",
    "Qwen/Qwen3.5-27B",
    "openai/gpt-oss-20b",
    "Qwen/Qwen2.5-VL-7B-Instruct",
]
_FACTS = {name: read_model(catalogue_documents(name)) for name in _MODELS}
_CARDS = ["H100 80GB SXM", "L4", "GeForce RTX 4090", "DGX Spark (GB10)", "Instinct MI300X", "B200 180GB"]
_VERSIONS = ["0.8.5", "0.11.0", "0.14.0", "0.19.0", "0.23.0", "0.27.1", "0.31.0", "0.33.0"]


@st.composite
def _cases(draw: st.DrawFn) -> tuple[ModelFacts, Resolved] | None:
    model = _FACTS[draw(st.sampled_from(_MODELS))]
    card = find_gpu(draw(st.sampled_from(_CARDS)))
    flags = EngineFlags(
        tensor_parallel_size=draw(st.sampled_from([1, 2, 4])),
        pipeline_parallel_size=draw(st.sampled_from([1, 2])),
        max_num_seqs=draw(st.one_of(st.none(), st.integers(1, 2048))),
        max_num_batched_tokens=draw(st.one_of(st.none(), st.integers(2048, 65536))),
        max_model_len=draw(st.integers(256, 4096)),
        enforce_eager=draw(st.booleans()),
    )
    request = PlanRequest(
        model_id=model.model_id, gpu=card.name, vllm_version=draw(st.sampled_from(_VERSIONS)), flags=flags
    )
    try:
        return model, resolve(request, model, card)
    except PlanError:
        return None


@settings(max_examples=150, deadline=None)
@given(case=_cases())
def test_every_estimate_is_ordered_and_never_negative(case: tuple[ModelFacts, Resolved] | None) -> None:
    if case is None:
        return
    model, resolved = case

    for rank in range(resolved.pp):
        for part in (overhead.activation, overhead.non_torch, overhead.cuda_graphs, overhead.cuda_graphs_actual):
            estimate = part(model, resolved, rank)
            assert 0 <= estimate.low_bytes <= estimate.best_bytes <= estimate.high_bytes


@settings(max_examples=100, deadline=None)
@given(case=_cases(), more=st.integers(1, 4096))
def test_more_sequences_or_tokens_never_lower_the_peak(case: tuple[ModelFacts, Resolved] | None, more: int) -> None:
    if case is None:
        return
    model, resolved = case
    larger = replace(
        resolved,
        max_num_seqs=max(8, resolved.max_num_seqs) + more,
        max_num_batched_tokens=resolved.max_num_batched_tokens + more,
    )
    base = replace(resolved, max_num_seqs=max(8, resolved.max_num_seqs))

    assert overhead.activation(model, larger, 0).best_bytes >= overhead.activation(model, base, 0).best_bytes
    assert overhead.non_torch(model, larger, 0).best_bytes >= overhead.non_torch(model, base, 0).best_bytes
