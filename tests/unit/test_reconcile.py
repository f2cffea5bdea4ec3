"""A start beside its plan: errors and bands, the identity of each era, reasons only where they are seen, and advice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from planner.answer import Plan
from planner.facts import PlanError
from planner.measured_advice import measured_answer
from planner.measured_row import from_row
from planner.measured_start import MeasuredRank, MeasuredStart, from_log, printed_gib
from planner.model_catalog import catalogue_documents
from planner.planning import answer
from planner.reconcile import Reconciliation, reconcile
from planner.reconcile_cli import main
from planner.request import EngineFlags, PlanRequest
from planner.start_request import card_of_log, model_of, start_request
from planner.startup_log import read_startup_log
from planner.truth import CARRIED_ROWS, read_rows
from planner.units import GIB
from tests.start_logs import StartNumbers, start_log

H100, QWEN = "H100 80GB SXM", "Qwen/Qwen3-8B"


def plan_of(version: str = "0.19.0", **changes: object) -> Plan:
    flags = EngineFlags(**({"max_model_len": 8192, "gpu_memory_utilization": 0.95} | changes))
    request = PlanRequest(model_id=QWEN, gpu=H100, vllm_version=version, flags=flags)
    return answer(request, catalogue_documents(QWEN))[0]


def gib(value: float) -> object:
    return printed_gib(value, "a test's start")


def start(rank: MeasuredRank | None = None, **facts: object) -> MeasuredStart:
    values = {
        "source": "start.log",
        "version": "0.19.0",
        "ranks": (rank,) if rank is not None else (),
        "outcome": "started",
    }
    return MeasuredStart(**(values | facts))


def codes(found: Reconciliation) -> set[str]:
    return {reason.code for reason in found.reasons}


def compared(numbers: StartNumbers) -> Reconciliation:
    """The whole way from a log's text."""
    log = read_startup_log(start_log(numbers))
    request, _ = start_request(log, PlanRequest(model_id=model_of(log) or "", gpu=card_of_log(log, H100)))
    plan, _ = answer(request, catalogue_documents(request.model_id))
    return reconcile(plan, from_log(log, "start.log"))


def test_a_public_start_of_0_19_is_met_term_by_term() -> None:
    found = compared(StartNumbers())

    terms = {term.name: term for term in found.terms}
    assert {
        "weights",
        "activation",
        "non_torch",
        "captured_graphs",
        "kv_pool",
        "card_total",
        "tokens",
        "concurrency",
    } == set(terms)
    assert all(term.is_inside for term in terms.values())
    assert terms["tokens"].error == 0
    assert found.identity.closes
    assert found.is_verdict_right
    assert found.reasons == ()


def test_errors_are_signed_measured_less_predicted() -> None:
    found = compared(StartNumbers(pool=57.0, non_torch=0.75))

    pool, other = found.term("kv_pool"), found.term("non_torch")
    assert pool is not None
    assert other is not None
    assert pool.error == pytest.approx(-0.5 * GIB, abs=0.02 * GIB)
    assert pool.error_fraction == pytest.approx(-0.5 / 57.5, abs=0.0005)
    assert not pool.is_inside
    assert other.error == pytest.approx(0.5 * GIB, abs=0.01 * GIB)
    assert found.identity.closes


def test_a_measurement_within_its_own_rounding_of_the_band_is_inside() -> None:
    plan = plan_of()
    high = plan.ranks[0].kv_pool.high_bytes

    just = reconcile(plan, start(MeasuredRank(kv_pool=gib(round(high / GIB, 2)))))
    beyond = reconcile(plan, start(MeasuredRank(kv_pool=gib(round(high / GIB + 0.05, 2)))))

    assert just.terms[0].is_inside
    assert not beyond.terms[0].is_inside


def test_the_identity_names_what_is_missing() -> None:
    found = reconcile(plan_of(), start(MeasuredRank(weights=gib(15.27), kv_pool=gib(57.5))))

    assert found.identity.closes is None
    assert found.identity.missing == ("activation peak", "non-torch")


def test_figures_that_do_not_add_up_are_said() -> None:
    found = compared(StartNumbers(pool=57.0))

    assert found.identity.closes is False
    assert found.identity.difference_bytes == pytest.approx(0.5 * GIB, abs=0.01 * GIB)


@pytest.mark.parametrize(
    ("version", "pool", "formula"),
    [
        ("0.19.0", 57.5, "weights - activation peak - non-torch"),
        ("0.23.0", 56.7, "weights - activation peak - non-torch - graph estimate"),
        ("0.31.0", 57.5, "weights - non-torch - printed peak (graph estimate in it)"),
    ],
)
def test_each_era_has_its_own_identity(version: str, pool: float, formula: str) -> None:
    rank = MeasuredRank(
        weights=gib(15.27),
        activation_printed=gib(2.21),
        non_torch=gib(0.25),
        graph_estimate=gib(0.8),
        kv_pool=gib(pool),
    )
    measured = start(rank, version=version, total=gib(79.19), utilization=0.95)

    found = reconcile(plan_of(version, enforce_eager=False), measured)

    assert formula in found.identity.formula
    assert found.identity.closes


