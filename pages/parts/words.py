"""Numbers and names as a reader sees them: GiB to three digits, exact bytes, bands, what each part of a card is.

Pure text, no drawing. Inside the project a quantity stays an integer of bytes; it becomes "15.0 GiB" only here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import Literal

from pages.parts.language import mark, t
from pages.parts.said import said
from planner.answer import BudgetLine, Plan, ResolvedDefault
from planner.facts import Basis, Estimate, Finding
from planner.units import GIB, KIB, MIB

Rounding = Literal["nearest", "down", "up"]
_ROUNDING = {"nearest": ROUND_HALF_EVEN, "down": ROUND_FLOOR, "up": ROUND_CEILING}
_MINUS = "−"
_GAP = "\N{NO-BREAK SPACE}"  # a number and its unit stay on one line


@dataclass(frozen=True, slots=True, kw_only=True)
class PartWords:
    """What a budget line is called, and in one sentence what it is."""

    name: str
    label: str
    meaning: str


# In the order of the category colours in .streamlit/config.toml: a part keeps its colour everywhere.
PARTS: tuple[PartWords, ...] = (
    PartWords(
        name="weights",
        label=mark("Weights"),
        meaning=mark("Parameters, buffers and load-time copies: what vLLM logs as “Model loading took”."),
    ),
    PartWords(
        name="activation",
        label=mark("Activation peak"),
        meaning=mark("The most PyTorch needs at once for one full batch, seen in vLLM's profile run."),
    ),
    PartWords(
        name="non_torch",
        label=mark("Non-torch"),
        meaning=mark("NCCL buffers and library workspaces: taken outside PyTorch's allocator while vLLM starts."),
    ),
    PartWords(
        name="cuda_graphs",
        label=mark("CUDA graphs"),
        meaning=mark("What vLLM sets aside for the graphs it will capture."),
    ),
    PartWords(
        name="kv_pool",
        label=mark("KV cache pool"),
        meaning=mark("What is left of the budget: room for keys and values."),
    ),
    PartWords(
        name="other_processes",
        label=mark("Other processes"),
        meaning=mark("Held on the card by others before vLLM starts."),
    ),
    PartWords(
        name="context",
        label=mark("CUDA context"),
        meaning=mark("Gone before vLLM takes its first look at the card; never charged to its budget."),
    ),
    PartWords(
        name="graphs_beyond_budget",
        label=mark("Graphs beyond"),
        meaning=mark("What the captured graphs take beyond what the budget set aside for them."),
    ),
    PartWords(
        name="unreserved",
        label=mark("Left free"),
        meaning=mark("The rest of the card, outside gpu_memory_utilization."),
    ),
)
# What a plan takes of the host's memory: no part of a card, so without a colour.
HOST_PARTS: tuple[PartWords, ...] = (
    PartWords(
        name="host_weights", label=mark("Offloaded weights"), meaning=mark("Weights that stay in the host's memory.")
    ),
    PartWords(name="host_kv_cache", label=mark("Offloaded KV cache"), meaning=mark("Blocks that have left the cards.")),
    PartWords(
        name="host_swap", label=mark("Swap space"), meaning=mark("Room for the blocks of requests that were set aside.")
    ),
)
_PARTS_BY_NAME = {part.name: part for part in (*PARTS, *HOST_PARTS)}
NUM_COLOURS = len(PARTS) + 1  # of chartCategoricalColors; the last is for a part without words of its own

# What eras are called where their names hold words of ours; `said` shows them in the reader's language.
ERAS = (
    mark("V0 (to 0.7)"),
    mark("V1, 0.8 to 0.16"),
    mark("0.17 to 0.20"),
    mark("0.21 to 0.26"),
    mark("0.27 to 0.31"),
    mark("0.32 and newer"),
)
BASIS_WORDS = {
    "measured": mark("measured"),
    "read": mark("read from a file"),
    "derived": mark("derived by formula"),
    "assumed": mark("assumed"),
}
SEVERITY_WORDS = {"info": mark("Note"), "warning": mark("Warning"), "refusal": mark("Will not start")}
SEVERITY_ICONS = {"info": ":material/info:", "warning": ":material/warning:", "refusal": ":material/block:"}


def part_words(name: str) -> PartWords:
    """The words of the budget line `name`; a line without words of its own is called by its name."""
    known = _PARTS_BY_NAME.get(name)
    if known is None:
        return PartWords(name=name, label=name.replace("_", " ").capitalize(), meaning="")
    return replace(known, label=said(known.label), meaning=said(known.meaning))


def colour_index(name: str) -> int:
    """The place of the part `name` among the category colours."""
    return next((index for index, part in enumerate(PARTS) if part.name == name), NUM_COLOURS - 1)


def three_digits(value: float | Decimal, rounding: Rounding = "nearest") -> str:
    """`value` to three significant digits, thousands separated, with a true minus sign: "15.0", "1,234", "0.0123"."""
    exact = Decimal(value)
    if exact == 0:
        return "0"
    decimals = max(0, 2 - exact.adjusted())
    text = f"{exact.quantize(Decimal(1).scaleb(-decimals), rounding=_ROUNDING[rounding]):,f}"
    return text.replace("-", _MINUS)


def gib(num_bytes: float, rounding: Rounding = "nearest") -> str:
    """`num_bytes` as "15.0 GiB"."""
    return f"{three_digits(Decimal(num_bytes) / GIB, rounding)}{_GAP}GiB"


def listed(parts: Iterable[str]) -> str:
    """`parts` one after the other: "a, b, c"."""
    return t(", ").join(parts)


def sentences(*parts: str) -> str:
    """`parts` that are not empty, one after the other: with a gap between, but none after a Chinese stop."""
    text = ""
    for part in filter(None, parts):
        text += part if not text or text.endswith("。") else f" {part}"
    return text


def listed_long(parts: Iterable[str]) -> str:
    """`parts` that may hold commas themselves, one after the other: "a 1, b 2; c 3"."""
    return t("; ").join(parts)


def signed_percent(fraction: float) -> str:
    """`fraction` as a change: "+3.9%", "−0.1%"."""
    return f"{fraction:+.1%}".replace("-", _MINUS)


def small_bytes(num_bytes: float) -> str:
    """`num_bytes` of something far below a card's size, in the unit it is read best in: "2.00 MiB", "128 KiB"."""
    if abs(num_bytes) >= GIB:
        return gib(num_bytes)
    if abs(num_bytes) >= MIB:
        return f"{three_digits(Decimal(num_bytes) / MIB)}{_GAP}MiB"
    if abs(num_bytes) >= KIB:
        return f"{three_digits(Decimal(num_bytes) / KIB)}{_GAP}KiB"
    return exact_bytes(num_bytes)


