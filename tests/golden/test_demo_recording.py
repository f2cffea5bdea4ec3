"""The recording that the project brings: vLLM 0.32.0 on the CPU, `python -m live.engine.demo --load tour --record live/data/demo.kvscope`."""

from __future__ import annotations

from pathlib import Path

import pytest

from live.engine.load import named_load, predict, step_seconds
from live.probe_feed import FRAME_KIND
from live.probe_frames import decode_frame
from live.recording import Recording
from live.replay import snapshots

PATH = Path(__file__).parents[2] / "live" / "data" / "demo.kvscope"
MIB = 2**20


@pytest.fixture(scope="module")
def recording():
    recording = Recording.open_untrusted(PATH)
    yield recording
    recording.close()


@pytest.fixture(scope="module")
def frames(recording):
    return [decode_frame(payload) for _, payload in recording.frames(FRAME_KIND)]


@pytest.fixture(scope="module")
def last(recording):
    return list(snapshots(recording))[-1].engines[0]


def test_it_is_small_and_whole(recording):
    assert PATH.stat().st_size < 2 * MIB
    assert recording.gaps() == ()
    assert recording.summary().num_ticks > 60


def test_it_says_where_the_load_begins(recording):
    (mark,) = recording.marks()

    assert mark.text.startswith("Load begins: tour")


def test_it_preempts_and_the_probe_agrees(last, frames):
    assert last.num_preemptions == frames[-1].num_preemptions > 0


def test_its_prefix_hits_are_those_the_simulator_predicts(last, frames):
    predicted = predict(named_load("tour"), step_seconds(frames) or 0.0).summary

    assert last.prefix_cache_hits_tokens == predicted.hit_tokens > 0


def test_its_preemptions_are_near_those_the_simulator_predicts(last, frames):
    predicted = predict(named_load("tour"), step_seconds(frames) or 0.0).summary

    assert predicted.num_preemptions == pytest.approx(last.num_preemptions, abs=5)


def test_its_tables_share_blocks_and_fill_the_pool(frames):
    assert max(max(frame.reference_counts().values(), default=0) for frame in frames) > 1
    assert max(frame.num_used_blocks for frame in frames) == frames[0].num_gpu_blocks - 1


def test_every_frame_adds_up(frames):
    for frame in frames:
        assert frame.num_used_blocks == len(frame.reference_counts())
