"""The Accuracy page: its sentence, its filters, the rules without each model, its tables, and what it leaves out."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from planner.peers import peer_figures
from planner.score_record import read_record
from planner.score_stats import band_coverage, compared, quantile, relative_errors

ROOT = Path(__file__).parents[2]
RECORD = read_record()
PREDICTED = [item for item in RECORD.scored if item.reason is None]
LONGEST_SECONDS = 5.0


@pytest.fixture
def page() -> AppTest:
    app = AppTest.from_file(str(ROOT / "pages" / "_frame.py"), default_timeout=60).run()
    app.switch_page("verify.py")
    return app.run()


def sentence(page: AppTest) -> str:
    return next(each.value for each in page.markdown if each.value.startswith("Over "))


def metric(page: AppTest, label: str) -> str:
    return next(each.value for each in page.metric if each.label == label)


def table(page: AppTest, first_column: str):
    """The tables whose first column has that title."""
    return [each.value for each in page.table if each.value.columns[0] == first_column]


def test_the_headline_states_errors_starts_models_and_the_band(page: AppTest) -> None:
    pools = compared(PREDICTED, "kv_pool")

    assert not page.exception
    assert f"Over {len(pools)} real starts of {len({item.model_id.lower() for item, _ in pools})} models" in sentence(
        page
    )
    assert metric(page, "Median error") in sentence(page)
    assert metric(page, "Nine of ten within") in sentence(page)
    assert metric(page, "In the band") in sentence(page)


def test_a_filter_leaves_its_starts_alone(page: AppTest) -> None:
    page.multiselect("accuracy_group").select("0.17-0.20 on H100").run()

    kept = [item for item in PREDICTED if item.group == "0.17-0.20 on H100"]
    assert not page.exception
    assert f"Over {len(compared(kept, 'kv_pool'))} real starts" in sentence(page)
    assert len(page.dataframe[0].value) == len(compared(kept, "kv_pool"))

    page.button("accuracy_clear").click().run()
    assert f"Over {len(compared(PREDICTED, 'kv_pool'))} real starts" in sentence(page)


@pytest.mark.parametrize("field", ["family", "era", "card", "parallel"])
def test_every_filter_takes_one_value_at_a_time(page: AppTest, field: str) -> None:
    control = page.multiselect(f"accuracy_{field}")
    control.select(control.options[0]).run()

    assert not page.exception
    assert page.table


def test_filters_that_no_start_passes_leave_a_page_that_says_so(page: AppTest) -> None:
    page.multiselect("accuracy_card").select("Arc A770 16GB")
    page.multiselect("accuracy_group").select("0.17-0.20 on H100").run()

    assert not page.exception
    assert any("No start of these logs a KV cache pool." in each.value for each in page.markdown)
    assert page.button("accuracy_clear").disabled is False


def test_the_rules_without_each_model_show_the_refitted_pools(page: AppTest) -> None:
    page.segmented_control("accuracy_rules").set_value("left_out").run()

    errors = relative_errors(RECORD.left_out, "kv_pool")
    assert not page.exception
    assert f"Over {len(errors)} real starts" in sentence(page)
    assert metric(page, "Median error").startswith(f"{100 * (quantile(errors, 0.5) or 0):.3g}")


def test_the_errors_are_a_figure_of_their_own(page: AppTest) -> None:
    page.segmented_control("accuracy_view").set_value("errors").run()

    assert not page.exception


def test_every_start_is_in_the_table_with_its_source(page: AppTest) -> None:
    frame = page.dataframe[0].value

    assert set(frame["Start"]) == {item.row_id for item, _ in compared(PREDICTED, "kv_pool")}
    assert frame["Source"].str.len().min() > 0
    assert frame["Error, %"].abs().is_monotonic_decreasing


def test_the_worst_ten_have_a_reason_each(page: AppTest) -> None:
    worst = next(each for each in table(page, "Start") if "Pool" in each.columns)

    assert len(worst) == 10
    assert worst["Why"].str.len().min() > 10


def test_bands_are_stated_with_the_model_and_without_it(page: AppTest) -> None:
    stated = [each for each in table(page, "Group") if "In the band" in each.columns]
    coverage = band_coverage(PREDICTED)

    assert len(stated) == 2
    assert sum(int(each) for each in stated[0]["Starts"]) == coverage.rows


def test_starts_that_were_not_predicted_are_named_with_the_reason(page: AppTest) -> None:
    skipped = [item for item in RECORD.scored if item.reason is not None]
    shown = next(each for each in table(page, "Start") if list(each.columns) == ["Start", "Model", "Why"])

    assert len(shown) == len(skipped)
    assert shown["Why"].str.len().min() > 5


def test_peers_stand_with_figure_conditions_and_source(page: AppTest) -> None:
    (shown,) = table(page, "Planner")

    assert len(shown) == len(peer_figures())
    assert all(shown[column].str.len().min() > 0 for column in shown.columns)


def test_the_page_is_there_at_once(page: AppTest) -> None:
    began = time.monotonic()

    page.run()

    assert time.monotonic() - began < LONGEST_SECONDS
