"""The verdict on an engine: each kind from numbers made for it, and nothing from too few."""

from __future__ import annotations

import numpy as np
import pytest

from live.recording import Window
from live.sample_codec import series_name
from live.samples import EngineIdentity, EngineSample, HistogramSample
from pages.parts.watch_evidence import PROBE_PREEMPTIONS, Evidence, evidence, watched_names
from pages.parts.watch_prediction import OUTPUTS, PROMPTS, HeldTokens, held_tokens
from pages.parts.watch_verdict import verdict

WHO = EngineIdentity(model_name="llama", engine="0")


def window(num_ticks: int = 301, **fields: object) -> Window:
    """A tick a second; a field is a number, or one number a tick."""
    names = watched_names(WHO)
    numbers = np.full((len(names), num_ticks), np.nan)
    for field, values in fields.items():
        name = field if field == PROBE_PREEMPTIONS else series_name(WHO, field)
        numbers[names.index(name)] = values
    return Window(time_ms=np.arange(num_ticks, dtype=np.int64) * 1000, names=names, numbers=numbers, gaps=())


def load(**fields: object) -> Window:
    calm = {"kv_usage_fraction": 0.5, "num_requests_running": 4.0, "num_requests_waiting": 0.0, "num_preemptions": 0.0}
    return window(**(calm | fields))


