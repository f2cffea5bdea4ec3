"""Constants that a host's own starts teach: how far activation peak, non-torch memory and graphs lie from the general ones.

A calibration is of one host, one card and one era of vLLM, and changes no plan of another. It holds what starts measured beside
what the general constants say of them; the corrections, with their bands, follow from that by the rules below.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from planner import overhead_constants
from planner.answer import Plan
from planner.facts import Basis, Estimate
from planner.gpu_catalog import GpuFacts
from planner.measured_start import TERMS, Term
from planner.units import GIB, MIB
from planner.versions import era_of, parse_version

SCHEMA = 1
# The part of a general constant's variance that all starts of one host have in common; the rest is a model's own. Measured on
# the starts in planner/data/truth that share card, era and parallelism (docs/calibration.md).
OTHER_MODEL_COMMON = 0.5
SAME_MODEL_COMMON = 0.9
SAME_BATCH_COMMON = 0.98  # the same model with the same batch: eight starts of one 8B agree to a printed hundredth
_STANDARD_DEVIATIONS = 1.645  # either side of a 90 % interval
_SMALLEST_HALF_BYTES = 10 * MIB  # two printed hundredths of a GiB
# How a start of one model speaks of another: by the ratio of measured to predicted, or by their difference in bytes.
_TRANSFERS: dict[Term, Literal["ratio", "difference"]] = {
    "activation": "ratio",
    "non_torch": "difference",
    "graph_estimate": "ratio",
    "captured_graphs": "ratio",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One term of one start: the general constants' estimate and what was measured.

    `is_shared`: not printed by itself; its part of what a printed sum leaves, by the squares of the bands.
    """

    term: Term
    predicted_bytes: int
    low_bytes: int
    high_bytes: int
    measured_bytes: int
    rounding_bytes: int  # half the interval that the printed figures leave
    is_shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedStart:
    """One start that a calibration learns from, with its provenance; no line of its log."""

    source: str  # the log's file name
    read_on: str  # the date, as 2026-11-29
    model_id: str
    vllm_version: str
    tensor_parallel_size: int
    pipeline_parallel_size: int
    runner: str
    stage: str  # the stage of the profile run that rules the activation peak
    batch: str  # the flags that the peak goes by
    flags: str  # what it ran with, to read
    total_bytes: int | None  # the card's CUDA total, where the log prints it
    general_constants: str  # the digest of the constants that `predicted_bytes` were made with
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What the starts of one host, card and era teach."""

    host: str
    card: str
    era: str
    starts: tuple[CalibratedStart, ...]

    @property
    def identity(self) -> str:
        """The name that a request and a link carry: the host and a digest of everything that changes a number."""
        return f"{self.host}~{hashlib.sha256(repr(self).encode()).hexdigest()[:8]}"

    @property
    def total(self) -> Estimate | None:
        """The card's CUDA total as its own logs print it, None where none does."""
        totals = [start.total_bytes for start in self.starts if start.total_bytes is not None]
        if not totals:
            return None
        half = _SMALLEST_HALF_BYTES
        return Estimate(
            best_bytes=int(median(totals)),
            low_bytes=min(totals) - half,
            high_bytes=max(totals) + half,
            basis=Basis(kind="measured", note=f"calibration of {self.host}: the total that {_starts(totals)} print"),
        )

    @property
    def is_current(self) -> bool:
        """Whether it was made beside the general constants that are in use now."""
        return {start.general_constants for start in self.starts} <= {constants_digest()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What decides which starts speak for one card of a plan."""

    model_id: str
    tensor_parallel_size: int
    pipeline_parallel_size: int
    runner: str
    stage: str
    batch: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """One learned constant: the change to the general estimate, and what it leaves of the general band."""

    term: Term
    ratio: float  # that the general estimate is multiplied by; 1 where differences are learned
    difference_bytes: int
    gain: float  # how far the starts are followed, from 0 (the general constant) to 1
    band_share: float  # what the starts leave of the general band
    num_starts: int
    models: tuple[str, ...]
    is_same_model: bool
    is_shared: bool

    @property
    def note(self) -> str:
        """Its provenance in a few words."""
        of = "this model" if self.is_same_model else ", ".join(_short(model) for model in self.models[:3])
        how = "its part of a printed sum" if self.is_shared else "printed"
        return f"{_starts(range(self.num_starts))} of {of} ({how})"


def _short(model_id: str) -> str:
    return model_id.rsplit("/", maxsplit=1)[-1]


def _starts(items: object) -> str:
    count = len(items) if hasattr(items, "__len__") else 0
    return "1 start" if count == 1 else f"{count} starts"


def constants_digest() -> str:
    """A digest of the general constants: corrections to them say nothing once they change."""
    named = {name: repr(value) for name, value in vars(overhead_constants).items() if name.isupper()}
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:8]


# -- what applies -------------------------------------------------------------------------------------------------------


def why_not(calibration: Calibration, gpu: GpuFacts, vllm_version: str) -> str | None:
    """Why `calibration` does not speak for this card and release, None when it does."""
    if calibration.card != gpu.name:
        return f"It was made on {calibration.card}, and this plan is for {gpu.name}."
    total = calibration.total
    if total is not None and abs(total.best_bytes - gpu.total.best_bytes) > gpu.total.best_bytes * 0.02:
        return (
            f"It was made on a card of {total.best_bytes / GIB:.2f} GiB, and this plan's has "
            f"{gpu.total.best_bytes / GIB:.2f} GiB."
        )
    era = era_of(parse_version(vllm_version)).label
    if calibration.era != era:
        return f"It was made with vLLM {calibration.era}, and this plan is for {era}."
    if not calibration.is_current:
        return "It was made beside older general constants; read its logs once more."
    return None


def calibrated_card(gpu: GpuFacts, calibration: Calibration) -> GpuFacts:
    """`gpu` with the total that its own logs print."""
    return gpu if calibration.total is None else replace(gpu, total=calibration.total)


def calibrated(general: Estimate, term: Term, situation: Situation, calibration: Calibration | None) -> Estimate:
    """`general` as the host's own starts correct it, or unchanged where none of them speaks for the situation."""
    found = None if calibration is None else correction(term, situation, calibration)
    if found is None or calibration is None or not general.high_bytes:
        return general
    best = round(general.best_bytes * found.ratio) + found.difference_bytes
    low = best - max(_SMALLEST_HALF_BYTES, found.band_share * (general.best_bytes - general.low_bytes))
    high = best + max(_SMALLEST_HALF_BYTES, found.band_share * (general.high_bytes - general.best_bytes))
    return Estimate(
        best_bytes=best,
        low_bytes=min(best, max(0, round(low))),
        high_bytes=round(high),
        basis=Basis(kind="measured", note=f"calibration of {calibration.host}: {found.note}"),
        formula=f"{general.formula}; {_step(found, general)} {best / GIB:.2f} GiB",
    )


def _step(found: Correction, general: Estimate) -> str:
    if _TRANSFERS[found.term] == "ratio":
        return f"{general.best_bytes / GIB:.2f} x {found.ratio:.3f} measured ="
    return f"{general.best_bytes / GIB:.2f} {found.difference_bytes / GIB:+.2f} measured ="


# -- what is learned ----------------------------------------------------------------------------------------------------


def correction(term: Term, situation: Situation, calibration: Calibration) -> Correction | None:
    """What the starts that speak for `situation` teach about `term`; those of the same model before all others."""
    speaking = [
        (start, each)
        for start in calibration.starts
        if _speaks(start, term, situation)
        for each in believed(start.evidence)
        if each.term == term
    ]
    if not speaking:
        return None
    own = [pair for pair in speaking if pair[0].model_id.lower() == situation.model_id.lower()]
    again = [pair for pair in own if pair[0].batch == situation.batch]
    if again:
        return _learned(term, [[each] for _, each in again], again, SAME_BATCH_COMMON)
    grouped: dict[str, list[Evidence]] = {}
    for start, each in own or speaking:
        grouped.setdefault(start.batch if own else start.model_id.lower(), []).append(each)
    return _learned(term, list(grouped.values()), own or speaking, SAME_MODEL_COMMON if own else OTHER_MODEL_COMMON)


def _speaks(start: CalibratedStart, term: Term, situation: Situation) -> bool:
    """Non-torch memory goes by the cards that talk to each other, the peak by the stage that rules it."""
    if start.runner != situation.runner:
        return False
    is_same_split = (
        start.tensor_parallel_size == situation.tensor_parallel_size
        and start.pipeline_parallel_size == situation.pipeline_parallel_size
    )
    return is_same_split if term == "non_torch" else term != "activation" or start.stage == situation.stage


def _learned(
    term: Term,
    groups: list[list[Evidence]],
    speaking: list[tuple[CalibratedStart, Evidence]],
    common: float,
) -> Correction:
    """The median over groups (models, batches of one model, or starts alike), drawn towards the general constant.

    With V the general variance, c its part that starts have in common and n groups: s2 = ((1 - c)*V + squared deviations) / n,
    gain = c*V / (c*V + (s2 + rounding^2) / n), and the variance that is left is c*V*(1 - gain) + s2.
    """
    is_ratio = _TRANSFERS[term] == "ratio"
    residuals = [median(_residual(each, is_ratio=is_ratio) for each in group) for group in groups]
    pieces = [each for group in groups for each in group]
    scale = median(each.predicted_bytes for each in pieces) if is_ratio else 1.0
    centre, count = median(residuals), len(groups)
    general = (_side(pieces, is_more=centre > 0) / _STANDARD_DEVIATIONS) ** 2
    noise = (median(each.rounding_bytes for each in pieces) / _STANDARD_DEVIATIONS) ** 2
    spread = sum(((value - centre) * scale) ** 2 for value in residuals)
    own = ((1 - common) * general + spread) / count
    gain = common * general / (common * general + (own + noise) / count)
    left = common * (1 - gain) + own / general
    return Correction(
        term=term,
        ratio=1 + gain * centre if is_ratio else 1.0,
        difference_bytes=0 if is_ratio else round(gain * centre),
        gain=gain,
        band_share=math.sqrt(left),
        num_starts=len(speaking),
        models=tuple(dict.fromkeys(start.model_id for start, _ in speaking)),
        is_same_model=common > OTHER_MODEL_COMMON,
        is_shared=all(each.is_shared for each in pieces),
    )


def _side(pieces: list[Evidence], *, is_more: bool) -> float:
    """The half-width of the general band on the side where the starts lie, at least a printed step."""
    sides = (
        each.high_bytes - each.predicted_bytes if is_more else each.predicted_bytes - each.low_bytes for each in pieces
    )
    return max(_SMALLEST_HALF_BYTES, median(sides))


def _residual(each: Evidence, *, is_ratio: bool) -> float:
    if is_ratio:
        return each.measured_bytes / each.predicted_bytes - 1
    return float(each.measured_bytes - each.predicted_bytes)


# -- what is refused ----------------------------------------------------------------------------------------------------

_MOST_RATIO = 4.0  # a peak four times the computed one is another model, another batch or another runner
_FREE_DIFFERENCE_BYTES = GIB // 4  # small terms may differ by more than that factor
_LARGEST_NON_TORCH_BYTES = 16 * GIB  # unified memory has lost 11 GiB to the page cache; no discrete card 6
_LARGEST_GRAPHS_BYTES = 16 * GIB
_NAMES: dict[Term, str] = {
    "activation": "activation peak",
    "non_torch": "non-torch memory",
    "graph_estimate": "graph estimate",
    "captured_graphs": "captured graphs",
}


def refusal(each: Evidence) -> str | None:
    """Why a measured term is outside what physics allows and is not learned from, None when it is inside."""
    measured, predicted = each.measured_bytes, each.predicted_bytes
    shown = f"{_NAMES[each.term]} of {measured / GIB:.2f} GiB, where {predicted / GIB:.2f} GiB are expected,"
    if each.term == "non_torch":
        if -_FREE_DIFFERENCE_BYTES <= measured <= _LARGEST_NON_TORCH_BYTES:
            return None
        return f"A {shown} is outside -0.25 to 16 GiB and is not learned from."
    if measured < 0 or (each.term != "activation" and measured > _LARGEST_GRAPHS_BYTES):
        return f"A {shown} is not possible and is not learned from."
    if predicted <= 0:
        return f"A {shown} has nothing to be compared with and is not learned from."
    is_near = abs(measured - predicted) <= _FREE_DIFFERENCE_BYTES
    if is_near or 1 / _MOST_RATIO <= measured / predicted <= _MOST_RATIO:
        return None
    return f"A {shown} differs by more than {_MOST_RATIO:g} times and is not learned from."


def believed(evidence: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    """What may be learned from: what is possible; of a printed sum's parts all or none, for one that is impossible is the sum's fault."""
    is_sum_possible = all(refusal(each) is None for each in evidence if each.is_shared)
    return tuple(each for each in evidence if refusal(each) is None and (is_sum_possible or not each.is_shared))


# -- situations ---------------------------------------------------------------------------------------------------------


def situation_of(plan: Plan, pp_rank: int) -> Situation:
    """The situation of one stage's card in a plan that is made."""
    flags = plan.request.flags
    runner = next((str(item.value) for item in plan.resolved if item.name == "model_runner"), "v0")
    return Situation(
        model_id=plan.request.model_id,
        tensor_parallel_size=flags.tensor_parallel_size,
        pipeline_parallel_size=flags.pipeline_parallel_size,
        runner=runner,
        stage=stage_of(plan.ranks[pp_rank].activation),
        batch=batch_text(plan_number(plan, "max_num_seqs"), plan_number(plan, "max_num_batched_tokens")),
    )


def plan_number(plan: Plan, name: str) -> int:
    """A number that the plan resolved; 0 where it resolves none of that name."""
    return next((int(str(item.value)) for item in plan.resolved if item.name == name), 0)


def batch_text(max_num_seqs: int, max_num_batched_tokens: int) -> str:
    """The flags that the activation peak goes by."""
    return f"max_num_seqs={max_num_seqs} max_num_batched_tokens={max_num_batched_tokens}"


def situation_of_start(start: CalibratedStart) -> Situation:
    """The situation of another model that runs as `start` ran."""
    return Situation(
        model_id="",
        tensor_parallel_size=start.tensor_parallel_size,
        pipeline_parallel_size=start.pipeline_parallel_size,
        runner=start.runner,
        stage=start.stage,
    )


def stage_of(activation: Estimate) -> str:
    """The stage of the profile run that rules `activation`: its formula begins with the name."""
    return activation.formula.partition(":")[0]


def all_corrections(situation: Situation, calibration: Calibration) -> tuple[Correction, ...]:
    """Every constant that the calibration has for `situation`."""
    found = (correction(term, situation, calibration) for term in TERMS)
    return tuple(each for each in found if each is not None)
