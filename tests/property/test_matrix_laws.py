"""Laws of tables of plans: pages as numbers are the specs' own, more memory never holds less, more asked never gets more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.facts import Basis, Estimate
from planner.gpu_catalog import GpuFacts, find_gpu, gpu_names
from planner.inventory import ModelFacts
from planner.layer_specs import (
    AttentionSpec,
    ChunkedSpec,
    CrossSpec,
    FullSpec,
    LayerSpec,
    MambaSpec,
    MlaSpec,
    RingSpec,
    Serving,
    SlidingMlaSpec,
    SlidingSpec,
)
from planner.matrix import STOPS, MatrixQuestion, Sheet, Split, sheet
from planner.model_catalog import catalogue_documents
from planner.page_steps import steps_of
from planner.planning import facts_for
from planner.request import EngineFlags, PlanRequest
from planner.units import GIB

MODELS = (
    "meta-llama/Llama-3.1-8B",
    "google/gemma-3-27b-it",
    "deepseek-ai/DeepSeek-V3",
    "Qwen/Qwen3-Next-80B-A3B-Instruct",
)


@st.composite
def specs(draw: st.DrawFn) -> LayerSpec:
    size = draw(st.sampled_from([16, 32, 64, 560]))
    common = {"block_size": size, "num_kv_heads": 2, "content_bytes": 512}
    kind = draw(
        st.sampled_from([FullSpec, MlaSpec, SlidingSpec, SlidingMlaSpec, ChunkedSpec, CrossSpec, RingSpec, None])
    )
    if kind is None:
        mode = draw(st.sampled_from(["none", "align", "all"]))
        drafts = draw(st.integers(0, 4))
        return MambaSpec(block_size=size, state_bytes=4096, cache_mode=mode, num_speculative_blocks=drafts)
    extra = {
        SlidingSpec: {"sliding_window": draw(st.integers(1, 9000)), "extra_retained_tokens": draw(st.integers(0, 9))},
        SlidingMlaSpec: {"sliding_window": draw(st.integers(1, 9000))},
        ChunkedSpec: {"chunk_size": draw(st.integers(1, 9000))},
        CrossSpec: {"max_encoder_tokens": draw(st.integers(1, 9000))},
    }
    spec = kind(**common, **extra.get(kind, {}))
    assert isinstance(spec, AttentionSpec)
    return replace(spec, is_dcp_sharded=draw(st.booleans()))


@given(specs(), st.integers(1, 300_000), st.integers(1, 40_000), st.sampled_from([1, 2, 4]))
def test_pages_as_numbers_are_the_specs_own(spec: LayerSpec, length: int, in_flight: int, dcp: int) -> None:
    serving = Serving(max_in_flight_tokens=in_flight, dcp=dcp)

    assert steps_of(spec, serving).pages(length) == spec.pages(length, serving)


def _facts(model_id: str) -> ModelFacts:
    return facts_for(PlanRequest(model_id=model_id), catalogue_documents(model_id))


def _sized(total_bytes: int) -> GpuFacts:
    total = Estimate.exact(total_bytes, Basis(kind="read", note="a card of this size"))
    return replace(find_gpu("H100 80GB SXM"), total=total, driver_total_bytes=80 * GIB)


def _sheet(model_id: str, sizes: list[int], num_requests: int = 1, **flags: object) -> Sheet:
    made = EngineFlags(**{"max_model_len": "auto", **flags})  # type: ignore[arg-type]  # as each test names them
    question = MatrixQuestion(
        request=PlanRequest(model_id="any", flags=made),
        gpus=tuple(_sized(size) for size in sizes),
        splits=(Split(tensor_parallel_size=8),),
        num_requests=num_requests,
    )
    return sheet(question, _facts(model_id))


@pytest.mark.parametrize("model_id", MODELS)
@settings(max_examples=15)
@given(sizes=st.lists(st.integers(8 * GIB, 300 * GIB), min_size=2, max_size=12))
def test_more_memory_never_holds_less(model_id: str, sizes: list[int]) -> None:
    found = _sheet(model_id, sorted(sizes))

    starts = found.stops[0, 0] == 0
    assert (np.diff(starts.astype(int)) >= 0).all()
    assert (np.diff(found.longest_tokens[0, 0]) >= 0).all()
    assert (np.diff(found.num_blocks[0, 0]) >= 0).all()


@pytest.mark.parametrize("model_id", MODELS)
@settings(max_examples=10)
@given(numbers=st.lists(st.integers(1, 2000), min_size=2, max_size=5))
def test_more_requests_at_once_are_never_longer(model_id: str, numbers: list[int]) -> None:
    lengths = [int(_sheet(model_id, [100 * GIB], number).longest_tokens[0, 0, 0]) for number in sorted(numbers)]

    assert lengths == sorted(lengths, reverse=True)


@pytest.mark.parametrize("model_id", MODELS[:3])
@settings(max_examples=10)
@given(lengths=st.lists(st.integers(256, 120_000), min_size=2, max_size=5))
def test_longer_requests_are_never_more(model_id: str, lengths: list[int]) -> None:
    found = [
        float(_sheet(model_id, [140 * GIB], max_model_len=length).max_concurrency[0, 0, 0])
        for length in sorted(lengths)
    ]

    assert found == sorted(found, reverse=True)


@given(st.integers(1, 64), st.integers(1, 8))
def test_a_split_takes_the_cards_of_all_its_copies(tp: int, dp: int) -> None:
    split = Split(tensor_parallel_size=tp, data_parallel_size=dp)

    assert split.num_cards == dp * split.num_ranks


@pytest.mark.parametrize("model_id", [*MODELS, "Qwen/Qwen3-32B", "mistralai/Mistral-7B-v0.1", "openai/gpt-oss-120b"])
def test_twice_the_cards_never_hold_less_and_stop_only_where_less_is_free(model_id: str) -> None:
    sizes = (1, 2, 4, 8)
    question = MatrixQuestion(
        request=PlanRequest(model_id="any", flags=EngineFlags(max_model_len="auto")),
        gpus=tuple(find_gpu(name) for name in gpu_names()),
        splits=tuple(Split(tensor_parallel_size=size) for size in sizes),
        kv_dtypes=("auto", "fp8"),
    )

    found = sheet(question, _facts(model_id))
    stops = {name: found.stops == place for place, name in enumerate(STOPS)}
    # Ranks that talk to each other lose memory before vLLM looks at the card; a refusal is of heads or of formats.
    may_stop = stops["starts"] | stops["too_little_free"] | stops["refused"]

    assert stops["starts"].any()
    assert may_stop[1:][stops["starts"][:-1]].all()
    both = stops["starts"][:-1] & stops["starts"][1:]
    assert (found.longest_tokens[1:][both] >= found.longest_tokens[:-1][both]).all()
