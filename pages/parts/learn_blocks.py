"""Lessons 4 to 6: paging against reservation, sharing and copy-on-write, and what happens when the pool is full."""

from __future__ import annotations

import numpy as np
import streamlit as st

from pages.parts import learn_figures, words
from pages.parts import learn_numbers as numbers
from pages.parts.language import t
from pages.parts.learn_lesson import Exercise, Lesson, Slip, Trap
from pages.parts.learn_state import Learner, key
from pages.parts.said import said
from planner.folk_formulas import PAGE_CLAIM_BYTES, blocks_of, reserved_slots_wasted, shared_blocks_total
from planner.units import KIB, MIB

_QUIET = {"displayModeBar": False}
_POOLS = (400, 800, 1200, 1600)  # blocks
_SHARERS = (1, 2, 4, 8, 16)
_NUM_TOKENS, _BLOCK_SIZE, _RESERVED = 1_030, 16, 4_096
_PROMPT, _SHARED, _NUM_SHARERS = 120, 100, 8


def paging(_learner: Learner) -> Lesson:
    """Lesson 4: why blocks."""
    blocks = blocks_of(_NUM_TOKENS, _BLOCK_SIZE)
    wasted = blocks * _BLOCK_SIZE - _NUM_TOKENS
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
        figure=_paging_figure,
        exercise=Exercise(
            question=t(
                "A request has come to {tokens} tokens, in blocks of {size}. How many token slots of its blocks stay empty?",
                tokens=f"{_NUM_TOKENS:,}",
                size=_BLOCK_SIZE,
            ),
            answer=wasted,
            unit=t("slots"),
            tolerance=0.0,
            slips=(
                Slip(
                    value=reserved_slots_wasted(_NUM_TOKENS, _RESERVED),
                    text=t("That is what a reservation of {tokens} tokens would waste.", tokens=f"{_RESERVED:,}"),
                ),
                Slip(
                    value=_NUM_TOKENS % _BLOCK_SIZE,
                    text=t("So many slots of the last block are used; the rest is empty."),
                ),
            ),
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
        ),
        traps=(_page_trap(), _small_block_trap(), _fragmentation_trap()),
        discussion=t("Blocks of one token would waste nothing. Why does nobody use them?"),
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


def _paging_figure() -> None:
    longest = st.segmented_control(
        t("Longest length allowed (tokens)"), (1024, 2048, 4096, 8192), default=4096, key=key("paging_longest")
    )
    uses = numbers.pool_uses(longest or 4096)
    names = _allocator_names()
    alt = "; ".join(f"{names[use.allocator]} {use.mean_running:.1f}" for use in uses)
    figure = learn_figures.pool_use(uses, [names[use.allocator] for use in uses])
    st.plotly_chart(figure, key=key("paging_chart"), config=_QUIET, alt=alt)


def sharing(_learner: Learner) -> Lesson:
    """Lesson 5: one block, many owners."""
    run = numbers.shared_run(_NUM_SHARERS, _PROMPT, _SHARED)
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
        figure=_sharing_figure,
        exercise=Exercise(
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
            slips=(
                Slip(value=run.without_sharing, text=t("That is without sharing.")),
                Slip(
                    value=blocks_of(_SHARED, 16) + _NUM_SHARERS * (blocks_of(_PROMPT, 16) - blocks_of(_SHARED, 16)),
                    text=t("The seventh block is not full with shared tokens, so it cannot be shared."),
                ),
            ),
            hint=t("How many blocks are full with shared tokens? Those count once, the others for each request."),
            explanation=t(
                "{shared} // 16 = {full} blocks are shared. Each request needs {each} in all, so {own} of its own: {full} + "
                "{requests} × {own} = {answer}. Without sharing it would be {without}. The simulator counts the same.",
                shared=_SHARED,
                full=_SHARED // 16,
                each=blocks_of(_PROMPT, 16),
                own=blocks_of(_PROMPT, 16) - _SHARED // 16,
                requests=_NUM_SHARERS,
                answer=shared_blocks_total(_NUM_SHARERS, _PROMPT, _SHARED, 16),
                without=run.without_sharing,
            ),
        ),
        traps=(
            Trap(
                claim=t("When requests diverge, vLLM copies the block on write."),
                exact=t(
                    "V0 did. In V1 no block is ever copied: full blocks are shared and never written, the rest is recomputed."
                ),
                why=t("A last block that is not full belongs to one request alone, so there is nothing to copy."),
            ),
        ),
        discussion=t(
            "A chat puts the date with seconds at the start of its system prompt. What does that do to the hit rate?"
        ),
    )


