"""Two recordings laid over each other, and what differs between them."""

from __future__ import annotations

import pytest

from live.alignment import by_clock, by_mark, by_start
from live.compare_recordings import Chosen, align
from live.recording import Mark, Recording
from live.recording_differences import Difference, differences, setting_differences, watched_minutes
from live.sample_codec import encode, stamped
from live.samples import CacheConfig, EngineIdentity, EngineSample, EngineSnapshot, ServedModel
from live.store import About, Store
from planner.facts import PlanError

IDENTITY = EngineIdentity(model_name="m", engine="0")


def recorded(path, start_ms, usages, preemptions, *, version="0.32.0", labels=(), hits=None) -> Recording:
    store = Store.create(path, About(source="x"))
    for tick, (usage, counted) in enumerate(zip(usages, preemptions, strict=True)):
        engine = EngineSample(
            time_unix_ns=0,
            identity=IDENTITY,
            cache_config=CacheConfig(labels=labels),
            kv_usage_fraction=usage,
            num_preemptions=counted,
            prefix_cache_hits_tokens=None if hits is None else float(hits * tick),
            prefix_cache_queries_tokens=None if hits is None else float(100 * tick),
        )
        models = (ServedModel(model_id="m", max_model_len=4096),)
        snapshot = EngineSnapshot(time_unix_ns=0, source="x", engines=(engine,), vllm_version=version, models=models)
        encoded = encode(stamped(snapshot, start_ms + 1000 * tick))
        store.append(encoded.time_ms, encoded.numbers, encoded.document)
    store.close()
    return Recording.open(path)


@pytest.fixture
def pair(tmp_path):
    labels = (("block_size", "16"), ("cache_dtype", "auto"), ("kv_cache_memory_bytes", "None"))
    first = recorded(
        tmp_path / "a.kvscope", 100_000, [0.1, 0.2, 0.3, 0.4, 0.5], [5, 6, 1, 2, 2], labels=labels, hits=50
    )
    second = recorded(
        tmp_path / "b.kvscope",
        102_000,
        [0.5] * 11,
        list(range(11)),
        version="0.33.0",
        labels=(("block_size", "32"), ("cache_dtype", "auto")),
    )
    return first, second


def chosen(recording, start_ms=None) -> Chosen:
    return Chosen(recording=recording, engine="m#0", start_ms=start_ms)


def measured(found: tuple[Difference, ...], field: str, measure: str) -> tuple[float | None, float | None]:
    (each,) = [each for each in found if (each.field, each.measure) == (field, measure)]
    return each.first, each.second


def test_levels_of_gauges_are_mean_95th_percentile_and_peak(pair):
    found = differences(chosen(pair[0]), chosen(pair[1]))

    assert measured(found, "kv_usage_fraction", "mean") == pytest.approx((0.3, 0.5))
    assert measured(found, "kv_usage_fraction", "p95") == pytest.approx((0.48, 0.5))
    assert measured(found, "kv_usage_fraction", "peak") == (0.5, 0.5)


def test_sums_go_through_a_restart_and_are_given_a_minute_too(pair):
    found = differences(chosen(pair[0]), chosen(pair[1]))

    assert measured(found, "num_preemptions", "total") == (3, 10)
    assert measured(found, "num_preemptions", "per_minute") == (3 * 60 / 4, 60)


def test_what_one_side_does_not_export_is_none_and_what_neither_does_is_left_out(pair):
    found = differences(chosen(pair[0]), chosen(pair[1]))

    assert measured(found, "prefix_cache_hits_tokens", "share") == (0.5, None)
    assert "offload_store_bytes" not in {each.field for each in found}


def test_a_start_leaves_out_what_was_before(pair):
    found = differences(chosen(pair[0], 102_000), chosen(pair[1]))

    assert measured(found, "kv_usage_fraction", "mean")[0] == pytest.approx(0.4)
    assert watched_minutes(chosen(pair[0], 102_000)) == pytest.approx(2 / 60)


def test_a_gap_is_no_time_watched(tmp_path):
    store = Store.create(tmp_path / "gap.kvscope", About(source="x"))
    for second in (1, 2, 3, 603, 604):
        store.append(1000 * second, {"m#0/kv_usage_fraction": 0.5}, "")
    store.close()

    assert watched_minutes(chosen(Recording.open(tmp_path / "gap.kvscope"))) == pytest.approx(3 / 60)


def test_a_change_is_second_minus_first_and_a_fraction_of_the_first():
    change = Difference(field="num_preemptions", measure="total", first=4, second=10)
    from_nothing = Difference(field="num_preemptions", measure="total", first=0, second=10)

    assert (change.change, change.change_fraction) == (6, 1.5)
    assert (from_nothing.change, from_nothing.change_fraction) == (10, None)


def test_settings_that_differ_are_named_and_none_is_not_one(pair):
    found = setting_differences(chosen(pair[0]), chosen(pair[1]))

    assert [(each.name, each.first, each.second) for each in found] == [
        ("vllm_version", "0.32.0", "0.33.0"),
        ("block_size", "16", "32"),
    ]


def test_by_their_starts_both_begin_at_their_first_tick(pair):
    alignment = by_start(*pair)

    assert (alignment.first_ms, alignment.second_ms, alignment.lead_ms) == (100_000, 102_000, 0)


def test_by_a_mark_both_have_the_same_lead(pair):
    marks = Mark(time_ms=103_000, kind="note", text="a"), Mark(time_ms=103_000, kind="note", text="b")

    alignment = by_mark(*pair, marks)

    assert (alignment.first_ms, alignment.second_ms, alignment.lead_ms) == (102_000, 102_000, 1000)
    assert (alignment.first_measured_ms, alignment.second_measured_ms) == (103_000, 103_000)


def test_by_the_clock_one_moment_is_one_moment(pair):
    alignment = by_clock(*pair)
    aligned = align(chosen(pair[0], alignment.first_ms), chosen(pair[1], alignment.second_ms), ("kv_usage_fraction",))

    assert aligned.first["kv_usage_fraction"][:3].tolist() == pytest.approx([0.15, 0.35, 0.5])
    assert aligned.second["kv_usage_fraction"][1] == pytest.approx(0.5)
    assert alignment.first_measured_ms == 102_000


def test_recordings_that_share_no_moment_are_not_laid_over_by_the_clock(tmp_path, pair):
    later = recorded(tmp_path / "c.kvscope", 900_000, [0.1], [0])

    with pytest.raises(PlanError, match="share no moment"):
        by_clock(pair[0], later)
