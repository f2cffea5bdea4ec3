"""The application's demo engine for real: recorded by itself with tables and events, scraped by a real Prometheus, its pool as planned."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fakes.real_prometheus import need_prometheus, real_prometheus
from ready_engine import ready_engine

from live.cache_summary import SUMMARY_KIND, decode_summary
from live.engine.demo import DEMO_TITLE
from live.engine.demo_plan import demo_request
from live.engine.demo_session import DemoSession, known_load
from live.engine.load import DEMO_CONFIG, named_load
from live.engine.tiny_model import CONFIG
from live.fleet import fleet
from live.monitor import Monitor
from live.probe_feed import FRAME_KIND
from live.probe_frames import decode_frame
from live.recording import Recording
from planner.facts import PlanError
from planner.inventory import ModelDocuments
from planner.planning import answer

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.environ.get("KVSCOPE_LIVE_ENGINE") != "1", reason="run by `make test-engine`"),
]

GENERATED_TOKENS = sum(request.num_output_tokens for request in named_load("burst").requests)


def until(condition, seconds):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.25)
    return found


def told_by(recorder):
    """The tokens that its newest snapshot tells of."""
    snapshot = recorder.status().snapshot
    return snapshot.engines[0].generation_tokens if snapshot and snapshot.engines else None


def fleet_of(address):
    try:
        return fleet(address, "job=vllm")
    except PlanError:
        return ()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One start with the burst, recorded twice: by its own metrics and by way of Prometheus."""
    ready_engine()
    need_prometheus()
    folder = tmp_path_factory.mktemp("session")
    monitor = Monitor(folder / "recordings")
    demo = DemoSession(lambda: monitor)
    found = {}
    try:
        demo.start("burst")
        status = until(lambda: (now := demo.status()).engine.state != "starting" and now, 300)
        assert status.engine.state == "ready", "\n".join([status.engine.text, *status.engine.log_tail])
        target = f"127.0.0.1:{status.engine.ports.http}"
        with real_prometheus(folder, target, scrape="1s") as address:
            until(lambda: demo.status().engine.load_state == "done", 240)
            own = monitor.recorder(demo.status().address)
            until(lambda: own.status().snapshot.engines[0].generation_tokens == GENERATED_TOKENS, 30)
            (engine,) = until(lambda: fleet_of(address), 30)
            fleet_recorder = monitor.watch_fleet(engine.address, 600.0, 1.0)
            until(lambda: told_by(fleet_recorder) == GENERATED_TOKENS, 60)
            until(lambda: own.status().snapshot.engines[0].kv_usage_fraction == 0.0, 30)
            time.sleep(3.0)  # a tick of both with nothing left to tell
            found["fleet"] = fleet_recorder.window(seconds=900.0)
            found["fleet_sample"] = fleet_recorder.status().snapshot.engines[0]
            found["key"] = f"{engine.identity.model_name}#{engine.identity.engine}@{engine.identity.replica}"
            found["answered"] = demo.status().engine.answered
            found["sample"], found["path"] = own.status().snapshot.engines[0], own.path
    finally:
        demo.close()
        monitor.stop()
    with closing(Recording.open(found["path"])) as recording:
        found["summary"], found["load"] = recording.summary(), known_load(recording)
        found["window"] = recording.window()
        found["frames"] = [decode_frame(payload) for _, payload in recording.frames(FRAME_KIND)]
        found["summaries"] = [decode_summary(payload) for _, payload in recording.frames(SUMMARY_KIND)]
    return found


def test_each_request_of_the_load_was_answered(run):
    assert len(run["answered"]) == len(named_load("burst").requests)
    assert all(each.num_output_tokens for each in run["answered"])


def test_its_recording_is_whole_and_knows_the_load(run):
    assert (run["summary"].title, run["summary"].ended_ms is not None) == (DEMO_TITLE, True)
    assert (run["load"].name, run["load"].load) == ("burst", named_load("burst"))


def test_its_block_tables_and_events_stand_beside(run):
    # a frame a second, or fewer on a busy machine, seldom shows the peak; each tells the highest since the one before
    assert max(frame.peak_used_blocks for frame in run["frames"]) == DEMO_CONFIG.num_usable_blocks
    assert np.nanmax(run["window"].series("probe/peak_used_blocks")) == DEMO_CONFIG.num_usable_blocks
    last = run["summaries"][-1]
    assert last.is_complete
    assert sum(place.num_copies for place in last.places) == run["frames"][-1].num_cached_hashes


def test_the_plans_pool_is_the_engines(run):
    request = demo_request()
    documents = ModelDocuments(model_id=request.model_id, config_json=json.dumps(CONFIG))
    pool, config = answer(request, documents)[0].pool, run["sample"].cache_config

    assert (pool.num_blocks, pool.tokens, pool.block_size) == (
        config.num_gpu_blocks,
        config.kv_cache_tokens,
        config.block_size,
    )
    assert pool.max_concurrency == pytest.approx(config.max_concurrency, abs=0.01)


def test_prometheus_gives_the_past_that_was_recorded_here(run):
    fleet_window, own = run["fleet"], run["window"]
    theirs = fleet_window.series(f"{run['key']}/num_preemptions")
    ours = own.series("kvscope-demo#0/num_preemptions")

    assert len(fleet_window.time_ms) > 5
    assert theirs[-1] == ours[-1] > 0
    usage = fleet_window.series(f"{run['key']}/kv_usage_fraction")
    assert max(usage) > 0.5


def test_prometheus_gives_the_same_pool(run):
    assert run["fleet_sample"].cache_config.num_gpu_blocks == run["sample"].cache_config.num_gpu_blocks
