"""The whole way from a model's files and a request to an answer with advice: what the page, the command line and scoring share."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from planner.advice import advise
from planner.answer import Plan
from planner.budget import plan
from planner.draft_models import WITHOUT_MODEL, catalogued_draft, read_draft
from planner.inventory import ModelDocuments, ModelFacts
from planner.model_config import read_model
from planner.request import PlanRequest, SpeculativeConfig
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


@lru_cache(maxsize=64)
def _facts(documents: ModelDocuments, quantization: str | None, vllm_minor: int) -> ModelFacts:
    return read_model(documents, quantization=quantization, vllm_minor=vllm_minor)


@lru_cache(maxsize=64)
def _facts_with_draft(
    documents: ModelDocuments, quantization: str | None, vllm_minor: int, draft: ModelDocuments, method: str
) -> ModelFacts:
    return replace(_facts(documents, quantization, vllm_minor), draft=read_draft(draft, method, vllm_minor))


def answer(
    request: PlanRequest, documents: ModelDocuments, draft_documents: ModelDocuments | None = None
) -> tuple[Plan, ModelFacts]:
    """The plan of `request` with advice when it does not start, and the facts it was made from."""
    model = facts_for(request, documents, draft_documents)
    result = plan(request, model)
    if not result.will_start:
        result = replace(result, advice=advise(result, model, plan))
    return result, model
