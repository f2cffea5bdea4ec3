"""The plan's session state and caches; the only module that touches the link.

Widgets are keyed `plan_<field>`; the form's values live under these keys and outlast page switches.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from urllib.parse import urlencode, urlsplit

import streamlit as st

from pages.parts import calibration_choice, form
from pages.parts.language import mark, t
from pages.parts.page_state import PageState
from pages.parts.said import said
from pages.parts.what_if import WhatIf, length_sweep, what_ifs
from planner import budget, kv_cache, planning
from planner.answer import Plan
from planner.calibration import Calibration
from planner.defaults import resolve
from planner.facts import PlanError
from planner.inventory import ModelDocuments, ModelFacts
from planner.model_catalog import catalogue_documents, catalogue_ids, config_documents
from planner.request import PlanRequest
from planner.sweep import SweepSlice

CATALOGUE, HUB, FILES = SOURCES = (mark("Catalogue"), "Hugging Face", mark("File"))
FIRST_REQUEST = PlanRequest(model_id="Qwen/Qwen3-8B", gpu="H100 80GB SXM")
# The link's parameters beside the request's own, and the pages (by their address) that write them; "*" is every page.
LINK_EXTRAS: dict[str, tuple[str, ...]] = {
    "sim": ("simulate", "weigh"),
    "lesson": ("learn",),
    "teacher": ("learn",),
    "fit": ("compare",),
    "lang": ("*",),
}
NOT_LOADED = "not_loaded"  # the value of a PlanError that only says: nothing is chosen yet


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """Documents that a reader brought into this session, and the digest that stands for them in caches."""

    documents: ModelDocuments
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A plan with what it was made of; `digest` stands for the model in caches."""

    request: PlanRequest
    model: ModelFacts
    documents: ModelDocuments
    digest: str
    plan: Plan
    calibration: Calibration | None = None  # the constants that the request names, where they are held


# -- the session ------------------------------------------------------------------------------------------------------


_PAGE = PageState("plan")
key, value, keep, take = _PAGE.key, _PAGE.value, _PAGE.keep, _PAGE.take


def start_session() -> None:
    """Fill the form once a session: from the link when there is one, else with a first example."""
    if value("is_started"):
        return
    keep("is_started", True)
    fill(FIRST_REQUEST)
    keep("use_calibration", True)
    query = st.query_params.to_dict()
    for name in LINK_EXTRAS:
        keep(f"link_{name}", query.pop(name, None))
    if not query:
        return
    try:
        request = PlanRequest.from_query(query)
        fill(request)
        follow_calibration(request.calibration)
    except PlanError as error:
        fill(FIRST_REQUEST)
        said_error = said(error.text)
        keep("link_problem", t("This link cannot be read: {why} The first example is shown instead.", why=said_error))


def follow_calibration(name: str | None) -> None:
    """Plan with the calibration of that name, as a link says; None: with the general constants."""
    keep("use_calibration", name is not None)
    keep("linked_calibration", name)


def follow_held_calibration() -> None:
    """Plan with the calibration that is held for the card and release, as a fresh session does."""
    keep("use_calibration", True)
    keep("linked_calibration", None)


def drop_link_calibration() -> None:
    """Forget which calibration the link named: from now on the switch decides; for a callback."""
    keep("linked_calibration", None)


def calibration_of(request: PlanRequest) -> Calibration | None:
    """The constants that `request` names, None where they are not held here."""
    return calibration_choice.named(request.calibration)


def take_link_problem() -> str | None:
    """What was wrong with the link that opened this session, told once."""
    problem: str | None = take("link_problem")
    return problem


def link_extra(name: str) -> str | None:
    """What the link holds beside the request under `name`, one of `LINK_EXTRAS`: as it came (not read yet) or as kept."""
    text: str | None = value(f"link_{name}")
    return text


def keep_link_extra(name: str, text: str | None) -> None:
    """Let the link hold `text` under `name` on the pages that `LINK_EXTRAS` names; None leaves it out."""
    keep(f"link_{name}", text)