def exact_bytes(num_bytes: float) -> str:
    """`num_bytes` with every digit: "16,060,522,496 bytes"."""
    return f"{num_bytes:,.0f}{_GAP}{t('bytes')}".replace("-", _MINUS)


def band(estimate: Estimate) -> str:
    """The 90 % interval of `estimate` in GiB ("14.9 to 15.1 GiB"), or "exact" when it is a single value."""
    if estimate.low_bytes == estimate.high_bytes:
        return t("exact")
    low = three_digits(Decimal(estimate.low_bytes) / GIB, "down")
    return f"{t('{low} to {high}', low=low, high=three_digits(Decimal(estimate.high_bytes) / GIB, 'up'))}{_GAP}GiB"


def count(number: float) -> str:
    """A whole number with its thousands separated."""
    return f"{number:,.0f}".replace("-", _MINUS)


def count_band(low: int, high: int) -> str:
    """A band of counts: "24,100 to 25,600", or "exact" when both ends agree."""
    return t("exact") if low == high else t("{low} to {high}", low=count(low), high=count(high))


def concurrency(times: float) -> str:
    """How many requests run at once: "3.12×", rounded as vLLM's log rounds it."""
    return f"{three_digits(Decimal(str(times)))}×"


def concurrency_band(low: float, high: float) -> str:
    """A band of concurrency: "2.98 to 3.20×", or "exact"."""
    if low == high:
        return t("exact")
    return f"{t('{low} to {high}', low=three_digits(Decimal(str(low)), 'down'), high=three_digits(Decimal(str(high)), 'up'))}×"


