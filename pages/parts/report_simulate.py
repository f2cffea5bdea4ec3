"""The Simulate and Trade-offs pages as a report's sections: the same words, tables and figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from pages.parts import (
    simulate_charts,
    simulate_weigh,
    simulate_weigh_charts,
    simulate_weigh_results,
    simulate_words,
    words,
)
from pages.parts.language import t
from pages.parts.report_figures import chart
from pages.parts.report_sections import (
    Figure,
    Figures,
    FindingLine,
    Findings,
    Heading,
    Section,
    Table,
    Text,
    Verdict,
    table,
)
from pages.parts.said import said
from pages.parts.simulate_job import SimulationJob
from pages.parts.simulate_request import SimulationInput, start_of
from pages.parts.simulate_setup import Setup, pool_words
from pages.parts.simulate_weigh import WeighJob
from planner.simulate import SimulationResult
from planner.timeline import Timeline

_MOST_EVENTS = 40
_POOL_FIELDS = (
    "workload", "seed", "num_gpu_blocks", "block_size", "sliding_window", "max_num_seqs", "max_num_batched_tokens", "max_model_len",
    "enable_prefix_caching", "scheduling_policy", "async_scheduling", "enable_chunked_prefill",
)  # fmt: skip


def run_sections(
    asked: SimulationInput, job: SimulationJob, result: SimulationResult, step: int
) -> tuple[Section, ...]:
    """The whole run, and how token slots stand at `step`."""
    return tuple(_run(asked, job, result, step))


def _run(asked: SimulationInput, job: SimulationJob, result: SimulationResult, step: int) -> Iterator[Section]:
    timeline, found = result.timeline, result.summary
    config = timeline.config
    yield Verdict(
        text=simulate_words.run_title(found, config),
        reason=simulate_words.run_finding(found),
        tone="bad" if found.num_preemptions else "good",
    )
    yield Figures(
        figures=tuple(
            Figure(label=each.label, value=each.shown, below=each.below or "")
            for each in simulate_words.run_figures(found, config)
        )
    )
    notes = [FindingLine(severity="info", title=t("Note"), text=said(note)) for note in job.setup.notes]
    if found.is_stopped:
        notes.append(FindingLine(severity="warning", title=t("Warning"), text=simulate_words.stopped_words(found)))
    if notes:
        yield Findings(lines=tuple(notes))
    yield Heading(text=t("What was asked"))
    yield Text(text=f"{said(job.setup.title)} · {pool_words(config, job.setup.block_bytes)}")
    yield inputs(asked)
    yield Heading(text=t("Over the steps"))
    yield from _curves(timeline, step)
    yield from _slots(job, result, step)
    yield from _events(timeline)
    yield from _assumed()


def inputs(asked: SimulationInput) -> Table:
    """The pool's and the scheduler's flags, and what differs from the workload's start."""
    start = start_of(asked.workload)
    names = [field.name for field in fields(SimulationInput)]
    kept = [name for name in names if name in _POOL_FIELDS or getattr(asked, name) != getattr(start, name)]
    rows = tuple((name, words.shown_value(getattr(asked, name))) for name in kept)
    return Table(title=t("Inputs"), columns=(t("Input"), t("Value")), rows=rows)


def _curves(timeline: Timeline, step: int) -> Iterator[Section]:
    usable = f"{timeline.config.num_usable_blocks:,}"
    yield chart(
        t("Blocks in use"),
        simulate_charts.usage(timeline, step),
        t("Blocks in use and cached, step by step, of a pool of {usable}.", usable=usable),
    )
    yield chart(
        t("Running and waiting requests"),
        simulate_charts.queue(timeline, step),
        t("Requests running and waiting, step by step, with the steps in which some were preempted."),
    )
    yield chart(
        t("Prompt tokens looked up and found"),
        simulate_charts.hits(timeline, step),
        t("Prompt tokens looked up so far, and those found in the cache."),
    )


def _slots(job: SimulationJob, result: SimulationResult, step: int) -> Iterator[Section]:
    if not job.contiguous:
        return
    uses = simulate_words.slot_uses(result.timeline, job.contiguous, step)
    finding = simulate_words.slots_finding(uses, step)
    yield Heading(text=t("Without paging"))
    yield Text(text=simulate_words.contiguous_finding(job.contiguous, result.summary, len(job.setup.requests)))
    yield chart(t("Token slots at one step"), simulate_charts.slots(uses), finding)
    yield Text(text=finding)


