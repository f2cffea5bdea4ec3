"""What a log ran, put together with what it does not say: the model's files and the card, chosen on the page."""

from __future__ import annotations

from dataclasses import dataclass

from pages.parts import state
from pages.parts.language import mark
from planner.facts import Finding, PlanError
from planner.inventory import ModelDocuments
from planner.model_catalog import catalogue_documents
from planner.request import PlanRequest
from planner.start_request import start_request
from planner.startup_facts import StartupLog

FROM_PLAN = ""  # the choice of the Plan page's own model


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that can be planned: the log's, on the chosen model and card."""

    request: PlanRequest
    documents: ModelDocuments
    findings: tuple[Finding, ...] = ()  # what the log does not say of its request


def asked(log: StartupLog, model_id: str | None, gpu: str | None) -> Asked:
    """The request of `log` on that model and card; raises `PlanError` for what is still missing."""
    if model_id is None:
        raise PlanError("model", state.NOT_LOADED, mark("Choose the model that this log is of."))
    if gpu is None:
        raise PlanError("gpu", state.NOT_LOADED, mark("Choose the card that this log is of."))
    documents = state.current_model().documents if model_id == FROM_PLAN else catalogue_documents(model_id)
    is_file = model_id == FROM_PLAN and state.value("source") == state.FILES
    base = PlanRequest(model_id=documents.model_id, gpu=gpu, config_json=documents.config_json if is_file else None)
    request, findings = start_request(log, base)
    return Asked(request=request, documents=documents, findings=findings)
