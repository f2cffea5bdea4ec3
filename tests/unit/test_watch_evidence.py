"""The verdict on an engine: each kind from numbers made for it, and nothing from too few."""

from __future__ import annotations

import numpy as np
import pytest

from live.recording import Window
from live.sample_codec import series_name
from live.samples import EngineIdentity, EngineSample, HistogramSample
from pages.parts.watch_evidence import Evidence, evidence, verdict, watched_names
from pages.parts.watch_prediction import OUTPUTS, PROMPTS, HeldTokens, held_tokens

WHO = EngineIdentity(model_name="llama", engine="0")


def window(num_ticks: int = 301, **fields: object) -> Window:
    """A tick a second; a field is a number, or one number a tick."""
    names = watched_names(WHO)
    numbers = np.full((len(names), num_ticks), np.nan)
    for field, values in fields.items():
        numbers[names.index(series_name(WHO, field))] = values
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
