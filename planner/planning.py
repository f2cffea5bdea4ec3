"""The whole way from a model's files and a request to an answer with advice: what the page, the command line and scoring share."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from planner.advice import advise
from planner.answer import Plan
from planner.budget import plan
from planner.inventory import ModelDocuments, ModelFacts
from planner.model_config import read_model
from planner.request import PlanRequest
from planner.versions import Version, parse_version


def facts_for(request: PlanRequest, documents: ModelDocuments) -> ModelFacts:
    """The facts of `documents` as the request's vLLM release reads them; kept, as they serve many requests."""
    version = parse_version(request.vllm_version)
    return _facts(documents, request.flags.quantization, _minor(version))


def _minor(version: Version) -> int:
    return version.minor if version.major == 0 else 1000 * version.major + version.minor


@lru_cache(maxsize=64)
def _facts(documents: ModelDocuments, quantization: str | None, vllm_minor: int) -> ModelFacts:
    return read_model(documents, quantization=quantization, vllm_minor=vllm_minor)


def answer(request: PlanRequest, documents: ModelDocuments) -> tuple[Plan, ModelFacts]:
    """The plan of `request` with advice when it does not start, and the facts it was made from."""
    model = facts_for(request, documents)
    result = plan(request, model)
    if not result.will_start:
        result = replace(result, advice=advise(result, model, plan))
    return result, model
