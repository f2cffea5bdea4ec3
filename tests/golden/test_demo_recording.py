"""The recording that the project brings: vLLM 0.32.0 on the CPU, `python -m live.engine.demo --load tour --record FILE`.

It was compacted afterwards, and of the block tables one a second kept, with what the others told of the steps between; metrics and
KV events are as the engine gave them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from live.block_view import BlockHistory
from live.cache_summary import SUMMARY_KIND, decode_summary
from live.engine.load import DEMO_CONFIG, named_load, predict, step_seconds
from live.expected_curve import curve_error, expected_curve, measured_pace, seconds_since
from live.probe_feed import FRAME_KIND, needed_blocks
from live.probe_frames import decode_frame
from live.recording import Recording
from live.replay import snapshots
from live.samples import EngineIdentity
from pages.parts.watch_evidence import PROBE_PREEMPTIONS, evidence, watched_names
from pages.parts.watch_verdict import verdict

PATH = Path(__file__).parents[2] / "live" / "data" / "demo.kvscope"
MIB = 2**20
ENGINE, IDENTITY = "kvscope-demo#0", EngineIdentity(model_name="kvscope-demo", engine="0")


@pytest.fixture(scope="module")
def recording():
    recording = Recording.open_untrusted(PATH)
    yield recording
    recording.close()


@pytest.fixture(scope="module")
def frames(recording):
    return [decode_frame(payload) for _, payload in recording.frames(FRAME_KIND)]


@pytest.fixture(scope="module")
def load_start_ms(recording):
    return next(mark.time_ms for mark in recording.marks() if mark.kind == "note")


@pytest.fixture(scope="module")
def last(recording):
    return list(snapshots(recording))[-1].engines[0]


def test_it_is_small_and_whole(recording):
    assert PATH.stat().st_size < 2 * MIB
    assert recording.gaps() == ()
    assert recording.summary().num_ticks > 100


def test_it_says_where_the_load_begins(recording):
    (mark,) = (mark for mark in recording.marks() if mark.kind == "note")

    assert mark.text.startswith("Load begins: tour")


def test_it_preempts_and_the_probe_agrees(last, frames):
    assert last.num_preemptions == frames[-1].num_preemptions > 0


def test_its_prefix_hits_are_those_the_simulator_predicts(last, frames):
    predicted = predict(named_load("tour"), step_seconds(frames) or 0.0).summary

    assert last.prefix_cache_hits_tokens == predicted.hit_tokens > 0


def test_each_part_of_it_can_be_seen_at_a_sample_a_second(recording, load_start_ms):
    window = recording.window([f"{ENGINE}/kv_usage_fraction", f"{ENGINE}/num_requests_running"])
    since, (usage, running) = seconds_since(window.time_ms, load_start_ms), window.numbers
    seconds = np.floor(since)

    def seen(is_wanted):
        return len(set(seconds[is_wanted].tolist()))

    first_seconds = {name: named_load(name).requests[-1].arrival_seconds for name in ("calm", "shared-prefix")}
    is_calm = (since > 1) & (since < first_seconds["calm"])
    assert seen(is_calm & (running > 0)) >= 12
    assert usage[is_calm].max() < 0.5
    assert seen((since > 18) & (since < 36) & (running >= 3)) >= 5
    assert seen(usage >= 0.95) >= 15


def test_its_tables_share_blocks_and_fill_the_pool(frames):
    assert max(max(frame.reference_counts().values(), default=0) for frame in frames) > 1
    assert max(frame.num_used_blocks for frame in frames) >= frames[0].num_gpu_blocks - 2


def test_every_frame_adds_up(frames):
    for frame in frames:
        assert frame.num_used_blocks == len(frame.reference_counts())


def test_the_lengths_of_running_requests_come_to_the_blocks_in_use(frames):
    for frame in frames:
        assert needed_blocks(frame) == frame.num_used_blocks


def test_every_frame_is_a_moment_of_the_block_map(frames):
    history = BlockHistory()

    moments = [history.take(frame) for frame in frames]

    assert all(moment.num_unplaced_blocks == 0 for moment in moments)
    kinds = {event.kind for moment in moments for event in moment.events}
    assert kinds >= {"admitted", "shared", "preempted", "resumed", "evicted", "finished"}


def test_the_events_sum_is_the_cache_that_the_probe_lists(recording, frames):
    (*_, (_, payload)) = recording.frames(SUMMARY_KIND)
    (place,) = decode_summary(payload).places

    assert (place.medium, place.spec_kind) == ("GPU", "full_attention")
    assert place.num_copies == len(frames[-1].cached.block_ids())
    assert place.ages is not None
    assert place.tree is not None


@pytest.fixture(scope="module")
def compared(recording, load_start_ms):
    """What the simulator says of the load at the engine's pace, when the samples were taken, and the usage in them."""
    fields = ("kv_usage_fraction", "num_requests_running", "generation_tokens", "vllm:iteration_tokens_total:count")
    window = recording.window([f"{ENGINE}/{field}" for field in fields], load_start_ms - 1000)
    since = seconds_since(window.time_ms, load_start_ms)
    usage, *paced = window.numbers
    return expected_curve(DEMO_CONFIG, named_load("tour").requests, measured_pace(since, *paced)), since, usage


