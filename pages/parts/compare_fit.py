"""What fits: the table of models against cards and counts, drawn as it grows, with one cell looked at closely."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import streamlit as st

from pages.parts import compare_fit_form, compare_grid, compare_state, report_compare, state, words
from pages.parts.compare_cells import FitTable, column_title, columns_of, filtered, rows_of, summary
from pages.parts.compare_request import KEPT_FLAGS, LONGEST, PUBLISHED, CompareInput
from pages.parts.compare_state import key
from pages.parts.language import t
from pages.parts.said import said
from planner import planning
from planner.facts import PlanError
from planner.gpu_catalog import find_gpu
from planner.inventory import ModelDocuments, ModelFacts
from planner.matrix import MatrixQuestion, Sheet, Split, sheet
from planner.model_catalog import catalogue_documents, search
from planner.request import EngineFlags, PlanRequest
from planner.versions import parse_version

_FIRST_ROWS = 8  # drawn at once; the rest when all are there


def view(asked: CompareInput) -> None:
    """Draw the form, the table and the cell that the reader picked."""
    base = _base(asked)
    with st.sidebar:
        problem = compare_fit_form.form(asked)
    title = _title(asked, base)
    if problem is not None:
        st.error(words.plain(said(problem.text)), icon=":material/error:")
        return
    table = _table(asked, base)
    if table is None:
        return
    search_text = st.text_input(
        t("Filter by name"), key=key("search"), placeholder=t("llama awq"), persist_state="session"
    )
    shown = filtered(table, search_text or "", only_starting=asked.only_starting)
    st.caption(f"{summary(shown)} {compare_grid.legend(asked.measure)}")
    if not shown.rows:
        st.info(t("No model's name has all these words."), icon=":material/search_off:")
        return
    compare_grid.grid(shown, is_dark=state.is_dark())
    _downloads(shown)
    report_compare.fit(shown, title, f"{summary(shown)} {compare_grid.legend(asked.measure)}")
    _picked(shown)
    compare_fit_form.practitioners(base)


def _title(asked: CompareInput, base: PlanRequest) -> str:
    """The title that was drawn."""
    if asked.measure == LONGEST:
        number = words.count(asked.num_requests)
        title = (
            t("The longest request that fits")
            if asked.num_requests == 1
            else t("The longest length of {number} requests at once", number=number)
        )
    else:
        title = t("Requests of {length} tokens at once", length=words.count(asked.length_tokens))
    flags = base.flags
    given = [
        f"{words.flag_name(name)} {words.shown_value(getattr(flags, name))}"
        for name in KEPT_FLAGS
        if getattr(flags, name) not in {None, False}
    ]
    under = t(
        "Under vLLM {version} with {flags}, as on the Plan page.", version=base.vllm_version, flags=", ".join(given)
    )
    plain = t("Under vLLM {version} with its defaults, as on the Plan page.", version=base.vllm_version)
    st.header(title, anchor=False)
    st.caption(words.plain(under if given else plain))
    return title


def _base(asked: CompareInput) -> PlanRequest:
    """The Plan page's release and such flags as mean the same for every model, with the length that is asked for."""
    present = state.request_or_first()
    kept: dict[str, Any] = {name: getattr(present.flags, name) for name in KEPT_FLAGS}
    is_auto_known = parse_version(present.vllm_version) >= (0, 14, 0)
    own_length: Literal["auto"] | None = "auto" if is_auto_known else None
    length = own_length if asked.measure == LONGEST else asked.length_tokens
    return PlanRequest(
        model_id="",
        vllm_version=present.vllm_version,
        usage_context=present.usage_context,
        other_processes_bytes=present.other_processes_bytes,
        compile_cache=present.compile_cache,
        flags=EngineFlags(max_model_len=length, **kept),
    )


# -- the rows ---------------------------------------------------------------------------------------------------------


def _table(asked: CompareInput, base: PlanRequest) -> FitTable | None:
    """The table, from the session when it was made before; drawn with its first rows while the rest is computed."""
    documents = _documents(asked)
    question = replace(asked, view="", only_starting=False), base, tuple(documents)
    held = compare_state.held_table(question)
    if held is not None:
        return held
    place, bar, table = st.empty(), st.empty(), None
    for done, total, table in _growing(asked, base, documents):
        if done == min(_FIRST_ROWS, total):
            with place.container():
                compare_grid.still(table, is_dark=state.is_dark())
        bar.progress(done / total, text=t("{done} of {total} models", done=done, total=total))
    place.empty()
    bar.empty()
    if table is not None:
        compare_state.hold_table(question, table)
    return table


