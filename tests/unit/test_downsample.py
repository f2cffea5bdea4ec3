"""Drawing points of long series: no peak is lost, a gap stays a gap, a moving window stands still."""

from __future__ import annotations

import numpy as np

from live.downsample import drawn, min_max
from live.recording import Gap, Window


def window(seconds: np.ndarray, numbers: np.ndarray, gaps: tuple[Gap, ...] = ()) -> Window:
    rows = np.atleast_2d(np.asarray(numbers, np.float64))
    names = tuple(f"s{number}" for number in range(len(rows)))
    return Window(time_ms=(np.asarray(seconds) * 1000).astype(np.int64), names=names, numbers=rows, gaps=gaps)


def test_few_ticks_are_drawn_as_they_are():
    points = drawn(window(np.arange(4), np.array([1.0, 2, 3, 4])), 1000)

    assert points.step_ms is None
    assert points.time_ms.tolist() == [0, 1000, 2000, 3000]
    assert points.series("s0").tolist() == [1, 2, 3, 4]


def test_a_hole_between_ticks_breaks_the_line():
    points = drawn(window(np.array([0, 1, 9, 10]), np.array([1.0, 2, 3, 4])), 1000)

    assert points.time_ms.tolist() == [0, 1000, 5000, 9000, 10_000]
    assert np.isnan(points.series("s0")).tolist() == [False, False, True, False, False]


def test_a_named_gap_breaks_the_line_even_where_it_is_short():
    gap = Gap(start_ms=2000, end_ms=2500, state="refused", text="Nothing answers.")

    points = drawn(window(np.array([0, 1, 2.5, 3.5]), np.array([1.0, 2, 3, 4]), (gap,)), 1000)

    assert points.time_ms.tolist() == [0, 1000, 1750, 2500, 3500]
    assert points.gaps == (gap,)


def test_a_gap_before_the_first_and_after_the_last_tick_adds_nothing():
    gaps = tuple(Gap(start_ms=start, end_ms=start + 1, state="refused", text="") for start in (0, 90_000))

    points = drawn(window(np.array([5, 6]), np.array([1.0, 2])), 1000)
    same = drawn(window(np.array([5, 6]), np.array([1.0, 2]), gaps), 1000)

    assert same.time_ms.tolist() == points.time_ms.tolist()


def test_an_empty_window_draws_nothing():
    points = drawn(window(np.array([]), np.empty((2, 0))), 1000)

    assert points.numbers.shape == (2, 0)


def test_no_peak_is_lost():
    numbers = np.zeros(86_400)
    numbers[54_321], numbers[12_345] = 9.0, -4.0

    points = drawn(window(np.arange(86_400), numbers), 1000, max_points=500)

    assert np.nanmax(points.series("s0")) == 9.0
    assert np.nanmin(points.series("s0")) == -4.0
    assert len(points.time_ms) <= 500


def test_points_are_regular_and_inside_their_bucket():
    points = drawn(window(np.arange(10_000), np.arange(10_000.0)), 1000, max_points=1000)

    assert np.allclose(np.diff(points.time_ms), points.step_ms)
    assert np.allclose(points.series("s0") * 1000, points.time_ms, atol=points.step_ms)


def test_a_falling_series_is_drawn_falling():
    rising = min_max(np.arange(4), np.array([[1.0, 2, 3, 4]]), 0, 4, 1)
    falling = min_max(np.arange(4), np.array([[4.0, 3, 2, 1]]), 0, 4, 1)

    assert rising.tolist() == [[1, 4]]
    assert falling.tolist() == [[4, 1]]


def test_empty_buckets_and_all_nan_ones_are_breaks():
    numbers = np.array([[1.0, np.nan, 3.0], [np.nan, np.nan, np.nan]])

    points = min_max(np.array([0, 1, 25]), numbers, 0, 10, 4)

    assert points[0, :2].tolist() == [1, 1]
    assert np.isnan(points[0]).tolist() == [False, False, True, True, False, False, True, True]
    assert np.isnan(points[1]).all()


def test_ticks_outside_the_buckets_are_left_out():
    points = min_max(np.array([0, 50, 99]), np.array([[7.0, 8, 9]]), 10, 10, 2)

    assert np.isnan(points).all()


def test_buckets_stand_still_while_the_window_moves():
    numbers = np.sin(np.arange(20_000) / 50)
    first = drawn(window(np.arange(19_990), numbers[:19_990]), 1000, max_points=400)
    later = drawn(window(np.arange(10, 20_000), numbers[10:]), 1000, max_points=400)

    shared = np.intersect1d(first.time_ms, later.time_ms)

    assert len(shared) >= len(first.time_ms) - 4


def test_a_series_that_is_not_there_is_nan():
    assert np.isnan(drawn(window(np.arange(3), np.ones(3)), 1000).series("other")).all()
