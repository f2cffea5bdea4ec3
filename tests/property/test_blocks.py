"""Laws of the pool and of whole simulations, on random workloads."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.blocks import BlockPool
from planner.sequence import SimulatedRequest
from planner.simulate import simulate
from planner.simulation import Simulation, blocks_needed
from planner.simulator_config import FULL_ATTENTION, KvGroup, SimulatorConfig
from planner.step_frames import frame_of

QUICK = settings(max_examples=60, deadline=None)
PREFIX = tuple(range(1000, 1080))


@st.composite
def workloads(draw):
    """Requests that share prefixes of one prompt."""
    requests = []
    step = 0
    for number in range(draw(st.integers(2, 9))):
        step += draw(st.sampled_from([0, 0, 1, 4]))
        own = tuple(range(number * 500, number * 500 + draw(st.integers(1, 60))))
        prompt = PREFIX[: draw(st.sampled_from([0, 0, 16, 40, 80]))] + own
        num_output = draw(st.integers(1, 40))
        requests.append(
            SimulatedRequest(
                request_id=f"r{number}",
                arrival_step=step,
                num_prompt_tokens=len(prompt),
                num_output_tokens=num_output,
                prompt_token_ids=prompt,
                output_token_ids=tuple(range(num_output)),
                priority=draw(st.integers(0, 2)),
            )
        )
    return requests


@st.composite
def engines(draw):
    """Configurations whose pool holds the longest request of `workloads`, and not much more."""
    config = SimulatorConfig(
        num_gpu_blocks=2,
        block_size=draw(st.sampled_from([1, 4, 16])),
        max_num_seqs=draw(st.integers(1, 8)),
        max_num_batched_tokens=draw(st.sampled_from([16, 64, 256])),
        max_model_len=200,
        enable_prefix_caching=draw(st.booleans()),
        scheduling_policy=draw(st.sampled_from(["fcfs", "priority"])),
        async_scheduling=draw(st.booleans()),
        groups=draw(
            st.sampled_from([(FULL_ATTENTION,), (FULL_ATTENTION, KvGroup(kind="sliding_window", span_tokens=24))])
        ),
    )
    return replace(config, num_gpu_blocks=1 + blocks_needed(config, 200) + draw(st.integers(0, 20)))


@QUICK
@given(engines(), workloads())
def test_free_and_used_make_the_total_and_references_equal_the_tables(config, requests):
    simulation = Simulation(config, requests)
    scheduler = simulation.scheduler

    while not simulation.is_done:
        simulation.schedule()
        scheduler.pool.check_integrity(table for sequence in scheduler.running for table in sequence.tables)
        simulation.apply_outputs()
        scheduler.pool.check_integrity(table for sequence in scheduler.running for table in sequence.tables)


@QUICK
@given(engines(), workloads())
def test_passing_over_quiet_steps_changes_nothing(config, requests):
    quiet, plain = Simulation(config, requests), Simulation(config, requests, skip_quiet_steps=False)

    while not quiet.is_done:
        quiet.schedule()
        plain.schedule()
        pools = quiet.scheduler.pool, plain.scheduler.pool
        assert frame_of(quiet.scheduler) == frame_of(plain.scheduler)
        assert pools[0].free_blocks() == pools[1].free_blocks()
        assert pools[0].num_cached() == pools[1].num_cached()
        assert quiet.scheduler.held_tokens() == sum(sequence.computed for sequence in plain.scheduler.running)
        quiet.apply_outputs()
        plain.apply_outputs()

    assert plain.is_done


@QUICK
@given(engines(), workloads())
def test_serving_all_empties_the_pool(config, requests):
    simulation = Simulation(config, requests)

    while not simulation.is_done:
        simulation.advance()

    assert simulation.scheduler.pool.num_free == config.num_usable_blocks
    assert sorted(simulation.scheduler.pool.free_blocks()) == list(range(1, config.num_gpu_blocks))


@QUICK
@given(engines(), workloads())
def test_every_token_is_computed_once_or_found_or_lost_to_a_preemption(config, requests):
    summary = simulate(config, requests).summary

    assert summary.num_finished == len(requests)
    assert summary.recomputed_tokens == 0 or summary.num_preemptions > 0


@QUICK
@given(workloads(), st.sampled_from([4, 16]))
def test_prefix_reuse_never_raises_the_peak_where_all_run_at_once(requests, block_size):
    """In a pool and a batch without limits; where requests wait for each other, sharing lets more of them in at once."""
    at_once = [replace(request, arrival_step=0) for request in requests]
    config = SimulatorConfig(
        num_gpu_blocks=2000, block_size=block_size, max_num_batched_tokens=10_000, max_model_len=1000
    )

    with_reuse = simulate(config, at_once).summary.peak_used_blocks
    without = simulate(replace(config, enable_prefix_caching=False), at_once).summary.peak_used_blocks

    assert with_reuse <= without


@QUICK
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 8)), max_size=60), st.booleans())
def test_a_pool_gives_out_each_block_once(actions, is_caching):
    pool = BlockPool(num_blocks=24)
    tables: list[list[int]] = []

    for number, (takes, count) in enumerate(actions, 1):
        if takes and count <= pool.num_free:
            table = pool.allocate(count)
            if is_caching:
                pool.cache(table[0], number, 0)
            tables.append(table)
        elif tables:
            pool.free(reversed(tables.pop(0)))
        pool.check_integrity(tables)

    held = [block for table in tables for block in table]
    assert len(held) == len(set(held))


@QUICK
@given(engines(), workloads())
def test_a_pool_that_holds_all_requests_whole_never_preempts(config, requests):
    longest = sum(blocks_needed(config, request.num_prompt_tokens + request.num_output_tokens) for request in requests)

    summary = simulate(replace(config, num_gpu_blocks=1 + longest), requests).summary

    assert summary.num_preemptions == 0


def test_a_bigger_pool_can_preempt_more():
    """The law that a bigger pool never preempts more is false, in vLLM as here.

    Admission looks only at the tokens known so far. With 23 usable blocks the third request waits until there is
    room for all it will need; one block more lets it in at once, and its growth pushes it out again.
    """
    requests = [
        SimulatedRequest(request_id="a", arrival_step=0, num_prompt_tokens=22, num_output_tokens=17),
        SimulatedRequest(request_id="b", arrival_step=2, num_prompt_tokens=29, num_output_tokens=26),
        SimulatedRequest(request_id="c", arrival_step=6, num_prompt_tokens=29, num_output_tokens=3),
    ]
    config = SimulatorConfig(
        num_gpu_blocks=24, block_size=4, max_num_batched_tokens=64, max_model_len=80, enable_prefix_caching=False
    )

    smaller = simulate(config, requests).summary.num_preemptions
    bigger = simulate(replace(config, num_gpu_blocks=25), requests).summary.num_preemptions

    assert (smaller, bigger) == (0, 1)
