"""What a simulation shows, in sentences: the whole run, one step, one request, one block. Pure; knows no Streamlit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pages.parts import words
from planner.contiguous import ContiguousResult
from planner.simulate import SimulationSummary
from planner.simulator_config import SimulatorConfig
from planner.step_frames import StepFrame
from planner.timeline import BlockFacts, LogicalBlock, Timeline

POLICY_WORDS = {
    "max_length": "Reserve the longest length",
    "power_of_two": "Reserve a power of two",
    "best_fit": "Best fit, length known",
}
_NEARLY_FULL = 0.95
STATE_WORDS = {
    "free": "free",
    "cached-free": "cached and free",
    "active": "in use",
    "shared": "shared",
    "null": "the null block",
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


def run_title(summary: SimulationSummary, config: SimulatorConfig) -> str:
    """What the whole run comes to, in one line."""
    if summary.num_preemptions:
        return f"The pool ran full: {count(summary.num_preemptions, 'preemption')}"
    if summary.peak_waiting and summary.peak_used_blocks > _NEARLY_FULL * config.num_usable_blocks:
        return f"The pool was full: up to {count(summary.peak_waiting, 'request')} waited for room"
    return f"The pool sufficed: {percent(summary.peak_used_blocks, config.num_usable_blocks)} of its blocks at the peak"


def run_finding(summary: SimulationSummary) -> str:
    """What the run cost and saved, in two sentences."""
    if summary.num_preemptions:
        again = f"{count(summary.recomputed_tokens, 'token')} had to be computed again"
        when = "The latest request" if summary.num_preemptions == 1 else "Each time the latest request"
        first = f"{when} gave all its blocks back; {again}."
    else:
        first = "Nobody was preempted."
    return f"{first} {_hits(summary)}"


def _hits(summary: SimulationSummary) -> str:
    if not summary.hit_tokens:
        return "No prompt token was found in the cache."
    part = percent(summary.hit_tokens, summary.queried_tokens)
    return f"{words.count(summary.hit_tokens)} prompt tokens ({part}) were found in the cache instead of computed."


def stopped_words(summary: SimulationSummary) -> str:
    """What a run that ended early still shows."""
    return (
        f"Stopped after {words.count(summary.num_steps)} steps: {words.count(summary.num_finished)} requests were served, "
        f"{words.count(summary.num_unfinished)} were not. What was simulated until then is shown."
    )


def block_sentence(facts: BlockFacts, block_size: int) -> str:
    """One block at one step: holders, tokens, content, age."""
    parts = [f"Block {words.count(facts.block)} is {STATE_WORDS[facts.state]}"]
    if facts.holders:
        parts.append(f"held by {_list(facts.holders)}")
    elif facts.last_holder and facts.state == "cached-free":
        parts.append(f"last held by {facts.last_holder}")
    if facts.first_token is not None and facts.num_tokens:
        last = facts.first_token + facts.num_tokens - 1
        parts.append(f"tokens {facts.first_token:,}–{last:,} ({facts.num_tokens} of {block_size})")
    if facts.content_number is not None:
        parts.append(f"content no. {facts.content_number:,}")
    parts.append(f"unchanged for {count(facts.age_steps, 'step')}" if facts.age_steps else "changed in this step")
    return " · ".join(parts)


def request_sentence(frame: StepFrame, table: Sequence[LogicalBlock], name: str, goal: int) -> str:
    """One request at one step: where it stands, what it holds."""
    if name in frame.running:
        held = [row for row in table if row.block]
        shared = sum(1 for row in held if row.shared_with)
        kept = f", {shared:,} of them shared" if shared else ""
        computed = dict(frame.computed).get(name, 0)
        return f"{name} runs: {computed:,} of {goal:,} tokens computed, in {count(len(held), 'block')}{kept}."
    if name in frame.waiting:
        return f"{name} waits: it holds no block."
    return f"{name} is not in the engine at this step."


def slot_uses(timeline: Timeline, contiguous: tuple[ContiguousResult, ...], step: int) -> tuple[SlotUse, ...]:
    """The token slots under paging and under each contiguous allocator at the same step."""
    config, columns = timeline.config, timeline.columns
    capacity = config.num_usable_blocks * config.block_size
    slots = (config.num_usable_blocks - columns.free_blocks[step]) * config.block_size
    held = min(columns.held_tokens[step], slots)
    running = columns.num_running[step]
    paged = SlotUse(name="Paging", held=held, empty=slots - held, broken=0, free=capacity - slots, num_running=running)
    return (paged, *(_contiguous_use(result, step) for result in contiguous))


def _contiguous_use(result: ContiguousResult, step: int) -> SlotUse:
    columns, name = result.columns, POLICY_WORDS[result.policy]
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
    told = "; ".join(
        f"{use.name}: {count(use.num_running, 'request')} running, {percent(use.held, capacity)} of the slots hold tokens, "
        f"{percent(use.empty + use.broken, capacity)} are wasted"
        for use in uses
    )
    return f"Step {step:,}. {told}."


def contiguous_finding(contiguous: tuple[ContiguousResult, ...], summary: SimulationSummary, num_sequences: int) -> str:
    """How whole runs compare: steps, requests at once, refused ones."""
    parts = [f"Paging served all in {summary.num_steps:,} steps, {summary.peak_running:,} at once at most"]
    for result in contiguous:
        refused = f", refused {len(result.refused):,} of {num_sequences:,}" if result.refused else ""
        parts.append(
            f"{POLICY_WORDS[result.policy].lower()}: {result.num_steps:,} steps, {result.peak_running:,} at once{refused}"
        )
    return "; ".join(parts) + "."


def percent(part: float, whole: float) -> str:
    """A part of a whole, as "42 %"; below one per cent as "under 1 %"."""
    if not whole or not part:
        return "0 %"
    value = 100 * part / whole
    return "under 1 %" if value < 1 else f"{min(round(value), 99) if part < whole else 100} %"


def count(number: int, noun: str) -> str:
    """A number with its noun: "1 block", "4,096 blocks"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def times(number: int) -> str:
    """How often: "once", "twice", "3 times"."""
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")


def _list(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:8])
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown
