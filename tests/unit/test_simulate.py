"""Whole simulations: what they refuse, parallel samples, tiers, time, contiguous allocators, V0, presets, command line."""

from __future__ import annotations

import json

import pytest

from planner import simulate_cli, workload_cli
from planner.block_hashes import Piece
from planner.contiguous import POLICIES, ExtentPool, simulate_contiguous
from planner.eviction import make_store
from planner.facts import PlanError
from planner.failure_presets import KINDS, failure_preset, remedies
from planner.sequence import SimulatedRequest
from planner.simulate import simulate
from planner.simulation import Simulation, SimulationOptions
from planner.simulator_config import FULL_ATTENTION, KvGroup, SimulatorConfig
from planner.step_time import FixedStepTime, Roofline
from planner.tiers import OffloadConfig, Tier
from planner.v0_schedule import V0Config, V0Simulation, simulate_v0


def request(name="r", prompt=40, output=8, **changes):
    return SimulatedRequest(request_id=name, num_prompt_tokens=prompt, num_output_tokens=output, **changes)


def config(**changes):
    values = {"num_gpu_blocks": 41, "max_num_batched_tokens": 256, "max_num_seqs": 8, "max_model_len": 512}
    return SimulatorConfig(**(values | changes))


# -- bad input ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requests", "text"),
    [
        ([request("a"), request("a")], "Row 2: request id a came before"),
        ([request("a", prompt=512)], "Row 1: request a has 512 prompt tokens"),
        ([request("b", prompt=500, output=12, arrival_step=1)], None),
    ],
)
def test_requests_that_cannot_be_served_are_refused(requests, text):
    if text is None:
        assert simulate(config(), requests).summary.num_finished == 1
        return
    with pytest.raises(PlanError, match=text):
        simulate(config(), requests)


def test_a_request_longer_than_the_pool_is_refused_with_the_numbers():
    with pytest.raises(PlanError, match="needs 32 blocks for 512 tokens, and the pool has 20"):
        simulate(config(num_gpu_blocks=21), [request(prompt=500, output=100)])


@pytest.mark.parametrize(
    "changes",
    [
        {"num_gpu_blocks": 1},
        {"num_gpu_blocks": 10**9},
        {"block_size": 0},
        {"watermark": 1.5},
        {"scheduling_policy": "random"},
        {"prefix_cache_retention_interval": 7},
        {"groups": ()},
    ],
)
def test_an_impossible_engine_is_refused(changes):
    with pytest.raises(PlanError):
        config(**changes)


@pytest.mark.parametrize("changes", [{"prompt": 0}, {"output": 0}, {"n": 0}, {"arrival_step": -1}])
def test_an_impossible_request_is_refused(changes):
    with pytest.raises(PlanError):
        request(**changes)


def test_a_prompt_beyond_one_step_is_refused_without_chunked_prefill():
    with pytest.raises(PlanError, match="chunked prefill is off"):
        simulate(config(enable_chunked_prefill=False), [request(prompt=300)])


def test_a_window_needs_a_span():
    with pytest.raises(PlanError):
        KvGroup(kind="sliding_window")


# -- parallel samples, pieces ---------------------------------------------------------------------------------


def test_samples_of_one_request_share_its_full_prompt_blocks():
    timeline = simulate(config(), [request("q", prompt=40, n=2)]).timeline

    tables = dict(timeline.frame(1).block_tables)

    assert set(tables) == {"0_q", "1_q"}
    first, second = tables["0_q"][0], tables["1_q"][0]
    assert first[:2] == second[:2]
    assert first[2] != second[2]


def test_named_pieces_are_found_again_and_other_content_is_not():
    shared = (Piece(key="system", num_tokens=32),)
    requests = [
        request("a", shared_pieces=shared),
        request("b", shared_pieces=shared, arrival_step=2),
        request("c", arrival_step=3),
    ]

    summary = simulate(config(), requests).summary

    assert summary.hit_tokens == 32


def test_a_piece_may_be_shorter_in_another_request():
    requests = [
        request("a", prompt=64, shared_pieces=(Piece(key="s", num_tokens=48),)),
        request("b", prompt=64, shared_pieces=(Piece(key="s", num_tokens=24),), arrival_step=2),
    ]

    assert simulate(config(), requests).summary.hit_tokens == 16


