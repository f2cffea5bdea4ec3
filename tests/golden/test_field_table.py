"""The practitioners' table of a 24 GB card beside our values: the numbers a page shows, held to the digit.

The claims: three practitioners' articles of 2026 ("24 GB RTX 4090: Llama2-7B 2048 x 4; AWQ 4096 x 8; Mistral-7B 4096 x 6;
Phi-3 8192 x 12"). Our values are plans of vLLM 0.33.0 at its defaults on the catalogue's card.
"""

from __future__ import annotations

import pytest

from planner import field_table
from planner.budget import plan
from planner.planning import facts_for
from planner.request import EngineFlags, PlanRequest
from planner.units import KIB

ROWS = {row.claim.title: row for row in field_table.rows("0.33.0")}


def test_the_claims_are_those_that_go_round() -> None:
    told = [(claim.title, claim.length_tokens, claim.num_requests) for claim in field_table.CLAIMS]

    assert told == [
        ("Llama-2-7B", 2048, 4),
        ("Llama-2-7B AWQ", 4096, 8),
        ("Mistral-7B", 4096, 6),
        ("Phi-3 mini", 8192, 12),
    ]


@pytest.mark.parametrize(
    ("title", "kv_kib_per_token"),
    [
        ("Llama-2-7B", 512),  # 2 x 32 layers x 32 heads x 128 x 2 bytes
        ("Llama-2-7B AWQ", 512),
        ("Mistral-7B", 128),  # 8 KV heads of 32
        ("Phi-3 mini", 384),  # 2 x 32 layers x 32 heads x 96 x 2 bytes
    ],
)
def test_a_token_takes_what_layers_heads_and_sizes_say(title: str, kv_kib_per_token: int) -> None:
    assert ROWS[title].kv_bytes_per_token == kv_kib_per_token * KIB


@pytest.mark.parametrize(
    ("title", "max_concurrency", "longest_tokens", "verdict"),
    [
        ("Llama-2-7B", 8.23, 4096, "Too careful"),
        ("Llama-2-7B AWQ", 8.55, 4096, "It holds"),
        ("Mistral-7B", 14.51, 32768, "Too careful"),
        ("Phi-3 mini", 4.58, 3120, "It does not hold"),
    ],
)
def test_each_row_has_its_exact_value(title: str, max_concurrency: float, longest_tokens: int, verdict: str) -> None:
    row = ROWS[title]

    assert row.max_concurrency == pytest.approx(max_concurrency, abs=0.01)
    assert row.longest_tokens == longest_tokens
    assert row.finding.startswith(verdict)


@pytest.mark.parametrize("claim", field_table.CLAIMS, ids=lambda claim: claim.title)
def test_the_values_are_the_plans(claim: field_table.Claim) -> None:
    request = PlanRequest(
        model_id=claim.model_id, gpu=field_table.CARD, flags=EngineFlags(max_model_len=claim.length_tokens)
    )
    model = facts_for(request, field_table.claim_documents(claim))

    assert plan(request, model).pool.max_concurrency == ROWS[claim.title].max_concurrency


def test_an_awq_checkpoint_loads_in_a_third_of_the_weights() -> None:
    plain, packed = ROWS["Llama-2-7B"], ROWS["Llama-2-7B AWQ"]

    saved = packed.pool_bytes - plain.pool_bytes
    assert saved == pytest.approx(12.55e9 * 0.76, rel=0.1)
