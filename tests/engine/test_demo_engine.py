"""The demo engine, really started: what is measured, published and predicted agrees, and a restart is survived.

One engine serves two loads, then another takes its ports, with the pool that the memory gives rather than a fixed one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from ready_engine import ready_engine

from live.block_view import short_name
from live.cached_blocks import CachedBlocks
from live.engine.demo import DemoEngine, wait_until
from live.engine.demo_process import DemoSettings
from live.engine.load import DEMO_CONFIG, named_load, predict
from live.engine.tiny_model import CONFIG
from live.http_source import http_source
from live.kv_events import KvEventEndpoints, KvEventReader
from live.metrics import read_metrics
from live.probe_feed import ProbeReader
from live.probe_frames import unpack_blocks, unpack_hashes
from live.recorder import Recorder
from live.recording import Recording
from live.store import About, Store
from planner.inventory import ModelDocuments
from planner.planning import answer as plan_answer
from planner.request import EngineFlags, PlanRequest
from planner.units import GIB
from planner.workload_files import read_workload

# Minutes of a real engine, whose timing follows the machine's: run by `make test-engine`, not by `make test`.
pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.environ.get("KVSCOPE_LIVE_ENGINE") != "1", reason="run by `make test-engine`"),
]
START_SECONDS = 300.0
LOAD_SECONDS = 240.0
USABLE_BLOCKS = DEMO_CONFIG.num_usable_blocks
SETTLE_SECONDS = 60.0
# The history and the peak in each frame tell of the steps between frames: a low rate loses nothing, and fills no queue.
PROBE_HZ = 20.0


@dataclass
class Heard:
    """What was read off the engine while it ran."""

    frames: list = field(default_factory=list)
    scrapes: list = field(default_factory=list)  # the engine's samples
    events: CachedBlocks = field(default_factory=CachedBlocks)
    num_restarts: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def listen(self, ports) -> None:
        endpoints = KvEventEndpoints(endpoint=ports.events_endpoint, replay_endpoint=ports.replay_endpoint)
        with ProbeReader(endpoint=ports.probe_endpoint) as probe, KvEventReader(endpoints=endpoints) as events:
            while not self.stop.is_set():
                self.frames += probe.poll(0.02)
                poll = events.poll()
                self.num_restarts += poll.is_restart
                self.events.take(poll)

    def scrape(self, ports) -> None:
        with httpx.Client(trust_env=False) as client:
            while not self.stop.is_set():
                try:
                    text = client.get(f"{ports.address}/metrics").text
                except httpx.HTTPError:
                    time.sleep(0.2)
                    continue
                reading = read_metrics(text, time.time_ns())
                if reading.engines:
                    self.scrapes.append(reading.engines[0])
                time.sleep(0.1)

    def settled(self, *loads, seconds=SETTLE_SECONDS):
        """The newest frame, once the engine is idle and its metrics and events have told of all tokens of these `loads`.

        What a test then finds to be unequal is so for good: the wait for the events' sum only ends early.
        """
        tokens = sum(request.num_output_tokens for name in loads for request in named_load(name).requests)
        end = time.monotonic() + seconds
        while not (self._is_idle() and self.scrapes[-1].generation_tokens == tokens):
            assert time.monotonic() < end, "the engine did not fall idle, or its metrics do not tell of each token"
            time.sleep(0.05)
        end = time.monotonic() + 10.0
        while sum(copies(self.events).values()) != self.frames[-1].num_cached_hashes and time.monotonic() < end:
            time.sleep(0.05)
        return self.frames[-1]

    def _is_idle(self):
        frame = self.frames[-1]
        return frame.moment == "idle" and frame.num_used_blocks == 0


def started(settings, folder, ports=None):
    engine = DemoEngine(settings)
    engine.start(folder, ports)
    status = wait_until(engine, lambda status: status.state == "ready", START_SECONDS)
    assert status.state == "ready", "\n".join([status.text, *status.log_tail])
    return engine, status


def run_load(engine, name):
    engine.run_load(name)
    status = wait_until(engine, lambda status: status.load_state == "done", LOAD_SECONDS)
    assert all(answered.num_output_tokens for answered in status.answered), status.answered
    return status


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Everything that the tests look at, from two starts on the same ports."""
    ready_engine()
    folder = tmp_path_factory.mktemp("demo")
    heard = Heard()
    found: dict = {"heard": heard}
    engine, status = started(DemoSettings(probe_hz=PROBE_HZ), folder)
    store = Store.create(folder / "run.kvscope", About(source=status.address, interval_ms=500))
    recorder = Recorder(http_source(status.address), store, interval_seconds=0.5)
    threads = [threading.Thread(target=listen, args=(status.ports,)) for listen in (heard.listen, heard.scrape)]
    try:
        for thread in threads:
            thread.start()
        recorder.start()
        before = wait_for_sample(heard)
        found["status"] = run_load(engine, "shared-prefix")
        found["requests"] = read_workload(found["status"].requests_path)
        heard.settled("shared-prefix")
        found["num_frames_of_prefixes"] = len(heard.frames)
        found["hits"] = heard.scrapes[-1].prefix_cache_hits_tokens - before.prefix_cache_hits_tokens
        run_load(engine, "burst")
        found["idle"] = heard.settled("shared-prefix", "burst")
        found["sample"] = heard.scrapes[-1]
        found["events"] = dict(copies(heard.events))
        found["is_complete"] = heard.events.is_complete
        found["num_frames"], found["num_scrapes"] = len(heard.frames), len(heard.scrapes)
        engine.stop()
        found["left"] = processes_of(folder)
        time.sleep(2.0)
        engine, _ = started(DemoSettings(num_gpu_blocks_override=None), folder, status.ports)
        run_load(engine, "calm")
        found["second_idle"] = heard.settled("calm")
        found["second_sample"] = heard.scrapes[-1]
        found["second_events"] = dict(copies(heard.events))
        found["recorder_state"] = recorder.status().state
    finally:
        heard.stop.set()
        engine.stop()
        recorder.stop(ended=True)
        for thread in threads:
            thread.join(10.0)
    found["recording"] = Recording.open(folder / "run.kvscope")
    return found


