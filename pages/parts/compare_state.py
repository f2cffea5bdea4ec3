"""Session state of the Compare page: its choices, the table last made, scenarios and prices.

Widgets are keyed `compare_<field>`; the fields are those of `CompareInput`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import streamlit as st

from pages.parts import compare_request, state
from pages.parts.compare_cells import FitTable
from pages.parts.compare_job import CompareJob
from pages.parts.compare_request import FIRST, CompareInput
from pages.parts.page_state import PageState
from pages.parts.state import LoadedModel
from planner import planning
from planner.answer import Plan
from planner.facts import PlanError
from planner.inventory import ModelDocuments
from planner.model_catalog import catalogue_documents, catalogue_ids
from planner.request import PlanRequest
from planner.scenarios import MOST_SCENARIOS, Scenario

_FIELDS = tuple(field.name for field in fields(CompareInput))


_PAGE = PageState("compare")
key, value, keep, take = _PAGE.key, _PAGE.value, _PAGE.keep, _PAGE.take


def start_page() -> None:
    """Fill the form once a session: from the link when it holds a comparison, else as on a first visit."""
    if value("is_started"):
        return
    keep("is_started", True)
    fill(FIRST)
    keep("currency", "USD")
    text = state.link_extra("fit")
    if text is None:
        return
    try:
        fill(compare_request.from_link(text))
    except PlanError as problem:
        keep("link_problem", problem)


def take_link_problem() -> PlanError | None:
    """What was wrong with the link's comparison, told once."""
    problem: PlanError | None = take("link_problem")
    return problem


def fill(asked: CompareInput) -> None:
    """Fill the whole form."""
    for name in _FIELDS:
        held = getattr(asked, name)
        keep(name, list(held) if isinstance(held, tuple) else held)


def asked_now() -> CompareInput:
    """What the form says."""
    found: dict[str, Any] = {}
    for name in _FIELDS:
        held = value(name)
        if held is not None:
            found[name] = tuple(held) if isinstance(held, list | tuple) else held
    return replace(FIRST, **found)


def keep_link() -> None:
    """Let the link hold what the form says."""
    state.keep_link_extra("fit", compare_request.to_link(asked_now()))


# -- what fits --------------------------------------------------------------------------------------------------------


def held_table(asked: object) -> FitTable | None:
    """The table last made, when it was made for `asked`."""
    held = value("fit_table")
    return held[1] if held is not None and held[0] == asked else None


def hold_table(asked: object, table: FitTable) -> None:
    """Keep the table made for `asked`."""
    keep("fit_table", (asked, table))


def hub_models() -> Mapping[str, ModelDocuments]:
    """The models that this session brought from the Hub for comparing, by id."""
    held: dict[str, ModelDocuments] | None = value("hub_models")
    return held or {}


def hold_hub_models(found: Mapping[str, ModelDocuments]) -> None:
    """Add models from the Hub to the table's rows."""
    keep("hub_models", {**hub_models(), **found})


def present_model() -> LoadedModel | None:
    """The Plan page's model; None where it names none."""
    try:
        return state.current_model()
    except PlanError:
        return None


def known_model(model_id: str) -> LoadedModel | None:
    """The model of that id that this session brought, else the catalogue's; None where neither has it."""
    present = present_model()
    held = (present, *(state.held_model(source) for source in state.SOURCES))
    found = next((each for each in held if each is not None and each.documents.model_id == model_id), None)
    if found is not None:
        return found
    documents = hub_models().get(model_id)
    if documents is not None:
        return LoadedModel(documents=documents, digest=hashlib.sha256(repr(documents).encode()).hexdigest())
    known = {each.lower(): each for each in catalogue_ids()}.get(model_id.lower())
    return None if known is None else LoadedModel(documents=catalogue_documents(known), digest=f"catalogue:{known}")


def selected_cell() -> tuple[int, str] | None:
    """(row, column title) of the cell that the reader picked in the table of what fits."""
    cells = (value("fit_grid") or {}).get("selection", {}).get("cells", [])
    if not cells:
        return None
    row, name = cells[0]
    return int(row), str(name)


def open_in_plan(request: PlanRequest) -> None:
    """Callback: put a cell's request into the Plan page's form."""
    state.fill(request)
    keep("goes_to_plan", True)


def takes_to_plan() -> bool:
    """Whether the reader asked to see a cell on the Plan page; told once."""
    return bool(take("goes_to_plan"))


# -- side by side -----------------------------------------------------------------------------------------------------


def scenarios() -> tuple[Scenario, ...]:
    """The scenarios that stand side by side."""
    held: tuple[Scenario, ...] | None = value("scenario_list")
    return held or ()


def add_scenario(scenario: Scenario) -> None:
    """Put one more beside the others; the names stay distinct."""
    held = scenarios()
    if len(held) >= MOST_SCENARIOS:
        return
    names = {each.name for each in held}
    name, number = scenario.name, 2
    while name in names:
        name, number = f"{scenario.name} ({number})", number + 1
    keep("scenario_list", (*held, replace(scenario, name=name)))


def remove_scenario(place: int) -> None:
    """Callback: take one away."""
    held = scenarios()
    keep("scenario_list", (*held[:place], *held[place + 1 :]))


@st.cache_data(max_entries=128, show_spinner=False)
def cached_plan(digest: str, request: PlanRequest, _documents: ModelDocuments) -> Plan:
    """The plan of a scenario; `digest` stands for the model's documents."""
    del digest
    return planning.answer(request, _documents)[0]


# -- prices -----------------------------------------------------------------------------------------------------------


def price_rows(cards: Sequence[str]) -> list[dict[str, Any]]:
    """The price table's rows for `cards` as it starts from: what the reader typed before, empty where nothing was.

    They stay the same objects' values while the table stands, since a changed start would drop what is typed into it.
    """
    started: tuple[tuple[str, ...], list[dict[str, Any]]] | None = value("price_start")
    if started is None or started[0] != tuple(cards) or key("price_table") not in st.session_state:
        held: dict[str, dict[str, Any]] = value("price_rows") or {}
        empty = {"per_hour": None, "power_limit_watts": None}
        started = tuple(cards), [{"card": card, **held.get(card, empty)} for card in cards]
        keep("price_start", started)
        st.session_state.pop(key("price_table"), None)
    return started[1]


def hold_price_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Keep what the reader typed into the price table."""
    held = dict(value("price_rows") or {})
    for row in rows:
        held[str(row["card"])] = {name: row.get(name) for name in ("per_hour", "power_limit_watts")}
    keep("price_rows", held)


# -- runs -------------------------------------------------------------------------------------------------------------


def job_of(name: str, question: object, work: Callable[[CompareJob[Any]], Any]) -> CompareJob[Any]:
    """The run called `name` of what is asked; another one of that name that is still under way ends."""
    held: tuple[object, CompareJob[Any]] | None = value(f"job_{name}")
    if held is not None and held[0] == question:
        return held[1]
    if held is not None:
        held[1].stop()
    job = CompareJob(work)
    keep(f"job_{name}", (question, job))
    return job


def forget_job(name: str) -> None:
    """Callback: let the run called `name` be made anew."""
    keep(f"job_{name}", None)


# -- this machine's cards ---------------------------------------------------------------------------------------------


def enforced_watts(card: str) -> int | None:
    """The power limit that this machine's driver holds its `card` to; None where it was not asked, or has another card."""
    held: tuple[str, int] | None = state.value("detected_power")
    return held[1] if held is not None and held[0] == card else None
