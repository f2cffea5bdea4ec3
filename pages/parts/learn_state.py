"""What the Learn page keeps in a session: the open lesson, the attempts, the teacher's view, and the learner's own model."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

import streamlit as st

from pages.parts import state
from pages.parts.language import t
from pages.parts.learn_lesson import Attempt
from pages.parts.page_state import PageState
from pages.parts.said import said
from planner.answer import Plan
from planner.facts import PlanError
from planner.inventory import ModelDocuments, ModelFacts
from planner.planning import answer
from planner.request import EngineFlags, PlanRequest

SLUGS = ("weights", "token", "attention", "paging", "sharing", "preemption", "budget", "live")
_ROOMY_CARD = "B300 288GB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """The model of the Plan page, which the lessons take as the learner's own."""

    model_id: str
    documents: ModelDocuments
    request: PlanRequest
    facts: ModelFacts | None
    plan: Plan | None
    is_example: bool = False  # the Plan page has no plan of its own now

    def plan_with(self, gpu: str | None = None, **flags: Any) -> Plan | None:  # by vLLM's names
        """The plan of the model on a card with room, or on `gpu`, with `flags`; None where the model allows none."""
        longest = 1024 if self.facts is None else min(1024, self.facts.max_position)
        request = PlanRequest(
            model_id=self.model_id,
            config_json=self.request.config_json,
            vllm_version=self.request.vllm_version,
            gpu=gpu or _ROOMY_CARD,
            flags=EngineFlags(**({"max_model_len": longest} | flags)),
        )
        try:
            return answer(request, self.documents)[0]
        except PlanError as problem:
            st.info(said(problem.text), icon=":material/info:")
            return None


def titles() -> dict[str, str]:
    """What the lessons are called, in their order."""
    return {
        "weights": t("The bill: weights"),
        "token": t("What one token costs"),
        "attention": t("Shared heads, latents, windows"),
        "paging": t("Paging against reservation"),
        "sharing": t("Sharing, and copy-on-write"),
        "preemption": t("Preemption, swap, offload"),
        "budget": t("The budget that vLLM computes"),
        "live": t("Reading a live engine"),
    }


_PAGE = PageState("learn")
key, value, keep, take = _PAGE.key, _PAGE.value, _PAGE.keep, _PAGE.take


def learner() -> Learner:
    """The Plan page's model; its first example where that page has none."""
    answered = state.answer()
    if isinstance(answered, PlanError):
        from planner.model_catalog import catalogue_documents  # noqa: PLC0415 - only where the form makes no plan

        request = state.FIRST_REQUEST
        documents = catalogue_documents(request.model_id)
        plan, facts = answer(request, documents)
        return Learner(
            model_id=request.model_id, documents=documents, request=request, facts=facts, plan=plan, is_example=True
        )
    return Learner(
        model_id=answered.request.model_id,
        documents=answered.documents,
        request=answered.request,
        facts=answered.model,
        plan=answered.plan,
    )


def start_page() -> None:
    """Open the lesson and the view that the link names, once a session."""
    if value("is_started"):
        return
    keep("is_started", True)
    asked = state.link_extra("lesson")
    keep("lesson", asked if asked in SLUGS else SLUGS[0])
    keep("is_teacher", state.link_extra("teacher") == "1")
    keep("attempts", {})


def open_lesson(slug: str) -> None:
    """Show the lesson `slug`."""
    keep("lesson", slug)


def keep_link() -> None:
    """Let the address name the open lesson and the view."""
    state.keep_link_extra("lesson", value("lesson"))
    state.keep_link_extra("teacher", "1" if value("is_teacher") else None)


def attempt(slug: str) -> Attempt:
    """What was done with the exercise of lesson `slug` so far."""
    found: Attempt = (value("attempts") or {}).get(slug, Attempt())
    return found


def keep_attempt(slug: str, new: Attempt) -> None:
    """Note what was done with the exercise of lesson `slug`."""
    keep("attempts", {**(value("attempts") or {}), slug: new})


def note_hint(slug: str) -> None:
    """Note that the hint was looked at."""
    keep_attempt(slug, replace(attempt(slug), used_hint=True))


def note_answer(slug: str) -> None:
    """Note that the answer was looked at."""
    keep_attempt(slug, replace(attempt(slug), saw_answer=True))


def num_solved() -> int:
    """Exercises solved in this session."""
    return sum(attempt(slug).is_solved for slug in SLUGS)


def progress_json() -> str:
    """The session's progress as JSON: each lesson with tries, whether it was solved, and what help was used."""
    rows = [{"lesson": slug, **asdict(attempt(slug))} for slug in SLUGS]
    return json.dumps({"lessons": rows, "num_solved": num_solved(), "num_lessons": len(SLUGS)}, indent=1)
