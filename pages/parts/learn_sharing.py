"""Lesson 5: one block with many owners, and what happens where requests part."""

from __future__ import annotations

import streamlit as st

from pages.parts import learn_figures, words
from pages.parts import learn_numbers as numbers
from pages.parts.language import t
from pages.parts.learn_lesson import Exercise, Lesson, Slip, Trap
from pages.parts.learn_state import Learner, key
from planner.folk_formulas import blocks_of, shared_blocks_total

_QUIET = {"displayModeBar": False}
_SHARERS = (1, 2, 4, 8, 16)
_BLOCK_SIZE = 16
_PROMPT, _SHARED, _NUM_SHARERS = 120, 100, 8


def sharing(_learner: Learner) -> Lesson:
    """Lesson 5: one block, many owners."""
    return Lesson(
        slug="sharing",
        goal=t("Count blocks when requests begin alike, and say what happens where they part."),
        minutes=10,
        text=t(
            "Two requests with the same system prompt need its keys and values once. vLLM gives every full block a hash of its "
            "tokens and of all before them; a request whose prompt begins with the same hashes takes the same physical blocks, "
            "and a counter says how many hold each. Only full blocks are shared. Where two requests part within a block, each "
            "computes that block for itself. A freed block keeps its content until somebody needs it, so the next request may "
            "still find it."
        ),
        figure=_figure,
        exercise=_exercise(),
        traps=(_copy_trap(),),
        discussion=t(
            "A chat puts the date with seconds at the start of its system prompt. What does that do to the hit rate?"
        ),
    )


def _exercise() -> Exercise:
    run = numbers.shared_run(_NUM_SHARERS, _PROMPT, _SHARED)
    each, full = blocks_of(_PROMPT, _BLOCK_SIZE), _SHARED // _BLOCK_SIZE
    return Exercise(
        question=t(
            "{requests} requests run at once. Each prompt has {prompt} tokens, the first {shared} of them the same system "
            "prompt; blocks hold 16. How many blocks do they hold together?",
            requests=_NUM_SHARERS,
            prompt=_PROMPT,
            shared=_SHARED,
        ),
        answer=run.with_sharing,
        unit=t("blocks"),
        tolerance=0.0,
        slips=_slips(run.without_sharing, each),
        hint=t("How many blocks are full with shared tokens? Those count once, the others for each request."),
        explanation=t(
            "{shared} // 16 = {full} blocks are shared. Each request needs {each} in all, so {own} of its own: {full} + "
            "{requests} × {own} = {answer}. Without sharing it would be {without}. The simulator counts the same.",
            shared=_SHARED,
            full=full,
            each=each,
            own=each - full,
            requests=_NUM_SHARERS,
            answer=shared_blocks_total(_NUM_SHARERS, _PROMPT, _SHARED, _BLOCK_SIZE),
            without=run.without_sharing,
        ),
    )


def _slips(without_sharing: int, blocks_each: int) -> tuple[Slip, ...]:
    begun = blocks_of(_SHARED, _BLOCK_SIZE)  # with the block that is not full
    return (
        Slip(value=without_sharing, text=t("That is without sharing.")),
        Slip(
            value=begun + _NUM_SHARERS * (blocks_each - begun),
            text=t("The seventh block is not full with shared tokens, so it cannot be shared."),
        ),
        Slip(value=_SHARED // _BLOCK_SIZE, text=t("Those are the shared ones. Each request has some of its own.")),
    )


def _copy_trap() -> Trap:
    run = numbers.shared_run(_NUM_SHARERS, _PROMPT, _SHARED)
    shared = _SHARED // _BLOCK_SIZE
    return Trap(
        claim=t("When requests diverge, vLLM copies the block on write."),
        exact=t(
            "V0 did. In V1 no block is ever copied: of the {total} blocks above, {shared} are shared and never written, and the "
            "{own} others were each computed by the request that holds them.",
            total=run.with_sharing,
            shared=shared,
            own=run.with_sharing - shared,
        ),
        why=t("A last block that is not full belongs to one request alone, so there is nothing to copy."),
    )


def _figure() -> None:
    shared = st.slider(t("Tokens of the shared system prompt"), 0, 480, 256, 16, key=key("sharing_tokens"))
    runs = [numbers.shared_run(number, shared + 64, shared) for number in _SHARERS]
    alt = words.listed_long(
        t(
            "{requests} requests: {shared} blocks, {whole} without sharing",
            requests=run.num_requests,
            shared=run.with_sharing,
            whole=run.without_sharing,
        )
        for run in runs
    )
    st.plotly_chart(learn_figures.sharing(runs), key=key("sharing_chart"), config=_QUIET, alt=alt)
