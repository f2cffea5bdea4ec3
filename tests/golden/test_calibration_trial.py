"""What calibrating is worth on real starts: one start of another model on the same card and era, and all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import mean

import pytest

from planner.answer import Plan
from planner.calibration_trial import Subject, Trial, subjects, trials_of_all, trials_of_one
from planner.truth import CARRIED_ROWS, read_rows
from planner.units import GIB, MIB

_PRINTED_BYTES = 6 * MIB  # half of a printed hundredth of a GiB


@pytest.fixture(scope="module")
def found() -> tuple[Subject, ...]:
    names = ("open.jsonl", "open_recent.jsonl", "found.jsonl")
    texts = [(CARRIED_ROWS / name).read_text(encoding="utf-8") for name in names]
    rows = [row for text in texts for row in read_rows(text.splitlines(), "rows")]
    return thinned(subjects(rows))


def thinned(found: Sequence[Subject]) -> tuple[Subject, ...]:
    """One start of each model in a group, and six models of a group: what the measure needs, at a tenth of its time."""
    firsts: dict[object, dict[str, Subject]] = defaultdict(dict)
    for each in found:
        firsts[each.group].setdefault(each.request.model_id, each)
    return tuple(each for models in firsts.values() for each in list(models.values())[:6])


def by_model(trials: Sequence[Trial], measure: Callable[[Plan, int], float], *, calibrated: bool) -> float:
    """The mean over models and their groups, so that a model started often counts once."""
    kept: dict[object, list[float]] = defaultdict(list)
    for trial in trials:
        plan = trial.calibrated if calibrated else trial.target.plan
        kept[(trial.target.group, trial.target.request.model_id)].append(measure(plan, trial.measured_pool_bytes()))
    return mean(mean(values) for values in kept.values())


def error(plan: Plan, measured: int) -> float:
    return abs(plan.ranks[plan.bounding_rank].kv_pool.best_bytes - measured) / GIB


def half_width(plan: Plan, measured: int) -> float:  # noqa: ARG001 - the other measures need it
    pool = plan.ranks[plan.bounding_rank].kv_pool
    return (pool.high_bytes - pool.low_bytes) / 2 / GIB


def is_covered(plan: Plan, measured: int) -> float:
    pool = plan.ranks[plan.bounding_rank].kv_pool
    return float(pool.low_bytes - _PRINTED_BYTES <= measured <= pool.high_bytes + _PRINTED_BYTES)


@pytest.mark.parametrize("make", [trials_of_one, trials_of_all])
def test_starts_of_other_models_narrow_the_band_without_raising_the_error(
    found: tuple[Subject, ...], make: Callable[[Sequence[Subject]], tuple[Trial, ...]]
) -> None:
    trials = make(found)

    assert len({trial.target.group for trial in trials}) >= 10
    assert by_model(trials, error, calibrated=True) <= by_model(trials, error, calibrated=False)
    assert by_model(trials, half_width, calibrated=True) < 0.95 * by_model(trials, half_width, calibrated=False)
    # A group mixes hosts, so its starts scatter more than one host's own would.
    assert by_model(trials, is_covered, calibrated=True) >= 0.85


def test_more_starts_narrow_more(found: tuple[Subject, ...]) -> None:
    one, many = trials_of_one(found), trials_of_all(found)

    assert by_model(many, half_width, calibrated=True) < by_model(one, half_width, calibrated=True)
