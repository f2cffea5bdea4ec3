"""The whole way from a model's files and a request to an answer with advice: what the page, the command line and scoring share."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial

from planner.advice import advise
from planner.answer import Plan
from planner.budget import plan
from planner.calibration import Calibration
from planner.draft_models import WITHOUT_MODEL, catalogued_draft, read_draft
from planner.facts import Finding
from planner.inventory import ModelDocuments, ModelFacts
from planner.model_config import read_model
from planner.request import PlanRequest, SpeculativeConfig
from planner.units import div_ceil
from planner.versions import Version, parse_version


def facts_for(
    request: PlanRequest, documents: ModelDocuments, draft_documents: ModelDocuments | None = None
) -> ModelFacts:
    """The facts of `documents` as the request's vLLM release reads them; kept, as they serve many requests.

    The draft model of a speculative config comes from `draft_documents`, from beside the model, or from the catalogue.
    """
    minor = _minor(parse_version(request.vllm_version))
    config = request.flags.speculative_config
    draft = draft_documents or documents.draft or catalogued_draft(config)
    if config is None or draft is None or config.method in WITHOUT_MODEL or _is_own_mtp(config, documents, draft):
        return _facts(documents, request.flags.quantization, minor)
    return _facts_with_draft(documents, request.flags.quantization, minor, draft, config.method)


def _is_own_mtp(config: SpeculativeConfig, documents: ModelDocuments, draft: ModelDocuments) -> bool:
    """Whether the draft is the target's checkpoint, whose own MTP layers are meant."""
    return config.method.endswith("mtp") and (config.model is None or draft.model_id == documents.model_id)


def _minor(version: Version) -> int:
    return version.minor if version.major == 0 else 1000 * version.major + version.minor


@lru_cache(maxsize=256)  # a table of what fits goes over the whole catalogue
def _facts(documents: ModelDocuments, quantization: str | None, vllm_minor: int) -> ModelFacts:
    return read_model(documents, quantization=quantization, vllm_minor=vllm_minor)


@lru_cache(maxsize=64)
def _facts_with_draft(
    documents: ModelDocuments, quantization: str | None, vllm_minor: int, draft: ModelDocuments, method: str
) -> ModelFacts:
    return replace(_facts(documents, quantization, vllm_minor), draft=read_draft(draft, method, vllm_minor))


def answer(
    request: PlanRequest,
    documents: ModelDocuments,
    draft_documents: ModelDocuments | None = None,
    calibration: Calibration | None = None,
) -> tuple[Plan, ModelFacts]:
    """The plan of `request` with advice when it does not start, and the facts it was made from."""
    model = facts_for(request, documents, draft_documents)
    planner = partial(plan, calibration=calibration)
    result = planner(request, model)
    if not result.will_start:
        advice = advise(result, model, planner)
        findings = result.findings if advice else (*result.findings, _no_single_change(result))
        result = replace(result, advice=advice, findings=findings)
    return result, model


def _no_single_change(failing: Plan) -> Finding:
    """What to combine when no change alone is enough; counts the cards that the weights need where that is the trouble."""
    rank = failing.ranks[failing.bounding_rank]
    budget = sum(line.estimate.best_bytes for line in rank.lines if line.is_inside_budget)
    room = budget - rank.activation.best_bytes - rank.non_torch.best_bytes - rank.cuda_graphs.best_bytes
    per_stage = failing.request.flags.tensor_parallel_size
    loaded = per_stage * sum(stage.weights.load.best_bytes for stage in failing.ranks)
    text = "No single change makes this plan start; combine several, such as more cards, an FP8 cache and a shorter length."
    if room > 0 and loaded > room * per_stage * len(failing.ranks):
        text = (
            f"No single change makes this plan start: the weights alone need about {div_ceil(loaded, room)} such cards "
            "(tensor_parallel_size times pipeline_parallel_size), and the KV cache comes on top."
        )
    return Finding(code="no-single-change", severity="info", text=text)