def write_link(page: str) -> None:
    """Put the form's present request and what `page` (its address, "" for the first) holds beside it into the address."""
    query = link_query(page)
    if st.query_params.to_dict() != query:
        st.query_params.from_dict(query)


def link_query(page: str) -> dict[str, str]:
    """The parameters that bring the form's present request back on `page`, with what that page keeps beside it."""
    try:
        query = current_request().to_query()
    except PlanError:
        query = {}
    for name, pages in LINK_EXTRAS.items():
        text = link_extra(name)
        if text is not None and ("*" in pages or page in pages):
            query[name] = text
    return query


def page_link() -> str | None:
    """The whole address that opens the present page as it is now; None where no browser has told its own."""
    base = (st.context.url or "").split("?", 1)[0]
    return f"{base}?{urlencode(link_query(urlsplit(base).path.strip('/')))}" if base else None


def link(request: PlanRequest) -> str:
    """The address that brings `request` back; raises `PlanError` for an upload that is too large for one."""
    base = (st.context.url or "").split("?", 1)[0]
    return f"{base}?{urlencode(request.to_query())}"


def fill(request: PlanRequest) -> None:
    """Fill the whole form from `request`."""
    for field, field_value in form.values_from(request).items():
        keep(field, field_value)
    _choose_model(request)


def request_or_first() -> PlanRequest:
    """The form's request, or the first example where the form makes none: what a pasted command changes."""
    try:
        return current_request()
    except PlanError:
        return FIRST_REQUEST


def has_field(flag: str) -> bool:
    """Whether the form has a field for `flag`."""
    return flag in form.FLAG_NAMES


def apply_flag(flag: str, flag_value: object) -> None:
    """Change one flag of the form, as an advice says."""
    keep(flag, form.shown_flag(flag, flag_value))


def _choose_model(request: PlanRequest) -> None:
    known = {model_id.lower(): model_id for model_id in catalogue_ids()}
    if request.config_json is not None:
        keep("source", FILES)
        hold_model(FILES, config_documents(request.config_json, request.model_id))
    elif request.model_id.lower() in known and request.revision is None:
        keep("source", CATALOGUE)
        keep("model_id", known[request.model_id.lower()])
    else:
        keep("source", HUB)
        keep("hub_id", request.model_id)
        keep("hub_revision", request.revision or "")


def is_dark() -> bool:
    """Whether the reader's browser shows the dark theme."""
    return st.context.theme.type == "dark"


# -- the model --------------------------------------------------------------------------------------------------------


def hold_model(source: str, documents: ModelDocuments) -> None:
    """Keep documents that were loaded from `source` for this session."""
    digest = hashlib.sha256(repr(documents).encode()).hexdigest()
    keep(f"loaded_{source}", LoadedModel(documents=documents, digest=digest))


def held_model(source: str) -> LoadedModel | None:
    """The documents that this session loaded from `source`."""
    held: LoadedModel | None = value(f"loaded_{source}")
    return held


def drop_model(source: str) -> None:
    """Forget what was loaded from `source`, so that a failed load cannot pass for the model before it."""
    keep(f"loaded_{source}", None)


def hub_choice() -> tuple[str, str]:
    """The Hub's model id and revision as they stand in the form; an empty revision is the main branch."""
    return (value("hub_id") or "").strip(), (value("hub_revision") or "").strip()


def current_model() -> LoadedModel:
    """The model that the form names; raises `PlanError` when there is none yet."""
    source = value("source")
    if source == CATALOGUE:
        model_id = value("model_id")
        if model_id is None:
            raise PlanError("model_id", NOT_LOADED, t("Choose a model from the catalogue."))
        return LoadedModel(documents=catalogue_documents(model_id), digest=f"catalogue:{model_id}")
    held = held_model(source)
    if source == HUB:
        return _current_hub_model(held)
    if held is None:
        raise PlanError("upload", NOT_LOADED, t("Upload a config.json, or give the path of a model folder."))
    return held