def wait_for_sample(heard):
    end = time.monotonic() + 20.0
    while not heard.scrapes and time.monotonic() < end:
        time.sleep(0.05)
    return heard.scrapes[-1]


def copies(events):
    """How often each (group, hash) is cached, as the events tell it."""
    return {
        (group, block_hash): block.copies
        for (group, _), blocks in events._places.items()
        for block_hash, block in blocks.items()
    }


def cached_in(frame):
    """The same, as the probe lists it."""
    groups, hashes = unpack_blocks(frame.cached.groups), unpack_hashes(frame.cached.hashes)
    return dict(Counter(zip(groups, hashes, strict=True)))


def used_after_each_step(frames):
    """The blocks in use after each step's outputs, from the engine's start until it was idle."""
    used = [USABLE_BLOCKS - free for frame in frames for free in unpack_blocks(frame.settled_history)]
    assert len(used) == frames[-1].step, "frames were lost on their way"
    return used


def num_steps_told(sample):
    """The steps that a scrape tells of, but for those without any output: vLLM observes this histogram once a step."""
    return int(sample.histogram("vllm:iteration_tokens_total").count)


def misread(samples, used, error_blocks=0):
    """The scrapes whose usage was that of no step which it can have been, were they all `error_blocks` off.

    A scrape reads one metric after the other while the engine goes on, usage before the steps: it is of a step no earlier than
    the last that the scrape before told of, and no later than the one after those that it tells of itself. How many steps
    without output came before is not told; there were at most so many as are missing in the end.
    """
    most_silent = len(used) - num_steps_told(samples[-1])
    truth = [0, *used]
    return [
        later
        for earlier, later in pairwise(samples)
        if round(later.kv_usage_fraction * USABLE_BLOCKS) + error_blocks
        not in truth[num_steps_told(earlier) : num_steps_told(later) + most_silent + 2]
    ]


def processes_of(folder):
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if str(folder) in line and "-m vllm" in line]


def pool_predicted(flags):
    documents = ModelDocuments(model_id="kvscope-demo", config_json=json.dumps(CONFIG))
    request = PlanRequest(
        model_id="kvscope-demo",
        config_json=json.dumps(CONFIG),
        gpu_memory_bytes=16 * GIB,
        vllm_version="0.32.0",
        flags=flags,
    )
    return plan_answer(request, documents)[0].pool


def demo_flags(override):
    return EngineFlags(
        kv_cache_memory_bytes=GIB,
        num_gpu_blocks_override=override,
        max_model_len=DEMO_CONFIG.max_model_len,
        max_num_seqs=DEMO_CONFIG.max_num_seqs,
        max_num_batched_tokens=DEMO_CONFIG.max_num_batched_tokens,
        block_size=DEMO_CONFIG.block_size,
        async_scheduling=False,
        enforce_eager=True,
    )