def _events(timeline: Timeline) -> Iterator[Section]:
    events = [event for event in timeline.events if event.kind in {"preempted", "resumed", "evicted"}][:_MOST_EVENTS]
    if events:
        yield Heading(text=t("Preemptions and evictions"))
        rows = tuple((f"{event.step:,}", said(event.kind), said(event.text)) for event in events)
        title = t("The first {count} of them", count=len(events))
        yield Table(title=title, columns=(t("Step"), t("Event"), t("What happened")), rows=rows)


def _assumed() -> Iterator[Section]:
    yield Heading(text=t("What was assumed"))
    yield Text(
        text=t(
            "The scheduler and the block manager follow vLLM's rules step by step; lengths and arrivals are those of the workload above. A step's seconds, where they are given, are modelled, not measured."
        )
    )


# -- trade-offs -------------------------------------------------------------------------------------------------------


def weigh_sections(asked: SimulationInput, setup: Setup, job: WeighJob) -> tuple[Section, ...]:
    """All points that were simulated."""
    return tuple(_weigh(asked, setup, job))


def _weigh(asked: SimulationInput, setup: Setup, job: WeighJob) -> Iterator[Section]:
    text = t("Every point below is a simulation of its own on the workload of the form.{left_out}", left_out="")
    judged = [is_shown for is_shown, _ in simulate_weigh.claims(list(job.concurrencies))] if job.concurrencies else []
    if judged:
        verdict = t(
            "Of the claim about paging {shown} parts are shown, {refuted} refuted, {open} open",
            shown=judged.count(True),
            refuted=judged.count(False),
            open=judged.count(None),
        )
        yield Verdict(text=verdict, reason=text)
    else:
        yield Text(text=text)
    if job.problem is not None:
        line = FindingLine(severity="warning", title=t("Warning"), text=said(job.problem.text))
        yield Findings(lines=(line,))
    yield Heading(text=t("What was asked"))
    yield Text(text=f"{said(setup.title)} · {pool_words(setup.config, setup.block_bytes)}")
    yield inputs(asked)
    yield from _concurrency(job)
    yield from _sizes(job)
    yield from _switches(job)
    yield from _assumed()


def _concurrency(job: WeighJob) -> Iterator[Section]:
    found = list(job.concurrencies)
    if not found:
        return
    signs = {True: t("Shown."), False: t("Refuted."), None: t("Open.")}
    claims = simulate_weigh.claims(found)
    yield Heading(text=t("How full memory is kept, by requests at once"))
    figure = simulate_weigh_charts.use_by_concurrency(found)
    alt = " ".join(text for _, text in claims)
    yield chart(t("Taken slots that hold a token"), figure, alt, needs_numbers=False)
    yield table(t("Use of memory by requests at once"), simulate_weigh_results.concurrency_rows(found))
    yield Table(
        title=t("The claim, part by part"),
        columns=(t("Verdict"), t("By which numbers")),
        rows=tuple((signs[is_shown], text) for is_shown, text in claims),
    )


def _sizes(job: WeighJob) -> Iterator[Section]:
    found = list(job.block_sizes)
    if not found:
        return
    finding = simulate_weigh.block_size_finding(found)
    yield Heading(text=t("Block size"))
    yield Text(text=finding)
    figures = (
        (t("Empty slots of used blocks"), simulate_weigh_charts.empty_slots(found)),
        (t("Block tables"), simulate_weigh_charts.table_bytes(found)),
        (t("Prefix hits"), simulate_weigh_charts.prefix_hits(found)),
    )
    for name, figure in figures:
        yield chart(name, figure, t("{name} by block size. {finding}", name=name, finding=finding))


def _switches(job: WeighJob) -> Iterator[Section]:
    found = list(job.switches)
    if not found:
        return
    yield Heading(text=t("On and off"))
    for point in found:
        yield Text(text=simulate_weigh.switch_finding(point))
    rows = [row for point in found for row in simulate_weigh_results.switch_rows(point)]
    yield table(t("Three switches, on and off"), rows)
    if job.window_note:
        yield Text(text=said(job.window_note), is_small=True)
