"""Snapshots as numbers and words, and back."""

from __future__ import annotations

import math

import pytest

from live.recording_schema import RecordingError
from live.sample_codec import decode, encode, engine_key, series_name, stamped
from live.samples import (
    CacheConfig,
    EngineIdentity,
    EngineSample,
    EngineSnapshot,
    HistogramSample,
    LabelledValue,
    ServedModel,
)
from planner.facts import Finding


def full_snapshot() -> EngineSnapshot:
    histogram = HistogramSample(
        name="vllm:request_prompt_tokens",
        upper_bounds=(1.0, 2.5, math.inf),
        counts=(0.0, 3.0, 4.0),
        sum=None,
        count=4.0,
    )
    waiting = LabelledValue(name="vllm:num_requests_waiting_by_reason", labels=(("reason", "capacity"),), value=2.0)
    config = CacheConfig(block_size=16, num_gpu_blocks=256, labels=(("block_size", "16"), ("cache_dtype", "auto")))
    engines = tuple(
        EngineSample(
            time_unix_ns=5,
            identity=EngineIdentity(model_name="llama/é", engine=str(number), replica=replica),
            cache_config=config,
            kv_usage_fraction=0.25,
            num_preemptions=2.0**52 + number,
            labelled=(waiting,),
            histograms=(histogram,),
        )
        for number, replica in ((0, None), (1, "instance=10.0.0.3:8000"))
    )
    snapshot = EngineSnapshot(
        time_unix_ns=5,
        source="http://localhost:8000",
        engines=engines,
        findings=(Finding(code="metrics-odd", severity="info", text="Odd."),),
        vllm_version="0.32.0",
        models=(ServedModel(model_id="llama", max_model_len=4096),),
        server_info='{"vllm_config": {}}',
        process_start_unix_seconds=1.5,
    )
    return stamped(snapshot, 1_760_000_000_123)


def test_what_is_encoded_comes_back():
    snapshot = full_snapshot()
    encoded = encode(snapshot)

    assert decode(encoded.time_ms, encoded.numbers, encoded.document) == snapshot


def test_what_is_not_exported_takes_no_series():
    numbers = encode(full_snapshot()).numbers

    assert series_name(EngineIdentity(model_name="llama/é", engine="0"), "num_preemptions") in numbers
    assert not [name for name in numbers if name.endswith("num_requests_swapped")]


def test_numbers_that_change_leave_the_words_alone():
    first = full_snapshot()
    later = stamped(first, first.time_unix_ns // 10**6 + 1000)

    assert encode(first).document == encode(later).document


def test_keys_name_the_replica_where_there_is_one():
    assert engine_key(EngineIdentity(model_name="m", engine="1", replica="pod=a")) == "m#1@pod=a"
    assert engine_key(EngineIdentity()) == "#"


def test_two_engines_of_one_name_stay_apart():
    first, second = (
        EngineSample(time_unix_ns=0, identity=EngineIdentity(model_name="m"), kv_usage_fraction=usage)
        for usage in (0.1, 0.2)
    )
    snapshot = EngineSnapshot(time_unix_ns=0, source="x", engines=(first, second, first))
    encoded = encode(snapshot)

    assert decode(0, encoded.numbers, encoded.document) == snapshot


@pytest.mark.parametrize("document", ["", "{", "[]", '{"source": 3}', '{"source":"x","engines":' + "[" * 100_000])
def test_words_that_cannot_be_read_are_damage(document):
    with pytest.raises(RecordingError) as fault:
        decode(5, {}, document)

    assert fault.value.kind == "damaged"
