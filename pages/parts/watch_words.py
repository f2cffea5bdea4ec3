"""An engine's state, its numbers and their prediction as a reader sees them. Pure text, no drawing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from live.fleet import NOT_SCRAPED, SCHEME, SERVER_DOWN, fleet_engine
from live.plan_comparison import ComparedNumber, PlanComparison
from live.samples import EngineIdentity, EngineSample, EngineSnapshot
from live.watched import NOT_VLLM, OK, PAUSED, STALLED, STARTING, STOPPED, WatchStatus
from pages.parts import words
from pages.parts.language import t
from pages.parts.said import said
from planner.answer import Plan
from planner.facts import PlanError

_ADDRESS = re.compile(r"(https?://[^\s;,]*[^\s;,.])")
_LOOKS = {
    OK: ("green", "check_circle"),
    PAUSED: ("gray", "pause_circle"),
    STARTING: ("gray", "hourglass_top"),
    STALLED: ("orange", "hourglass_bottom"),
    STOPPED: ("gray", "stop_circle"),
    NOT_VLLM: ("red", "help"),
    "refused": ("red", "link_off"),
    "timed_out": ("orange", "timer_off"),
    "redirected": ("red", "alt_route"),
    SERVER_DOWN: ("red", "link_off"),
    NOT_SCRAPED: ("orange", "link_off"),
    "unknown_host": ("red", "link_off"),
    "too_often": ("orange", "timer_off"),
    "not_allowed": ("red", "block"),
    "recorder_stopped": ("gray", "stop_circle"),
}


def _titles() -> dict[str, str]:
    return {
        OK: t("Connected"),
        PAUSED: t("Replay paused"),
        STARTING: t("Waiting for the first answer"),
        STALLED: t("Stale: the engine keeps the recorder waiting"),
        STOPPED: t("Recording stopped"),
        NOT_VLLM: t("Not a vLLM engine"),
        "refused": t("Not reachable"),
        "timed_out": t("No answer in time"),
        "too_large": t("Answer too large"),
        "http_error": t("Answers with an error"),
        "broken": t("Answers with something else than HTTP"),
        "redirected": t("Sends elsewhere"),
        "unknown_host": t("Unknown host"),
        "too_often": t("Asked too often"),
        "not_allowed": t("Not allowed"),
        "recorder_stopped": t("Nobody was recording here"),
        "failed": t("Cannot be read"),
        NOT_SCRAPED: t("Not scraped by Prometheus"),
        SERVER_DOWN: t("Prometheus not reachable"),
    }


def _remedies() -> dict[str, str]:
    return {
        STARTING: t("The first sample comes within two seconds."),
        STALLED: t(
            "The engine may be busy or hung; the last known numbers stand below. It goes on by itself when it answers."
        ),
        NOT_VLLM: t("Give the port of vLLM's API server, the one that also serves /v1/models."),
        "refused": t(
            "Start it with: {command}. Recording goes on by itself as soon as it answers.", command="vllm serve MODEL"
        ),
        "timed_out": t("The engine may be loading or hung. It is asked again every second."),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class StateWords:
    """A state as a title with a sign, and in sentences what to do."""

    title: str
    icon: str
    colour: str
    text: str


def state_words(status: WatchStatus, *, is_replay: bool = False) -> StateWords:
    """The words of `status`: its name, what is wrong, and the remedy; those of a recording that plays call nothing live."""
    if is_replay and status.state == OK:
        return StateWords(title=t("Recorded, not live"), icon=":material/history:", colour="blue", text="")
    colour, icon = _LOOKS.get(status.state, ("red", "error"))
    title = _titles().get(status.state, status.state.replace("_", " ").capitalize())
    text = " ".join(part for part in (said(status.text), _remedies().get(status.state, "")) if part)
    return StateWords(title=title, icon=f":material/{icon}:", colour=colour, text=text)


def engine_name(identity: EngineIdentity) -> str:
    """An engine as a choice: "llama, engine 0"."""
    parts = [identity.model_name or t("unnamed model")]
    parts += [t("engine {number}", number=identity.engine)] if identity.engine is not None else []
    parts += [identity.replica] if identity.replica is not None else []
    return words.listed(parts)


def address_title(address: str) -> str:
    """An address as a reader names it: an engine's own as it is, a fleet's engine by its name and its server."""
    if not address.startswith(SCHEME):
        return address
    try:
        engine = fleet_engine(address)
    except PlanError:
        return address
    return t("{engine} by {server}", engine=engine_name(engine.identity), server=engine.server.shown)


def version_words(snapshot: EngineSnapshot) -> str:
    """Which release answers."""
    return f"vLLM {snapshot.vllm_version}" if snapshot.vllm_version else t("vLLM, release not told")


def not_exported() -> str:
    """What stands in place of a number that this version does not export."""
    return t("not exported by this version")


def percent(fraction: float | None) -> str:
    """A fraction as "42.5 %", or that it is not exported."""
    return not_exported() if fraction is None else f"{fraction:.1%}".replace("%", "\N{NO-BREAK SPACE}%")


def number(value: float | None) -> str:
    """A count, or that it is not exported."""
    return not_exported() if value is None else words.count(value)


def clock(time_ms: int) -> str:
    """A moment in UTC: "2026-11-29 20:51:07 UTC"."""
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def span(low: float, high: float) -> str:
    """Two fractions as "40.0 % to 61.1 %", or one where they agree."""
    if percent(low) == percent(high):
        return percent(low)
    return t("{low} to {high}", low=percent(low), high=percent(high))


def inline_code(text: str) -> str:
    """`text` as it is, in Markdown: neither a link nor a sign."""
    return f"`{text.replace('`', '')}`"


def sentence(text: str) -> str:
    """`text` as plain words, its addresses as code, so that none becomes a link."""
    parts = _ADDRESS.split(text)
    return "".join(inline_code(part) if place % 2 else words.plain(part) for place, part in enumerate(parts))


def signed_error(fraction: float | None) -> str:
    """(predicted − actual) / actual with its sign; a dash where there is none."""
    return "–" if fraction is None else f"{fraction:+.1%}".replace("-", "−")


def signed_points(difference: float) -> str:
    """A difference of two fractions of the pool, with its sign: "+1.2 % of the pool"."""
    return t("{share} of the pool", share=f"{difference:+.1%}".replace("-", "−").replace("%", "\N{NO-BREAK SPACE}%"))


def serves(sample: EngineSample, names: Sequence[str], plan: Plan) -> bool:
    """Whether the plan is of the model that the engine serves, by its whole id or the last part of it."""
    planned = plan.request.model_id.lower()
    served = [name.lower() for name in (sample.identity.model_name, *names) if name]
    return any(name == planned or name.rsplit("/", 1)[-1] == planned.rsplit("/", 1)[-1] for name in served)


def comparison_rows(comparison: PlanComparison) -> list[dict[str, str]]:
    """The comparison as a table's rows; with a column of the plan at the engine's own settings where that is another plan."""
    has_adjusted = comparison.adjusted is not None
    return [_comparison_row(each, has_adjusted=has_adjusted) for each in comparison.numbers]


def _comparison_row(each: ComparedNumber, *, has_adjusted: bool) -> dict[str, str]:
    names = {
        "block_size": t("Block size (tokens)"),
        "num_gpu_blocks": t("KV blocks"),
        "kv_cache_tokens": t("KV cache tokens"),
        "max_concurrency": t("Requests of the longest length"),
    }
    verdicts = {
        "equal": t("equal"),
        "in_band": t("within the band"),
        "explained": t("explained"),
        "unexplained": t("unexplained"),
        "not_exported": not_exported(),
    }
    is_exact = each.low == each.high
    adjusted = "" if each.adjusted is None else f"{each.adjusted:,.6g}"
    return {
        t("Number"): names.get(each.name, each.name),
        t("Engine"): "–" if each.actual is None else f"{each.actual:,.6g}",
        t("Plan"): f"{each.predicted:,.6g}",
        t("Plan's band"): t("exact")
        if is_exact
        else t("{low} to {high}", low=f"{each.low:,.6g}", high=f"{each.high:,.6g}"),
        t("Error"): signed_error(each.error_fraction),
        **({t("Plan as the engine is set"): adjusted} if has_adjusted else {}),
        t("Verdict"): verdicts[each.state],
        t("Why"): said(each.text),
    }