def _documents(asked: CompareInput) -> dict[str, ModelDocuments | None]:
    """The models of the rows, the Plan page's first; None stands for the catalogue's own documents."""
    present, found = compare_state.present_model(), {}
    ids = [entry.model_id for entry in search() if entry.is_plannable] if asked.has_all_models else list(asked.models)
    if asked.has_all_models and present is not None:
        found[present.documents.model_id] = present.documents
    found |= dict(compare_state.hub_models())
    return found | {model_id: None for model_id in sorted(ids, key=str.lower) if model_id not in found}


def _growing(
    asked: CompareInput, base: PlanRequest, documents: dict[str, ModelDocuments | None]
) -> Iterator[tuple[int, int, FitTable]]:
    """After each model: how many are done, of how many, and the table so far."""
    question = _question(asked, base)
    table = FitTable(
        measure=asked.measure,
        num_requests=asked.num_requests,
        length_tokens=asked.length_tokens,
        columns=tuple((gpu.name, split.num_cards) for gpu in question.gpus for split in question.splits),
        rows=(),
    )
    for done, (model_id, own) in enumerate(documents.items(), 1):
        for weights in asked.weights:
            found = _sheet(question, model_id, own, weights)
            if found is not None:
                made, model = found
                table = replace(
                    table, columns=columns_of(made), rows=(*table.rows, *rows_of(made, asked.measure, weights, model))
                )
        yield done, len(documents), table


def _question(asked: CompareInput, base: PlanRequest) -> MatrixQuestion:
    return MatrixQuestion(
        request=base,
        gpus=tuple(find_gpu(name) for name in asked.cards),
        splits=tuple(Split(tensor_parallel_size=count) for count in sorted(asked.counts)),
        kv_dtypes=asked.kv_dtypes,
        num_requests=asked.num_requests,
    )


def _sheet(
    question: MatrixQuestion, model_id: str, own: ModelDocuments | None, weights: str
) -> tuple[Sheet, ModelFacts] | None:
    """A model's sheet and its facts; None where it cannot be quantised so, or not be read at all."""
    quantization = None if weights == PUBLISHED else weights
    request = replace(
        question.request, model_id=model_id, flags=replace(question.request.flags, quantization=quantization)
    )
    try:
        model = planning.facts_for(request, own or catalogue_documents(model_id))
    except PlanError:
        return None
    if quantization is not None and model.quantization is not None:
        return None  # a checkpoint that is quantised already stands in its own row
    return sheet(replace(question, request=replace(request, model_id="")), model), model


# -- below the table --------------------------------------------------------------------------------------------------


def _downloads(table: FitTable) -> None:
    st.download_button(
        "CSV",
        compare_grid.csv_text(table),
        "kvscope-what-fits.csv",
        "text/csv",
        key=key("fit_csv"),
        icon=":material/download:",
        on_click="ignore",
    )


def _picked(table: FitTable) -> None:
    """The plan of the picked cell: its verdict, what bounds it, and the way to the Plan page."""
    picked = compare_grid.picked(table)
    if picked is None:
        st.caption(t("Click a cell to see its plan."))
        return
    row, column = picked
    found, cell = table.cell(row, column)
    request = found.request(cell)
    quantization = None if table.rows[row].weights == PUBLISHED else table.rows[row].weights
    request = replace(request, flags=replace(request.flags, quantization=quantization))
    with st.container(border=True):
        _cell(table, row, column, request)


def _cell(table: FitTable, row: int, column: int, request: PlanRequest) -> None:
    name = f"{table.rows[row].model_id} · {column_title(table.columns[column])}"
    own = compare_state.known_model(request.model_id)
    if own is None:
        return  # it left the session since the table was made
    if own == state.held_model(state.FILES):
        request = replace(request, config_json=own.documents.config_json)
    try:
        plan = compare_state.cached_plan(own.digest, request, own.documents)
    except PlanError as error:
        st.markdown(f"**{words.plain(name)}** :red[:material/cancel:] {words.plain(said(error.text))}")
        return
    sign = ":green[:material/check_circle:]" if plan.will_start else ":red[:material/cancel:]"
    st.markdown(f"{sign} **{words.plain(name)}**  \n{words.plain(said(plan.reason))}")
    rank = plan.ranks[plan.bounding_rank]
    parts = [line for line in rank.lines if line.estimate.best_bytes and line.is_inside_budget]
    st.caption(words.plain(" · ".join(words.line_title(line) for line in parts)))
    st.button(
        t("Open in Plan"),
        key=key("open_cell"),
        icon=":material/open_in_new:",
        on_click=compare_state.open_in_plan,
        args=(request,),
    )
