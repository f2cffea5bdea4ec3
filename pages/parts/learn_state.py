"""What the Learn page keeps in a session: the open lesson, the attempts, the teacher's view, and the learner's own model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from pages.parts import learn_progress, state, words
from pages.parts.language import t
from pages.parts.learn_lesson import Attempt
from pages.parts.page_state import PageState
from pages.parts.said import said
from planner.answer import Plan
from planner.calibration import Calibration
from planner.facts import PlanError
from planner.inventory import ModelDocuments, ModelFacts
from planner.planning import answer
from planner.request import EngineFlags, PlanRequest

SLUGS = ("weights", "token", "attention", "paging", "sharing", "preemption", "budget", "live")
_ROOMY_CARD = "B300 288GB"
_FLAGS_OF_MODEL = ("dtype", "quantization", "language_model_only", "enable_expert_parallel")  # what its weights follow


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """The model of the Plan page, which the lessons take as the learner's own."""

    model_id: str
    documents: ModelDocuments
    request: PlanRequest
    facts: ModelFacts | None
    plan: Plan | None
    calibration: Calibration | None = None
    is_example: bool = False  # the Plan page has no model now
    has_own_flags: bool = True  # the Plan page's flags make a plan

    def plan_with(self, **flags: Any) -> Plan | None:  # by vLLM's names
        """The plan of the model on a card with room, with `flags`; None where the model allows none."""
        own = {name: getattr(self.request.flags, name) for name in _FLAGS_OF_MODEL}
        request = replace(
            self.request,
            gpu=_ROOMY_CARD,
            gpu_memory_bytes=None,
            calibration=None,
            flags=EngineFlags(**(own | {"max_model_len": self.length_up_to(1024)} | flags)),
        )
        return self.plan_of(request)

    def plan_at(self, share: float) -> Plan | None:
        """The Plan page's own plan at `gpu_memory_utilization` = `share`; None where there is none."""
        flags = self.request.flags
        own = replace(
            flags,
            gpu_memory_utilization=share,
            kv_cache_memory_bytes=None,
            num_gpu_blocks_override=None,
            max_model_len=flags.max_model_len or self.length_up_to(8192),
        )
        return self.plan_of(replace(self.request, flags=own), self.calibration)

    def plan_of(self, request: PlanRequest, calibration: Calibration | None = None) -> Plan | None:
        """The plan of `request`; None, and a sentence on the page, where the model allows none."""
        try:
            return answer(request, self.documents, calibration=calibration)[0]
        except PlanError as problem:
            st.info(words.plain(said(problem.text)), icon=":material/info:")
            return None

    def length_up_to(self, num_tokens: int) -> int:
        """`num_tokens`, or the model's own longest length where that is less."""
        return num_tokens if self.facts is None else min(num_tokens, self.facts.max_position)


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
    """The Plan page's model; without its flags where they make no plan, and the first example where there is no model."""
    answered = state.answer()
    if isinstance(answered, PlanError):
        return _model_alone() or _first_example()
    return Learner(
        model_id=answered.request.model_id,
        documents=answered.documents,
        request=answered.request,
        facts=answered.model,
        plan=answered.plan,
        calibration=answered.calibration,
    )


def _model_alone() -> Learner | None:
    """The Plan page's model with vLLM's defaults on the first example's card; None where it has none."""
    try:
        documents = state.current_model().documents
        request = replace(state.FIRST_REQUEST, model_id=documents.model_id)
        plan, facts = answer(request, documents)
    except PlanError:
        return None
    return Learner(
        model_id=request.model_id, documents=documents, request=request, facts=facts, plan=plan, has_own_flags=False
    )


def _first_example() -> Learner:
    from planner.model_catalog import catalogue_documents  # noqa: PLC0415 - only where the form has no model

    request = state.FIRST_REQUEST
    documents = catalogue_documents(request.model_id)
    plan, facts = answer(request, documents)
    return Learner(
        model_id=request.model_id, documents=documents, request=request, facts=facts, plan=plan, is_example=True
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
    """The session's progress as a file."""
    return learn_progress.to_json({slug: attempt(slug) for slug in SLUGS})


def take_progress() -> None:
    """Go on from the progress file that was just given; what is wrong with it is kept for the page to say."""
    given = value("progress_file")
    if given is None:
        return
    try:
        keep("attempts", learn_progress.from_json(given.getvalue(), SLUGS))
    except PlanError as problem:
        keep("progress_problem", problem.text)
