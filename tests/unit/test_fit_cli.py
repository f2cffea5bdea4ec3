"""`python -m planner fit`: a line a row, numbers as the planner's, one sentence for a mistake."""

from __future__ import annotations

import json

import pytest

from planner.__main__ import main
from planner.budget import plan
from planner.model_catalog import catalogue_documents
from planner.planning import facts_for
from planner.request import EngineFlags, PlanRequest

MODEL = "Qwen/Qwen3-8B"


def lines(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict]:
    assert main(["fit", *words]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_cell_has_the_plans_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = lines(capsys, "--model", MODEL, "--gpu", "L4", "--tensor-parallel-size", "1", "3")
    request = PlanRequest(model_id=MODEL, gpu="L4", flags=EngineFlags(max_model_len="auto"))
    pool = plan(request, facts_for(request, catalogue_documents(MODEL))).pool

    assert line["cells"]["L4 x1"]["longest_tokens"] == pool.estimated_max_model_len
    assert line["cells"]["L4 x1"]["num_blocks"] == pool.num_blocks
    assert "must be divisible" in line["cells"]["L4 x3"]["reason"]


def test_without_a_model_every_model_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    found = lines(capsys, "--gpu", "L4", "--tensor-parallel-size", "1", "--max-model-len", "2048")

    assert len(found) > 100
    assert {"stop"} < {key for line in found for key in line["cells"]["L4 x1"]}


def test_a_load_ends_with_the_split_that_holds_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = lines(capsys, "--model", MODEL, "--gpu", "L4", "--users", "50")

    assert [line["state"] for line in found][-1] == "holds"
    assert found[-1]["num_cards"] == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--model", "no/such", "--gpu", "L4", "--users", "3"), "not in the offline catalogue"),
        (("--model", MODEL, "--gpu", "nonsense card"), "not in the catalogue of cards"),
        (("--model", MODEL, "--gpu", "L4", "--users", "0"), "users at once are 0"),
        (("--gpu", "L4", "--users", "3"), "give --model once"),
        (("--model", MODEL, "--gpu", "L4", "--users", "3", "--prompt", "9", "5", "7"), "percentiles rise"),
        (("--model", MODEL, "--gpu", "L4", "--num-requests", "0"), "from 1 on"),
    ],
)
def test_a_mistake_is_one_sentence(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str) -> None:
    assert main(["fit", *words]) == 2

    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert sentence in told