def _sharing_figure() -> None:
    shared = st.slider(t("Tokens of the shared system prompt"), 0, 480, 256, 16, key=key("sharing_tokens"))
    runs = [numbers.shared_run(number, shared + 64, shared) for number in _SHARERS]
    alt = "; ".join(f"{run.num_requests}: {run.with_sharing} / {run.without_sharing}" for run in runs)
    st.plotly_chart(learn_figures.sharing(runs), key=key("sharing_chart"), config=_QUIET, alt=alt)


def preemption(_learner: Learner) -> Lesson:
    """Lesson 6: a full pool."""
    swapped = sum(len(frame.swapped_out) for frame in numbers.v0_run(_POOLS[1], "swap"))
    recomputed = numbers.preempting_run(_POOLS[1]).summary
    return Lesson(
        slug="preemption",
        goal=t("Recognise a pool that is too small, and know what each engine generation does about it."),
        minutes=12,
        text=t(
            "Requests are let in by what they need now, and then they grow. When the pool is full and a running request needs one "
            "more block, somebody must give way: the request that came last gives all its blocks back and returns to the queue. "
            "V1 computes its tokens again when there is room, from what is still found in the cache. V0 could also move its blocks "
            "to host memory, which `--swap-space` reserved. KV offloading of today is a third thing: it keeps evicted prefixes in "
            "host memory for later requests. The figure gives 24 requests of 256 + 768 tokens a pool of your choice."
        ),
        figure=_preemption_figure,
        exercise=Exercise(
            question=t(
                "vLLM V1, the pool is full, a running request needs a block. What becomes of the request that came last?"
            ),
            choices=(
                t("Its blocks move to host memory and come back later."),
                t("Its blocks are freed, and it is computed again later."),
                t("It waits for a block, but keeps what it has."),
                t("It ends with an error."),
            ),
            answer=1,
            hint=t("Look at what the scheduler frees, and at the flags that the release has: is there a swap space?"),
            explanation=t(
                "It is preempted: all its blocks are freed, it goes to the front of the queue, and its tokens are computed again. "
                "With {blocks} blocks that happens {times} times and costs {tokens} tokens computed twice; V0 with a swap space "
                "moved requests out {swapped} times instead.",
                blocks=_POOLS[1],
                times=recomputed.num_preemptions,
                tokens=f"{recomputed.recomputed_tokens:,}",
                swapped=swapped,
            ),
        ),
        traps=(_swap_trap(), _dry_run_trap()),
        discussion=t("Fewer requests at once can finish the same work sooner. When, and why?"),
    )


def _swap_trap() -> Trap:
    blocks = numbers.v0_plan(numbers.MHA, max_model_len=2048, swap_space=16.0)
    host = next((line for line in blocks.host if line.name == "swap_space"), None)
    size = words.gib(host.estimate.best_bytes) if host is not None else "16 GiB"
    return Trap(
        claim=t("Set swap_space to twice the card's memory, or throughput falls to a third."),
        exact=t("In V0, {size} of host memory a card; in V1 the flag does nothing and left vLLM with 0.18.", size=size),
        why=t(
            "V1 recomputes. What helps there is a bigger pool, an 8-bit cache, fewer requests at once, or KV offloading."
        ),
    )


def _dry_run_trap() -> Trap:
    at_once = numbers.preempting_run(_POOLS[1], max_num_seqs=12).summary
    free = numbers.preempting_run(_POOLS[1]).summary
    return Trap(
        claim=t("vLLM's dry_run mode tells how many requests fit."),
        exact=t(
            "There is no such mode. The simulator's answer: 12 at once take {limited} steps with {none} preemptions, without a limit "
            "{steps} steps with {times}.",
            limited=f"{at_once.num_steps:,}",
            none=at_once.num_preemptions,
            steps=f"{free.num_steps:,}",
            times=free.num_preemptions,
        ),
        why=t("The Compare page runs such a sweep over your own lengths."),
    )


def _preemption_figure() -> None:
    blocks = st.segmented_control(t("Blocks in the pool"), _POOLS, default=_POOLS[1], key=key("preemption_pool"))
    run = numbers.preempting_run(blocks or _POOLS[1])
    usable = run.timeline.config.num_usable_blocks
    used = usable - run.timeline.column("free_blocks")
    preempted = np.flatnonzero(np.diff(run.timeline.column("preemptions"), prepend=0.0))
    found = run.summary
    sentence = t(
        "{steps} steps, {times} preemptions, {tokens} tokens computed again.",
        steps=f"{found.num_steps:,}",
        times=found.num_preemptions,
        tokens=f"{found.recomputed_tokens:,}",
    )
    st.markdown(sentence)
    figure = learn_figures.usage_and_queue(list(used), [int(place) for place in preempted], usable, t("Blocks"))
    st.plotly_chart(figure, key=key("preemption_chart"), config=_QUIET, alt=sentence)
