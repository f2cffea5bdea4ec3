"""What a simulation shows, in sentences: the whole run, one step, one request, one block. Pure; knows no Streamlit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pages.parts import words
from pages.parts.language import mark, t
from pages.parts.said import said
from planner.contiguous import ContiguousResult
from planner.simulate import SimulationSummary
from planner.simulator_config import SimulatorConfig
from planner.step_frames import StepFrame
from planner.timeline import BlockFacts, LogicalBlock, Timeline

POLICY_WORDS = {
    "max_length": mark("Reserve the longest length"),
    "power_of_two": mark("Reserve a power of two"),
    "best_fit": mark("Best fit, length known"),
}
_NOUNS = {
    "block": (mark("{number} block"), mark("{number} blocks")),
    "shared block": (mark("{number} shared block"), mark("{number} shared blocks")),
    "step": (mark("{number} step"), mark("{number} steps")),
    "token": (mark("{number} token"), mark("{number} tokens")),
    "request": (mark("{number} request"), mark("{number} requests")),
    "preemption": (mark("{number} preemption"), mark("{number} preemptions")),
}
_NEARLY_FULL = 0.95
STATE_WORDS = {
    "free": mark("free"),
    "cached-free": mark("cached and free"),
    "active": mark("in use"),
    "shared": mark("shared"),
    "null": mark("the null block"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotUse:
    """Where the token slots of a pool are at one step."""

    name: str
    held: int  # hold KV
    empty: int  # set aside for a request, without a token: internal waste
    broken: int  # free, but not in one piece with the longest run: external waste
    free: int
    num_running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigure:
    """One figure of a whole run: its name, the value, what stands below it, and what it means."""

    label: str
    shown: str
    below: str | None
    explanation: str


def run_figures(found: SimulationSummary, config: SimulatorConfig) -> tuple[RunFigure, ...]:
    """The five figures of a whole run."""
    usable = config.num_usable_blocks
    return (
        RunFigure(
            label=t("Steps"),
            shown=words.count(found.num_steps),
            below=f"{found.seconds:.3g} s" if found.seconds else None,
            explanation=t("Passes through the model."),
        ),
        RunFigure(
            label=t("Most at once"),
            shown=words.count(found.peak_running),
            below=t("{count} waiting at most", count=words.count(found.peak_waiting)),
            explanation=t("Requests running in one step."),
        ),
        _pool_figure(found, usable),
        RunFigure(
            label=t("Preemptions"),
            shown=words.count(found.num_preemptions),
            below=t("{count} tokens again", count=words.count(found.recomputed_tokens)),
            explanation=t(
                "The pool was full: the latest request gave its blocks back and starts over, from what is still cached."
            ),
        ),
        RunFigure(
            label=t("Prefix hits"),
            shown=percent(found.hit_tokens, found.queried_tokens),
            below=t("{count} tokens", count=words.count(found.hit_tokens)),
            explanation=t("Of {count} prompt tokens looked up.", count=words.count(found.queried_tokens)),
        ),
    )


def _pool_figure(found: SimulationSummary, usable: int) -> RunFigure:
    return RunFigure(
        label=t("Peak of the pool"),
        shown=percent(found.peak_used_blocks, usable),
        below=t("{used} of {usable} blocks", used=f"{found.peak_used_blocks:,}", usable=f"{usable:,}"),
        explanation=t(
            "On average {share} were in use. Cached blocks that nobody holds count as free.",
            share=f"{found.mean_used_fraction:.0%}",
        ),
    )


def run_title(summary: SimulationSummary, config: SimulatorConfig) -> str:
    """What the whole run comes to, in one line."""
    if summary.num_preemptions:
        return t("The pool ran full: {num_preemptions}", num_preemptions=count(summary.num_preemptions, "preemption"))
    if summary.peak_waiting and summary.peak_used_blocks > _NEARLY_FULL * config.num_usable_blocks:
        return t(
            "The pool was full: up to {peak_waiting} waited for room",
            peak_waiting=count(summary.peak_waiting, "request"),
        )
    return t(
        "The pool sufficed: {peak_used_blocks} of its blocks at the peak",
        peak_used_blocks=percent(summary.peak_used_blocks, config.num_usable_blocks),
    )


def run_finding(summary: SimulationSummary) -> str:
    """What the run cost and saved, in two sentences."""
    if summary.num_preemptions:
        again = t(
            "{recomputed_tokens} had to be computed again", recomputed_tokens=count(summary.recomputed_tokens, "token")
        )
        when = t("The latest request") if summary.num_preemptions == 1 else t("Each time the latest request")
        first = t("{when} gave all its blocks back; {again}.", when=when, again=again)
    else:
        first = t("Nobody was preempted.")
    return f"{first} {_hits(summary)}"


def _hits(summary: SimulationSummary) -> str:
    if not summary.hit_tokens:
        return t("No prompt token was found in the cache.")
    part = percent(summary.hit_tokens, summary.queried_tokens)
    return t(
        "{hit_tokens} prompt tokens ({part}) were found in the cache instead of computed.",
        hit_tokens=words.count(summary.hit_tokens),
        part=part,
    )


def stopped_words(summary: SimulationSummary) -> str:
    """What a run that ended early still shows."""
    return t(
        "Stopped after {num_steps} steps: {num_finished} requests were served, {num_unfinished} were not. What was "
        "simulated until then is shown.",
        num_steps=words.count(summary.num_steps),
        num_finished=words.count(summary.num_finished),
        num_unfinished=words.count(summary.num_unfinished),
    )


def block_sentence(facts: BlockFacts, block_size: int) -> str:
    """One block at one step: holders, tokens, content, age."""
    parts = [t("Block {block} is {state}", block=words.count(facts.block), state=said(STATE_WORDS[facts.state]))]
    if facts.holders:
        parts.append(t("held by {holders}", holders=_list(facts.holders)))
    elif facts.last_holder and facts.state == "cached-free":
        parts.append(t("last held by {last_holder}", last_holder=facts.last_holder))
    if facts.first_token is not None and facts.num_tokens:
        last = facts.first_token + facts.num_tokens - 1
        parts.append(
            t(
                "tokens {first_token}–{last} ({num_tokens} of {block_size})",
                first_token=f"{facts.first_token:,}",
                last=f"{last:,}",
                num_tokens=facts.num_tokens,
                block_size=block_size,
            )
        )
    if facts.content_number is not None:
        parts.append(t("content no. {content_number}", content_number=f"{facts.content_number:,}"))
    parts.append(
        t("unchanged for {age_steps}", age_steps=count(facts.age_steps, "step"))
        if facts.age_steps
        else t("changed in this step")
    )
    return " · ".join(parts)


def request_sentence(frame: StepFrame, table: Sequence[LogicalBlock], name: str, goal: int) -> str:
    """One request at one step: where it stands, what it holds."""
    if name in frame.running:
        held = [row for row in table if row.block]
        shared = sum(1 for row in held if row.shared_with)
        kept = t(", {shared} of them shared", shared=f"{shared:,}") if shared else ""
        computed = dict(frame.computed).get(name, 0)
        return t(
            "{name} runs: {computed} of {goal} tokens computed, in {held}{kept}.",
            name=name,
            computed=f"{computed:,}",
            goal=f"{goal:,}",
            held=count(len(held), "block"),
            kept=kept,
        )
    if name in frame.waiting:
        return t("{name} waits: it holds no block.", name=name)
    return t("{name} is not in the engine at this step.", name=name)


def slot_uses(timeline: Timeline, contiguous: tuple[ContiguousResult, ...], step: int) -> tuple[SlotUse, ...]:
    """The token slots under paging and under each contiguous allocator at the same step."""
    config, columns = timeline.config, timeline.columns
    capacity = config.num_usable_blocks * config.block_size
    slots = (config.num_usable_blocks - columns.free_blocks[step]) * config.block_size
    held = min(columns.held_tokens[step], slots)
    running = columns.num_running[step]
    paged = SlotUse(
        name=t("Paging"), held=held, empty=slots - held, broken=0, free=capacity - slots, num_running=running
    )
    return (paged, *(_contiguous_use(result, step) for result in contiguous))


def _contiguous_use(result: ContiguousResult, step: int) -> SlotUse:
    columns, name = result.columns, said(POLICY_WORDS[result.policy])
    if step >= result.num_steps:
        return SlotUse(name=name, held=0, empty=0, broken=0, free=result.capacity_tokens, num_running=0)
    held = columns.used_tokens[step]
    return SlotUse(
        name=name,
        held=held,
        empty=columns.reserved_tokens[step] - held,
        broken=columns.unusable_tokens[step],
        free=columns.free_tokens[step] - columns.unusable_tokens[step],
        num_running=columns.num_running[step],
    )


def slots_finding(uses: tuple[SlotUse, ...], step: int) -> str:
    """What the comparison at one step shows, in one sentence an allocator."""
    capacity = uses[0].held + uses[0].empty + uses[0].broken + uses[0].free
    told = words.listed_long(
        t(
            "{name}: {requests} running, {held} of the slots hold tokens, {wasted} are wasted",
            name=use.name,
            requests=count(use.num_running, "request"),
            held=percent(use.held, capacity),
            wasted=percent(use.empty + use.broken, capacity),
        )
        for use in uses
    )
    return t("Step {step}. {told}.", step=f"{step:,}", told=told)


def contiguous_finding(contiguous: tuple[ContiguousResult, ...], summary: SimulationSummary, num_sequences: int) -> str:
    """How whole runs compare: steps, requests at once, refused ones."""
    parts = [
        t(
            "Paging served all in {num_steps} steps, {peak_running} at once at most",
            num_steps=f"{summary.num_steps:,}",
            peak_running=f"{summary.peak_running:,}",
        )
    ]
    for result in contiguous:
        refused = (
            t(
                ", refused {refused} of {num_sequences}",
                refused=f"{len(result.refused):,}",
                num_sequences=f"{num_sequences:,}",
            )
            if result.refused
            else ""
        )
        parts.append(
            t(
                "{policy}: {num_steps} steps, {peak_running} at once{refused}",
                policy=said(POLICY_WORDS[result.policy]).lower(),
                num_steps=f"{result.num_steps:,}",
                peak_running=f"{result.peak_running:,}",
                refused=refused,
            )
        )
    return t("{sentences}.", sentences=words.listed_long(parts))


def percent(part: float, whole: float) -> str:
    """A part of a whole, as "42 %"; below one per cent as "under 1 %"."""
    if not whole or not part:
        return "0 %"
    value = 100 * part / whole
    return t("under 1 %") if value < 1 else f"{min(round(value), 99) if part < whole else 100} %"


def count(number: int, noun: str) -> str:
    """A number with its noun: "1 block", "4,096 blocks"."""
    one, many = _NOUNS[noun]
    return said(one if number == 1 else many).format(number=f"{number:,}")


def times(number: int) -> str:
    """How often: "once", "twice", "3 times"."""
    return {1: t("once"), 2: t("twice")}.get(number, t("{number} times", number=f"{number:,}"))


def _list(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:8])
    return t("{shown} and {count} more", shown=shown, count=len(names) - 8) if len(names) > 8 else shown
