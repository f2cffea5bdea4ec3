from planner.model_catalog import catalogue_documents
from planner.planning import answer
from planner.request import PlanRequest


def codes(model_id: str, gpu: str) -> list[str]:
    plan, _ = answer(PlanRequest(model_id=model_id, gpu=gpu), catalogue_documents(model_id))
    return [finding.code for finding in plan.findings]


def test_weights_far_beyond_one_card_are_counted_in_cards():
    request = PlanRequest(model_id="meta-llama/Llama-3.1-405B", gpu="L4")

    plan, _ = answer(request, catalogue_documents(request.model_id))

    finding = next(finding for finding in plan.findings if finding.code == "no-single-change")
    assert plan.advice == ()
    assert "such cards" in finding.text


def test_a_plan_with_advice_or_that_starts_needs_no_such_word():
    assert "no-single-change" not in codes("meta-llama/Llama-3.1-8B", "GeForce RTX 4090")
    assert "no-single-change" not in codes("meta-llama/Llama-3.1-8B", "H100 80GB SXM")
