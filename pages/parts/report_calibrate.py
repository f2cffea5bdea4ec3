"""The Calibrate page as a report: one start beside its plan, term by term."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pages.parts import calibrate_charts, calibrate_words, words
from pages.parts.calibrate_state import Shown
from pages.parts.language import t
from pages.parts.report_button import About, report_button
from pages.parts.report_chart import Axis, Bar, Bars, Chart
from pages.parts.report_figures import PALETTE
from pages.parts.report_plan import inputs_table
from pages.parts.report_sections import Heading, Section, Text, Tone, Verdict, from_markdown, table
from pages.parts.said import said
from planner.units import GIB


def calibration(shown: Shown) -> None:
    """Draw the report's button, of the start that the page shows."""
    plan = shown.found.plan
    about = About(
        title=t("A start beside its plan"), subject=words.subject(plan), versions=(("vLLM", plan.vllm_version),)
    )
    report_button("start", about, partial(_sections, shown))


def _sections(shown: Shown) -> Sequence[Section]:
    found = shown.found
    sections: list[Section] = [_verdict(shown)]
    sections += [Text(text=said(note), is_small=True) for note in shown.notes]
    if calibrate_charts.charted(found):
        sections.append(_errors(shown))
    rows = calibrate_words.term_rows(found)
    if rows:
        sections += [Heading(text=t("Term by term")), table(t("Term by term"), rows)]
    sections += [
        Heading(text=t("Do the printed figures add up?")),
        Text(text=from_markdown(calibrate_words.identity_line(found.identity))),
        Heading(text=t("Why it may differ")),
        *(Text(text=said(reason.text)) for reason in found.reasons),
    ]
    if not found.reasons:
        text = t("Nothing in the log speaks for another card, release, length or checkpoint than planned.")
        sections.append(Text(text=text))
    return (*sections, Heading(text=t("What was asked")), inputs_table(found.plan))


def _verdict(shown: Shown) -> Verdict:
    headline = shown.found.headline
    tone: Tone = "neutral"
    title = t("Nothing to compare")
    if headline is not None:
        tone, title = ("good", t("The plan holds")) if headline.is_inside else ("bad", t("The plan is off"))
    return Verdict(text=title, reason=from_markdown(calibrate_words.read_line(shown.found)), tone=tone)


def _errors(shown: Shown) -> Chart:
    """Each term's measured amount less the predicted one, in the prediction's band."""
    terms = calibrate_charts.charted(shown.found)
    bars = tuple(
        Bar(
            place=place,
            start=0.0,
            end=term.error / GIB,
            low=(term.low - term.predicted) / GIB,
            high=(term.high - term.predicted) / GIB,
        )
        for place, term in enumerate(terms)
    )
    names = tuple(calibrate_words.term_title(term.name) for term in terms)
    return Chart(
        title=t("Measured less predicted; thin lines are the 90 % bands"),
        alt=calibrate_charts.error_alt(shown.found),
        x_axis=Axis(suffix=" GiB"),
        y_axis=Axis(kind="category", categories=names),
        bars=(Bars(name="", bars=bars, colour=PALETTE[0]),),
        is_horizontal=True,
        needs_numbers=False,
    )
