"""Drawn workloads and files of requests."""

from __future__ import annotations

import io
import json
import random
import statistics

import pytest

from planner.facts import PlanError
from planner.workload import ArrivalProcess, LengthDistribution, WorkloadSpec, draw_workload
from planner.workload_files import read_requests, read_workload, write_requests


def lengths(distribution, count=4000):
    source = random.Random(3)  # noqa: S311 - repeatable, not secret
    return sorted(distribution.draw(source) for _ in range(count))


def read(text):
    return read_requests(io.StringIO(text))


def test_equal_seeds_draw_equal_workloads():
    spec = WorkloadSpec(num_requests=50, prompt=LengthDistribution(kind="lognormal"), max_priority=3)

    assert draw_workload(spec, seed=5) == draw_workload(spec, seed=5)
    assert draw_workload(spec, seed=5) != draw_workload(spec, seed=6)


def test_fixed_lengths_are_all_the_mean():
    assert set(lengths(LengthDistribution(kind="fixed", mean_tokens=77))) == {77}


def test_uniform_lengths_fill_their_range():
    drawn = lengths(LengthDistribution(kind="uniform", low=10, high=20))

    assert (drawn[0], drawn[-1]) == (10, 20)


def test_lognormal_lengths_have_the_mean_asked_for():
    drawn = lengths(LengthDistribution(kind="lognormal", mean_tokens=500, spread=0.5))

    assert statistics.fmean(drawn) == pytest.approx(500, rel=0.05)


def test_bimodal_lengths_hold_the_share_of_documents():
    distribution = LengthDistribution(kind="bimodal", mean_tokens=200, long_mean_tokens=20_000, long_fraction=0.25)

    share = sum(length > 3000 for length in lengths(distribution)) / 4000

    assert share == pytest.approx(0.25, abs=0.03)


def test_percentiles_are_met():
    distribution = LengthDistribution(kind="percentiles", p50_tokens=100, p95_tokens=900, p99_tokens=5000)

    drawn = lengths(distribution, 20_000)

    assert drawn[10_000] == pytest.approx(100, rel=0.05)
    assert drawn[19_000] == pytest.approx(900, rel=0.1)
    assert drawn[19_800] == pytest.approx(5000, rel=0.2)


@pytest.mark.parametrize("kind", ["poisson", "bursty", "steady"])
def test_arrivals_keep_their_rate(kind):
    spec = WorkloadSpec(
        num_requests=5000, arrivals=ArrivalProcess(kind=kind, rate=2.0, burst_size=5), arrivals_in="seconds"
    )

    last = draw_workload(spec, seed=1)[-1].arrival_seconds

    assert last == pytest.approx(2500, rel=0.1)


def test_bursts_come_together():
    spec = WorkloadSpec(
        num_requests=1000, arrivals=ArrivalProcess(kind="bursty", rate=1.0, burst_size=10), arrivals_in="seconds"
    )

    moments = {request.arrival_seconds for request in draw_workload(spec)}

    assert len(moments) < 200


def test_system_prompts_are_shared_by_name():
    spec = WorkloadSpec(num_requests=40, num_prefixes=2, prefix_tokens=64)

    keys = {request.shared_pieces[0].key for request in draw_workload(spec)}

    assert len(keys) == 2


def test_lengths_are_cut_to_the_model():
    spec = WorkloadSpec(num_requests=20, prompt=LengthDistribution(mean_tokens=5000), max_model_len=1000)

    assert all(r.num_prompt_tokens + r.num_output_tokens <= 1000 for r in draw_workload(spec))


@pytest.mark.parametrize(
    "make",
    [
        lambda: LengthDistribution(low=5, high=4),
        lambda: LengthDistribution(kind="percentiles", p50_tokens=10, p95_tokens=5, p99_tokens=20),
        lambda: LengthDistribution(long_fraction=1.5),
        lambda: LengthDistribution(mean_tokens=0),
        lambda: ArrivalProcess(rate=0),
        lambda: WorkloadSpec(num_requests=0),
        lambda: WorkloadSpec(num_requests=1, shared_fraction=2.0),
        lambda: WorkloadSpec(num_requests=1, prefix_tokens=100, num_prefixes=1, max_model_len=50),
    ],
)
def test_impossible_distributions_are_refused(make):
    with pytest.raises(PlanError):
        make()


def test_a_written_workload_reads_back():
    spec = WorkloadSpec(num_requests=10, num_prefixes=2, prefix_tokens=32, max_priority=2, n=2)
    requests = draw_workload(spec)
    stream = io.StringIO()

    write_requests(requests, stream)

    assert read(stream.getvalue()) == requests


