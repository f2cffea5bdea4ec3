"""What a host's own starts teach, how far they are believed, where they apply and where never."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner import calibration as learning
from planner.answer import Plan
from planner.budget import plan
from planner.calibration import Calibration, Evidence, believed, constants_digest, correction, refusal, situation_of
from planner.calibration_evidence import calibrated_start, evidence_of
from planner.facts import PlanError
from planner.measured_start import MeasuredRank, MeasuredStart, printed_gib
from planner.model_catalog import catalogue_documents
from planner.planning import answer, facts_for
from planner.request import EngineFlags, PlanRequest
from planner.sweep import sweep
from planner.units import GIB

H100 = "H100 80GB SXM"
QWEN, LLAMA = "Qwen/Qwen3-8B", "meta-llama/Llama-3.1-8B-Instruct"


def request(model_id: str = QWEN, **changes: object) -> PlanRequest:
    asked = PlanRequest(model_id=model_id, gpu=H100, vllm_version="0.19.0", flags=EngineFlags(max_model_len=8192))
    return replace(asked, **changes)


def planned(asked: PlanRequest, held: Calibration | None = None) -> Plan:
    return plan(asked, facts_for(asked, catalogue_documents(asked.model_id)), held)


def start_of(general: Plan, *, source: str = "start.log", more_gib: float = 0.3, **figures: object) -> MeasuredStart:
    """A start that printed everything: peak as planned times 1.1, non-torch `more_gib` above the plan."""
    rank = general.ranks[0]

    def printed(estimate_gib: float) -> object:
        return printed_gib(round(estimate_gib, 2), "a test's start")

    values = {
        "weights": printed(rank.weights.load.best_bytes / GIB),
        "activation": printed(rank.activation.best_bytes * 1.1 / GIB),
        "non_torch": printed(rank.non_torch.best_bytes / GIB + more_gib),
    }
    measured = MeasuredRank(**(values | figures))
    return MeasuredStart(source=source, version="0.19.0", ranks=(measured,), outcome="started")


def taught(*models: str, more_gib: float = 0.3) -> Calibration:
    """A calibration from one start of each of `models`."""
    starts = []
    for model_id in models:
        general = planned(request(model_id))
        starts.append(
            calibrated_start(general, start_of(general, source=f"{model_id}.log", more_gib=more_gib), "2026-11-29")
        )
    return Calibration(host="node1", card=H100, era=general.era, starts=tuple(starts))


def with_it(asked: PlanRequest, held: Calibration) -> PlanRequest:
    return replace(asked, calibration=held.identity)


def width(made: Plan) -> int:
    pool = made.ranks[0].kv_pool
    return pool.high_bytes - pool.low_bytes


def test_a_start_of_the_same_model_moves_its_plan_to_the_measurement_and_narrows_it() -> None:
    held = taught(QWEN)
    general = planned(request())

    made = planned(with_it(request(), held), held)

    expected = general.ranks[0].non_torch.best_bytes + 0.3 * GIB
    assert made.ranks[0].non_torch.best_bytes == pytest.approx(expected, abs=0.05 * GIB)
    assert made.ranks[0].activation.best_bytes == pytest.approx(general.ranks[0].activation.best_bytes * 1.1, rel=0.02)
    assert width(made) < 0.75 * width(general)
    assert made.calibration == held.identity


def test_a_start_of_another_model_moves_a_plan_half_way() -> None:
    held = taught(LLAMA)
    general = planned(request()).ranks[0].non_torch

    made = planned(with_it(request(), held), held).ranks[0].non_torch

    assert made.best_bytes - general.best_bytes == pytest.approx(0.15 * GIB, abs=0.02 * GIB)
    assert made.high_bytes - made.best_bytes < general.high_bytes - general.best_bytes


def test_two_starts_that_agree_are_believed_more_than_one() -> None:
    one, two = taught(LLAMA), taught(LLAMA, "google/gemma-2-9b-it")
    situation = situation_of(planned(request()), 0)

    first, both = (correction("non_torch", situation, held) for held in (one, two))

    assert first is not None
    assert both is not None
    assert both.gain > first.gain
    assert both.band_share < first.band_share


def test_starts_that_scatter_widen_the_band_again() -> None:
    near, far = taught(LLAMA), taught("google/gemma-2-9b-it", more_gib=2.0)
    both = replace(near, starts=near.starts + far.starts)
    situation = situation_of(planned(request()), 0)

    found = correction("non_torch", situation, both)

    assert found is not None
    assert found.band_share > 1


def test_a_model_that_started_ten_times_counts_once_for_others() -> None:
    once = taught(LLAMA)
    often = replace(once, starts=tuple(replace(once.starts[0], source=f"{number}.log") for number in range(10)))
    situation = situation_of(planned(request()), 0)

    first, tenth = (correction("non_torch", situation, held) for held in (once, often))

    assert first is not None
    assert tenth is not None
    assert tenth.gain == first.gain
    assert tenth.num_starts == 10


def test_a_changed_line_says_that_it_was_measured_and_where() -> None:
    held = taught(QWEN)

    made = planned(with_it(request(), held), held)

    basis = made.ranks[0].non_torch.basis
    assert basis.kind == "measured"
    assert "node1" in basis.note
    finding = next(finding for finding in made.findings if finding.code == "host-calibrated")
    assert held.identity in finding.text


def test_without_its_name_in_the_request_a_calibration_changes_nothing() -> None:
    assert planned(request(), taught(QWEN)) == planned(request())


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"gpu": "A100 80GB SXM"}, "made on"),
        ({"vllm_version": "0.23.0"}, "made with vLLM"),
        ({"vllm_version": "0.11.0"}, "made with vLLM"),
    ],
)
def test_on_another_card_or_era_it_changes_no_number_and_says_so(changes: dict[str, str], word: str) -> None:
    held = taught(QWEN)
    asked = request(**changes)

    made = planned(with_it(asked, held), held)

    assert made.ranks == planned(asked).ranks
    assert made.calibration is None
    finding = next(finding for finding in made.findings if finding.code == "calibration-not-for-this")
    assert word in finding.text


def test_a_name_that_is_not_held_leaves_the_general_constants_and_says_so() -> None:
    asked = replace(request(), calibration="node9~00000000")

    made = planned(asked, taught(QWEN))

    assert made.ranks == planned(request()).ranks
    assert "calibration-not-held" in {finding.code for finding in made.findings}


def test_another_start_changes_the_name() -> None:
    assert taught(QWEN).identity != taught(QWEN, LLAMA).identity


def test_older_general_constants_make_it_outdated(monkeypatch: pytest.MonkeyPatch) -> None:
    held = taught(QWEN)
    monkeypatch.setattr(learning.overhead_constants, "SMALLEST_GRAPH_GIB", 0.05)

    made = planned(with_it(request(), held), held)

    assert held.starts[0].general_constants != constants_digest()
    assert made.calibration is None


def test_at_another_split_non_torch_memory_stays_general_and_the_peak_is_corrected() -> None:
    held = taught(QWEN)
    asked = request(flags=EngineFlags(max_model_len=8192, tensor_parallel_size=2))

    made, general = planned(with_it(asked, held), held), planned(asked)

    assert made.ranks[0].non_torch == general.ranks[0].non_torch
    assert made.ranks[0].activation.best_bytes > general.ranks[0].activation.best_bytes


def test_the_cards_own_total_takes_the_catalogues_place_unless_one_is_given() -> None:
    held = taught(QWEN)
    start = replace(held.starts[0], total_bytes=int(79.11 * GIB))
    held = replace(held, starts=(start,))
    given = replace(request(), gpu_memory_bytes=int(79.3 * GIB))

    made = planned(with_it(request(), held), held)

    assert made.gpu_total.best_bytes == start.total_bytes
    assert made.gpu_total.basis.kind == "measured"
    assert planned(with_it(given, held), held).gpu_total.best_bytes == given.gpu_memory_bytes


def test_a_sum_is_shared_among_the_terms_that_no_line_prints_by_their_bands() -> None:
    general = planned(request(LLAMA))
    rank = general.ranks[0]
    pool = rank.kv_pool.best_bytes / GIB - 0.5
    start = start_of(general, activation=None, non_torch=None, kv_pool=printed_gib(round(pool, 2), "a test's start"))

    found = {each.term: each for each in evidence_of(general, start)}

    peak, other = found["activation"], found["non_torch"]
    moved = peak.measured_bytes - peak.predicted_bytes + other.measured_bytes - other.predicted_bytes
    assert moved == pytest.approx(0.5 * GIB, abs=0.03 * GIB)
    assert peak.is_shared
    assert other.is_shared
    ratio = (peak.high_bytes - peak.predicted_bytes) / (other.high_bytes - other.predicted_bytes)
    shares = (peak.measured_bytes - peak.predicted_bytes) / (other.measured_bytes - other.predicted_bytes)
    assert shares == pytest.approx(ratio**2, rel=0.01)


def evidence(term: str, measured_gib: float, predicted_gib: float = 1.0) -> Evidence:
    predicted = round(predicted_gib * GIB)
    return Evidence(
        term=term,  # type: ignore[arg-type]  # one of the terms, from the table below
        predicted_bytes=predicted,
        low_bytes=predicted // 2,
        high_bytes=predicted * 2,
        measured_bytes=round(measured_gib * GIB),
        rounding_bytes=5_000_000,
    )


@pytest.mark.parametrize(
    ("term", "measured_gib", "is_refused"),
    [
        ("activation", 3.9, False),
        ("activation", 4.1, True),
        ("activation", 0.24, True),
        ("activation", -0.1, True),
        ("non_torch", 15.0, False),
        ("non_torch", 17.0, True),
        ("non_torch", -0.3, True),
        ("non_torch", -0.05, False),
        ("graph_estimate", 5.0, True),
        ("captured_graphs", 17.0, True),
        ("captured_graphs", 2.0, False),
    ],
)
def test_what_physics_does_not_allow_is_refused_with_a_sentence(
    term: str, measured_gib: float, is_refused: bool
) -> None:
    text = refusal(evidence(term, measured_gib))

    assert (text is not None) == is_refused
    assert text is None or "not learned from" in text


def test_a_refused_term_is_never_used() -> None:
    held = taught(QWEN, more_gib=40.0)

    made = planned(with_it(request(), held), held)

    assert made.ranks[0].non_torch == planned(request()).ranks[0].non_torch


def test_advice_and_what_ifs_use_the_same_constants() -> None:
    held = taught(QWEN)
    asked = with_it(request(flags=EngineFlags(max_model_len=8192, gpu_memory_utilization=0.22)), held)
    documents = catalogue_documents(QWEN)

    made, model = answer(asked, documents, calibration=held)
    swept = sweep(asked, model, utilizations=(0.22,), max_model_lens=(8192,), variants=((1, "auto"),), calibration=held)

    assert swept[0].pool_bytes[0] == made.ranks[0].kv_pool.best_bytes
    assert made.calibration == held.identity


@pytest.mark.parametrize(
    "name", ["node1", "node1~xyz", "no de~3f2a91bc", "a" * 64 + "~3f2a91bc", "node1~3f2a91bc\n", "<b>~3f2a91bc"]
)
def test_a_request_refuses_what_is_no_calibrations_name(name: str) -> None:
    with pytest.raises(PlanError, match="calibration"):
        PlanRequest.from_mapping({"model": QWEN, "gpu": H100, "calibration": name})


def test_a_link_keeps_the_name_and_nothing_else_of_a_calibration() -> None:
    asked = with_it(request(), taught(QWEN))

    query = asked.to_query()

    assert query["calibration"] == asked.calibration
    assert PlanRequest.from_query(query) == asked


def test_of_an_impossible_sum_no_part_is_learned_from() -> None:
    def part(term: str, measured_gib: float, *, is_shared: bool) -> Evidence:
        return replace(evidence(term, measured_gib), is_shared=is_shared)

    activation, graphs = part("activation", 3.0, is_shared=True), part("captured_graphs", 1.1, is_shared=False)

    assert believed((activation, part("non_torch", 43.0, is_shared=True), graphs)) == (graphs,)
    assert len(believed((activation, part("non_torch", 1.2, is_shared=True), graphs))) == 3


def test_a_pool_larger_than_the_card_teaches_nothing() -> None:
    general = planned(request())

    assert evidence_of(general, start_of(general)) != ()
    assert evidence_of(general, start_of(general, kv_pool=printed_gib(900.5, "a log"))) == ()
