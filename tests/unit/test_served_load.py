"""A load on a plan's engine: the more users, the fuller the pool, and what does not fit waits or is preempted."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from demands import demand

from planner.answer import Plan
from planner.budget import plan
from planner.dry_run import Level, knee_of, levels_up_to, sweep_levels, try_batches
from planner.facts import PlanError
from planner.fewest_cards import Candidate, Search, fewest_cards, needed_blocks, splits_up_to
from planner.gpu_catalog import find_gpu
from planner.inventory import ModelFacts
from planner.matrix import Split
from planner.model_catalog import catalogue_documents
from planner.planning import facts_for
from planner.request import EngineFlags, PlanRequest
from planner.sequence import SimulatedRequest
from planner.served_load import ServedLoad, expected_concurrency, roofline_of, serve, served_config
from planner.simulation import Simulation, SimulationOptions
from planner.step_time import Pipeline, Roofline

REQUEST = PlanRequest(model_id="Qwen/Qwen3-8B", gpu="GeForce RTX 4090", flags=EngineFlags(max_model_len=8192))


@pytest.fixture(scope="module")
def model() -> ModelFacts:
    return facts_for(REQUEST, catalogue_documents(REQUEST.model_id))


@pytest.fixture(scope="module")
def present(model: ModelFacts) -> Plan:
    return plan(REQUEST, model)


def test_a_few_users_all_run_and_none_is_preempted(present: Plan, model: ModelFacts) -> None:
    load = serve(present, model, demand(users=4))

    assert load.num_preemptions == 0
    assert load.mean_running == pytest.approx(4, rel=0.02)
    assert load.mean_waiting == pytest.approx(0, abs=0.1)


def test_more_users_than_the_pool_holds_wait_or_are_preempted(present: Plan, model: ModelFacts) -> None:
    load = serve(present, model, demand(users=96))

    assert load.num_preemptions > 0
    assert load.mean_waiting > 10
    assert load.peak_used_fraction > 0.98
    assert load.mean_running + load.mean_waiting == pytest.approx(96, rel=0.02)


def test_users_beyond_a_full_pool_bring_no_more_throughput(present: Plan, model: ModelFacts) -> None:
    full, fuller = (serve(present, model, demand(users=users)) for users in (64, 192))

    assert full.mean_used_fraction > 0.95
    assert fuller.output_tokens_per_second == pytest.approx(full.output_tokens_per_second, rel=0.06)
    assert fuller.mean_running == pytest.approx(full.mean_running, rel=0.1)


def test_the_start_and_the_end_of_a_run_do_not_dilute_its_means(present: Plan, model: ModelFacts) -> None:
    asked = demand(users=None, requests_per_second=1.0)

    load = serve(present, model, asked)

    asked_tokens = 1.0 * asked.means()[1]
    assert load.output_tokens_per_second == pytest.approx(asked_tokens, rel=0.15)
    assert load.num_finished >= 200


def test_the_same_load_twice_is_equal(present: Plan, model: ModelFacts) -> None:
    assert serve(present, model, demand(users=24)) == serve(present, model, demand(users=24))


def test_a_stopped_run_says_so(present: Plan, model: ModelFacts) -> None:
    assert serve(present, model, demand(users=24), should_stop=lambda: True).is_cut


def test_arrivals_faster_than_the_card_serves_pile_up(present: Plan, model: ModelFacts) -> None:
    slow = serve(present, model, demand(users=None, requests_per_second=0.5))
    fast = serve(present, model, demand(users=None, requests_per_second=6.0))

    assert not slow.is_backlog_growing
    assert fast.is_backlog_growing


def test_littles_law_gives_the_concurrency_that_the_simulation_shows(present: Plan, model: ModelFacts) -> None:
    asked = demand(users=None, requests_per_second=1.0)

    by_formula = expected_concurrency(asked, roofline_of(present, model))

    assert by_formula == pytest.approx(serve(present, model, asked).mean_running, rel=0.4)


def staged(model: ModelFacts, **flags: object) -> Plan:
    return plan(replace(REQUEST, flags=replace(REQUEST.flags, **flags)), model)  # type: ignore[arg-type]  # by name


def test_stages_share_the_weights_and_the_arithmetic_of_the_model(present: Plan, model: ModelFacts) -> None:
    one, two = roofline_of(present, model), roofline_of(staged(model, pipeline_parallel_size=2), model)

    assert isinstance(one, Roofline)
    assert isinstance(two, Pipeline)
    assert sum(stage.weight_bytes for stage in two.stages) == pytest.approx(one.weight_bytes, rel=0.05)
    assert sum(stage.flops_per_token for stage in two.stages) == one.flops_per_token
    assert sum(stage.kv_bytes_per_token for stage in two.stages) == one.kv_bytes_per_token


def test_one_user_waits_for_all_stages_in_turn(present: Plan, model: ModelFacts) -> None:
    alone = serve(present, model, demand(users=1)).latency.between_tokens.p50_seconds
    two = serve(staged(model, pipeline_parallel_size=2), model, demand(users=1)).latency.between_tokens.p50_seconds

    assert alone < two < 1.2 * alone


def test_many_users_keep_all_stages_busy(present: Plan, model: ModelFacts) -> None:
    two, four = (staged(model, pipeline_parallel_size=stages) for stages in (2, 4))
    alone = serve(present, model, demand(users=24)).output_tokens_per_second
    over_two = serve(two, model, demand(users=96))
    over_four = serve(four, model, demand(users=192))

    assert over_two.output_tokens_per_second > 1.6 * alone
    assert over_four.output_tokens_per_second > 2.4 * alone


def test_tensor_parallelism_shortens_a_token_and_stages_do_not(model: ModelFacts) -> None:
    sharded = serve(staged(model, tensor_parallel_size=2), model, demand(users=8)).latency.between_tokens
    in_stages = serve(staged(model, pipeline_parallel_size=2), model, demand(users=8)).latency.between_tokens

    assert sharded.p50_seconds < 0.65 * in_stages.p50_seconds


def test_a_batch_holds_no_request_that_decodes_in_another_one(model: ModelFacts) -> None:
    config = replace(served_config(staged(model, pipeline_parallel_size=3), model), max_num_seqs=24)
    simulation = Simulation(config, demand(users=24).draw(72, seed=1), SimulationOptions())
    in_flight: list[set[int]] = []
    most = 0

    while not simulation.is_done:
        simulation.schedule()
        decoding = {each.sequence.ordinal for each in simulation.scheduler.batch if each.samples}
        assert not any(decoding & other for other in in_flight)
        in_flight.append(decoding)
        simulation.apply_outputs()
        in_flight = in_flight[-simulation.scheduler.batches_in_flight() :] if len(in_flight) > 2 else in_flight
        most = max(most, len([batch for batch in in_flight if batch]))

    assert most == 2  # beside the one that is scheduled next: three are under way
    assert all(sequence.num_tokens == sequence.num_prompt + sequence.max_tokens for sequence in simulation.sequences)
    assert simulation.scheduler.pool.num_free == config.num_usable_blocks


# -- the dry run ------------------------------------------------------------------------------------------------------


def load(users: int, speed: float, **changes: object) -> Level:
    served = ServedLoad(
        concurrency=users,
        mean_running=users,
        mean_waiting=0.0,
        num_finished=100,
        num_preemptions=0,
        mean_used_fraction=0.5,
        peak_used_fraction=0.6,
        mean_step_seconds=0.02,
        longest_step_seconds=0.1,
        output_tokens_per_second=speed,
        is_backlog_growing=False,
    )
    return Level(users=users, load=replace(served, **changes))  # type: ignore[arg-type]  # fields by name


def test_the_knee_is_where_throughput_stops_rising() -> None:
    levels = [load(1, 50), load(2, 100), load(4, 190), load(8, 195), load(16, 197)]

    found = knee_of(levels)

    assert found.users == 4
    assert "from 4 to 8 users" in found.reason


def test_a_limit_of_sequences_is_told_from_a_full_pool() -> None:
    full = knee_of([load(8, 50), load(16, 100, mean_running=12.0, mean_waiting=4.0, max_num_seqs=256)])
    limited = knee_of([load(8, 50), load(16, 100, mean_running=12.0, mean_waiting=4.0, max_num_seqs=12)])

    assert full.reason.endswith("the pool holds no more.")
    assert limited.reason.endswith("max_num_seqs lets no more run.")


def test_a_stopped_sweep_ends_without_a_level_that_was_cut(present: Plan, model: ModelFacts) -> None:
    asked = iter([False] * 3 + [True] * 100_000)

    levels = list(sweep_levels(present, model, demand(), 64, should_stop=lambda: next(asked)))

    assert not any(level.load.is_cut for level in levels)
    assert len(levels) < 12


def test_the_knee_is_before_the_first_preemption_that_is_too_many() -> None:
    levels = [load(1, 50), load(2, 100), load(4, 200, num_preemptions=3), load(8, 400)]

    assert knee_of(levels).users == 2
    assert knee_of(levels, most_preempted_fraction=0.05).users == 8


def test_the_knee_is_before_many_wait() -> None:
    assert knee_of([load(8, 50), load(16, 100, mean_waiting=4.0)]).users == 8


def test_without_a_knee_the_end_of_the_sweep_is_named() -> None:
    found = knee_of([load(1, 50), load(2, 100)])

    assert (found.users, found.is_open) == (2, True)


def test_a_real_sweep_finds_its_knee_and_tries_batches(present: Plan, model: ModelFacts) -> None:
    levels = list(sweep_levels(present, model, demand(), 64))
    knee = knee_of(levels)
    trials = list(try_batches(REQUEST, model, demand(), knee.users))

    assert [level.users for level in levels] == list(levels_up_to(64)) == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
    assert 8 <= knee.users <= 48
    assert [trial.max_num_batched_tokens for trial in trials] == [2048, 4096, 8192, 16384, 32768]
    assert trials[0].pool_tokens > trials[-1].pool_tokens


@pytest.mark.parametrize("most_users", [0, -1, 10**6])
def test_a_sweep_to_nowhere_is_refused(most_users: int) -> None:
    with pytest.raises(PlanError) as caught:
        levels_up_to(most_users)

    assert caught.value.field == "most_users"


# -- fewest cards -----------------------------------------------------------------------------------------------------


def found(model: ModelFacts, card: str, most_cards: int = 8, **changes: object) -> list[Candidate]:
    return list(fewest_cards(REQUEST, model, demand(**changes), Search(gpu=find_gpu(card), most_cards=most_cards)))


def test_splits_come_with_the_fewest_cards_first_and_within_the_limit() -> None:
    splits = splits_up_to(8)

    numbers = [split.num_cards for split in splits]
    assert numbers == sorted(numbers)
    assert max(numbers) == 8
    assert splits[0] == Split()


def test_the_first_split_that_holds_ends_the_search(model: ModelFacts) -> None:
    candidates = found(model, "GeForce RTX 4090", users=64)

    assert [candidate.holds for candidate in candidates] == [False] * (len(candidates) - 1) + [True]
    assert candidates[-1].split.num_cards == 2
    assert candidates[0].state == "too_small"


def test_a_bigger_card_needs_no_more_cards(model: ModelFacts) -> None:
    small, large = found(model, "GeForce RTX 4090", users=64)[-1], found(model, "H200 141GB SXM", users=64)[-1]

    assert large.holds
    assert large.split.num_cards <= small.split.num_cards


def test_what_is_found_is_held_when_it_is_served(model: ModelFacts) -> None:
    best = found(model, "L40S", users=100, most_preempted_fraction=0.01)[-1]

    again = serve(
        plan(best.request, model),
        model,
        demand(users=100, most_preempted_fraction=0.01).for_replicas(best.split.data_parallel_size),
    )

    assert again.preempted_fraction <= 0.01
    assert best.request.flags.max_model_len == demand().longest_tokens


def test_nothing_holds_what_no_card_within_the_limit_can(model: ModelFacts) -> None:
    candidates = found(model, "T4", most_cards=1, users=500)

    assert candidates
    assert not any(candidate.holds for candidate in candidates)


def test_a_prefix_that_all_share_is_counted_once(model: ModelFacts) -> None:
    shared = found(model, "H100 80GB SXM", users=64, prefix_tokens=2000)[0]
    alone = found(model, "H100 80GB SXM", users=64)[0]

    assert 0 < shared.needed_blocks - alone.needed_blocks <= 2000 // 16 + 64


def test_a_window_counts_what_a_decoding_request_still_reads() -> None:
    request = PlanRequest(model_id="openai/gpt-oss-120b", gpu="H100 80GB SXM", flags=EngineFlags(max_model_len=8192))
    windowed = facts_for(request, catalogue_documents(request.model_id))
    asked = demand()
    whole = sum(asked.means()) - asked.means()[1] / 2

    blocks = needed_blocks(plan(request, windowed), windowed, asked, 1)

    full, window = math.ceil(whole / 16), 128 // 16
    assert full + window <= blocks <= full + window + 1


def test_a_step_reads_the_whole_context_of_a_model_with_states() -> None:
    request = PlanRequest(
        model_id="Qwen/Qwen3-Next-80B-A3B-Instruct",
        gpu="H200 141GB SXM",
        flags=EngineFlags(tensor_parallel_size=2, max_model_len=65_536),
    )
    hybrid = facts_for(request, catalogue_documents(request.model_id))
    made = plan(request, hybrid)
    config, times = served_config(made, hybrid), roofline_of(made, hybrid)
    long = SimulatedRequest(request_id="a", arrival_seconds=0.0, num_prompt_tokens=40_000, num_output_tokens=200)

    simulation = Simulation(config, [long], SimulationOptions(step_seconds=times.clock()))
    while not simulation.is_done:
        before = simulation.now_seconds
        simulation.advance()
        if simulation.step == 150:
            last = simulation.now_seconds - before

    assert last == pytest.approx(times.seconds(1, 40_150), rel=0.001)


def test_requests_longer_than_the_model_takes_are_refused_at_the_field(model: ModelFacts) -> None:
    with pytest.raises(PlanError) as caught:
        found(model, "H100 80GB SXM", prefix_tokens=1_000_000)

    assert caught.value.field == "prompt_p99"


def test_arrivals_that_never_settle_fall_behind_by_formula(model: ModelFacts) -> None:
    candidates = found(model, "T4", most_cards=1, users=None, requests_per_second=500.0)

    assert candidates[-1].state in {"falls_behind", "does_not_start"}


@pytest.mark.parametrize("most_cards", [0, -1, 1000])
def test_a_search_over_no_cards_is_refused(most_cards: int) -> None:
    with pytest.raises(PlanError) as caught:
        splits_up_to(most_cards)

    assert caught.value.field == "most_cards"
