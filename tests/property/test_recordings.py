"""Laws of recordings: what goes in comes out, whatever is folded; extremes are never lost; damage is always named."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from live.chunks import decode_chunk, decode_rows, decode_times, encode_chunk, encode_row, encode_times
from live.compare_recordings import increase
from live.downsample import min_max
from live.recording import Recording
from live.recording_schema import RecordingError
from live.recording_upload import open_bytes
from live.replay import snapshots
from live.sample_codec import decode, encode, stamped
from live.samples import (
    CacheConfig,
    EngineIdentity,
    EngineSample,
    EngineSnapshot,
    HistogramSample,
    LabelledValue,
    ServedModel,
)
from live.store import About, Store
from planner.facts import Finding

REALS = st.floats(allow_nan=False)
WORDS = st.text(max_size=12).filter(lambda text: not any("\ud800" <= letter <= "\udfff" for letter in text))
MAYBE = st.none() | REALS
LABELS = st.lists(st.tuples(WORDS, WORDS), max_size=3).map(tuple)


@st.composite
def histograms(draw) -> HistogramSample:
    bounds = (*sorted(draw(st.sets(st.floats(-1e6, 1e6), max_size=4))), math.inf)
    counts = tuple(draw(REALS) for _ in bounds)
    return HistogramSample(
        name=draw(WORDS),
        labels=draw(LABELS),
        upper_bounds=bounds,
        counts=counts,
        sum=draw(MAYBE),
        count=draw(MAYBE),
    )


IDENTITIES = st.builds(
    EngineIdentity, model_name=st.none() | WORDS, engine=st.none() | WORDS, replica=st.none() | WORDS
)
SAMPLES = st.builds(
    EngineSample,
    time_unix_ns=st.just(0),
    identity=IDENTITIES,
    cache_config=st.none() | st.builds(CacheConfig, block_size=st.none() | st.integers(0, 2**40), labels=LABELS),
    kv_usage_fraction=MAYBE,
    num_preemptions=MAYBE,
    labelled=st.lists(
        st.builds(LabelledValue, name=WORDS, labels=LABELS, value=REALS),
        max_size=3,
        unique_by=lambda value: (value.name, value.labels),
    ).map(tuple),
    histograms=st.lists(histograms(), max_size=2, unique_by=lambda one: (one.name, one.labels)).map(tuple),
)
SNAPSHOTS = st.builds(
    EngineSnapshot,
    time_unix_ns=st.just(0),
    source=WORDS,
    engines=st.lists(SAMPLES, max_size=3, unique_by=lambda sample: sample.identity).map(tuple),
    findings=st.lists(st.builds(Finding, code=WORDS, severity=st.just("info"), text=WORDS), max_size=2).map(tuple),
    vllm_version=st.none() | WORDS,
    models=st.lists(st.builds(ServedModel, model_id=WORDS), max_size=2).map(tuple),
    server_info=st.none() | WORDS,
    process_start_unix_seconds=MAYBE.filter(lambda value: value is None or math.isfinite(value)),
)


@given(SNAPSHOTS, st.integers(1, 2**42))
def test_a_snapshot_comes_back_from_its_numbers_and_words(snapshot, time_ms):
    encoded = encode(stamped(snapshot, time_ms))

    assert decode(encoded.time_ms, encoded.numbers, encoded.document) == stamped(snapshot, time_ms)


@settings(max_examples=25, deadline=None)
@given(st.lists(SNAPSHOTS, min_size=1, max_size=12), st.integers(2, 5))
def test_a_replayed_recording_equals_the_live_run(seen, chunk_ticks):
    stamped_ones = [stamped(snapshot, 1_000_000 + 1000 * number) for number, snapshot in enumerate(seen)]
    with tempfile.TemporaryDirectory() as folder:
        store = Store.create(Path(folder) / "run.kvscope", About(source="x"))
        for number, snapshot in enumerate(stamped_ones):
            encoded = encode(snapshot)
            store.append(encoded.time_ms, encoded.numbers, encoded.document)
            if number % chunk_ticks == 0:
                store.fold()
        store.close()
        recording = Recording.open_untrusted(Path(folder) / "run.kvscope")

        assert list(snapshots(recording)) == stamped_ones


@given(st.lists(st.floats(), min_size=1, max_size=300))
def test_a_chunk_comes_back(values):
    numbers = np.array(values)
    content = encode_chunk(numbers)
    back = np.full(len(values), np.nan) if content is None else decode_chunk(content, len(values))

    assert np.array_equal(back, numbers, equal_nan=True)


@given(st.lists(st.lists(st.floats(), min_size=3, max_size=3), max_size=20))
def test_rows_come_back(rows):
    numbers = decode_rows([encode_row(np.array(row)) for row in rows], 3)

    assert np.array_equal(numbers.T, np.array(rows).reshape(-1, 3), equal_nan=True)


@given(st.sets(st.integers(1, 2**48), min_size=1, max_size=300))
def test_times_come_back(times):
    ordered = np.array(sorted(times), np.int64)

    assert np.array_equal(decode_times(encode_times(ordered), len(ordered)), ordered)


@given(
    st.lists(st.tuples(st.integers(0, 999), st.floats(-1e9, 1e9)), max_size=60, unique_by=lambda pair: pair[0]),
    st.integers(1, 400),
)
def test_buckets_keep_the_extremes_and_invent_nothing(pairs, width_ms):
    ordered = sorted(pairs)
    times = np.array([time_ms for time_ms, _ in ordered], np.int64)
    numbers = np.array([[value for _, value in ordered]]).reshape(1, -1)
    points = min_max(times, numbers, 0, width_ms, -(-1000 // width_ms))[0]
    kept = points[~np.isnan(points)]

    assert set(kept) <= set(numbers[0])
    assert (not len(kept)) == (not len(times))
    assert not len(kept) or (kept.min(), kept.max()) == (numbers.min(), numbers.max())


@given(st.lists(st.floats(0, 1e9), max_size=40))
def test_an_increase_never_falls(values):
    added = increase(np.array(values, np.float64))

    assert (np.diff(added) >= 0).all()


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_damaged_file_reads_or_is_named(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.kvscope"
        store = Store.create(path, About(source="x"))
        for tick in range(30):
            store.append(1000 + tick, {"a": tick / 3, "b": 1.0}, "words")
            if tick == 20:
                store.fold()
        store.append_gap(5000, "refused", "Nothing answers.")
        store.close()
        content = bytearray(path.read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=40)):
        content[place] = data.draw(st.integers(0, 255))
    try:
        recording = open_bytes(bytes(content), "run.kvscope")
        list(recording.ticks(end_ms=10_000))
        recording.gaps()
        recording.marks()
        list(recording.frames("tables"))
        said = "read."
    except RecordingError as error:
        said = error.text

    assert said.endswith(".")
