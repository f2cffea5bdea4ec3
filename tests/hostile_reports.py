"""Every page's report made of data whose names, files and labels are hostile: what `test_report_hostile` looks into."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from live.recording import Recording
from live.replay import Replay
from live.sample_codec import encode, stamped
from live.samples import EngineIdentity, EngineSample, EngineSnapshot
from live.store import About, Store
from pages.parts import (
    learn_view,
    report_accuracy,
    report_calibrate,
    report_compare,
    report_compare_inputs,
    report_learn,
    report_plan,
    report_simulate,
    report_watch,
    watch_seen,
    what_if,
    words,
)
from pages.parts.calibrate_state import Shown
from pages.parts.compare_cells import FitTable, columns_of, rows_of
from pages.parts.compare_request import FIRST, LONGEST, PUBLISHED
from pages.parts.language import t
from pages.parts.learn_state import Learner
from pages.parts.report_sections import Report, Section
from pages.parts.simulate_job import SimulationJob
from pages.parts.simulate_request import start_of
from pages.parts.simulate_setup import setup
from pages.parts.simulate_weigh import WeighJob
from planner import planning
from planner.answer import Plan
from planner.dry_advice import Recommendation
from planner.dry_run import Knee, Level
from planner.facts import Finding
from planner.gpu_catalog import find_gpu
from planner.latency import Latency, Percentiles
from planner.matrix import MatrixQuestion, Split, sheet
from planner.measured_start import MeasuredRank, MeasuredStart, printed_gib
from planner.model_catalog import catalogue_documents
from planner.reconcile import reconcile
from planner.request import EngineFlags, PlanRequest
from planner.scenarios import Scenario
from planner.score_record import read_record
from planner.served_load import ServedLoad

LONG = "l" * 5_000
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=1>',
    "</title></style></svg><svg onload=alert(1)>",
    "[x](javascript:alert(1))",
    "![x](http://evil.example/x.png)",
    "<http://evil.example/auto>",
    "a|b||c",
    "`a` ``b`` ```c",
    "one\ntwo\r\n# three\n\n| four |\u2028five",
    "\u202eright to left\u200f",
    "=1+1",
    "@cmd|' /C calc'!A0",
    "+HYPERLINK(1)",
    "-2+3",
    "\t=1+1",
    LONG,
    "nul\x00bell\x07",
    "😀 👩‍💻",
    "模型 名称",
    "&lt;b&gt; &#60;b&#62; $x$ ~~y~~ **z** __w__ :material/home:",
)
ALL_AT_ONCE = "\n".join(HOSTILE)
MADE = datetime(2026, 11, 29, 12, 30, tzinfo=UTC)
START = 1_760_000_000_000


@cache
def planned() -> tuple[Plan, Any]:
    """A plan and its model, before anything hostile is in it."""
    request = PlanRequest(model_id="Qwen/Qwen3-8B", gpu="H100 80GB SXM", flags=EngineFlags(max_model_len=8192))
    return planning.answer(request, catalogue_documents(request.model_id))


def hostile_plan(evil: str) -> Plan:
    """The plan with every text that can come from outside replaced."""
    plan, _ = planned()
    finding = Finding(code="hostile", severity="warning", text=evil)
    return replace(
        plan,
        request=replace(plan.request, model_id=evil, revision=evil),
        gpu_name=evil,
        calibration=evil,
        findings=(finding,),
        vllm_error=evil,
        serve_command=f"vllm serve {evil}",
        reason=evil,
    )


def _plan(evil: str, _folder: Path) -> tuple[Section, ...]:
    plan, model = planned()
    request = plan.request
    return report_plan.plan_sections(
        hostile_plan(evil), what_if.what_ifs(request, model, plan), what_if.length_sweep(request, model, plan)
    )


def _simulation(evil: str, _folder: Path) -> tuple[Section, ...]:
    asked = start_of("lesson")
    made = setup(asked, None, None)
    named = tuple(replace(each, request_id=f"{evil}{place}") for place, each in enumerate(made.requests))
    job = SimulationJob(replace(made, title=evil, notes=(evil,), requests=named))
    assert job.wait(30)
    assert job.result is not None
    return report_simulate.run_sections(replace(asked, workload=evil), job, job.result, 3)


def _weigh(evil: str, _folder: Path) -> tuple[Section, ...]:
    asked = start_of("lesson")
    made = replace(setup(asked, None, None), title=evil, notes=(evil,))
    job = WeighJob(made)
    assert job.wait(60)
    return report_simulate.weigh_sections(asked, made, job)


def _watch(evil: str, folder: Path) -> tuple[Section, ...]:
    path = folder / "run.kvscope"
    store = Store.create(path, About(source=evil))
    for tick in range(20):
        engine = EngineSample(
            time_unix_ns=0,
            identity=EngineIdentity(model_name=evil, engine="0"),
            num_requests_running=float(tick),
            kv_usage_fraction=0.5,
        )
        found = stamped(
            EngineSnapshot(time_unix_ns=0, source=evil, engines=(engine,), vllm_version=evil), START + 1000 * tick
        )
        encoded = encode(found)
        store.append(encoded.time_ms, encoded.numbers, encoded.document)
    store.mark(START + 5_000, "note", evil)
    store.close()
    recording = Recording.open_untrusted(path)
    replay = Replay(recording, speed=1, clock=lambda: 1e9)
    try:
        status = replay.status()
        seen = watch_seen.seen_of(replay, status)
        assert seen is not None
        page = report_watch.Shown(watched=replay, seen=seen, interval_ms=1000, seconds=900.0, rules=())
        return report_watch.watch_sections(page)
    finally:
        recording.close()


def _fits(evil: str, _folder: Path) -> tuple[Section, ...]:
    _, model = planned()
    question = MatrixQuestion(
        request=PlanRequest(model_id="", flags=EngineFlags(max_model_len="auto")),
        gpus=(find_gpu("L40S"),),
        splits=(Split(),),
    )
    found = sheet(question, model)
    rows = tuple(replace(row, model_id=evil) for row in rows_of(found, LONGEST, PUBLISHED, model))
    table = FitTable(measure=LONGEST, num_requests=1, length_tokens=8192, columns=columns_of(found), rows=rows)
    return tuple(
        report_compare._fit(
            table, words.plain(evil), report_compare_inputs.fit_inputs(FIRST, hostile_plan(evil).request)
        )
    )


def _scenarios(evil: str, _folder: Path) -> tuple[Section, ...]:
    held = [Scenario(name=f"{evil}{end}", origin="link", plan=hostile_plan(evil), notes=(evil,)) for end in "ab"]
    row = {"≠": "≠", "Line": words.plain(evil)} | {words.plain(each.name): words.plain(evil) for each in held}
    return tuple(report_compare._scenarios(held, [row], [None, f"javascript:alert(1)//{evil}"]))


def _cards(evil: str, _folder: Path) -> tuple[Section, ...]:
    rows = [{t("Card"): words.plain(evil), t("Cards"): 1, t("Why"): words.plain(evil)}]
    asked_for = report_compare_inputs.cards_inputs(FIRST, hostile_plan(evil).request)
    return tuple(report_compare._cards(rows, rows, asked_for))


def _dry(evil: str, _folder: Path) -> tuple[Section, ...]:
    waits = Percentiles(p50_seconds=0.2, p99_seconds=0.5, num_samples=90)
    levels = tuple(
        Level(
            users=users,
            load=ServedLoad(
                concurrency=users,
                mean_running=float(users),
                mean_waiting=0.0,
                num_finished=100,
                num_preemptions=0,
                mean_used_fraction=0.1,
                peak_used_fraction=0.2,
                mean_step_seconds=0.02,
                longest_step_seconds=0.1,
                output_tokens_per_second=100.0 * users,
                is_backlog_growing=False,
                latency=Latency(first_token=waits, between_tokens=waits),
            ),
        )
        for users in (1, 2, 4)
    )
    advice = Recommendation(flag="max_num_seqs", value=4, reason=evil, trade=evil)
    rows = [{"Users": 1, "Why not": words.plain(evil)}]
    inputs = (report_plan.inputs_table(hostile_plan(evil)), report_compare_inputs.load_inputs(FIRST))
    knee = Knee(users=4, reason=evil, is_open=True)
    return tuple(report_compare._dry(levels, knee, (advice,), (rows, rows), inputs))


def _calibration(evil: str, _folder: Path) -> tuple[Section, ...]:
    plan, _ = planned()
    ranks = tuple(
        MeasuredRank(rank=f"{evil}{place}", weights=printed_gib(15.27, evil), kv_pool=printed_gib(57.0 - place, evil))
        for place in range(2)
    )
    start = MeasuredStart(source=evil, version="0.32.0", model_name=evil, ranks=ranks)
    found = replace(reconcile(plan, start), plan=hostile_plan(evil))
    shown = Shown(found=found, general=plan, documents=catalogue_documents("Qwen/Qwen3-8B"), notes=(evil,))
    return tuple(report_calibrate._sections(shown))


def _accuracy(evil: str, _folder: Path) -> tuple[Section, ...]:
    record = read_record()
    poisoned = [
        replace(row, row_id=f"{evil}{place}", model_id=evil, gpu=evil, source=evil, note=evil, plan_reason=evil)
        for place, row in enumerate([row for row in record.scored if row.reason is None][:12])
    ]
    refused = [replace(poisoned[0], row_id=evil, reason=evil)]
    found = replace(record, scored=(*poisoned, *refused), left_out=tuple(poisoned))
    return tuple(report_accuracy._sections(poisoned, found))


def _learn(evil: str, _folder: Path) -> tuple[Section, ...]:
    plan, model = planned()
    documents = replace(catalogue_documents("Qwen/Qwen3-8B"), model_id=evil)
    learner = Learner(
        model_id=evil, documents=documents, request=replace(plan.request, model_id=evil), facts=model, plan=plan
    )
    lessons = [learn_view.make(slug, learner) for slug in ("weights", "token", "budget")]
    titles = {lesson.slug: f"{evil}{lesson.slug}" for lesson in lessons}
    links = {lesson.slug: f"javascript:alert(1)//{evil}" for lesson in lessons}
    shown = [report_learn.handout(titles[lesson.slug], lesson) for lesson in lessons]
    return (*(section for each in shown for section in each), *report_learn.workshop(titles, lessons, links))


PAGES = MappingProxyType(
    {
        "plan": _plan,
        "simulation": _simulation,
        "trade-offs": _weigh,
        "watch": _watch,
        "fits": _fits,
        "scenarios": _scenarios,
        "cards": _cards,
        "dry": _dry,
        "calibration": _calibration,
        "accuracy": _accuracy,
        "learn": _learn,
    }
)


def report_of(page: str, evil: str, folder: Path) -> Report:
    """The report of `page` with `evil` in every place that a stranger's text can reach."""
    return Report(
        title=page,
        subject=evil,
        sections=PAGES[page](evil, folder),
        made=MADE,
        link=f"http://127.0.0.1:8501/?model={evil}",
        versions=(("vLLM", evil),),
        labels={"link": "Link"},
    )