def test_a_shorter_retention_keeps_fewer_window_blocks_findable():
    groups = (FULL_ATTENTION, KvGroup(kind="sliding_window", span_tokens=32))
    prompt = tuple(range(200))
    requests = [
        request("a", 200, prompt_token_ids=prompt),
        request("b", 100, prompt_token_ids=prompt[:100], arrival_step=20),
    ]

    dense = simulate(config(groups=groups), requests).summary.hit_tokens
    sparse = simulate(config(groups=groups, prefix_cache_retention_interval=0), requests).summary.hit_tokens

    assert (dense, sparse) == (96, 0)


def test_drafts_that_are_right_shorten_the_run():
    engine = config(num_speculative_tokens=3, num_lookahead_tokens=3)
    steps = [
        simulate(engine, [request(output=60)], SimulationOptions(draft_acceptance=rate)).summary.num_steps
        for rate in (0.0, 1.0)
    ]

    assert steps[1] < steps[0] / 2


# -- time, tiers ----------------------------------------------------------------------------------------------


def test_requests_arrive_by_the_clock_where_steps_take_time():
    requests = [request("a", arrival_seconds=0.0), request("b", arrival_seconds=100.0)]

    result = simulate(config(), requests, SimulationOptions(step_seconds=FixedStepTime(0.5)))

    assert result.summary.seconds >= 100.0
    assert result.summary.num_steps < 30  # the idle stretch is skipped
    assert result.timeline.columns.num_running[-2] == 1


def test_a_roofline_is_bound_by_bytes_at_one_token_and_by_speed_at_many():
    roofline = Roofline(
        weight_bytes=16 * 10**9,
        kv_bytes_per_token=131_072,
        flops_per_token=16e9,
        bytes_per_second=2e12,
        flops_per_second=400e12,
        overhead_seconds=0.0,
    )

    assert roofline.seconds(1, 0) == pytest.approx(0.008)  # 16 GB / 2 TB/s
    assert roofline.seconds(8192, 0) == pytest.approx(0.32768)  # 8192 × 16 GFLOP / 400 TFLOP/s
    assert roofline.seconds(0, 0) == 0.0


OFFLOAD = OffloadConfig(
    tiers=(
        Tier(name="host", capacity_bytes=64 * 1000, bytes_per_second=1e6),
        Tier(name="disk", capacity_bytes=640 * 1000, bytes_per_second=1e5),
    ),
    block_bytes=1000,
    recompute_seconds_per_token=0.001,
)
RETURNING = [
    request("a", 320, prompt_token_ids=tuple(range(320))),
    request("b", 320, prompt_token_ids=tuple(range(1000, 1320)), arrival_step=20),
    request("c", 320, prompt_token_ids=tuple(range(2000, 2320)), arrival_step=40),
    request("d", 320, prompt_token_ids=tuple(range(320)), arrival_step=60),
]


def test_evicted_blocks_come_back_from_the_host():
    engine = config(num_gpu_blocks=31)

    without = simulate(engine, RETURNING)
    with_host = simulate(engine, RETURNING, SimulationOptions(offload=OFFLOAD))

    assert without.summary.hit_tokens == 0
    assert with_host.timeline.tiers is not None
    assert sum(with_host.timeline.tiers.hit_tokens) == 304  # 19 blocks: all but the last token's
    assert sum(with_host.timeline.tiers.bytes_up) == 19_000
    assert sum(with_host.timeline.columns.scheduled_tokens) == sum(without.timeline.columns.scheduled_tokens) - 304


def test_a_load_slower_than_computing_is_left_when_asked():
    slow = OffloadConfig(
        tiers=(Tier(name="host", capacity_bytes=64_000, bytes_per_second=1e3),),
        block_bytes=1000,
        recompute_seconds_per_token=0.001,
        load_rule="when_faster",
    )

    result = simulate(config(num_gpu_blocks=31), RETURNING, SimulationOptions(offload=slow))

    assert slow.move_seconds(slow.tiers[0], 1) > slow.recompute_seconds(16)
    assert sum(result.timeline.tiers.hit_tokens) == 0


