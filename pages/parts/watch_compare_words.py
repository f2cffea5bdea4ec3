"""Two recordings' differences as a reader sees them. Pure text, no drawing."""

from __future__ import annotations

from collections.abc import Sequence

from live.recording_differences import Difference, Measure, SettingDifference
from pages.parts import words
from pages.parts.language import t

_GAP = "\N{NO-BREAK SPACE}"


def field_label(field: str) -> str:
    """A quantity's name."""
    names = {
        "kv_usage_fraction": t("KV usage"),
        "num_requests_running": t("Running requests"),
        "num_requests_waiting": t("Waiting requests"),
        "num_requests_swapped": t("Swapped requests"),
        "num_preemptions": t("Preemptions"),
        "prompt_tokens": t("Prompt tokens"),
        "generation_tokens": t("Generated tokens"),
        "offload_store_bytes": t("Stored to host"),
        "offload_load_bytes": t("Loaded from host"),
        "prefix_cache_hits_tokens": t("Prefix hits"),
        "external_prefix_cache_hits_tokens": t("External cache hits"),
    }
    return names.get(field, field)


def measure_label(measure: Measure) -> str:
    """What is said of the quantity."""
    return {
        "mean": t("mean"),
        "p95": t("95 % of the time at most"),
        "peak": t("peak"),
        "total": t("in all"),
        "per_minute": t("a minute"),
        "share": t("of what was looked up"),
    }[measure]


def shown(field: str, measure: Measure, value: float | None) -> str:
    """A value in its unit, or that the side does not export it."""
    if value is None:
        return t("not exported")
    if measure == "share" or field.endswith("_fraction"):
        return f"{100 * value:.1f}{_GAP}%".replace("-", "−")
    if field.endswith("_bytes"):
        return words.small_bytes(value)
    return words.three_digits(value) if value != int(value) else words.count(value)


def difference_rows(found: Sequence[Difference]) -> list[dict[str, str]]:
    """The differences as a table's rows."""
    return [_row(each) for each in found]


def _row(each: Difference) -> dict[str, str]:
    change = "–"
    if each.change is not None:
        sign = "+" if each.change > 0 else ""
        change = f"{sign}{shown(each.field, each.measure, each.change)}"
    return {
        t("Number"): f"{field_label(each.field)}, {measure_label(each.measure)}",
        "A": shown(each.field, each.measure, each.first),
        "B": shown(each.field, each.measure, each.second),
        t("B − A"): change,
        t("Change"): "–" if each.change_fraction is None else f"{each.change_fraction:+.1%}".replace("-", "−"),
    }


def setting_rows(found: Sequence[SettingDifference]) -> list[dict[str, str]]:
    """The settings that differ as a table's rows."""
    absent = t("not told")
    return [
        {
            t("Setting"): each.name,
            "A": absent if each.first is None else each.first[:200],
            "B": absent if each.second is None else each.second[:200],
        }
        for each in found
    ]
