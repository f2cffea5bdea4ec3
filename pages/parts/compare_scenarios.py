"""Side by side: two to four plans in columns, from the Plan page, a link, a log or a watched engine; differences marked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pandas as pd
import streamlit as st

from live.samples import EngineSnapshot
from pages.parts import compare_state, report_compare, state, watch_plan, watch_state, words
from pages.parts.compare_request import CompareInput
from pages.parts.compare_state import key
from pages.parts.language import mark, t
from pages.parts.said import said
from planner.answer import Plan
from planner.facts import PlanError
from planner.inventory import ModelDocuments
from planner.model_catalog import config_documents
from planner.request import PlanRequest
from planner.scenarios import MOST_SCENARIOS, ComparedRow, Scenario, compare, num_cards, request_of_log_text

_LONGEST_LINK = 100_000
_LONGEST_LOG = 2_000_000
_SECTIONS = {
    "asked": mark("Asked for"),
    "resolved": mark("Filled in by vLLM, where it differs"),
    "card": mark("The card that bounds the pool"),
    "capacity": mark("What the pool holds"),
}
_NAMES = {
    "model": mark("Model"),
    "gpu": mark("Card"),
    "num_cards": mark("Cards"),
    "other_processes_bytes": mark("Held by other processes"),
    "gpu_total": mark("CUDA total"),
    "will_start": mark("vLLM starts"),
    "max_model_len": mark("Longest request"),
    "tokens": mark("KV cache tokens"),
    "num_blocks": mark("KV blocks"),
    "max_concurrency": mark("Requests at once"),
    "estimated_max_model_len": mark("Longest length that would fit"),
    "bytes_per_block": mark("A block, all layers"),
    "kv_bytes_per_token": mark("Cache of one token"),
    "needed_bytes": mark("One request of the longest length"),
}
_ORIGINS = {
    "plan": mark("from the Plan page"),
    "link": mark("from a link"),
    "log": mark("from a log"),
    "live": mark("from the watched engine"),
}


def view(asked: CompareInput) -> None:
    """Draw where scenarios come from, and the table of those there are."""
    del asked
    with st.sidebar:
        _sources()
    st.header(t("Side by side"), anchor=False)
    held = compare_state.scenarios()
    if not held:
        st.info(
            t("Add two to four scenarios from the left: what differs between them is then marked."),
            icon=":material/compare_arrows:",
        )
        return
    _heads(held)
    if len(held) == 1:
        st.info(t("One more scenario, and differences are marked."), icon=":material/compare_arrows:")
    only = st.toggle(t("Only what differs"), key=key("only_differences"), persist_state="session") and len(held) > 1
    rows = [row for row in compare(held) if row.differs or not only]
    if not rows:
        st.info(t("Nothing differs."), icon=":material/check:")
        return
    _table(held, rows, marks=not only)


def _heads(held: Sequence[Scenario]) -> None:
    for place, (column, scenario) in enumerate(zip(st.columns(len(held), gap="small"), held, strict=True)):
        plan = scenario.plan
        sign = ":green[:material/check_circle:]" if plan.will_start else ":red[:material/cancel:]"
        with column, st.container(border=True):
            st.markdown(f"**{words.plain(scenario.name)}**")
            st.caption(said(_ORIGINS[scenario.origin]))
            st.markdown(f"{sign} {words.plain(said(plan.reason))}")
            for note in scenario.notes:
                st.caption(f":material/info: {words.plain(said(note))}")
            st.button(
                t("Take away"),
                key=key(f"remove_{place}"),
                icon=":material/close:",
                on_click=compare_state.remove_scenario,
                args=(place,),
            )


def table_of(scenarios: Sequence[Scenario], rows: Sequence[ComparedRow]) -> pd.DataFrame:
    """The rows as the page shows them, each section below its title: a sign where they differ, one column a scenario."""
    names = [words.plain(scenario.name) for scenario in scenarios]
    lines: list[dict[str, str]] = []
    for section, title in _SECTIONS.items():
        here = [row for row in rows if row.section == section]
        if here:
            lines.append({"≠": "", t("Line"): f"**{said(title)}**"} | dict.fromkeys(names, ""))
        for row in here:
            values = {name: words.plain(shown(row, value)) for name, value in zip(names, row.values, strict=True)}
            lines.append({"≠": "≠" if row.differs else "", t("Line"): _name(row)} | values)
    return pd.DataFrame(lines)


def _table(scenarios: Sequence[Scenario], rows: Sequence[ComparedRow], *, marks: bool) -> None:
    data = table_of(scenarios, rows)
    report_compare.scenarios(scenarios, data.to_dict("records"))
    bold = pd.DataFrame("", index=data.index, columns=data.columns)
    if marks:
        bold[data["≠"] != ""] = "font-weight: 650"
    styler: Any = data.style.apply(lambda _: bold, axis=None)
    st.table(styler, border="horizontal", hide_index=True, alt=t("The scenarios line by line"))


def _name(row: ComparedRow) -> str:
    if row.section == "card" and row.name != "gpu_total":
        return said(words.part_words(row.name).label)
    if row.section == "asked" and row.unit == "flag":
        return words.plain(words.flag_name(row.name))
    return said(_NAMES[row.name]) if row.name in _NAMES else words.plain(words.flag_name(row.name))


def shown(row: ComparedRow, value: object) -> str:
    """A value of a row with its unit."""
    if value is None:
        return "–"
    match row.unit:
        case "bytes" if isinstance(value, int):
            return words.small_bytes(value)
        case "times" if isinstance(value, float):
            return words.concurrency(value)
        case "count" if isinstance(value, int):
            return words.count(value)
        case "flag":
            yes_or_no = t("yes") if value else t("no")
            return yes_or_no if row.section == "capacity" else said(words.shown_value(value))
        case _:
            return str(value)


# -- where scenarios come from ----------------------------------------------------------------------------------------


def _sources() -> None:
    st.subheader(t("Add a scenario"), anchor=False)
    is_full = len(compare_state.scenarios()) >= MOST_SCENARIOS
    if is_full:
        st.info(t("Four stand side by side already; take one away first."), icon=":material/info:")
    for name, draw in (("plan", _from_plan), ("live", _from_engine), ("link", _from_link), ("log", _from_log)):
        if compare_state.value("problem_of") == name:
            problem: PlanError = compare_state.value("problem")
            st.error(words.plain(said(problem.text)), icon=":material/error:")
        draw(is_full=is_full)


def _from_plan(*, is_full: bool) -> None:
    _add_button(t("The Plan page's plan"), "add_plan", ":material/memory:", _add_plan, is_full=is_full)


def _from_engine(*, is_full: bool) -> None:
    _add_button(t("The watched engine"), "add_live", ":material/monitor_heart:", _add_engine, is_full=is_full)


def _from_link(*, is_full: bool) -> None:
    st.text_input(
        t("A link"), key=key("link"), placeholder=t("Paste a link of this dashboard"), persist_state="session"
    )
    _add_button(t("Add the link"), "add_link", ":material/link:", _add_link, is_full=is_full)


def _from_log(*, is_full: bool) -> None:
    st.text_area(t("A start-up log"), key=key("log"), placeholder=t("Paste vLLM's log"), persist_state="session")
    _add_button(t("Add the log"), "add_log", ":material/terminal:", _add_log, is_full=is_full)


def _add_button(label: str, field: str, icon: str, action: Callable[[], None], *, is_full: bool) -> None:
    st.button(label, key=key(field), icon=icon, on_click=action, disabled=is_full, width="stretch")


def _add_plan() -> None:
    answered = state.answer()
    if isinstance(answered, PlanError):
        _tell("plan", answered)
        return
    _add(Scenario(name=_title(answered.plan), origin="plan", plan=answered.plan))


def _add_link() -> None:
    try:
        request = request_of_link(compare_state.value("link") or "")
        documents, digest = documents_of(request)
        plan = compare_state.cached_plan(digest, request, documents)
    except PlanError as error:
        _tell("link", error)
        return
    _add(Scenario(name=_title(plan), origin="link", plan=plan))


def _add_log() -> None:
    text = (compare_state.value("log") or "")[:_LONGEST_LOG]  # a start stands at the log's beginning
    try:
        request, notes = request_of_log_text(text, state.request_or_first())
        documents, digest = documents_of(request)
        plan = compare_state.cached_plan(digest, request, documents)
    except PlanError as error:
        _tell("log", error)
        return
    _add(Scenario(name=_title(plan), origin="log", plan=plan, notes=notes))


def _add_engine() -> None:
    snapshot = _snapshot()
    if snapshot is None:
        _tell("live", PlanError("live", None, t("No engine is watched; give its address on the Watch page.")))
        return
    planned = watch_plan.planned_for(snapshot.engines[0], snapshot)
    if planned is None:
        text = t("The engine's model is not the Plan page's and not in the catalogue; load it on the Plan page first.")
        _tell("live", PlanError("live", None, text))
        return
    notes = planned.notes
    if planned.origin == "form":
        notes = (t("The engine serves the Plan page's model, so the Plan page's flags are taken."), *notes)
    _add(Scenario(name=_title(planned.plan), origin="live", plan=planned.plan, notes=notes))


def _snapshot() -> EngineSnapshot | None:
    """What was last read of the watched engine; None where nothing was."""
    recorder = watch_state.shown_recorder()
    snapshot = None if recorder is None else recorder.status().snapshot
    return snapshot if snapshot is not None and snapshot.engines else None


def _add(scenario: Scenario) -> None:
    compare_state.keep("problem_of", None)
    compare_state.add_scenario(scenario)


def _tell(source: str, problem: PlanError) -> None:
    compare_state.keep("problem_of", source)
    compare_state.keep("problem", problem)


def _title(plan: Plan) -> str:
    name = plan.request.model_id.rsplit("/", 1)[-1]
    return f"{name} · {num_cards(plan)} × {plan.gpu_name}"


def request_of_link(text: str) -> PlanRequest:
    """The request of a pasted link, whatever page it leads to; raises `PlanError` where it holds none."""
    if len(text) > _LONGEST_LINK:
        raise PlanError("link", None, t("The link is longer than any of ours."))
    query = dict(parse_qsl(urlsplit(text.strip()).query))
    for name in state.LINK_EXTRAS:
        query.pop(name, None)
    if not query:
        raise PlanError("link", text[:40], t("The link holds no plan; copy it from the Plan page or the address bar."))
    return PlanRequest.from_query(query)


def documents_of(request: PlanRequest) -> tuple[ModelDocuments, str]:
    """The model of a request that came from outside: uploaded with it, of this session, or of the catalogue."""
    if request.config_json is not None:
        return config_documents(
            request.config_json, request.model_id
        ), f"config:{hashlib.sha256(request.config_json.encode()).hexdigest()}"
    found = compare_state.known_model(request.model_id)
    if found is None:
        text = t(
            "{model} is not in the catalogue; load it on the Plan page from the Hub or a file, then add this again.",
            model=request.model_id[:80],
        )
        raise PlanError("model", request.model_id, text)
    return found.documents, found.digest
