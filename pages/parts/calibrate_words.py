"""A reconciliation and what is learned from it as a reader sees them. Pure text, no drawing."""

from __future__ import annotations

from decimal import Decimal

from pages.parts import words
from pages.parts.language import mark, t
from pages.parts.said import said
from planner.calibration import Calibration, Correction, all_corrections, situation_of_start
from planner.reconcile import ComparedTerm, Identity, Reconciliation
from planner.units import GIB

TERM_WORDS = {
    "weights": mark("Weights"),
    "activation": mark("Activation peak"),
    "activation_and_graphs": mark("Peak with graph estimate"),
    "non_torch": mark("Outside PyTorch"),
    "graph_estimate": mark("Graphs, estimated by vLLM"),
    "captured_graphs": mark("Graphs, captured"),
    "kv_pool": mark("KV cache pool"),
    "card_total": mark("Card total"),
    "tokens": mark("KV tokens"),
    "blocks": mark("KV blocks"),
    "concurrency": mark("Requests of the longest length"),
    "needed": mark("One request needs"),
    "available": mark("Available, as the error says"),
    "estimated_length": mark("Longest length that fits"),
}


def term_title(name: str) -> str:
    """A term's name."""
    return said(TERM_WORDS.get(name, name))


def amount(number: float, unit: str) -> str:
    """A figure with its unit: "57.5 GiB", "418,688", "51.1×"."""
    if unit == "bytes":
        return f"{number / GIB:,.2f} GiB".replace("-", "−")
    return words.concurrency(number) if unit == "requests" else words.count(number)


def span(term: ComparedTerm) -> str:
    """The band that the plan gives."""
    if term.low == term.high:
        return t("exact")
    if term.unit == "bytes":
        return t("{low} to {high} GiB", low=_two(term.low), high=_two(term.high))
    return t("{low} to {high}", low=amount(term.low, term.unit), high=amount(term.high, term.unit))


def _two(number: float) -> str:
    return f"{Decimal(number) / GIB:.2f}".replace("-", "−")


def error(term: ComparedTerm) -> str:
    """Measured less predicted, with its sign: "+0.12 GiB", "−1,204"."""
    value = term.error
    if term.unit == "bytes":
        shown = f"{value / GIB:+.2f} GiB"
    else:
        shown = f"{value:+,.2f}" if term.unit == "requests" else f"{value:+,.0f}"
    return _signed(shown)


def _signed(shown: str) -> str:
    """A signed figure with a true minus, and no sign before a zero."""
    is_zero = not any(sign in shown.split(" ", maxsplit=1)[0] for sign in "123456789")
    return shown.lstrip("+-") if is_zero else shown.replace("-", "−")


def error_percent(term: ComparedTerm) -> str:
    """The error as a part of what was predicted: "+0.6 %"."""
    fraction = term.error_fraction
    return "–" if fraction is None else _signed(f"{fraction * 100:+.1f} %")


def verdict(term: ComparedTerm) -> str:
    """Whether the band holds the measurement, in two words."""
    return t("inside the band") if term.is_inside else t("outside the band")


def read_line(found: Reconciliation) -> str:
    """What was read, and the figure that decides: "Read: Qwen3-8B, vLLM 0.19.0, TP 1. KV cache pool predicted …"."""
    start, flags = found.start, found.plan.request.flags
    subject = t(
        "Read: {model}, vLLM {version}, TP {tensor}.",
        model=words.plain((start.model_name or found.plan.request.model_id).rsplit("/", 1)[-1]),
        version=words.plain(start.version or found.plan.vllm_version),
        tensor=start.tensor_parallel_size or flags.tensor_parallel_size,
    )
    headline = found.headline
    if headline is None:
        return subject
    figures = t(
        "{term} predicted {predicted} ({band}), measured {measured}, {percent}, {verdict}.",
        term=term_title(headline.name),
        predicted=amount(headline.predicted, headline.unit),
        band=span(headline),
        measured=amount(headline.measured, headline.unit),
        percent=error_percent(headline),
        verdict=verdict(headline),
    )
    return f"{subject} {figures}"


def term_rows(found: Reconciliation) -> list[dict[str, str]]:
    """The comparison as a table's rows, the bounding rank's first."""
    return [_row(term, with_rank=len(found.start.ranks) > 1) for term in found.terms]


def _row(term: ComparedTerm, *, with_rank: bool) -> dict[str, str]:
    title = term_title(term.name)
    named = f"{title} · {term.rank}" if with_rank and term.rank else title
    return {
        t("Term"): named,
        t("Predicted"): amount(term.predicted, term.unit),
        t("90 % band"): span(term),
        t("Measured"): amount(term.measured, term.unit),
        t("Error"): error(term),
        t("Error, %"): error_percent(term),
        t("Verdict"): verdict(term),
    }


def identity_line(identity: Identity) -> str:
    """Whether the printed figures add up, in one sentence."""
    formula = said(identity.formula)
    if identity.difference_bytes is None:
        missing = words.listed(said(name) for name in identity.missing)
        return t("{formula}: cannot be checked, the log does not print {missing}.", formula=formula, missing=missing)
    difference = amount(identity.difference_bytes, "bytes")
    tolerance = amount(identity.tolerance_bytes, "bytes")
    if identity.closes:
        return t(
            "{formula}: adds up, to {difference} (within {tolerance}).",
            formula=formula,
            difference=difference,
            tolerance=tolerance,
        )
    return t(
        "{formula}: does not add up, {difference} are left (more than {tolerance}): something else holds or freed memory.",
        formula=formula,
        difference=difference,
        tolerance=tolerance,
    )


# -- what is held -------------------------------------------------------------------------------------------------------


def calibration_title(calibration: Calibration) -> str:
    """A calibration in one line."""
    count = len(calibration.starts)
    starts = t("1 start") if count == 1 else t("{count} starts", count=count)
    return f"{calibration.card} · vLLM {calibration.era} · {calibration.host} · {starts}"


def constant_rows(calibration: Calibration) -> list[dict[str, str]]:
    """What a calibration teaches other models, a row a constant and situation."""
    found: dict[tuple[object, ...], dict[str, str]] = {}
    for start in calibration.starts:
        situation = situation_of_start(start)
        for each in all_corrections(situation, calibration):
            place = (each.term, start.tensor_parallel_size, start.pipeline_parallel_size, start.runner, start.stage)
            found[place] = {
                t("Constant"): term_title(each.term),
                t(
                    "Where"
                ): f"TP {start.tensor_parallel_size} · PP {start.pipeline_parallel_size} · {start.runner} · {start.stage}",
                t("For other models"): correction(each),
                t("Band left"): f"{each.band_share:.0%}".replace("%", " %"),
                t("From"): said(each.note),
            }
    return list(found.values())


def correction(each: Correction) -> str:
    """How a general estimate is changed: "× 1.05" or "+0.15 GiB"."""
    if each.term == "non_torch":
        return f"{each.difference_bytes / GIB:+.2f} GiB".replace("-", "−")
    return f"× {each.ratio:.3f}"


def start_rows(calibration: Calibration) -> list[dict[str, str]]:
    """The provenance of a calibration, a row a start."""
    return [
        {
            t("Log"): start.source,
            t("Read on"): start.read_on,
            t("Model"): start.model_id,
            "vLLM": start.vllm_version,
            "TP": str(start.tensor_parallel_size),
            t("Flags"): start.flags,
        }
        for start in calibration.starts
    ]