def test_every_public_start_with_all_its_figures_adds_up() -> None:
    rows = [
        row
        for path in sorted(CARRIED_ROWS.glob("open*.jsonl"))
        for row in read_rows(path.read_text(encoding="utf-8").splitlines(), path.name)
        if row.version == "0.19.0" and "llmd" in row.row_id and row.model_id == QWEN
    ]

    found = [reconcile(plan_of(enable_prefix_caching=False), from_row(row)) for row in rows]

    assert len(found) >= 1
    assert all(each.identity.closes for each in found)


def test_from_0_27_on_the_graph_estimate_comes_off_the_printed_peak() -> None:
    log = read_startup_log(
        "INFO [gpu_model_runner.py:1] Initializing a V1 LLM engine (v0.31.0) with config: model='Qwen/Qwen3-8B', max_seq_len=8192,\n"
        "INFO Model loading took 15.27 GiB memory and 5.1 seconds\n"
        "INFO Estimated CUDA graph memory: 0.80 GiB total\n"
        "INFO Available KV cache memory: 57.0 GiB\n"
        "INFO Free memory on device (78.68/79.19 GiB) on startup. Desired GPU memory utilization is (0.95, 75.23 GiB). Actual usage is "
        "15.57 GiB for consumed memory (weights + non-torch), 2.66 GiB for peak activation, and 0.85 GiB for CUDAGraph memory. Replace "
        "gpu_memory_utilization config with `--kv-cache-memory=1` (1.0 GiB) to fit into requested memory, or `--kv-cache-memory=2` (2.0 GiB) "
        "to fully utilize gpu memory. Current kv cache memory in use is 57.0 GiB.\n"
    )

    rank = from_log(log, "start.log").ranks[0]

    assert rank.activation is not None
    assert rank.non_torch is not None
    assert rank.activation.best_bytes == pytest.approx(1.86 * GIB, abs=0.001 * GIB)
    assert rank.non_torch.best_bytes == pytest.approx(0.30 * GIB, abs=0.001 * GIB)
    assert rank.activation.high_bytes - rank.activation.low_bytes == pytest.approx(0.02 * GIB, rel=0.01)


def test_where_the_estimate_is_not_printed_both_are_compared_as_one_sum() -> None:
    found = reconcile(plan_of("0.31.0"), start(MeasuredRank(activation_printed=gib(2.66)), version="0.31.0"))

    assert [term.name for term in found.terms] == ["activation_and_graphs"]
    assert "graphs-in-peak" in codes(found)


def test_the_weakest_rank_comes_first_and_is_named() -> None:
    ranks = tuple(MeasuredRank(rank=f"TP{place}", kv_pool=gib(pool)) for place, pool in enumerate((60.2, 59.4, 60.3)))
    plan = plan_of(tensor_parallel_size=4)

    found = reconcile(plan, start(ranks=ranks))

    assert found.bounding_rank == "TP1"
    assert [term.rank for term in found.terms] == ["TP1", "TP0", "TP2"]
    assert "weakest-rank" in codes(found)


def test_stages_are_set_beside_their_own_plans() -> None:
    plan = plan_of(pipeline_parallel_size=2)
    sizes = [rank.weights.load.best_bytes for rank in plan.ranks]
    ranks = tuple(
        MeasuredRank(rank=f"PP{place}", pp_rank=place, weights=gib(round(size / GIB, 2)))
        for place, size in enumerate(sizes)
    )

    found = reconcile(plan, start(ranks=ranks))

    assert all(abs(term.error) < 0.01 * GIB for term in found.terms)


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"version": "0.23.0"}, "other-version"),
        ({"max_model_len": 4096}, "other-length"),
        ({"tensor_parallel_size": 2}, "other-split"),
        ({"utilization": 0.9}, "other-utilization"),
        ({"total": gib(79.19), "free_at_start": gib(60.0)}, "other-processes"),
        ({"total": gib(39.5)}, "other-total"),
    ],
)
def test_a_reason_stands_where_its_condition_is_seen_and_only_there(facts: dict[str, object], code: str) -> None:
    told = start(MeasuredRank(kv_pool=gib(57.5)), **facts)
    untold = start(MeasuredRank(kv_pool=gib(57.5)))

    assert code in codes(reconcile(plan_of(), told))
    assert code not in codes(reconcile(plan_of(), untold))


def test_weights_beyond_the_band_name_what_the_log_shows_and_the_plan_lacks() -> None:
    heavy = MeasuredRank(weights=gib(16.9))

    plain = reconcile(plan_of(), start(heavy)).reasons[0].text
    with_lora = reconcile(plan_of(), start(heavy, has_lora=True)).reasons[0].text

    assert "LoRA" not in plain
    assert "LoRA slots, which the plan lacks" in with_lora


