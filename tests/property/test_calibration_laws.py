"""Laws of calibrated plans: the lines still add up to the card, and no other card or era ever changes."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.budget import plan
from planner.calibration import Calibration, calibrated, situation_of
from planner.calibration_evidence import calibrated_start
from planner.calibration_file import from_text, to_text
from planner.measured_start import MeasuredRank, MeasuredStart, printed_gib
from planner.model_catalog import catalogue_documents
from planner.planning import facts_for
from planner.reconcile import reconcile
from planner.request import EngineFlags, PlanRequest
from planner.units import GIB

MODELS = ("Qwen/Qwen3-8B", "meta-llama/Llama-3.1-8B-Instruct", "openai/gpt-oss-20b")
VERSIONS = ("0.11.0", "0.19.0", "0.23.0", "0.31.0", "0.33.0")
CARDS = ("H100 80GB SXM", "L40S", "GeForce RTX 4090")

gib = st.one_of(st.none(), st.floats(min_value=-1, max_value=30).map(lambda value: round(value, 2)))


@st.composite
def starts(draw: st.DrawFn) -> MeasuredStart:
    """Any start that a log could print, sensible or not."""
    names = ("weights", "activation", "non_torch", "graph_estimate", "captured_graphs", "kv_pool")
    figures = {name: draw(gib) for name in names}
    estimates = {name: None if value is None else printed_gib(value, "any log") for name, value in figures.items()}
    total = draw(st.one_of(st.none(), st.floats(min_value=20, max_value=81)))
    return MeasuredStart(
        source=draw(st.text(max_size=20).filter(str.isprintable)),
        ranks=(MeasuredRank(**estimates),),
        total=None if total is None else printed_gib(round(total, 2), "any log"),
        utilization=draw(st.one_of(st.none(), st.floats(min_value=0.1, max_value=1))),
    )


@st.composite
def requests(draw: st.DrawFn) -> PlanRequest:
    return PlanRequest(
        model_id=draw(st.sampled_from(MODELS)),
        gpu=draw(st.sampled_from(CARDS)),
        vllm_version=draw(st.sampled_from(VERSIONS)),
        flags=EngineFlags(max_model_len=4096, tensor_parallel_size=draw(st.sampled_from((1, 2)))),
    )


def calibration_of(asked: PlanRequest, found: list[MeasuredStart]) -> Calibration:
    model = facts_for(asked, catalogue_documents(asked.model_id))
    general = plan(asked, model)
    learned = tuple(calibrated_start(general, start, "2026-11-29") for start in found)
    return Calibration(host="node1", card=general.gpu_name, era=general.era, starts=learned)


@settings(deadline=None, max_examples=60)
@given(asked=requests(), found=st.lists(starts(), min_size=1, max_size=3), taught_by=st.sampled_from(MODELS))
def test_calibrated_lines_still_add_up_to_the_card(
    asked: PlanRequest, found: list[MeasuredStart], taught_by: str
) -> None:
    held = calibration_of(replace(asked, model_id=taught_by), found)
    named = replace(asked, calibration=held.identity)

    made = plan(named, facts_for(asked, catalogue_documents(asked.model_id)), held)

    for rank in made.ranks:
        assert sum(line.estimate.best_bytes for line in rank.lines) == made.gpu_total.best_bytes
        for line in rank.lines:
            assert line.estimate.low_bytes <= line.estimate.best_bytes <= line.estimate.high_bytes
        assert rank.activation.best_bytes > 0
        assert rank.cuda_graphs.best_bytes >= 0


@settings(deadline=None, max_examples=60)
@given(asked=requests(), taught=requests(), found=st.lists(starts(), min_size=1, max_size=2))
def test_a_calibration_of_another_card_or_era_changes_nothing(
    asked: PlanRequest, taught: PlanRequest, found: list[MeasuredStart]
) -> None:
    held = calibration_of(taught, found)
    model = facts_for(asked, catalogue_documents(asked.model_id))
    general = plan(asked, model)

    made = plan(replace(asked, calibration=held.identity), model, held)

    is_its_own = (held.card, held.era) == (general.gpu_name, general.era)
    assert is_its_own or (made.ranks == general.ranks and made.pool == general.pool and made.calibration is None)


@settings(deadline=None, max_examples=60)
@given(asked=requests(), found=st.lists(starts(), min_size=1, max_size=3))
def test_a_calibration_outlives_its_file(asked: PlanRequest, found: list[MeasuredStart]) -> None:
    held = calibration_of(asked, found)

    (read,) = from_text(to_text([held]), "any.json")

    assert read == held
    assert read.identity == held.identity


@settings(deadline=None, max_examples=40)
@given(asked=requests(), start=starts())
def test_what_is_refused_changes_no_estimate_and_what_is_learned_stays_near(
    asked: PlanRequest, start: MeasuredStart
) -> None:
    held = calibration_of(asked, [start])
    general = plan(asked, facts_for(asked, catalogue_documents(asked.model_id)))

    made = calibrated(general.ranks[0].non_torch, "non_torch", situation_of(general, 0), held)

    assert -GIB <= made.best_bytes <= 17 * GIB


@settings(deadline=None, max_examples=60)
@given(asked=requests(), start=starts())
def test_any_start_is_reconciled_and_an_identity_either_closes_or_says_why_not(
    asked: PlanRequest, start: MeasuredStart
) -> None:
    general = plan(asked, facts_for(asked, catalogue_documents(asked.model_id)))

    found = reconcile(general, start)

    assert (found.identity.closes is None) == bool(found.identity.missing)
    for term in found.terms:
        assert term.low <= term.high
        assert term.measured_low <= term.measured <= term.measured_high
        assert term.is_inside or not term.low <= term.measured <= term.high
    assert len({reason.code for reason in found.reasons}) == len(found.reasons)
