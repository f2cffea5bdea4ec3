"""The Watch page as a report's sections: the engine now, the time shown, the plan beside it, alerts and marks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from live.alert_log import alert_log, shown_number
from live.alert_rules import AlertRule, meaning_of
from live.downsample import drawn
from live.recording import Mark
from live.watched import OK, PAUSED, Watched
from pages.parts import watch_charts, watch_expected, watch_metrics, watch_plan, watch_seen, watch_words
from pages.parts.language import t
from pages.parts.report_figures import chart
from pages.parts.report_sections import (
    Figure,
    Figures,
    Heading,
    Section,
    Table,
    Text,
    Tone,
    Verdict,
    from_markdown,
    table,
)
from pages.parts.said import said
from pages.parts.watch_expected import Points
from pages.parts.watch_seen import Seen
from pages.parts.watch_verdict import VerdictKind, verdict

_MOST_POINTS, _MOST_EVENTS = 600, 60
_ALERT_SECONDS = 2 * 86_400.0
_TONES: dict[VerdictKind, Tone] = {"thrashing": "bad", "full": "bad", "healthy": "good"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What the page shows: the engine, what is seen of it, over how many seconds, and the limits it is held to."""

    watched: Watched
    seen: Seen
    interval_ms: int
    seconds: float
    rules: tuple[AlertRule, ...]


def watch_sections(page: Shown) -> tuple[Section, ...]:
    """The whole page."""
    return tuple(_sections(page))


def _sections(page: Shown) -> Iterator[Section]:
    seen = page.seen
    yield from _verdict(seen)
    rows = watch_metrics.cards_of(seen)
    cards = [card for row in rows for card in row]
    yield Figures(figures=tuple(Figure(label=each.label, value=each.shown, below=each.beside) for each in cards))
    yield Heading(text=t("Which engine"))
    yield _engine(page)
    yield Heading(text=t("Over the time shown"))
    yield from _curves(page)
    yield from _beside_plan(seen)
    yield from _alerts(page)
    yield from _events(page)
    yield Heading(text=t("What was assumed"))
    yield Text(text=_assumed(page))
    config = seen.sample.cache_config
    if config is not None:
        told = tuple((name, text) for name, text in config.labels if text not in {"", "None"})
        yield Table(title=t("What the engine tells of its cache"), columns=(t("Setting"), t("Value")), rows=told)


def _verdict(seen: Seen) -> Iterator[Section]:
    told = watch_words.state_words(seen.status)
    if seen.status.state in {OK, PAUSED}:
        found = verdict(seen.evidence)
        reason = f"{found.numbers} {found.advice}".strip()
        yield Verdict(text=found.title, reason=reason, tone=_TONES.get(found.kind, "neutral"))
    else:
        yield Verdict(text=told.title, reason=told.text, tone="bad")


def _engine(page: Shown) -> Table:
    seen, status = page.seen, page.seen.status
    rows = [
        (t("Address"), status.address),
        (t("Engine"), watch_words.engine_name(seen.sample.identity)),
        ("vLLM", watch_words.version_words(seen.snapshot)),
        (t("As of"), watch_words.clock(status.time_ms)),
    ]
    return Table(title=t("Engine"), columns=(t("What"), t("Value")), rows=tuple(rows))


def _curves(page: Shown) -> Iterator[Section]:
    seen, watched = page.seen, page.watched
    window = watched.window(watch_seen.series_names(seen.sample), page.seconds)
    if not len(window.time_ms):
        return
    stage = watch_charts.Stage(
        drawn=drawn(window, page.interval_ms, _MOST_POINTS),
        identity=seen.sample.identity,
        start_ms=int(window.time_ms[0]),
        end_ms=max(int(window.time_ms[-1]), int(window.time_ms[0]) + 1),
        marks=watched.marks(page.seconds),
    )
    points = Points(time_ms=stage.drawn.time_ms, series=stage.whole, sample=seen.sample)
    expected = watch_expected.expectation(points, seen.known, seen.held)
    figures = [
        (t("KV usage"), watch_charts.usage(stage, expected)),
        (t("Requests"), watch_charts.requests(stage)),
        (t("Preemptions and the queue"), watch_charts.preemptions(stage)),
        (t("Prefix hits"), watch_charts.hits(stage)),
    ]
    if stage.has("offload_store_bytes", "offload_load_bytes"):
        figures.append((t("Offload to the host"), watch_charts.offload(stage)))
    for title, figure in figures:
        yield chart(title, figure, t("{title} over time", title=title))
        if title == figures[0][0] and expected is not None:
            yield Text(text=from_markdown(expected.text), is_small=True)


def _beside_plan(seen: Seen) -> Iterator[Section]:
    if seen.planned is None:
        return
    comparison = watch_plan.compared(seen.planned, seen.sample, seen.snapshot)
    yield Heading(text=t("Beside the plan"))
    yield table(t("The engine's pool beside the plan's"), watch_words.comparison_rows(comparison))
    yield from (Text(text=said(cause.text)) for cause in comparison.causes)


def _alerts(page: Shown) -> Iterator[Section]:
    yield Heading(text=t("Alerts"))
    limits = tuple(
        (
            said(meaning_of(rule.kind).label),
            f"{shown_number(rule.limit)} {said(meaning_of(rule.kind).unit)}",
            f"{rule.hold_seconds:g} s",
        )
        for rule in page.rules
        if rule.is_on
    )
    yield Table(title=t("Limits"), columns=(t("Alert"), t("Limit"), t("For")), rows=limits)
    alerts = alert_log(page.watched.marks(_ALERT_SECONDS))[:_MOST_EVENTS]
    if not alerts:
        yield Text(text=t("No alert was logged in the last two days."))
        return
    rows = tuple(
        (
            watch_words.clock(alert.start_ms),
            t("lasts") if alert.end_ms is None else watch_words.clock(alert.end_ms),
            said(alert.text),
        )
        for alert in alerts
    )
    yield Table(title=t("Alerts that were logged"), columns=(t("Begin (UTC)"), t("End (UTC)"), t("What")), rows=rows)


def _events(page: Shown) -> Iterator[Section]:
    window = page.watched.window((), page.seconds)
    marks: tuple[Mark, ...] = page.watched.marks(page.seconds)
    lines = [(mark.time_ms, mark.kind.replace("_", " "), said(mark.text)) for mark in marks]
    lines += [(gap.start_ms, f"{t('gap')}, {gap.state.replace('_', ' ')}", said(gap.text)) for gap in window.gaps]
    if lines:
        rows = tuple((watch_words.clock(time_ms), kind, text) for time_ms, kind, text in sorted(lines)[-_MOST_EVENTS:])
        yield Heading(text=t("Marks and gaps"))
        yield Table(title=t("Marks and gaps"), columns=(t("When"), t("Kind"), t("What")), rows=rows)


def _assumed(page: Shown) -> str:
    recording = watch_seen.recording_of(page.watched)
    name = recording.path.name if recording is not None else page.seen.status.address
    return t(
        "Read from {name}: one sample every {seconds} s, as the engine exported it. What it does not export is left out, never counted as 0; time without samples is shaded. An expectation is computed, not measured.",
        name=name,
        seconds=f"{page.interval_ms / 1000:g}",
    )
