"""An engine's state, its numbers and their prediction as a reader sees them. Pure text, no drawing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from live.plan_comparison import ComparedNumber, PlanComparison
from live.samples import EngineIdentity, EngineSample, EngineSnapshot
from live.watched import NOT_VLLM, OK, PAUSED, STALLED, STARTING, STOPPED, WatchStatus
from pages.parts import words
from planner.answer import Plan

_ADDRESS = re.compile(r"(https?://[^\s;,]*[^\s;,.])")
NOT_EXPORTED = "not exported by this version"

_STATES = {
    OK: ("green", "check_circle", "Connected"),
    PAUSED: ("gray", "pause_circle", "Replay paused"),
    STARTING: ("gray", "hourglass_top", "Waiting for the first answer"),
    STALLED: ("orange", "hourglass_bottom", "Stale: the engine keeps the recorder waiting"),
    STOPPED: ("gray", "stop_circle", "Recording stopped"),
    NOT_VLLM: ("red", "help", "Not a vLLM engine"),
    "refused": ("red", "link_off", "Not reachable"),
    "timed_out": ("orange", "timer_off", "No answer in time"),
    "too_large": ("red", "error", "Answer too large"),
    "http_error": ("red", "error", "Answers with an error"),
    "broken": ("red", "error", "Answers with something else than HTTP"),
    "redirected": ("red", "alt_route", "Sends elsewhere"),
    "unknown_host": ("red", "link_off", "Unknown host"),
    "too_often": ("orange", "timer_off", "Asked too often"),
    "not_allowed": ("red", "block", "Not allowed"),
    "recorder_stopped": ("gray", "stop_circle", "Nobody was recording here"),
    "failed": ("red", "error", "Cannot be read"),
}
_REMEDIES = {
    STARTING: "The first sample comes within two seconds.",
    STALLED: "The engine may be busy or hung; the last known numbers stand below. It goes on by itself when it answers.",
    NOT_VLLM: "Give the port of vLLM's API server, the one that also serves /v1/models.",
    "refused": "Start it with: vllm serve MODEL. Recording goes on by itself as soon as it answers.",
    "timed_out": "The engine may be loading or hung. It is asked again every second.",
    "http_error": "A gateway in front of it may hide /metrics; give the engine's own address.",
}
_NUMBER_NAMES = {
    "block_size": "Block size (tokens)",
    "num_gpu_blocks": "KV blocks",
    "kv_cache_tokens": "KV cache tokens",
    "max_concurrency": "Requests of the longest length",
}
_ROW_STATES = {
    "equal": "equal",
    "in_band": "within the band",
    "explained": "explained",
    "unexplained": "unexplained",
    "not_exported": NOT_EXPORTED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StateWords:
    """A state as a title with a sign, and in sentences what to do."""

    title: str
    icon: str
    colour: str
    text: str


def state_words(status: WatchStatus) -> StateWords:
    """The words of `status`: its name, what is wrong, and the remedy."""
    colour, icon, title = _STATES.get(status.state, ("red", "error", status.state.replace("_", " ").capitalize()))
    text = " ".join(part for part in (status.text, _REMEDIES.get(status.state, "")) if part)
    return StateWords(title=title, icon=f":material/{icon}:", colour=colour, text=text)


def engine_name(identity: EngineIdentity) -> str:
    """An engine as a choice: "llama, engine 0"."""
    parts = [identity.model_name or "unnamed model"]
    parts += [f"engine {identity.engine}"] if identity.engine is not None else []
    parts += [identity.replica] if identity.replica is not None else []
    return ", ".join(parts)


def version_words(snapshot: EngineSnapshot) -> str:
    """Which release answers."""
    return f"vLLM {snapshot.vllm_version}" if snapshot.vllm_version else "vLLM, release not told"


def percent(fraction: float | None) -> str:
    """A fraction as "42.5 %", or that it is not exported."""
    return NOT_EXPORTED if fraction is None else f"{fraction:.1%}".replace("%", "\N{NO-BREAK SPACE}%")


def number(value: float | None) -> str:
    """A count, or that it is not exported."""
    return NOT_EXPORTED if value is None else words.count(value)


def clock(time_ms: int) -> str:
    """A moment in UTC: "2026-11-29 20:51:07 UTC"."""
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def span(low: float, high: float) -> str:
    """Two fractions as "40.0 % to 61.1 %", or one where they agree."""
    return percent(low) if percent(low) == percent(high) else f"{percent(low)} to {percent(high)}"


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


def serves(sample: EngineSample, names: Sequence[str], plan: Plan) -> bool:
    """Whether the plan is of the model that the engine serves, by its whole id or the last part of it."""
    planned = plan.request.model_id.lower()
    served = [name.lower() for name in (sample.identity.model_name, *names) if name]
    return any(name == planned or name.rsplit("/", 1)[-1] == planned.rsplit("/", 1)[-1] for name in served)


def comparison_rows(comparison: PlanComparison) -> list[dict[str, str]]:
    """The comparison as a table's rows."""
    return [_comparison_row(each) for each in comparison.numbers]


def _comparison_row(each: ComparedNumber) -> dict[str, str]:
    return {
        "Number": _NUMBER_NAMES.get(each.name, each.name),
        "Engine": "–" if each.actual is None else f"{each.actual:,.6g}",
        "Plan": f"{each.predicted:,.6g}",
        "Plan's band": "exact" if each.low == each.high else f"{each.low:,.6g} to {each.high:,.6g}",
        "Error": signed_error(each.error_fraction),
        "Verdict": _ROW_STATES[each.state],
        "Why": each.text,
    }