def test_token_ids_read_back():
    row = {"request_id": "a", "arrival_step": 3, "prompt_token_ids": [1, 2], "output_token_ids": [7], "priority": 1}

    (request,) = read(json.dumps(row) + "\n")

    assert (request.num_prompt_tokens, request.num_output_tokens, request.arrival_step) == (2, 1, 3)
    assert request.output_token_ids == (7,)


def test_the_azure_trace_is_understood():
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,396,109\n"
    )

    first, second = read(text)

    assert (first.num_prompt_tokens, first.num_output_tokens, first.arrival_seconds) == (374, 44, 0.0)
    assert second.arrival_seconds == pytest.approx(4.314579)


def test_the_mooncake_trace_is_understood():
    rows = [
        {"timestamp": 1000, "input_length": 700, "output_length": 5, "hash_ids": [46, 47]},
        {"timestamp": 3500, "input_length": 900, "output_length": 6, "hash_ids": [46, 48]},
    ]

    first, second = read("\n".join(json.dumps(row) for row in rows))

    assert second.arrival_seconds == 2.5
    assert first.shared_pieces[0] == second.shared_pieces[0]
    assert first.shared_pieces[1] != second.shared_pieces[1]
    assert [piece.num_tokens for piece in first.shared_pieces] == [512, 188]


def test_a_list_of_requests_and_a_whole_trace_are_read():
    rows = [{"prompt_tokens": 5, "output_tokens": 2}]

    assert read(json.dumps(rows, indent=2)) == read(json.dumps({"requests": rows}))


BAD = {
    "": "empty",
    "a,b\n1,2\n": "none of the columns",
    '{"prompt_tokens": 5}\n': r"Row 1: there is no num_output_tokens",
    '{"prompt_tokens": 5, "output_tokens": 1}\n{"prompt_tokens": -5, "output_tokens": 1}\n': r"Row 2: num_prompt_tokens must be",
    '{"prompt_tokens": 5e30, "output_tokens": 1}\n': r"Row 1: num_prompt_tokens must be",
    '{"prompt_tokens": "many", "output_tokens": 1}\n': r"Row 1: num_prompt_tokens must be a whole number",
    '{"prompt_tokens": 1.5, "output_tokens": 1}\n': r"Row 1: num_prompt_tokens must be a whole number",
    '{"prompt_tokens": true, "output_tokens": 1}\n': r"Row 1: num_prompt_tokens must be a whole number",
    '{"request_id": "a", "prompt_tokens": 5, "output_tokens": 1}\n{"request_id": "a", "prompt_tokens": 5, "output_tokens": 1}\n': "Row 2: request id a came before",
    "prompt_tokens,output_tokens\n5\n": "Row 1: it does not have",
    "prompt_tokens,output_tokens\n5,6,7\n": "Row 1: it does not have",
    '{"prompt_tokens": 5, "output_tokens": 1}\nnonsense\n': "Row 2: it is not a JSON object",
    '{"prompt_tokens": 5, "output_tokens": 1}\n[1]\n': "Row 2: it is not a JSON object",
    '{"timestamp": "noon", "prompt_tokens": 5, "output_tokens": 1}\n': "Row 1: noon is not a time",
    '{"timestamp": 9, "input_length": 5, "output_length": 1, "hash_ids": [1, 2]}\n': "Row 1: hash_ids",
    '{"prompt_token_ids": [1, "x"], "output_tokens": 1}\n': "Row 1: prompt_token_ids must be a list",
    '{"prompt_token_ids": [1, 2], "prompt_tokens": 3, "output_tokens": 1}\n': "2 token ids are given",
    '{"prompt_tokens": 5, "output_tokens": 1, "prefix_id": "s", "prefix_tokens": 6}\n': "Row 1: prefix_tokens",
    "[": "is not JSON",
    '{"arrival": 5, "prompt_tokens": 5, "output_tokens": 1}\n{"arrival": -1, "prompt_tokens": 5, "output_tokens": 1}\n': "Row 2: it arrives before",
}


@pytest.mark.parametrize("text", BAD, ids=lambda text: BAD[text][:40])
def test_a_bad_file_is_refused_with_its_row(text):
    with pytest.raises(PlanError, match=BAD[text]):
        read(text)


def test_too_many_rows_are_refused(monkeypatch):
    monkeypatch.setattr("planner.workload_files.MAX_REQUESTS", 3)

    with pytest.raises(PlanError, match="Row 4: a trace may have 3 requests"):
        read('{"prompt_tokens": 5, "output_tokens": 1}\n' * 5)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path):
    broken = tmp_path / "broken.csv"
    broken.write_bytes(b"\xff\xfe\x00prompt")

    with pytest.raises(PlanError, match="cannot be read"):
        read_workload(tmp_path / "nothing.jsonl")
    with pytest.raises(PlanError, match="UTF-8"):
        read_workload(broken)