def test_a_warm_compile_cache_is_named_where_the_cold_one_was_assumed() -> None:
    request = PlanRequest(model_id=QWEN, gpu="L40S", vllm_version="0.31.0", flags=EngineFlags(max_model_len=8192))
    plan, _ = answer(request, catalogue_documents(QWEN))

    found = reconcile(plan, start(MeasuredRank(activation=gib(0.3)), version="0.31.0"))

    assert plan.ranks[0].activation.formula.startswith("cold compile")
    assert "warm-compile-cache" in codes(found)


def test_a_failed_start_is_reconciled_by_what_its_error_says() -> None:
    plan = plan_of(gpu_memory_utilization=0.25, max_model_len=40960)
    pool = plan.pool
    told = start(
        needed=gib(round(pool.needed_bytes / GIB, 2)),
        available=gib(round(plan.ranks[0].kv_pool.best_bytes / GIB, 2)),
        estimated_length=pool.estimated_max_model_len,
        outcome="failed",
    )

    found = reconcile(plan, told)

    assert not plan.will_start
    assert found.is_verdict_right
    assert {"needed", "available", "estimated_length"} == {term.name for term in found.terms}
    assert all(term.is_inside for term in found.terms)


def test_advice_comes_from_the_measured_values() -> None:
    plan = plan_of(gpu_memory_utilization=0.35, max_model_len=40960)
    need = plan.pool.needed_bytes / GIB
    short = MeasuredRank(
        weights=gib(15.27),
        activation=gib(2.21),
        non_torch=gib(round(0.25 + plan.ranks[0].kv_pool.best_bytes / GIB - need + 0.4, 2)),
    )

    found = measured_answer(plan, catalogue_documents(QWEN), start(short, utilization=0.35, total=gib(79.19)))

    assert plan.will_start
    assert not found.plan.will_start
    assert any(each.flag == "gpu_memory_utilization" and float(str(each.value)) > 0.35 for each in found.advice)


def test_no_advice_is_given_for_a_pool_that_the_measured_terms_do_not_leave() -> None:
    found = compared(StartNumbers(pool=18.16, tokens=132_000, concurrency=16.11))
    general = found.plan

    with pytest.raises(PlanError, match=r"The printed pool of 18\.16 GiB is not what the other measured terms leave"):
        measured_answer(general, catalogue_documents(QWEN), found.start)


def test_where_a_start_has_room_the_longest_length_is_advised() -> None:
    plan = plan_of()

    found = measured_answer(
        plan, catalogue_documents(QWEN), start(MeasuredRank(activation=gib(2.2), non_torch=gib(0.25)))
    )

    assert found.longest_tokens == 40960
    assert found.advice[0].flag == "max_model_len"


# -- the command --------------------------------------------------------------------------------------------------------


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    path = tmp_path / "qwen3.log"
    path.write_text(start_log(), encoding="utf-8")
    return path


def test_the_command_prints_every_term_and_the_identity(log_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main([str(log_file), "--gpu", H100])

    printed = capsys.readouterr().out
    assert status == 0
    assert "kv pool" in printed
    assert "418,688" in printed
    assert "adds up" in printed


def test_the_command_gives_json(log_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main([str(log_file), "--gpu", H100, "--json"])

    record = json.loads(capsys.readouterr().out)
    assert status == 0
    assert record["identity"]["closes"] is True
    assert {term["name"] for term in record["terms"]} >= {"weights", "kv_pool", "tokens"}
    assert record["request"]["gpu_memory_utilization"] == 0.95


@pytest.mark.parametrize("content", [b"", b"\x00\x01\x02" * 500, b"nothing of vLLM here\n", b"\xff\xfe\x00"])
def test_the_command_refuses_what_is_no_log_in_one_line(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.log"
    path.write_bytes(content)

    assert main([str(path), "--gpu", H100]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_card_that_the_log_does_not_name_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "start.log"
    lines = start_log().splitlines()
    path.write_text("\n".join(line for line in lines if "Free memory on device" not in line), encoding="utf-8")

    assert main([str(path)]) == 2
    assert "--gpu" in capsys.readouterr().err


def test_a_total_that_is_not_the_cards_is_kept_in_the_request() -> None:
    log = read_startup_log(start_log(StartNumbers(total=40.2, free=39.9)))

    request, _ = start_request(log, PlanRequest(model_id=QWEN, gpu=H100))

    assert request.gpu_memory_bytes == round(40.2 * GIB)


def test_a_total_of_the_card_is_compared_and_not_taken_for_it() -> None:
    log = read_startup_log(start_log())

    request, _ = start_request(log, PlanRequest(model_id=QWEN, gpu=H100))

    assert request.gpu_memory_bytes is None
    assert replace(request, flags=EngineFlags()).gpu == H100
