"""Lesson 6: what becomes of requests when the pool is full, in each engine generation."""

from __future__ import annotations

import numpy as np
import streamlit as st

from pages.parts import learn_figures, words
from pages.parts import learn_numbers as numbers
from pages.parts.language import t
from pages.parts.learn_lesson import Exercise, Lesson, Trap
from pages.parts.learn_state import Learner, key

_QUIET = {"displayModeBar": False}
_POOLS = (400, 800, 1200, 1600)  # blocks
_TIERS_GB_PER_SECOND = (50.0, 0.5)  # host memory and disk, as articles have them
_MOVED_TOKENS = 8_192
_TWICE_24_GIB = 48.0
_FAST_CARD = "H100 80GB SXM"


def preemption(_learner: Learner) -> Lesson:
    """Lesson 6: a full pool."""
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
        figure=_figure,
        exercise=_exercise(),
        traps=(_swap_trap(), _tier_trap(), _dry_run_trap()),
        discussion=t("Fewer requests at once can finish the same work sooner. When, and why?"),
    )


def _exercise() -> Exercise:
    swapped = sum(len(frame.swapped_out) for frame in numbers.v0_run(_POOLS[1], "swap"))
    recomputed = numbers.preempting_run(_POOLS[1]).summary
    return Exercise(
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
    )


def _swap_trap() -> Trap:
    plan = numbers.v0_plan(numbers.MHA, max_model_len=2048, swap_space=_TWICE_24_GIB)
    held = next(line for line in plan.host if line.name == "host_swap")
    size = words.gib(held.estimate.best_bytes)
    return Trap(
        claim=t("Set swap_space to twice the card's memory, or throughput falls to a third."),
        exact=t("In V0, {size} of host memory a card; in V1 the flag does nothing and left vLLM with 0.18.", size=size),
        why=t(
            "V1 recomputes. What helps there is a bigger pool, an 8-bit cache, fewer requests at once, or KV offloading."
        ),
    )


def _tier_trap() -> Trap:
    fetch = numbers.fetch(numbers.GQA, _FAST_CARD, _MOVED_TOKENS, _TIERS_GB_PER_SECOND)
    host, disk = (words.three_digits(1000 * seconds) for seconds in fetch.tier_seconds)
    return Trap(
        claim=t("Keep cold KV on disk: 1 TB/s on the card, 50 GB/s in host memory, 0.5 GB/s on disk."),
        exact=t(
            "{tokens} tokens of Llama-3.1-8B are {size}: {host} ms from the host, {disk} ms from that disk, {again} ms to compute "
            "again on an {card}.",
            tokens=f"{_MOVED_TOKENS:,}",
            size=words.gib(fetch.size_bytes),
            host=host,
            disk=disk,
            again=words.three_digits(1000 * fetch.recompute_seconds),
            card=_FAST_CARD,
        ),
        why=t(
            "The link decides, not the memory behind it: PCIe for the host, the drive for the disk. A tier that is slower than "
            "computing again is no gain."
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


def _figure() -> None:
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
