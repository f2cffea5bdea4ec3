"""What a dry run recommends: the trade between throughput, first token and steady tokens, with both numbers."""

from __future__ import annotations

from planner.dry_advice import Recommendation, recommend
from planner.dry_run import BatchTrial, Knee
from planner.latency import Latency, Percentiles
from planner.served_load import ServedLoad

KNEE = Knee(users=24, reason="with 32 users 12 preemptions come on 96 requests: the pool is full.")
OPEN = Knee(users=64, reason="up to 64 users all is well.", is_open=True)


def trial(
    batch: int,
    speed: float,
    *,
    first: float = 0.5,
    between: float = 0.05,
    preemptions: int = 0,
    is_present: bool = False,
) -> BatchTrial:
    load = ServedLoad(
        concurrency=24,
        mean_running=24,
        mean_waiting=0.0,
        num_finished=100,
        num_preemptions=preemptions,
        mean_used_fraction=0.5,
        peak_used_fraction=0.6,
        mean_step_seconds=0.02,
        longest_step_seconds=0.1,
        output_tokens_per_second=speed,
        is_backlog_growing=False,
        latency=Latency(
            first_token=Percentiles(p50_seconds=first / 2, p99_seconds=first, num_samples=90),
            between_tokens=Percentiles(p50_seconds=between / 2, p99_seconds=between, num_samples=9000),
        ),
    )
    return BatchTrial(
        max_num_batched_tokens=batch, num_blocks=9, pool_tokens=batch, load=load, is_present=is_present
    )  # fmt: skip


def batch_of(*trials: BatchTrial, allowed: float = 0.0) -> Recommendation:
    return recommend(KNEE, trials, max_num_seqs=256, most_preempted_fraction=allowed)[1]


def test_max_num_seqs_is_set_at_the_knee() -> None:
    (found,) = recommend(KNEE, [], max_num_seqs=256)

    assert (found.flag, found.value, found.is_kept, found.reason) == ("max_num_seqs", 24, False, KNEE.reason)


def test_without_a_knee_the_default_of_max_num_seqs_is_kept() -> None:
    (found,) = recommend(OPEN, [], max_num_seqs=256)

    assert (found.value, found.is_kept) == (256, True)
    assert "lower limit than 256" in found.reason


def test_without_a_knee_a_lower_default_is_raised() -> None:
    (found,) = recommend(OPEN, [], max_num_seqs=32)

    assert (found.value, found.is_kept) == (64, False)


def test_what_nobody_gains_from_is_kept() -> None:
    found = batch_of(trial(2048, 99), trial(8192, 100, is_present=True), trial(16384, 101))

    assert (found.value, found.is_kept, found.trade) == (8192, True, "")
    assert "500 ms to the first token, 50 ms between tokens" in found.reason


def test_a_smaller_batch_that_steadies_the_tokens_is_taken_and_both_numbers_are_said() -> None:
    found = batch_of(trial(2048, 99, first=0.6, between=0.03), trial(8192, 100, is_present=True))

    assert (found.value, found.is_kept) == (2048, False)
    assert "p99 between tokens 30 ms for 50" in found.reason
    assert "first token 600 ms for 500" in found.reason
    assert found.trade.startswith("For the sake of the first token take 8,192")


def test_steady_tokens_are_not_bought_with_a_long_first_token() -> None:
    found = batch_of(trial(2048, 99, first=2.0, between=0.03), trial(8192, 100, is_present=True))

    assert (found.value, found.is_kept) == (8192, True)
    assert "For the sake of steady tokens take 2,048" in found.trade


def test_a_sooner_first_token_is_taken_where_the_tokens_stay_steady() -> None:
    found = batch_of(trial(2048, 100, first=1.0, is_present=True), trial(8192, 100, first=0.4, between=0.06))

    assert found.value == 8192


def test_a_batch_that_is_slower_than_another_is_left() -> None:
    found = batch_of(trial(2048, 80, is_present=True), trial(8192, 99), trial(16384, 100))

    assert (found.value, found.is_kept) == (8192, False)
    assert "99 tokens a second for 80 with 2,048" in found.reason


def test_a_batch_that_preempts_more_than_allowed_is_left() -> None:
    crowded = trial(16384, 110, preemptions=3)

    assert batch_of(trial(8192, 100, is_present=True), crowded).value == 8192
    assert batch_of(trial(8192, 100, is_present=True), crowded, allowed=0.05).value == 16384


def test_where_the_present_size_does_not_start_the_best_of_the_others_is_named() -> None:
    dead = BatchTrial(
        max_num_batched_tokens=8192, num_blocks=0, pool_tokens=0, load=None, refusal="no", is_present=True
    )  # fmt: skip

    found = batch_of(trial(2048, 100), dead)

    assert found.value == 2048
    assert found.reason.startswith("Of the sizes that start")