def basis(value: Basis) -> str:
    """Where a number comes from, in a few words: "derived by formula: blocks × bytes per block"."""
    kind = said(BASIS_WORDS[value.kind])
    return t("{kind}: {note}", kind=kind, note=said(value.note)) if value.note else kind


def estimate_help(estimate: Estimate) -> str:
    """A tooltip of `estimate`: exact bytes, band, formula and basis."""
    lines = [f"**{exact_bytes(estimate.best_bytes)}**"]
    if estimate.low_bytes != estimate.high_bytes:
        lines.append(
            t(
                "90 % between {low_bytes} and {high_bytes}",
                low_bytes=exact_bytes(estimate.low_bytes),
                high_bytes=exact_bytes(estimate.high_bytes),
            )
        )
    if estimate.formula:
        lines.append(plain(said(estimate.formula)))
    lines.append(plain(basis(estimate.basis)))
    return "  \n".join(lines)


def plain(text: str) -> str:
    """`text` with Markdown's signs escaped, so that a reader's own words are shown and never interpreted."""
    return "".join(f"\\{sign}" if sign in "\\`*_{}[]()<>#+!|~$:" else sign for sign in text)


def line_title(line: BudgetLine) -> str:
    """A budget line and its size: "Weights 15.0 GiB"."""
    return f"{part_words(line.name).label} {gib(line.estimate.best_bytes)}"


def shown_value(value: object) -> str:
    """A flag's value as a reader writes it: on, off, "none", a list, a number with thousands separated."""
    match value:
        case None:
            return t("none")
        case bool():
            return t("on") if value else t("off")
        case int():
            return count(value)
        case float():
            return f"{value:g}"
        case list() | tuple():
            return _shown_list([shown_value(entry) for entry in value])
        case _:
            return str(value)


def _shown_list(entries: list[str]) -> str:
    if not entries:
        return t("none")
    if len(entries) > 7:
        return t("{first}, … {last} ({count} values)", first=listed(entries[:4]), last=entries[-1], count=len(entries))
    return listed(entries)


def flag_name(name: str) -> str:
    """The flag as vLLM's command line spells it: "--max-model-len"."""
    return f"--{name.replace('_', '-')}"


def resolved_source(default: ResolvedDefault) -> str:
    """Whether a flag was given or filled in by vLLM."""
    return t("given") if default.is_given else t("default")


def finding_title(finding: Finding) -> str:
    """A finding's severity in a word, with the flag it speaks of."""
    word = said(SEVERITY_WORDS[finding.severity])
    return f"{word} · {flag_name(finding.field)}" if finding.field else word


def verdict(plan: Plan) -> str:
    """The answer to "will it start?" in one line."""
    return t("vLLM will start") if plan.will_start else t("vLLM will not start")


def subject(plan: Plan) -> str:
    """What the plan is about: model, cards and version, in one line."""
    flags = plan.request.flags
    num_cards = flags.tensor_parallel_size * flags.pipeline_parallel_size * flags.data_parallel_size
    model = plan.request.model_id.rsplit("/", 1)[-1]
    return t(
        "{model} on {num_cards} × {gpu_name} · vLLM {vllm_version} (era {era})",
        model=model,
        num_cards=count(num_cards),
        gpu_name=said(plan.gpu_name),
        vllm_version=plan.vllm_version,
        era=said(plan.era),
    )


def start_word(plan: Plan) -> str:
    """Whether a plan starts, in one word for a table: the band decides between "yes" and "probably"."""
    if plan.will_start:
        return t("yes") if plan.pool_low.fits else t("probably")
    return t("probably not") if plan.pool_high.fits and not plan.pool.fits else t("no")