@pytest.mark.parametrize(
    ("seen", "kind"),
    [
        (window(5, kv_usage_fraction=0.5), "little"),
        (window(num_requests_running=2.0), "little"),
        (load(num_requests_running=0.0), "idle"),
        (load(kv_usage_fraction=0.99, num_preemptions=np.arange(301) // 20), "thrashing"),
        (load(kv_usage_fraction=0.99, num_requests_waiting=7.0), "full"),
        (load(kv_usage_fraction=np.linspace(0.2, 0.6, 301)), "filling"),
        (load(kv_usage_fraction=0.99), "full"),
        (load(kv_usage_fraction=0.5, num_requests_swapped=4.0), "thrashing"),
        (load(num_requests_running=0.0, num_requests_swapped=4.0), "thrashing"),
        (load(kv_usage_fraction=0.3, num_requests_waiting=9.0), "compute"),
        (load(), "healthy"),
    ],
)
def test_each_verdict_follows_from_its_numbers(seen: Window, kind: str) -> None:
    assert verdict(evidence(seen, WHO)).kind == kind


def test_an_empty_window_is_no_evidence() -> None:
    assert evidence(window(0), WHO) == Evidence(seconds=0.0, num_ticks=0)


def test_the_time_until_full_is_what_growth_says() -> None:
    found = verdict(evidence(load(kv_usage_fraction=np.linspace(0.2, 0.7, 301)), WHO))

    assert found.title == "Filling: the pool is full in about 3 min at this growth"  # 10 % a minute, 30 % left


@pytest.mark.parametrize("num_ticks", [20, 301])
def test_ups_and_downs_and_a_short_look_are_no_growth(num_ticks: int) -> None:
    usage = np.where(np.arange(num_ticks) % 40 < 20, 0.0, 0.8) if num_ticks > 100 else np.linspace(0.2, 0.4, num_ticks)
    seen = evidence(window(num_ticks, kv_usage_fraction=usage, num_requests_running=2.0), WHO)

    assert seen.growth_per_minute is None
    assert verdict(seen).kind == "healthy"


def test_the_verdict_names_its_numbers() -> None:
    found = verdict(evidence(load(kv_usage_fraction=0.98, num_preemptions=np.arange(301) // 25), WHO))

    assert found.numbers == "KV usage 98%, above 95% for 5.0 min, 12 preemptions, 0 waiting; over the last 5.0 min."


def test_a_restart_loses_no_preemption() -> None:
    fallen = np.concatenate([np.full(150, 40.0), np.full(151, 3.0)])

    assert evidence(load(num_preemptions=fallen), WHO).preemptions == 3


def test_hits_are_of_this_window_and_absent_is_none() -> None:
    seen = evidence(
        load(prefix_cache_queries_tokens=1000.0 + np.arange(301), prefix_cache_hits_tokens=900.0 + np.arange(301) / 2),
        WHO,
    )

    assert seen.hit_fraction == pytest.approx(0.5)
    assert seen.external_hit_fraction is None
    assert seen.store_bytes_per_second is None


def histogram(name: str, mean: float) -> HistogramSample:
    return HistogramSample(name=name, upper_bounds=(float("inf"),), counts=(10.0,), sum=10 * mean, count=10.0)


def test_a_running_request_holds_its_prompt_and_half_its_output() -> None:
    sample = EngineSample(
        time_unix_ns=0, identity=WHO, histograms=(histogram(PROMPTS, 1000.0), histogram(OUTPUTS, 200.0))
    )

    assert held_tokens(sample, 0.25) == HeldTokens(low_tokens=850.0, high_tokens=1100.0, num_requests=10)
    assert held_tokens(EngineSample(time_unix_ns=0, identity=WHO), None) is None


# -- signs that come early, go late, or are not there -----------------------------------------------------------------


def test_requests_that_go_back_to_the_queue_of_a_full_pool_were_preempted() -> None:
    running, waiting = np.full(301, 20.0), np.zeros(301)
    running[290:], waiting[290:] = 15.0, 5.0  # five at once, and the counter tells nothing yet

    seen = evidence(load(kv_usage_fraction=0.97, num_requests_running=running, num_requests_waiting=waiting), WHO)

    assert (seen.preemptions, seen.preempted_lately) == (0.0, 5.0)
    assert verdict(seen).kind == "thrashing"
    assert "5 sent back to the queue in the last minute" in verdict(seen).numbers


def test_a_queue_that_grows_beside_steady_requests_is_no_preemption() -> None:
    seen = evidence(load(kv_usage_fraction=0.97, num_requests_waiting=np.arange(301) / 10), WHO)

    assert seen.preempted_lately == 0.0
    assert verdict(seen).kind == "full"


def test_requests_that_end_while_others_queue_in_a_roomy_pool_are_no_preemption() -> None:
    running, waiting = np.full(301, 20.0), np.zeros(301)
    running[290:], waiting[290:] = 15.0, 5.0

    seen = evidence(load(kv_usage_fraction=0.5, num_requests_running=running, num_requests_waiting=waiting), WHO)

    assert seen.preempted_lately == 0.0


def test_the_probe_tells_of_preemptions_before_the_counter() -> None:
    seen = evidence(load(kv_usage_fraction=0.99, **{PROBE_PREEMPTIONS: np.maximum(0, np.arange(301) - 290)}), WHO)

    assert seen.preempted_lately == 10.0
    assert verdict(seen).kind == "thrashing"


def test_preemptions_of_some_minutes_ago_are_no_thrashing_now() -> None:
    counted = np.minimum(np.arange(301), 100) / 5.0

    seen = evidence(load(kv_usage_fraction=0.5, num_preemptions=counted), WHO)

    assert seen.preemptions == 20.0
    assert verdict(seen).kind == "healthy"
    assert "20 preemptions" in verdict(seen).numbers


def test_thrashing_is_over_once_the_pool_has_room_again() -> None:
    usage = np.where(np.arange(301) < 280, 0.99, 0.1)
    counted = np.minimum(np.arange(301), 280) / 10.0

    assert verdict(evidence(load(kv_usage_fraction=usage, num_preemptions=counted), WHO)).kind == "healthy"


@pytest.mark.parametrize(("running", "kind"), [(4.0, "thrashing"), (500.0, "healthy")])
def test_two_preemptions_a_minute_weigh_by_how_many_run(running: float, kind: str) -> None:
    counted = np.where(np.arange(301) > 280, 2.0, 0.0)

    seen = evidence(load(kv_usage_fraction=0.9, num_requests_running=running, num_preemptions=counted), WHO)

    assert verdict(seen).kind == kind


def test_a_full_pool_stays_full_through_a_dip() -> None:
    usage = np.full(301, 0.97)
    usage[200::10] = 0.92

    seen = evidence(load(kv_usage_fraction=usage, num_requests_waiting=3.0), WHO)

    assert seen.minutes_full == pytest.approx(5.0)
    assert verdict(seen).kind == "full"


def test_a_pool_that_never_was_full_is_not_full_at_ninety_percent() -> None:
    seen = evidence(load(kv_usage_fraction=0.93, num_requests_waiting=3.0), WHO)

    assert seen.minutes_full == 0.0
    assert verdict(seen).kind == "queue"


def test_a_full_pool_without_a_queue_is_full_and_says_that_nothing_waits() -> None:
    found = verdict(evidence(load(kv_usage_fraction=0.99), WHO))

    assert found.title == "The pool is full; nothing waits yet"
    assert "above 95% for 5.0 min, 4 running" in found.numbers


def test_a_pool_that_is_full_for_a_moment_is_not_full() -> None:
    usage = np.where(np.arange(301) % 20 < 3, 0.96, 0.4)

    assert verdict(evidence(load(kv_usage_fraction=usage), WHO)).kind == "healthy"


def test_a_pool_that_has_just_filled_up_fills_no_more() -> None:
    usage = np.minimum(1.0, np.arange(301) / 300)

    assert verdict(evidence(load(kv_usage_fraction=usage), WHO)).kind == "full"


def test_swapping_is_named_with_its_numbers_and_its_cost() -> None:
    found = verdict(evidence(load(kv_usage_fraction=0.97, num_requests_swapped=4.0), WHO))

    assert found.title == "Memory-bound: requests are swapped to the host"
    assert "4 swapped to the host" in found.numbers
    assert "copied to the host" in found.advice
    assert "computed again" not in found.advice


def test_what_is_not_exported_is_not_said_to_be_zero() -> None:
    assert "running" not in verdict(evidence(window(kv_usage_fraction=0.5), WHO)).numbers


def test_a_last_sample_without_usage_is_told_from_an_engine_that_never_says_it() -> None:
    usage = np.where(np.arange(301) == 300, np.nan, 0.5)

    assert "last sample lacks" in verdict(evidence(load(kv_usage_fraction=usage), WHO)).numbers
    assert "does not export" in verdict(evidence(window(num_requests_running=2.0), WHO)).numbers


def test_growth_is_seen_in_ticks_that_are_half_a_minute_apart() -> None:
    whole = load(kv_usage_fraction=0.2 + np.arange(301) * 0.001)
    apart = Window(time_ms=whole.time_ms[:20] * 30, names=whole.names, numbers=whole.numbers[:, :300:15], gaps=())

    seen = evidence(apart, WHO)

    assert seen.growth_per_minute == pytest.approx(0.03)
    assert verdict(seen).kind == "filling"


def test_one_request_that_waits_for_a_moment_is_no_queue() -> None:
    waiting = np.zeros(301)
    waiting[-1] = 3.0

    assert verdict(evidence(load(kv_usage_fraction=0.3, num_requests_waiting=waiting), WHO)).kind == "healthy"


def test_usage_from_before_a_restart_is_no_growth() -> None:
    usage = np.concatenate([np.linspace(0.1, 0.4, 291), np.full(10, 0.05)])
    counted = np.concatenate([np.arange(291) * 100.0, np.arange(10) * 100.0])

    seen = evidence(load(kv_usage_fraction=usage, generation_tokens=counted), WHO)

    assert seen.growth_per_minute is None


def test_growth_is_measured_over_time_also_where_ticks_are_missing() -> None:
    whole = load(kv_usage_fraction=np.linspace(0.2, 0.7, 301))
    kept = np.r_[0:200, 240:301]  # a gap of 40 s

    seen = evidence(
        Window(time_ms=whole.time_ms[kept], names=whole.names, numbers=whole.numbers[:, kept], gaps=()), WHO
    )

    assert seen.growth_per_minute == pytest.approx(0.1, rel=0.01)


def test_each_engine_of_a_server_has_a_verdict_of_its_own() -> None:
    other = EngineIdentity(model_name="llama", engine="1")
    calm, full = load(kv_usage_fraction=0.2), load(kv_usage_fraction=0.99, num_requests_waiting=4.0)
    both = Window(
        time_ms=calm.time_ms,
        names=(*watched_names(WHO)[:-1], *watched_names(other)[:-1]),
        numbers=np.concatenate([calm.numbers[:-1], full.numbers[:-1]]),
        gaps=(),
    )

    assert verdict(evidence(both, WHO)).kind == "healthy"
    assert verdict(evidence(both, other)).kind == "full"


def test_the_advice_against_thrashing_names_how_many_fit() -> None:
    found = verdict(evidence(load(kv_usage_fraction=0.99, num_preemptions=np.arange(301) // 20), WHO))

    assert "--max-num-seqs 4" in found.advice
