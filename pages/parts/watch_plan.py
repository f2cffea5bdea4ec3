"""The plan that a watched engine is set against, by name where the Plan page has another, and each difference with its cause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pandas as pd
import streamlit as st

from live.engine_request import EnginePlan, card_of, engine_plan
from live.nvml_beside import is_this_machine
from live.plan_comparison import EngineFacts, PlanComparison, compare_with_plan
from live.samples import CacheConfig, EngineIdentity, EngineSample, EngineSnapshot
from pages.parts import state, watch_state, watch_words, words
from pages.parts.language import t
from pages.parts.said import said
from pages.parts.watch_state import key
from planner import planning
from planner.answer import Plan
from planner.facts import PlanError
from planner.inventory import ModelDocuments
from planner.model_catalog import catalogue_documents
from planner.request import PlanRequest

PlanOrigin = Literal["form", "name"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan of the engine's model: the Plan page's own, or one made by the model's name; `notes` say what was chosen how."""

    plan: Plan
    documents: ModelDocuments
    digest: str
    origin: PlanOrigin
    notes: tuple[str, ...] = ()

    def replan(self, request: PlanRequest) -> Plan:
        """The plan of another request for the same model."""
        return _plan(self.digest, request, self.documents)


def planned_for(sample: EngineSample, snapshot: EngineSnapshot) -> Planned | None:
    """The plan of the engine's model; None where neither the Plan page nor the catalogue has it."""
    answered = watch_state.plan_answer()
    roots = [each.root or "" for each in snapshot.models]
    if not isinstance(answered, PlanError) and watch_words.serves(sample, roots, answered.plan):
        return Planned(plan=answered.plan, documents=answered.documents, digest=answered.digest, origin="form")
    known = watch_state.catalogue_id([sample.identity.model_name or "", *roots])
    if known is None:
        return None
    try:
        return _by_name(known, sample, snapshot)
    except PlanError:
        return None


def planned_now(sample: EngineSample, snapshot: EngineSnapshot) -> Planned | None:
    """As `planned_for`, once for all ticks of one run of the Watch page: its form is on another page and stands still."""
    asked = (watch_state.is_demo_shown(), sample.identity, sample.cache_config, facts_of(snapshot))
    return watch_state.remembered("planned", asked, lambda: planned_for(sample, snapshot))


def _by_name(model_id: str, sample: EngineSample, snapshot: EngineSnapshot) -> Planned:
    documents, digest = catalogue_documents(model_id), f"catalogue:{model_id}"
    asked = state.request_or_first()
    base = PlanRequest(
        model_id=model_id, gpu=asked.gpu, gpu_memory_bytes=asked.gpu_memory_bytes, vllm_version=asked.vllm_version
    )
    is_here = watch_state.replay() is None and is_this_machine(snapshot.source)
    base, card_note = card_of(watch_state.cards().gpus if is_here else None, base)
    facts = facts_of(snapshot)
    found = _engine_plan(digest, base, sample.identity, sample.cache_config, facts, documents)
    return Planned(plan=found.plan, documents=documents, digest=digest, origin="name", notes=(card_note, *found.notes))


# `digest` stands for the documents in the caches' keys.
@st.cache_data(max_entries=64, show_spinner=False)
def _engine_plan(
    digest: str,
    base: PlanRequest,
    identity: EngineIdentity,
    config: CacheConfig | None,
    facts: EngineFacts,
    _documents: ModelDocuments,
) -> EnginePlan:
    sample = EngineSample(time_unix_ns=0, identity=identity, cache_config=config)
    return engine_plan(base, sample, facts, lambda request: _plan(digest, request, _documents))


@st.cache_data(max_entries=256, show_spinner=False)
def _plan(digest: str, request: PlanRequest, _documents: ModelDocuments) -> Plan:
    del digest
    return planning.answer(request, _documents)[0]


def facts_of(snapshot: EngineSnapshot) -> EngineFacts:
    """What the server says beside an engine's sample."""
    return EngineFacts(
        vllm_version=snapshot.vllm_version,
        models=snapshot.models,
        num_engines=len(snapshot.engines),
        server_info=snapshot.server_info,
    )


def compared(planned: Planned, sample: EngineSample, snapshot: EngineSnapshot) -> PlanComparison:
    """The engine's pool beside the plan."""
    replan: Callable[[PlanRequest], Plan] = planned.replan
    return compare_with_plan(sample, planned.plan, facts_of(snapshot), replan)


def _compared_now(planned: Planned, sample: EngineSample, snapshot: EngineSnapshot) -> PlanComparison:
    asked = (planned.digest, planned.plan.request, sample.identity, sample.cache_config, facts_of(snapshot))
    return watch_state.remembered("compared", asked, lambda: compared(planned, sample, snapshot))


def beside_plan(sample: EngineSample, snapshot: EngineSnapshot, planned: Planned | None) -> None:
    """The section of the page: the numbers of both, and why they differ."""
    st.subheader(t("Beside the plan"), anchor=False)
    if planned is None:
        _without_plan(sample)
        return
    st.caption(words.plain(words.subject(planned.plan)))
    if planned.origin == "name":
        _made_by_name(planned)
    comparison = _compared_now(planned, sample, snapshot)
    st.dataframe(pd.DataFrame(watch_words.comparison_rows(comparison)), hide_index=True, key=key("comparison"))
    for cause in comparison.causes:
        st.markdown(f":material/help: {words.plain(said(cause.text))}")


def _made_by_name(planned: Planned) -> None:
    """Where this plan comes from, and the way to make it the Plan page's."""
    told = t(
        "The Plan page's form is of another model, so this plan was made for the served one by its name, with the flags that "
        "the engine exports."
    )
    st.markdown(f"{told} {words.plain(' '.join(planned.notes))}")
    model_id = planned.plan.request.model_id
    st.button(
        t("Plan {model}", model=words.plain(model_id)),
        key=key("plan_for"),
        icon=":material/memory:",
        on_click=watch_state.plan_for,
        args=(model_id,),
        help=t("Puts this model into the Plan page's form; card and flags there stay as they are."),
    )


def _without_plan(sample: EngineSample) -> None:
    served = words.plain(sample.identity.model_name or t("its model"))
    st.markdown(t("There is no plan for {model}, so no number has a prediction.", model=served))
    st.caption(
        t(
            "The catalogue does not know it by this name. Choose the model, card and flags on the Plan page; this page then compares."
        )
    )