def test_what_the_host_drops_goes_to_the_disk():
    small = OffloadConfig(
        tiers=(Tier(name="host", capacity_bytes=4000, bytes_per_second=1e6), OFFLOAD.tiers[1]),
        block_bytes=1000,
        recompute_seconds_per_token=0.001,
    )

    tiers = simulate(config(num_gpu_blocks=31), RETURNING, SimulationOptions(offload=small)).timeline.tiers

    assert max(tiers.blocks_held[0]) == 4
    assert max(tiers.blocks_held[1]) > 4


def test_tiers_are_for_models_with_one_full_group():
    windowed = config(groups=(FULL_ATTENTION, KvGroup(kind="sliding_window", span_tokens=32)))

    with pytest.raises(PlanError, match="one full-attention"):
        simulate(windowed, [request()], SimulationOptions(offload=OFFLOAD))


def test_lru_drops_the_longest_unused():
    store = make_store("lru", 2)
    store.put(1)
    store.put(2)
    store.use(1)

    assert store.put(3) == 2


def test_arc_keeps_what_was_wanted_twice_through_a_scan():
    store = make_store("arc", 4)
    for content in (1, 2):
        store.put(content)
        store.use(content)

    for content in range(100, 120):
        store.put(content)

    assert 1 in store
    assert 2 in store
    assert len(store) == 4


# -- contiguous -----------------------------------------------------------------------------------------------


def test_extents_join_when_freed():
    pool = ExtentPool(100)
    starts = [pool.allocate(25) for _ in range(4)]

    for start in (starts[0], starts[2], starts[1]):
        pool.free(start, 25)

    assert pool.largest_free_tokens == 75
    assert pool.allocate(80) is None
    assert pool.allocate(75) == 0


def test_the_tightest_gap_is_taken():
    pool = ExtentPool(100)
    a, _, c = pool.allocate(30), pool.allocate(10), pool.allocate(20)
    pool.allocate(40)
    pool.free(a, 30)
    pool.free(c, 20)

    assert pool.allocate(15) == 40


@pytest.mark.parametrize("policy", POLICIES)
def test_contiguous_runs_serve_all_and_account_for_every_slot(policy):
    requests = [request(f"r{number}", prompt=30 + number, output=20, arrival_step=number) for number in range(20)]

    result = simulate_contiguous(config(num_gpu_blocks=65), requests, policy)

    columns = result.columns
    assert result.num_finished == 20
    assert all(
        free + reserved == result.capacity_tokens
        for free, reserved in zip(columns.free_tokens, columns.reserved_tokens, strict=True)
    )
    assert all(used <= held for used, held in zip(columns.used_tokens, columns.reserved_tokens, strict=True))


def test_reserving_the_longest_length_runs_fewest_at_once():
    requests = [request(f"r{number}", prompt=60, output=40) for number in range(20)]
    peaks = {
        policy: simulate_contiguous(config(num_gpu_blocks=65), requests, policy).peak_running for policy in POLICIES
    }

    assert peaks["max_length"] == 2  # 1,024 slots / 512
    assert peaks["max_length"] < peaks["power_of_two"] <= peaks["best_fit"]


def test_a_reservation_beyond_the_pool_is_refused():
    result = simulate_contiguous(config(num_gpu_blocks=21), [request()], "max_length")

    assert result.refused == ("r",)


# -- V0 -------------------------------------------------------------------------------------------------------


def v0(**changes):
    values = {"num_gpu_blocks": 12, "num_cpu_blocks": 20, "max_num_batched_tokens": 256, "max_model_len": 512}
    return V0Config(**(values | changes))


def test_v0_recomputes_a_single_sequence_and_swaps_a_group():
    single = simulate_v0(v0(), [request("a", 60, 40), request("b", 60, 40)])
    group = simulate_v0(v0(), [request("a", 40, 40, n=2), request("b", 40, 40, n=2)])

    assert any(frame.recomputed == ("b",) for frame in single)
    assert any(frame.swapped_out for frame in group)
    assert any(frame.swapped_in for frame in group)
    assert [frame.finished for frame in group if frame.finished]


def test_v0_samples_share_blocks_until_one_writes():
    frames = simulate_v0(v0(), [request("a", 40, 20, n=2)])

    first, second = dict(frames[0].block_tables).values()
    assert first == second
    assert frames[1].copies
    written = dict(frames[1].block_tables)
    assert written["0_a"][:2] == written["1_a"][:2]
    assert written["0_a"][2] != written["1_a"][2]


