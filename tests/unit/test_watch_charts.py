"""Figures of an engine over time that depend on what its recording holds."""

from __future__ import annotations

import numpy as np

from live.downsample import Drawn
from live.samples import EngineIdentity
from pages.parts.watch_charts import Stage, card_series, cards
from planner.units import GIB


def test_cards_are_found_by_their_number() -> None:
    names = ("nvml/10/used_bytes", "nvml/2/used_bytes", "nvml/2/total_bytes", "nvml/x/used_bytes", "probe/num_steps")

    assert card_series(names) == ("nvml/2/used_bytes", "nvml/10/used_bytes")
    assert card_series(()) == ()


def test_each_card_is_a_line_in_gib_and_a_gap_stays_one() -> None:
    names = ("nvml/0/used_bytes", "nvml/1/used_bytes")
    drawn = Drawn(
        time_ms=np.array([1000.0, 2000.0, 3000.0]),
        names=names,
        numbers=np.array([[GIB, 2.0 * GIB, np.nan], [4.0 * GIB] * 3]),
        gaps=(),
        step_ms=None,
    )
    stage = Stage(drawn=drawn, identity=EngineIdentity(model_name="m", engine="0"), start_ms=0, end_ms=3000)

    first, second = cards(stage, names).data

    assert [first.name, second.name] == ["card 0", "card 1"]
    assert np.array_equal(first.y, [1.0, 2.0, np.nan], equal_nan=True)
    assert list(second.y) == [4.0, 4.0, 4.0]
    assert first.line.dash != second.line.dash
