"""Lesson 4: paging against reservation."""

from __future__ import annotations

import streamlit as st

from pages.parts import learn_figures, words
from pages.parts import learn_numbers as numbers
from pages.parts.language import t
from pages.parts.learn_lesson import Exercise, Lesson, Slip, Trap
from pages.parts.learn_state import Learner, key
from pages.parts.said import said
from planner.folk_formulas import PAGE_CLAIM_BYTES, blocks_of, reserved_slots_wasted
from planner.units import KIB, MIB

_QUIET = {"displayModeBar": False}
_NUM_TOKENS, _BLOCK_SIZE, _RESERVED = 1_030, 16, 4_096


def paging(_learner: Learner) -> Lesson:
    """Lesson 4: why blocks."""
    return Lesson(
        slug="paging",
        goal=t("Say what a block is, what it wastes, and what reservation wasted."),
        minutes=10,
        text=t(
            "Nobody knows beforehand how long an answer gets. Servers of old therefore set aside room for the longest one, in one "
            "piece, and most of it stayed empty. vLLM cuts the pool into blocks of a few tokens and gives a request the next "
            "block when it needs one; a block table says where each of its tokens stands. The only waste is the last block, at "
            "most block_size − 1 slots. The figure runs 96 requests, most of them short, through a pool of 16,384 tokens under "
            "each allocator. Raise the longest length that is allowed, and see who pays for it."
        ),
        figure=_figure,
        exercise=_exercise(),
        traps=(_page_trap(), _small_block_trap(), _fragmentation_trap()),
        discussion=t("Blocks of one token would waste nothing. Why does nobody use them?"),
    )


def _exercise() -> Exercise:
    blocks = blocks_of(_NUM_TOKENS, _BLOCK_SIZE)
    wasted = blocks * _BLOCK_SIZE - _NUM_TOKENS
    return Exercise(
        question=t(
            "A request has come to {tokens} tokens, in blocks of {size}. How many token slots of its blocks stay empty?",
            tokens=f"{_NUM_TOKENS:,}",
            size=_BLOCK_SIZE,
        ),
        answer=wasted,
        unit=t("slots"),
        tolerance=0.0,
        slips=_slips(),
        hint=t("Blocks are given whole: round the tokens up to the next multiple of {size}.", size=_BLOCK_SIZE),
        explanation=t(
            "{blocks} blocks hold {slots} slots; {wasted} stay empty. A reservation of {reserved} tokens would leave {lost} "
            "empty.",
            blocks=blocks,
            slots=f"{blocks * _BLOCK_SIZE:,}",
            wasted=wasted,
            reserved=f"{_RESERVED:,}",
            lost=f"{reserved_slots_wasted(_NUM_TOKENS, _RESERVED):,}",
        ),
    )


def _slips() -> tuple[Slip, ...]:
    return (
        Slip(
            value=reserved_slots_wasted(_NUM_TOKENS, _RESERVED),
            text=t("That is what a reservation of {tokens} tokens would waste.", tokens=f"{_RESERVED:,}"),
        ),
        Slip(
            value=_NUM_TOKENS % _BLOCK_SIZE,
            text=t("So many slots of the last block are used; the rest is empty."),
        ),
    )


def _page_trap() -> Trap:
    plan = numbers.plan_of(numbers.MHA, max_model_len=2048)
    page = plan.pool.groups[0].page_bytes
    return Trap(
        claim=t("A page has {size} KB, or one token.", size=PAGE_CLAIM_BYTES // KIB),
        exact=t(
            "A block of Llama-2-7B holds {tokens} tokens: {page} KiB in each layer, {whole} MiB over all.",
            tokens=plan.pool.block_size,
            page=page // KIB,
            whole=f"{plan.pool.bytes_per_block / MIB:g}",
        ),
        why=t(
            "block_size counts tokens. Its bytes follow from the model; 16 KB are one token's keys and values in one layer."
        ),
    )


def _small_block_trap() -> Trap:
    return Trap(
        claim=t("Choose blocks of 8, 16 or 32 tokens by the mean length."),
        exact=said(numbers.refused(numbers.MHA, block_size=8, max_model_len=1024) or ""),
        why=t("Attention kernels of today read blocks of at least 16; hybrid models need far larger ones."),
    )


def _fragmentation_trap() -> Trap:
    uses = {use.allocator: use for use in numbers.pool_uses(_RESERVED)}
    return Trap(
        claim=t("Fragmentation makes vLLM report out of memory with 10 GB free."),
        exact=t(
            "Blocks of one size cannot fragment: paging served {paged} at once where the tightest contiguous fit served {fit}.",
            paged=f"{uses['paged'].mean_running:.0f}",
            fit=f"{uses['best_fit'].mean_running:.0f}",
        ),
        why=t(
            "Any free block serves any request. Fragmentation of PyTorch's allocator is real, but lies outside the pool."
        ),
    )


def _allocator_names() -> dict[str, str]:
    return {
        "paged": t("Blocks, as vLLM"),
        "max_length": t("Reserved to the longest length"),
        "power_of_two": t("Guessed to a power of two"),
        "best_fit": t("Length known beforehand, one piece"),
    }


def _figure() -> None:
    longest = st.segmented_control(
        t("Longest length allowed (tokens)"), (1024, 2048, 4096, 8192), default=4096, key=key("paging_longest")
    )
    uses = numbers.pool_uses(longest or 4096)
    names = _allocator_names()
    alt = words.listed_long(f"{names[use.allocator]} {use.mean_running:.1f}" for use in uses)
    figure = learn_figures.pool_use(uses, [names[use.allocator] for use in uses])
    st.plotly_chart(figure, key=key("paging_chart"), config=_QUIET, alt=alt)
