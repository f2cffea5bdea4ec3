"""Two flags for the knee of a dry run: the value, the reason with its numbers, and what the other way would bring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.dry_run import BatchTrial, Knee
from planner.served_load import ServedLoad

SAME_SPEED = 0.02  # throughputs within this are called equal
WORTH_CHANGING = 0.10  # a p99 that falls by less is not worth a flag
MOST_GIVEN_UP = 0.25  # of the one p99 for the other


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """One flag's value with the reason; `is_kept`: it is the present value. `trade`: what another value would bring."""

    flag: str
    value: int
    reason: str
    is_kept: bool = False
    trade: str = ""


@dataclass(frozen=True, slots=True)
class _Served:
    """A size of a batch that starts, with its load."""

    trial: BatchTrial
    load: ServedLoad

    @property
    def speed(self) -> float:
        return self.load.output_tokens_per_second

    @property
    def first(self) -> float:
        """The p99 to the first token, in ms."""
        return 1000 * self.load.latency.first_token.p99_seconds

    @property
    def between(self) -> float:
        """The p99 from token to token, in ms."""
        return 1000 * self.load.latency.between_tokens.p99_seconds

    @property
    def size(self) -> int:
        return self.trial.max_num_batched_tokens


def recommend(
    knee: Knee, trials: Sequence[BatchTrial], *, max_num_seqs: int, most_preempted_fraction: float = 0.0
) -> tuple[Recommendation, ...]:
    """`max_num_seqs` at the knee and the `max_num_batched_tokens` that serves it best, with the reasons.

    `max_num_seqs` is the present value. Of the sizes within 2 % of the best throughput that preempt no more than allowed
    (or than any must) the one with the shortest p99 between tokens is taken, where it is 10 % shorter than now and the
    p99 to the first token grows by no more than 25 %; else the one with the shortest p99 to the first token, by the same
    measures turned round; else the present one.
    """
    found = [_seqs(knee, max_num_seqs)]
    served = [_Served(trial, trial.load) for trial in trials if trial.load is not None]
    if served:
        found.append(_batch(served, most_preempted_fraction))
    return tuple(found)


def _seqs(knee: Knee, present: int) -> Recommendation:
    if knee.is_open and present >= knee.users:
        text = (
            f"Up to {knee.users:,} users throughput rises and the pool holds them all: a lower limit than {present:,} "
            "would only make requests wait."
        )
        return Recommendation(flag="max_num_seqs", value=present, reason=text, is_kept=True)
    return Recommendation(flag="max_num_seqs", value=knee.users, reason=knee.reason, is_kept=knee.users == present)


def _batch(served: Sequence[_Served], allowed: float) -> Recommendation:
    most = max(allowed, min(each.load.preempted_fraction for each in served))
    calm = [each for each in served if each.load.preempted_fraction <= most]
    fastest = max(each.speed for each in calm)
    fast = [each for each in calm if each.speed >= (1 - SAME_SPEED) * fastest]
    present = next((each for each in served if each.trial.is_present), None)
    if present is None or present not in fast:
        return _faster(present, _steadiest(fast, min(fast, key=lambda each: each.first)))
    steadier = _steadiest(fast, present)
    if steadier.between <= (1 - WORTH_CHANGING) * present.between:
        return _changed(present, steadier, fast)
    sooner = min(fast, key=lambda each: each.first)
    gives_up_little = sooner.between <= (1 + MOST_GIVEN_UP) * present.between
    if sooner.first <= (1 - WORTH_CHANGING) * present.first and gives_up_little:
        return _changed(present, sooner, fast)
    return _kept(present, fast)


def _steadiest(fast: Sequence[_Served], against: _Served) -> _Served:
    """The shortest p99 between tokens among those that give up little of the first token; the smallest of equals."""
    allowed = [each for each in fast if each.first <= (1 + MOST_GIVEN_UP) * against.first] or [against]
    best = min(each.between for each in allowed)
    return min((each for each in allowed if each.between <= (1 + SAME_SPEED) * best), key=lambda each: each.size)


def _faster(present: _Served | None, chosen: _Served) -> Recommendation:
    if present is None:
        text = (
            f"Of the sizes that start it serves best: {chosen.speed:,.0f} tokens a second, p99 {chosen.first:,.0f} ms to "
            f"the first token and {chosen.between:,.0f} ms between tokens."
        )
    else:
        text = (
            f"It brings {chosen.speed:,.0f} tokens a second for {present.speed:,.0f} with {present.size:,}, and "
            f"{chosen.load.num_preemptions:,} preemptions for {present.load.num_preemptions:,}; p99 to the first token is "
            f"{chosen.first:,.0f} ms for {present.first:,.0f}, between tokens {chosen.between:,.0f} ms for {present.between:,.0f}."
        )
    return Recommendation(flag="max_num_batched_tokens", value=chosen.size, reason=text)


def _changed(present: _Served, chosen: _Served, fast: Sequence[_Served]) -> Recommendation:
    text = (
        f"Instead of {present.size:,}: p99 between tokens {chosen.between:,.0f} ms for {present.between:,.0f}, p99 to the "
        f"first token {chosen.first:,.0f} ms for {present.first:,.0f}, and {chosen.speed:,.0f} tokens a second for "
        f"{present.speed:,.0f}; {chosen.trial.pool_tokens:,} tokens of pool are left."
    )
    return Recommendation(
        flag="max_num_batched_tokens", value=chosen.size, reason=text, trade=_other_way(chosen, fast)
    )  # fmt: skip


def _kept(present: _Served, fast: Sequence[_Served]) -> Recommendation:
    text = (
        f"No size tried brings 2 % more throughput than {present.speed:,.0f} tokens a second, nor a p99 that is 10 % "
        f"shorter without giving up 25 % of the other: {present.first:,.0f} ms to the first token, {present.between:,.0f} ms "
        "between tokens."
    )
    return Recommendation(
        flag="max_num_batched_tokens", value=present.size, reason=text, is_kept=True, trade=_other_way(present, fast)
    )  # fmt: skip


def _other_way(chosen: _Served, fast: Sequence[_Served]) -> str:
    """What the size that is best at what `chosen` gives up would bring; empty where nothing is given up."""
    sooner = min(fast, key=lambda each: each.first)
    steadier = min(fast, key=lambda each: each.between)
    if sooner.first <= (1 - WORTH_CHANGING) * chosen.first:
        return (
            f"For the sake of the first token take {sooner.size:,}: p99 {sooner.first:,.0f} ms for {chosen.first:,.0f}, and "
            f"between tokens {sooner.between:,.0f} ms for {chosen.between:,.0f}."
        )
    if steadier.between <= (1 - WORTH_CHANGING) * chosen.between:
        return (
            f"For the sake of steady tokens take {steadier.size:,}: p99 between them {steadier.between:,.0f} ms for "
            f"{chosen.between:,.0f}, and to the first token {steadier.first:,.0f} ms for {chosen.first:,.0f}."
        )
    return ""
