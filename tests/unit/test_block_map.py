"""What the block map is sent, read back here as the browser reads it, and the pure parts of the Blocks pages."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from fakes.block_map_browser import receive
from hypothesis import given, settings
from hypothesis import strategies as st

from pages.parts import simulate_charts, simulate_downloads, simulate_words
from pages.parts.simulate_lesson import STOPS, stop_at
from pages.parts.simulate_request import (
    FAILURES,
    FIRST,
    WORKLOADS,
    SimulationInput,
    TableRow,
    from_link,
    start_of,
    to_link,
    workload_of_link,
)
from pages.parts.simulate_setup import goals, setup, start_for, with_plan
from pages.parts.simulate_sources import rows_from
from pages.parts.simulate_weigh import WeighJob, block_size_finding, claims, switch_finding
from pages.parts.step_player import Run, StepPlayer, View, group_words
from planner.block_events import BlockEvent
from planner.block_tradeoffs import ConcurrencyPoint
from planner.contiguous import POLICIES, simulate_contiguous
from planner.facts import PlanError
from planner.model_catalog import catalogue_documents
from planner.planning import answer
from planner.request import PlanRequest
from planner.simulate import simulate
from planner.simulator_config import KvGroup


def player_for(asked: SimulationInput) -> StepPlayer:
    made = setup(asked, None, None)
    result = simulate(made.config, made.requests, made.options)
    run = Run(
        run_id="run",
        title=made.title,
        timeline=result.timeline,
        goals=goals(made.requests, made.config.max_model_len),
    )
    return StepPlayer(run)


DRAWN = replace(start_of("drawn"), num_requests=40, num_gpu_blocks=400, prompt_mean=120.0)


@pytest.fixture(scope="module")
def lesson() -> StepPlayer:
    return player_for(FIRST)


@pytest.fixture(scope="module")
def drawn() -> StepPlayer:
    return player_for(replace(DRAWN, sliding_window=64))


@pytest.mark.parametrize("colour_by", ["request", "state", "group"])
def test_every_step_of_a_stretch_is_the_timelines_own_map(drawn: StepPlayer, colour_by) -> None:
    timeline = drawn.run.timeline
    for asked in (0, timeline.num_steps // 2, timeline.num_steps - 1):
        received = receive(drawn.encode(View(step=asked, colour_by=colour_by)))
        base, count = received.header["base"], received.header["count"]

        for step in {base, asked, base + count // 3, base + count - 1}:
            assert received.bytes_at(step) == timeline.block_map(step, colour_by)


def test_a_run_of_one_step_can_be_shown() -> None:
    made = setup(FIRST, None, None)
    result = simulate(made.config, made.requests, replace(made.options, max_steps=1))
    run = Run(run_id="run", title="", timeline=result.timeline, goals=goals(made.requests, 128))

    received = receive(StepPlayer(run).encode(View(step=0, selected=0)))

    assert received.header["count"] == 1
    assert received.bytes_at(0) == result.timeline.block_map(0)


def test_stretches_leave_no_step_out(drawn: StepPlayer) -> None:
    seen = set()
    for step in range(drawn.run.timeline.num_steps):
        stretch = drawn.stretch_around(step)
        assert stretch.base <= step < stretch.end
        seen |= set(range(stretch.base, stretch.end))

    assert seen == set(range(drawn.run.timeline.num_steps))


def test_the_chosen_requests_blocks_stand_out_at_every_step(lesson: StepPlayer) -> None:
    timeline = lesson.run.timeline
    chosen = timeline.ordinal("r3")

    received = receive(lesson.encode(View(step=14, selected=chosen)))

    for step in range(timeline.num_steps):
        assert received.lit_at(step) == set(timeline.blocks_of(step, "r3"))


def test_shared_blocks_come_with_all_their_holders(lesson: StepPlayer) -> None:
    received = receive(lesson.encode(View(step=3)))

    pairs = received.light["shared"].reshape(-1, 2).tolist()

    assert pairs == [[1, 0], [2, 0], [3, 0], [1, 1], [2, 1], [3, 1]]
    assert lesson.run.timeline.block(3, 2).holders == ("r1", "r2")


def test_indices_contents_and_ages_are_the_timelines_own(lesson: StepPlayer) -> None:
    received = receive(lesson.encode(View(step=0)))
    timeline, base = lesson.run.timeline, received.header["base"]
    starts = received.part["run_starts"].tolist()

    for block in range(1, timeline.config.num_gpu_blocks):
        run = max(place for place, start in enumerate(starts) if start <= block)
        facts, ahead = timeline.block(base, block), block - starts[run]
        content = int(received.part["run_contents"][run])
        if facts.content_number is not None:
            assert content + 2 * ahead == facts.content_number
        assert base - int(received.part["run_changed"][run]) == facts.age_steps
        if facts.first_token is not None:
            assert int(received.part["run_indices"][run]) + ahead == facts.first_token // timeline.config.block_size


def test_a_stretch_that_the_browser_has_is_not_sent_again(drawn: StepPlayer) -> None:
    whole = drawn.encode(View(step=10))
    name = receive(whole).header["stretch"]

    again = drawn.encode(View(step=11, selected=0, held_stretch=name))

    assert not receive(again).header["has_body"]
    assert receive(drawn.encode(View(step=11, held_stretch="another"))).header["has_body"]


def test_rows_name_who_runs_and_who_waits(lesson: StepPlayer) -> None:
    received = receive(lesson.encode(View(step=12)))

    rows = received.header["live"][12 - received.header["base"]]

    assert [(row[5], row[1], row[2]) for row in rows] == [("r1", 1, 8), ("r2", 1, 7), ("r3", 2, 0), ("r4", 2, 0)]
    assert rows == received.header["rows"]


def test_the_words_of_a_step_begin_with_the_gravest(lesson: StepPlayer) -> None:
    says = dict(receive(lesson.encode(View(step=12))).header["says"])

    assert says[12][0] == "r3 preempted: 8 blocks freed, 8 still cached"
    assert says[2][0] == "r2 shares blocks 1–3 with r1"


def test_a_thousand_blocks_take_little_room_on_the_wire(drawn: StepPlayer) -> None:
    name = receive(drawn.encode(View(step=20))).header["stretch"]

    assert len(drawn.encode(View(step=20, held_stretch=name))) < 60_000


def test_group_words() -> None:
    assert group_words(KvGroup()) == "full attention"
    assert group_words(KvGroup(kind="sliding_window", span_tokens=1024)) == "window of 1,024 tokens"
    assert group_words(KvGroup(kind="state")) == "recurrent state"


# -- the lesson -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop.title)
def test_each_stop_of_the_lesson_shows_what_it_says(lesson: StepPlayer, stop) -> None:
    assert stop.kind in {event.kind for event in lesson.run.timeline.events_at(stop.step)}


def test_the_lessons_numbers_are_true(lesson: StepPlayer) -> None:
    timeline = lesson.run.timeline
    comeback = next(event for event in timeline.events_at(18) if event.kind == "resumed")

    assert (comeback.request_id, comeback.num_tokens) == ("r3", 24)
    assert len(timeline.blocks_of(0, "r1")) == 5
    assert stop_at(13).title == "Preemption"


# -- the link ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_start_needs_no_more_than_its_workload_in_the_link(workload: str) -> None:
    start = start_for(workload)

    text = to_link(start, start, 0)

    assert text == f"workload.{workload}"
    assert from_link(text, start_for(workload_of_link(text))) == (start, 0)


@settings(max_examples=60, deadline=None)
@given(
    asked=st.builds(
        SimulationInput,
        workload=st.sampled_from(WORKLOADS),
        seed=st.integers(0, 10**9),
        num_gpu_blocks=st.integers(2, 10**6),
        watermark=st.floats(0, 0.99).map(lambda value: round(value, 6)),
        enable_prefix_caching=st.booleans(),
        scheduling_policy=st.sampled_from(["fcfs", "priority"]),
        rate=st.sampled_from([0.001, 1.0, 2.5, 1e-3]),
        rows=st.lists(
            st.builds(
                TableRow,
                arrival_step=st.integers(0, 99),
                num_prompt_tokens=st.integers(1, 10**6),
                num_output_tokens=st.integers(1, 99),
            ),
            max_size=5,
        ).map(tuple),
    ),
    step=st.integers(0, 10**6),
)
def test_a_link_brings_the_simulation_back(asked: SimulationInput, step: int) -> None:
    start = start_of(asked.workload)

    assert from_link(to_link(asked, start, step), start) == (asked, step)


@pytest.mark.parametrize(
    "text",
    [
        "workload.nothing",
        "workload.lesson~seed.x",
        "workload.lesson~seed.-1",
        "workload.lesson~colour.red",
        "workload.lesson~pool.moon",
        "workload.lesson~rows.1-2",
        "workload.lesson~num_gpu_blocks." + "9" * 40,
        "workload.lesson~seed." + "1" * 4000,
        "workload.lesson~__class__.1",
        "workload.lesson~enable_prefix_caching.yes",
    ],
)
def test_a_damaged_link_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(PlanError) as refused:
        from_link(text, start_of(workload_of_link(text)))

    assert refused.value.text.endswith(".")
    assert len(refused.value.text) < 200


# -- the setup --------------------------------------------------------------------------------------------------------


def test_a_failure_preset_starts_with_its_own_engine() -> None:
    for workload in FAILURES:
        made = setup(start_for(workload), None, None)
        assert made.config.num_gpu_blocks == start_for(workload).num_gpu_blocks
        assert len(made.requests) > 20


def test_the_plans_pool_is_taken_whole() -> None:
    plan = answer(
        PlanRequest(model_id="google/gemma-3-27b-it", gpu="H100 80GB SXM"), catalogue_documents("google/gemma-3-27b-it")
    )[0]

    made = setup(with_plan(start_of("drawn"), plan), plan, None)

    assert made.config.num_gpu_blocks == plan.pool.num_blocks
    assert len(made.config.groups) == len(plan.pool.groups)
    assert made.config.max_model_len == plan.pool.max_model_len
    assert made.block_bytes == plan.pool.bytes_per_block


def test_a_plan_without_a_pool_is_refused_at_the_pool() -> None:
    with pytest.raises(PlanError) as refused:
        setup(replace(FIRST, pool="plan"), None, None)

    assert refused.value.field == "pool"


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"num_prompt_tokens": None}, "Row 2: prompt tokens is empty"),
        ({"num_output_tokens": -3}, "Row 2: output tokens must be a whole number"),
        ({"num_prompt_tokens": 1.5}, "Row 2: prompt tokens must be a whole number"),
        ({"arrival_step": 10**12}, "Row 2: arrives at step must be"),
    ],
)
def test_a_bad_row_is_named(record: dict[str, object], says: str) -> None:
    good = {"arrival_step": 0, "num_prompt_tokens": 4, "num_output_tokens": 4, "prefix": 0, "prefix_tokens": 0}

    with pytest.raises(PlanError) as refused:
        rows_from([good, good | record])

    assert refused.value.text.startswith(says)


def test_a_prefix_longer_than_its_prompt_is_named_with_its_row() -> None:
    rows = (
        FIRST.rows[0],
        TableRow(arrival_step=0, num_prompt_tokens=4, num_output_tokens=1, prefix=1, prefix_tokens=9),
    )

    with pytest.raises(PlanError, match=r"Row 2: its shared prefix is longer than its prompt\."):
        setup(replace(FIRST, workload="table", rows=rows), None, None)


# -- words, charts, files ---------------------------------------------------------------------------------------------


def test_slot_uses_add_up_to_the_pool_for_every_allocator(lesson: StepPlayer) -> None:
    made = setup(FIRST, None, None)
    contiguous = tuple(simulate_contiguous(made.config, made.requests, policy) for policy in POLICIES)

    for step in range(lesson.run.timeline.num_steps):
        for use in simulate_words.slot_uses(lesson.run.timeline, contiguous, step):
            parts = (use.held, use.empty, use.broken, use.free)
            assert sum(parts) == 80
            assert min(parts) >= 0


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [(0, 5, "0 %"), (1, 1000, "under 1 %"), (1, 3, "33 %"), (997, 1000, "99 %"), (5, 5, "100 %")],
)
def test_percents_never_round_up_to_the_whole(part: int, whole: int, shown: str) -> None:
    assert simulate_words.percent(part, whole) == shown


def test_the_title_says_what_the_pool_did() -> None:
    made = setup(replace(FIRST, workload="table", rows=FIRST.rows[:1]), None, None)
    alone = simulate(made.config, made.requests).summary
    titles = [
        simulate_words.run_title(summary, made.config)
        for summary in (
            alone,
            replace(alone, peak_waiting=3),
            replace(alone, peak_waiting=3, peak_used_blocks=20),
            replace(alone, num_preemptions=2),
        )
    ]

    assert titles == [
        "The pool sufficed: 50 % of its blocks at the peak",
        "The pool sufficed: 50 % of its blocks at the peak",
        "The pool was full: up to 3 requests waited for room",
        "The pool ran full: 2 preemptions",
    ]


def test_thinning_keeps_the_ends_and_the_extremes() -> None:
    values = np.sin(np.arange(50_000) / 900.0)
    values[31_415] = 5.0

    steps, shown = simulate_charts.thinned(values)

    assert len(steps) <= simulate_charts.MOST_POINTS + 2
    assert steps[0] == 0
    assert steps[-1] == 49_999
    assert shown.max() == 5.0
    assert shown.min() == values.min()


def test_the_event_log_is_whole_in_both_forms(lesson: StepPlayer) -> None:
    events = lesson.run.timeline.events

    lines = [json.loads(line) for line in simulate_downloads.events_jsonl(events).splitlines()]
    rows = list(csv.DictReader(io.StringIO(simulate_downloads.events_csv(events))))

    assert [line["text"] for line in lines] == [event.text for event in events] == [row["text"] for row in rows]
    assert lines[3]["blocks"] == [[1, 3]]


def test_a_request_id_cannot_become_a_formula() -> None:
    event = BlockEvent(step=0, kind="arrived", request_id="=1+1", num_tokens=3)

    assert "'=1+1" in simulate_downloads.events_csv([event])


# -- trade-offs -------------------------------------------------------------------------------------------------------


def concurrency_point(limit: int, paged: float, longest: float, running: float) -> ConcurrencyPoint:
    return ConcurrencyPoint(
        max_num_seqs=limit,
        mean_running=running,
        paged_fraction=paged,
        pool_fraction=0.5,
        contiguous=(("max_length", longest), ("power_of_two", 0.55), ("best_fit", 0.84)),
    )


def test_the_claim_is_shown_refuted_or_left_open() -> None:
    high = [concurrency_point(1, 0.97, 0.07, 1.0), concurrency_point(64, 0.965, 0.07, 50.0)]
    low = [concurrency_point(8, 0.9, 0.7, 6.0)]

    assert [is_shown for is_shown, _ in claims(high)] == [True, True, True, False, False]
    assert [is_shown for is_shown, _ in claims(low)][:2] == [None, False]


def test_trade_offs_of_a_workload() -> None:
    job = WeighJob(setup(replace(DRAWN, num_requests=24, max_num_seqs=4), None, None))

    assert job.wait(60)
    assert job.problem is None
    assert job.fraction == 1.0
    empty = [point.empty_slots_fraction for point in job.block_sizes]
    assert empty == sorted(empty)
    assert empty[0] == 0.0
    assert "empty slots grow" in block_size_finding(job.block_sizes)
    assert [point.switch for point in job.switches] == ["prefix_caching", "sliding_window", "hybrid_manager"]
    assert switch_finding(job.switches[0]).startswith("Prefix caching")
    assert job.window_note
