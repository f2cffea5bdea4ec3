"""The Accuracy page as a report: the headline, every table, and what was left out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pages.parts import accuracy_charts, accuracy_words
from pages.parts.language import t
from pages.parts.report_button import About, report_button
from pages.parts.report_figures import chart
from pages.parts.report_sections import Heading, Section, Text, Verdict, from_markdown, table
from planner.overhead_support import thin_constants
from planner.peers import peer_figures
from planner.score import Scored
from planner.score_record import AccuracyRecord
from planner.score_stats import verdict_table


def accuracy(rows: Sequence[Scored], found: AccuracyRecord) -> None:
    """Draw the report's button, of the starts that the page shows."""
    subject = t("{number} real starts", number=f"{len(rows):,}")
    report_button(
        "accuracy", About(title=t("How close predictions were"), subject=subject), partial(_sections, rows, found)
    )


def _sections(rows: Sequence[Scored], found: AccuracyRecord) -> Sequence[Section]:
    parts: tuple[tuple[str, list[dict[str, Any]]], ...] = (
        (t("The 90 % band"), accuracy_words.band_rows(rows)),
        (t("Error by quantity"), accuracy_words.quantity_rows(rows)),
        (t("Will it start?"), accuracy_words.verdict_rows(verdict_table(rows))),
        (t("The ten furthest off"), accuracy_words.worst_rows(rows)),
        (t("With each model left out"), accuracy_words.left_out_rows(found.left_out)),
        (t("The band with each model left out"), accuracy_words.band_rows(found.left_out)),
        (t("Starts that were not predicted"), accuracy_words.skipped_rows(found.scored)),
        (t("What other planners publish"), accuracy_words.peer_rows(peer_figures())),
    )
    sections: list[Section] = [Verdict(text=from_markdown(accuracy_words.headline(rows)))]
    starts = accuracy_words.start_rows(rows)
    if starts:
        title = t("Predicted against logged")
        sections.append(chart(title, accuracy_charts.pools(rows), accuracy_charts.alt(rows), needs_numbers=False))
    for title, cells in parts:
        if cells:
            sections += [Heading(text=title), table(title, cells)]
    if starts:
        sections += [Heading(text=t("Every start")), table(t("Every start"), starts)]
    sections.append(Heading(text=t("What was assumed")))
    sections.append(
        Text(
            text=t(
                "The constants were fitted to these same logs; on a card or release that none covers a plan can be further off."
            )
        )
    )
    sections += [Text(text=line, is_small=True) for line in accuracy_words.constant_lines(thin_constants())]
    return tuple(sections)