@pytest.mark.parametrize("beam_search", [False, True])
def test_v0_gives_all_blocks_back(beam_search):
    requests = [request(f"r{number}", 30, 25, n=1 + number % 3, arrival_step=number) for number in range(8)]

    engine = V0Simulation(v0(num_gpu_blocks=30, beam_search=beam_search), requests, seed=3)
    finished = [name for frame in engine.frames() for name in frame.finished]

    assert sorted(finished) == [f"r{number}" for number in range(8)]
    assert (engine.gpu.num_free, engine.cpu.num_free) == (30, 20)


def test_v0_stops_without_swap_space():
    with pytest.raises(PlanError, match="swap-space"):
        simulate_v0(v0(num_cpu_blocks=0), [request("a", 40, 40, n=2), request("b", 40, 40, n=2)])


def test_v0_refuses_a_prompt_longer_than_a_step():
    with pytest.raises(PlanError, match="one step"):
        simulate_v0(v0(max_num_batched_tokens=32), [request("a", 60)])


# -- presets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_each_failure_is_saved_by_a_change_of_flags(kind):
    found = remedies(failure_preset(kind))

    assert found[0].before > 0
    assert found[0].is_saving
    assert [remedy.after for remedy in found] == sorted(remedy.after for remedy in found)


# -- command line ---------------------------------------------------------------------------------------------

ENGINE = ["--num-gpu-blocks", "41", "--max-model-len", "512", "--json"]


def test_the_workload_command_feeds_the_simulate_command(tmp_path, capsys):
    path = tmp_path / "requests.jsonl"

    made = workload_cli.main(["--num-requests", "4", "--prompt-mean", "60", "--output-mean", "9", "--out", str(path)])
    served = simulate_cli.main(["--requests", str(path), *ENGINE])

    steps = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (made, served) == (0, 0)
    assert sum(len(step["finished"]) for step in steps) == 4
    assert set(steps[0]) == {
        "step", "scheduled", "running", "waiting", "preempted", "computed", "block_tables", "free_blocks", "finished",
    }  # fmt: skip


def test_a_summary_is_told_in_words_or_numbers(tmp_path, capsys):
    path = tmp_path / "requests.jsonl"
    path.write_text('{"prompt_tokens": 20, "output_tokens": 3}\n')

    simulate_cli.main(["--requests", str(path), "--num-gpu-blocks", "41", "--summary"])
    words = capsys.readouterr().out
    simulate_cli.main(["--requests", str(path), *ENGINE, "--summary"])

    assert "1 sequences of 1 requests finished in 4 steps" in words
    assert json.loads(capsys.readouterr().out)["num_finished"] == 1


@pytest.mark.parametrize(
    ("row", "flags", "text"),
    [
        ('{"prompt_tokens": 600, "output_tokens": 3}', ENGINE, "Row 1"),
        ('{"prompt_tokens": 20}', ENGINE, "num_output_tokens"),
        ('{"arrival": 1.0, "prompt_tokens": 20, "output_tokens": 3}', ENGINE, "--step-seconds"),
        ('{"prompt_tokens": 20, "output_tokens": 3}', ["--num-gpu-blocks", "0"], "num_gpu_blocks"),
    ],
)
def test_bad_input_is_one_sentence_and_status_two(tmp_path, capsys, row, flags, text):
    path = tmp_path / "requests.jsonl"
    path.write_text(row + "\n")

    status = simulate_cli.main(["--requests", str(path), *flags])

    told = capsys.readouterr()
    assert status == 2
    assert text in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""


def test_percentiles_must_be_given_on_the_command_line(capsys):
    assert workload_cli.main(["--prompt-kind", "percentiles"]) == 2
    assert "--prompt-percentiles" in capsys.readouterr().err


def test_a_stuck_queue_is_an_error_not_an_endless_run():
    engine = config(num_gpu_blocks=41, watermark=0.9)
    simulation = Simulation(engine, [request("a", 200), request("b", 200)])

    while not simulation.is_done:
        simulation.advance()

    assert simulation.scheduler.pool.num_free == 40