def test_every_scraped_usage_is_the_probes_truth_to_the_block(run):
    used = used_after_each_step(run["heard"].frames[: run["num_frames"]])
    samples = run["heard"].scrapes[: run["num_scrapes"]]
    busy = [sample for sample in samples if sample.kv_usage_fraction]

    assert 0 <= len(used) - num_steps_told(samples[-1]) < 20
    assert misread(samples, used) == []
    # the loads are long enough for these on a machine ten times as fast, and one block more or less would be seen
    assert len(busy) > 20
    assert sum(sample.kv_usage_fraction > 0.9 for sample in busy) > 5
    assert min(len(misread(samples, used, error)) for error in (-1, 1)) > 5


def test_an_idle_engine_uses_nothing_in_both(run):
    assert (run["sample"].kv_usage_fraction, run["idle"].num_used_blocks) == (0.0, 0)


def test_preemptions_are_counted_alike(run):
    assert run["sample"].num_preemptions == run["idle"].num_preemptions > 0


def test_the_burst_fills_the_pool_as_predicted(run):
    predicted = predict(named_load("burst"), 0.02)
    frames = run["heard"].frames[run["num_frames_of_prefixes"] : run["num_frames"]]
    peak = max(frame.peak_used_blocks for frame in frames)

    assert predicted.summary.num_preemptions > 0
    assert abs(peak - predicted.summary.peak_used_blocks) <= 1


def test_no_frame_shows_more_than_the_peak_that_it_tells(run):
    frames = run["heard"].frames[: run["num_frames"]]

    for frame in frames:
        settled = [USABLE_BLOCKS - free for free in unpack_blocks(frame.settled_history)]
        assert max([frame.num_used_blocks, *settled[1:]]) <= frame.peak_used_blocks <= USABLE_BLOCKS


def test_the_events_add_up_to_the_probes_cached_blocks(run):
    assert run["is_complete"]
    assert run["events"] == cached_in(run["idle"])
    assert len(run["events"]) > 100


def test_shared_prefixes_hit_as_often_as_the_simulator_says(run):
    predicted = predict(named_load("shared-prefix"), 0.01)

    assert run["hits"] == predicted.summary.hit_tokens


def prefix_of(request):
    """Which of the two prompts in common a request begins with: the load takes them in turn."""
    return int(short_name(request.request_id).removeprefix("shared-")) % 2


def test_real_tables_share_the_prefixs_blocks(run):
    """Requests of one prompt hold the same blocks, and vLLM's own count says how many hold them."""
    # each clump runs for hundreds of steps together, whatever a step takes
    num_blocks = {0: 640 // DEMO_CONFIG.block_size, 1: 416 // DEMO_CONFIG.block_size}
    most_holders = 0
    for frame in run["heard"].frames[: run["num_frames_of_prefixes"]]:
        counts = frame.reference_counts()
        for prefix, size in num_blocks.items():
            holders = [request for request in frame.requests if prefix_of(request) == prefix]
            assert len({request.blocks()[:size] for request in holders}) <= 1
            assert {counts[block] for request in holders for block in request.blocks()[:size]} <= {len(holders)}
            most_holders = max(most_holders, len(holders))

    assert most_holders >= 2  # of the three in each clump


def test_the_load_stands_beside_in_the_simulators_format(run):
    assert run["requests"] == named_load("shared-prefix").requests


@pytest.mark.parametrize(("override", "sample"), [(256, "sample"), (None, "second_sample")])
def test_the_predicted_pool_is_the_actual_one(run, override, sample):
    cache, pool = run[sample].cache_config, pool_predicted(demo_flags(override))

    actual = (cache.num_gpu_blocks, cache.kv_cache_tokens, cache.block_size)

    assert actual == (pool.num_blocks, pool.tokens, pool.block_size)
    assert cache.max_concurrency == pytest.approx(pool.max_concurrency, abs=0.01)


def test_stopping_leaves_no_process(run):
    assert run["left"] == []


def test_a_restart_is_survived_and_said(run):
    recording = run["recording"]

    assert run["recorder_state"] == "ok"
    assert "restarted" in {mark.kind for mark in recording.marks()}
    assert any(gap.state != "recorder_stopped" for gap in recording.gaps())


def test_events_and_probe_follow_the_new_engine(run):
    assert run["heard"].num_restarts == 1
    assert run["second_events"] == cached_in(run["second_idle"])
    assert run["second_idle"].num_gpu_blocks == run["second_sample"].cache_config.num_gpu_blocks
