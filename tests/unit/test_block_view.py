"""The probe's frames as moments of a pool: the same codes that the simulator has, and what happened between two frames."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from fakes.probe_publisher import PROBE_FRAME, cached, frame, probed_request

from live.block_view import UNKNOWN_STEP, BlockHistory, short_name
from live.probe_frames import ProbeFrame, RequestBlocks, pack_blocks
from planner.block_codes import ACTIVE, CACHED_FREE, FREE, NULL, SHARED, decode
from planner.sequence import SimulatedRequest
from planner.simulate import simulate
from planner.simulator_config import SimulatorConfig
from planner.timeline import Timeline


def states(codes: np.ndarray) -> list[int]:
    return (codes & 7).tolist()


def test_each_block_has_its_state_its_group_and_its_holder() -> None:
    moment = BlockHistory().take(
        PROBE_FRAME
    )  # a: [1, 2] and [0, 3]; b: [1, 4] and [5]; 1 is shared, 1 and 9 are cached

    assert states(moment.codes) == [NULL, SHARED, ACTIVE, ACTIVE, ACTIVE, ACTIVE, FREE, FREE, FREE, CACHED_FREE, FREE]
    assert decode(int(moment.codes[3])) == (ACTIVE, 1, 0)
    assert decode(int(moment.codes[5])) == (ACTIVE, 1, 1)
    assert moment.indices[[1, 2, 3, 4]].tolist() == [0, 1, 1, 1]
    assert moment.names == {0: "a", 1: "b"}
    assert moment.shared_pairs.tolist() == [1, 0, 1, 1]
    assert moment.blocks_of(1).tolist() == [1, 4, 5]
    assert moment.num_cached_free_blocks == 1


def test_a_freed_block_keeps_its_last_holder_while_it_is_cached() -> None:
    history = BlockHistory()
    history.take(frame(1, probed_request("a", [1, 2])))

    moment = history.take(frame(2, listed=cached(1)))

    assert decode(int(moment.codes[1])) == (CACHED_FREE, 0, 0)
    assert states(moment.codes)[2] == FREE
    assert moment.names == {0: "a"}
    assert moment.changed.tolist()[:4] == [UNKNOWN_STEP, 2, 2, UNKNOWN_STEP]


def test_without_a_list_of_cached_blocks_the_last_one_stands() -> None:
    history = BlockHistory()
    history.take(frame(1, listed=cached(1, 2)))

    moment = history.take(frame(2, probed_request("a", [2]), listed=None))

    assert states(moment.codes)[:3] == [NULL, CACHED_FREE, ACTIVE]
    assert moment.listed_at_step == 1


def test_a_restarted_engine_begins_a_history_anew() -> None:
    history = BlockHistory()
    history.take(frame(9, probed_request("a", [1])))

    moment = history.take(frame(1, listed=cached(1)))

    assert decode(int(moment.codes[1])) == (CACHED_FREE, 0, None)
    assert moment.events == ()


def test_blocks_in_no_table_are_counted() -> None:
    moment = BlockHistory().take(frame(1, probed_request("a", [1, 2]), num_free_blocks=5))

    assert moment.num_unplaced_blocks == 3


def told(*frames: ProbeFrame) -> list[str]:
    history = BlockHistory()
    return [[event.text for event in history.take(each).events] for each in frames][-1]


def test_a_preemption_says_what_was_freed_and_what_is_still_cached() -> None:
    before = frame(1, probed_request("a", [1, 2, 3]))
    after = frame(2, listed=cached(1, 2), preempted_ids=("a",), num_preemptions=1)

    assert told(before, after) == ["a preempted: 3 blocks freed, 2 still cached"]


def test_who_is_gone_has_finished_unless_somebody_unnamed_was_preempted() -> None:
    before = frame(1, probed_request("a", [1, 2]))

    assert told(before, frame(2)) == ["a finished: 2 blocks freed"]
    assert told(before, frame(2, num_preemptions=1)) == []


def test_a_newcomer_shares_takes_back_and_evicts() -> None:
    before = frame(1, probed_request("a", [1, 2]), listed=cached(1, 2, 5, 6))
    after = frame(
        2,
        probed_request("a", [1, 2]),
        probed_request("b", [1, 5, 6]),
        probed_request("c", [7]),
        listed=cached(1, 2, 5, 6),
        shared_blocks=pack_blocks([1]),
        shared_counts=pack_blocks([2]),
    )

    assert told(before, after) == [
        "b starts with 3 blocks, 48 tokens found in the cache",
        "b shares block 1 with a",
        "c starts with 1 block",
    ]
    assert told(before, frame(2, probed_request("a", [1, 2]), probed_request("d", [8, 5]), listed=cached(1, 2, 6)))[
        -1
    ] == ("1 cached block evicted for reuse: block 5")


def test_a_preempted_request_resumes() -> None:
    resumed = RequestBlocks(
        request_id="a",
        is_running=True,
        num_prompt_tokens=40,
        num_tokens=44,
        num_computed_tokens=43,
        num_preemptions=1,
        tables=(pack_blocks([4, 5]),),
    )

    assert told(frame(1), frame(2, resumed)) == ["a resumes with 2 blocks, all to recompute"]


@pytest.mark.parametrize(
    ("request_id", "name"),
    [
        ("cmpl-burst-3-0-8213b4d5", "burst-3"),
        ("chatcmpl-8213b4d5", "8213b4d5"),
        ("chatcmpl-0f2c33aa91", "0f2c33aa91"),
        ("cmpl-", "cmpl-"),
        ("mine", "mine"),
    ],
)
def test_names_lose_what_the_server_puts_around_them(request_id: str, name: str) -> None:
    assert short_name(request_id) == name


# -- the same blocks, simulated and live ------------------------------------------------------------------------------


def probed(timeline: Timeline, step: int) -> ProbeFrame:
    """The frame that the probe would have sent of a simulated step."""
    told_step = timeline.frame(step)
    codes = timeline.block_codes(step)
    tables = dict(told_step.block_tables)
    holders: dict[int, int] = {}
    for table in tables.values():
        for block in table[0]:
            holders[block] = holders.get(block, 0) + 1
    shared = {block: count for block, count in holders.items() if count > 1}
    requests = tuple(probed_request(name, list(table[0])) for name, table in tables.items())
    return frame(
        step,
        *requests,
        listed=cached(*np.flatnonzero(codes & 7 == CACHED_FREE).tolist()),
        num_gpu_blocks=timeline.config.num_gpu_blocks,
        num_free_blocks=told_step.free_blocks,
        shared_blocks=pack_blocks(shared),
        shared_counts=pack_blocks(shared.values()),
    )


def test_a_simulated_step_and_the_probe_of_it_draw_the_same_map() -> None:
    config = SimulatorConfig(num_gpu_blocks=24, block_size=16, max_num_seqs=6, max_num_batched_tokens=128)
    requests = [
        SimulatedRequest(
            request_id=f"r{number}",
            arrival_step=number * 3,
            num_prompt_tokens=48,
            num_output_tokens=40,
            prompt_token_ids=tuple(range(32)) + (number,) * 16,
        )
        for number in range(8)
    ]
    timeline = simulate(config, requests).timeline
    history = BlockHistory()

    for step in range(timeline.num_steps):
        moment = history.take(probed(timeline, step))
        simulated = timeline.block_codes(step)
        assert states(moment.codes) == states(simulated)
        named = [(block, decode(int(code))[2]) for block, code in enumerate(simulated) if code & 7 == ACTIVE]
        assert [moment.names[decode(int(moment.codes[block]))[2] or 0] for block, _ in named] == [
            timeline.request_ids[owner or 0] for _, owner in named
        ]


def test_a_large_pool_is_cheap() -> None:
    source = np.random.default_rng(7)
    blocks = source.permutation(np.arange(1, 131_072))[:120_000]
    requests = tuple(probed_request(f"r{place}", part.tolist()) for place, part in enumerate(np.split(blocks, 240)))
    large = frame(5, *requests, num_gpu_blocks=131_072, listed=cached(*range(1, 60_000)))
    history = BlockHistory()
    history.take(replace(large, step=4, sequence=4))
    start = time.process_time()

    history.take(large)

    assert time.process_time() - start < 0.25  # 0.02 s where nothing else runs