def test_the_simulators_curve_is_near_the_real_one(compared):
    curve, since, usage = compared

    error = curve_error(curve.usage_at(since), usage)

    assert error is not None
    assert error.num_points > 60
    assert error.mean_absolute_fraction < 0.07


def test_its_preemptions_are_near_those_the_simulator_predicts(compared, last):
    assert compared[0].num_preemptions == pytest.approx(last.num_preemptions, rel=0.1)


def test_no_tick_shows_more_than_the_probes_peak_since_the_one_before(recording, frames):
    window = recording.window(["probe/peak_used_blocks", "probe/num_used_blocks"])
    peak, used = window.numbers[:, ~np.isnan(window.numbers[0])]

    assert np.all(used <= peak)
    assert np.any(used < peak)
    assert peak.max() == max(frame.peak_used_blocks for frame in frames) == DEMO_CONFIG.num_usable_blocks


@pytest.fixture(scope="module")
def full_ticks(recording):
    """The moments at which the pool is full and requests have been preempted."""
    whole = recording.window(watched_names(IDENTITY))
    usage, preempted = whole.series(f"{ENGINE}/kv_usage_fraction"), whole.series(PROBE_PREEMPTIONS)
    return whole.time_ms[(usage > 0.9) & (preempted >= 3)].tolist()


def verdict_at(recording, time_ms, names):
    return verdict(evidence(recording.window(names, None, time_ms + 1), IDENTITY)).kind


def test_the_verdict_in_the_burst_is_thrashing(recording, full_ticks):
    assert {verdict_at(recording, time_ms, watched_names(IDENTITY)) for time_ms in full_ticks} == {"thrashing"}


def test_without_the_probe_the_queue_tells_it_before_the_counter(recording, full_ticks):
    names = [name for name in watched_names(IDENTITY) if name != PROBE_PREEMPTIONS]
    first = full_ticks[0]
    counted = recording.window([f"{ENGINE}/num_preemptions"], first, first + 1).numbers[0, 0]

    assert {verdict_at(recording, time_ms, names) for time_ms in full_ticks} == {"thrashing"}
    assert counted == 0


def test_the_verdicts_before_the_burst(recording, load_start_ms):
    requests = named_load("tour").requests
    times_ms = recording.window(watched_names(IDENTITY)).time_ms
    arrived = {
        part: load_start_ms + 1000 * next(r.arrival_seconds for r in requests if r.request_id == f"{part}-0")
        for part in ("shared", "burst")
    }

    calm = times_ms[(times_ms > load_start_ms) & (times_ms < arrived["shared"])].tolist()
    before_burst = int(times_ms[times_ms < arrived["burst"]][-1])

    assert {verdict_at(recording, time_ms, watched_names(IDENTITY)) for time_ms in calm} == {"idle", "healthy"}
    assert verdict_at(recording, before_burst, watched_names(IDENTITY)) in {"healthy", "filling"}