def _current_hub_model(held: LoadedModel | None) -> LoadedModel:
    hub_id, _ = hub_choice()
    if not hub_id:
        raise PlanError("hub_id", NOT_LOADED, t("Write a model's id, such as org/name, and press Load."))
    if held is None or value("hub_asked") != hub_choice():
        raise PlanError("hub_id", NOT_LOADED, t("Press Load to read {model} from the Hugging Face Hub.", model=hub_id))
    return held


# -- request, facts, plan ---------------------------------------------------------------------------------------------


def current_request() -> PlanRequest:
    """The request that the form describes now; raises `PlanError` at the field that stands in the way."""
    if value("source") == HUB:
        model_id, revision = hub_choice()
        return with_calibration(
            form.request_from(_PAGE.values(), model_id=model_id, revision=revision, config_json=None)
        )
    documents = current_model().documents
    is_upload = value("source") == FILES
    request = form.request_from(
        _PAGE.values(),
        model_id=documents.model_id,
        revision=None,
        config_json=documents.config_json if is_upload else None,
    )
    return with_calibration(request)


def with_calibration(request: PlanRequest) -> PlanRequest:
    """`request` with the name of the constants to plan with, as the switch and the link say."""
    is_used, linked = bool(value("use_calibration")), value("linked_calibration")
    return replace(request, calibration=calibration_choice.choose(request, is_used=is_used, linked=linked))


def answer() -> Answer | PlanError:
    """The plan of the form's present values, or the one mistake that stands in the way of it."""
    try:
        loaded = current_model()
        request = current_request()
        held = calibration_choice.named(request.calibration)
        plan = _plan(loaded.digest, request, loaded.documents, held, is_held=held is not None)
        model = planning.facts_for(request, loaded.documents)
        return Answer(
            request=request, model=model, documents=loaded.documents, digest=loaded.digest, plan=plan, calibration=held
        )
    except PlanError as problem:
        return problem


# Arguments with a leading underscore are not part of a cache's key: `digest` stands for them.


@st.cache_data(max_entries=512, show_spinner=False)
def _plan(
    digest: str,
    request: PlanRequest,
    _documents: ModelDocuments,
    _calibration: Calibration | None,
    *,
    is_held: bool,  # whether the calibration that the request names is here
) -> Plan:
    del digest, is_held
    return planning.answer(request, _documents, calibration=_calibration)[0]


@st.cache_data(max_entries=128, show_spinner=False)
def _what_ifs(digest: str, request: PlanRequest, _answered: Answer) -> tuple[WhatIf, ...]:
    del digest
    return what_ifs(request, _answered.model, _answered.plan, _answered.calibration)


@st.cache_data(max_entries=128, show_spinner=False)
def _sweep(digest: str, request: PlanRequest, _answered: Answer) -> tuple[SweepSlice, ...]:
    del digest
    return length_sweep(request, _answered.model, _answered.plan, _answered.calibration)


@st.cache_data(max_entries=512, show_spinner=False)
def _concurrency(digest: str, request: PlanRequest, length_tokens: int, num_blocks: int, _model: ModelFacts) -> float:
    del digest
    resolved = resolve(request, _model, budget.card_of(request))
    return kv_cache.max_concurrency(kv_cache.layout(_model, resolved), num_blocks, length_tokens)


def cached_what_ifs(answered: Answer) -> tuple[WhatIf, ...]:
    """The what-if tables around a plan."""
    return _what_ifs(answered.digest, answered.request, answered)


def cached_sweep(answered: Answer) -> tuple[SweepSlice, ...]:
    """Requests at once over all lengths, for the plan and two changes of it."""
    return _sweep(answered.digest, answered.request, answered)


def concurrency_at(answered: Answer, length_tokens: int) -> float:
    """How many requests of `length_tokens` the plan's pool holds at once."""
    blocks = answered.plan.pool.num_blocks
    return _concurrency(answered.digest, answered.request, length_tokens, blocks, answered.model)
