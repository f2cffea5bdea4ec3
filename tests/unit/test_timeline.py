"""Any step of a timeline equals what the scheduler showed in that step."""

from __future__ import annotations

import pytest

from planner.block_codes import ACTIVE, CACHED_FREE, FREE, NULL, SHARED, decode
from planner.facts import PlanError
from planner.sequence import SimulatedRequest
from planner.simulate import simulate
from planner.simulation import SimulationOptions, step_frames
from planner.simulator_config import FULL_ATTENTION, KvGroup, SimulatorConfig

PREFIX = tuple(range(100, 148))


def request(name, prompt, num_output=6, **changes):
    return SimulatedRequest(
        request_id=name,
        num_prompt_tokens=len(prompt),
        num_output_tokens=num_output,
        prompt_token_ids=tuple(prompt),
        output_token_ids=tuple(range(num_output)),
        **changes,
    )


SHARING = [request("A", (*PREFIX, 1, 2, 3)), request("B", (*PREFIX, 9, 8, 7, 6), arrival_step=2)]
TIGHT = [request("P", [5] * 62, 30), request("Q", [6] * 62, 30)]


def config(**changes):
    values = {"num_gpu_blocks": 64, "max_num_batched_tokens": 64, "max_num_seqs": 16, "max_model_len": 1024}
    return SimulatorConfig(**(values | changes))


CASES = {
    "shared prefix": (config(), SHARING),
    "preemption": (config(num_gpu_blocks=11, max_model_len=128, max_num_batched_tokens=128), TIGHT),
    "async": (config(num_gpu_blocks=11, max_model_len=128, async_scheduling=True), TIGHT),
    "hybrid": (
        config(groups=(FULL_ATTENTION, KvGroup(kind="sliding_window", span_tokens=32))),
        [request("W", range(150), 24), request("V", range(140), 24, arrival_step=9)],
    ),
    "priority": (
        config(num_gpu_blocks=11, max_model_len=128, scheduling_policy="priority"),
        [request("P", [5] * 62, 30, priority=2), request("Q", [6] * 62, 30, priority=1)],
    ),
    "chunked local": (
        config(groups=(FULL_ATTENTION, KvGroup(kind="chunked_local", span_tokens=64))),
        [request("W", range(150), 24), request("V", range(140), 24, arrival_step=9)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_frame_is_rebuilt_in_any_order(name):
    engine, requests = CASES[name]
    frames = list(step_frames(engine, requests))

    timeline = simulate(engine, requests).timeline

    assert timeline.num_steps == len(frames)
    assert [timeline.frame(frame.step) for frame in reversed(frames)] == frames[::-1]


@pytest.mark.parametrize("name", CASES)
def test_block_codes_agree_with_the_tables_in_each_step(name):
    engine, requests = CASES[name]
    timeline = simulate(engine, requests).timeline

    for step in range(timeline.num_steps):
        states = [decode(int(code))[0] for code in timeline.block_codes(step)]
        holds = [0] * engine.num_gpu_blocks
        for _, tables in timeline.frame(step).block_tables:
            for block in (block for table in tables for block in table if block):
                holds[block] += 1
        expected = [SHARED if count > 1 else ACTIVE if count else None for count in holds]
        assert states[0] == NULL
        assert all(state == (want or state) for state, want in zip(states[1:], expected[1:], strict=True))
        assert sum(state in {FREE, CACHED_FREE} for state in states) == timeline.columns.free_blocks[step]
        assert states.count(CACHED_FREE) == timeline.columns.cached_free_blocks[step]


def test_a_shared_prefix_is_told_with_its_blocks():
    timeline = simulate(*CASES["shared prefix"]).timeline

    told = [event.text for event in timeline.events]

    assert "B shares blocks 1–3 with A" in told


def test_a_preemption_is_told_with_freed_and_kept_blocks():
    timeline = simulate(*CASES["preemption"]).timeline

    told = [event.text for event in timeline.events if event.kind == "preempted"]

    assert told == ["Q preempted: 5 blocks freed, 5 still cached"]


def test_a_block_knows_its_holders_and_tokens():
    timeline = simulate(*CASES["shared prefix"]).timeline

    facts = timeline.block(2, 2)

    assert (facts.state, facts.holders, facts.first_token, facts.num_tokens) == ("shared", ("A", "B"), 16, 16)
    assert timeline.block(2, 3).content_number != facts.content_number


def test_a_request_table_maps_logical_to_physical_blocks():
    timeline = simulate(*CASES["shared prefix"]).timeline

    rows = timeline.table(2, "B")

    assert [row.block for row in rows] == [1, 2, 3, 5]
    assert [row.shared_with for row in rows] == [("A",), ("A",), ("A",), ()]
    assert rows[-1].num_tokens == 4


def test_block_map_has_one_byte_a_block():
    timeline = simulate(*CASES["hybrid"]).timeline

    for colour_by in ("request", "group", "state"):
        assert len(timeline.block_map(5, colour_by)) == 64


def test_events_are_found_step_by_step():
    timeline = simulate(*CASES["preemption"]).timeline
    first = timeline.next_event_step(0)

    assert first is not None
    assert timeline.events_at(first)
    assert timeline.next_event_step(timeline.num_steps) is None


def test_an_unknown_step_block_or_request_is_refused():
    timeline = simulate(*CASES["preemption"]).timeline

    with pytest.raises(PlanError, match="was not simulated"):
        timeline.frame(10_000)
    with pytest.raises(PlanError, match="There is no block"):
        timeline.block(0, 11)
    with pytest.raises(PlanError, match="no request"):
        timeline.table(0, "nobody")


def test_a_run_stops_when_asked():
    engine, requests = CASES["preemption"]

    result = simulate(engine, requests, SimulationOptions(should_stop=lambda: True))

    assert result.summary.is_stopped
    assert result.summary.num_unfinished == 2


def test_progress_ends_at_one():
    told = []

    simulate(*CASES["preemption"], SimulationOptions(progress=lambda fraction, _: told.append(fraction)))

    assert told[-1] == 1.0
    assert told == sorted(told)


def test_equal_seeds_give_equal_timelines():
    engine = config(num_speculative_tokens=3, num_lookahead_tokens=3)
    runs = [simulate(engine, SHARING, SimulationOptions(seed=7, draft_acceptance=0.6)) for _ in range(2)]

    assert runs[0].summary == runs[1].summary
    assert runs[0].timeline.events == runs[1].timeline.events
