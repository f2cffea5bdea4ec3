"""Each claim that practitioners repeat stands in a lesson, beside the value that the page computes."""

from __future__ import annotations

import pytest

from pages.parts import learn_numbers as numbers
from pages.parts import learn_view
from pages.parts.learn_lesson import Lesson
from pages.parts.learn_state import SLUGS, Learner
from planner.model_catalog import catalogue_documents
from planner.planning import answer
from planner.request import PlanRequest

# Lesson, words of the claim, what stands beside it with the sum in view.
TRAPS = [
    ("weights", "7B, 13B and 70B in FP16 take 14, 26, 140 GB", ("12.6 GiB", "24.2 GiB", "128 GiB")),  # bytes / 2**30
    ("weights", "AWQ saves 40 to 50 %", ("74% of the linear layers", "63% of all weights")),
    ("token", "a 70B needs 2.68 GB", ("0.625 GiB", "4 times", "8 times")),  # 2 x 80 x 8 x 128 x 2 x 2048 bytes
    ("token", "KV cost per token in MB", ("0.500 MiB (4.00 times)", "0.125 MiB", "0.312 MiB", "0.0176 MiB")),
    ("token", "batch × a constant", ("1.00 GiB for one request", "16.0 GiB for 16")),  # 512 KiB x 2048, x 16
    ("attention", "Tokens that fit = blocks × block size", ("7.00 times fewer",)),
    ("paging", "A page has 16 KB, or one token", ("16 tokens: 256 KiB", "8 MiB over all")),  # 2 x 32 x 128 x 2 x 16
    ("paging", "Choose blocks of 8, 16 or 32", ("multiples of 16",)),
    ("paging", "10 GB free", ("cannot fragment",)),
    ("sharing", "copies the block on write", ("of the 22 blocks above, 6 are shared", "the 16 others")),  # 6 + 8 x 2
    ("preemption", "Set swap_space to twice", ("48.0 GiB of host memory",)),
    ("preemption", "Keep cold KV on disk", ("1.00 GiB: 21.5 ms from the host, 2,147 ms")),  # 2**30 / 50e9, / 0.5e9
    ("preemption", "dry_run mode", ("no such mode",)),
    ("budget", "0.9 by default", ("0.9 up to 0.19, 0.92 from 0.20 on",)),
    ("budget", "90 to 95 % of the marketed size", ("23.5 GiB of “24 GB”, 98%", "79.2 GiB of “80 GB”, 99%")),
    ("budget", "CUDA context takes 0.5 to 1 GB", ("L40S: 0.439 GiB",)),
    ("budget", "16 requests of 1,024", ("of pool", "on an RTX 4090")),
    ("budget", "Phi-3 mini 8,192 × 12", ("Llama-2-7B AWQ 8.5", "Phi-3 mini 4.58× at 8,192")),
    ("budget", "Quantise the weights", ("with 8-bit weights", "with an 8-bit cache")),
    ("budget", "80 % of what fits", ("the pool loses",)),
    ("live", "not there is zero", ("not exported by that version",)),
    ("live", "first requests show", ("warm-up requests",)),
]


@pytest.fixture(scope="module")
def lessons() -> dict[str, Lesson]:
    request = PlanRequest(model_id="Qwen/Qwen3-8B", gpu="H100 80GB SXM")
    documents = catalogue_documents(request.model_id)
    plan, facts = answer(request, documents)
    learner = Learner(model_id=request.model_id, documents=documents, request=request, facts=facts, plan=plan)
    return {slug: learn_view.make(slug, learner) for slug in SLUGS}


@pytest.mark.parametrize(("slug", "claim", "exact"), TRAPS)
def test_claim_stands_beside_its_value(
    lessons: dict[str, Lesson], slug: str, claim: str, exact: tuple[str, ...]
) -> None:
    found = [trap for trap in lessons[slug].traps if claim in trap.claim]

    assert len(found) == 1
    said = found[0].exact.replace("\N{NO-BREAK SPACE}", " ")
    assert [part for part in exact if part not in said] == []


def test_eight_bit_weights_help_requests_less_than_an_eight_bit_cache() -> None:
    plain, weights, cache = (
        numbers.plan_of("Qwen/Qwen3-8B", gpu="L40S", max_model_len=8192, **flags)
        for flags in ({}, {"quantization": "fp8_per_tensor"}, {"kv_cache_dtype": "fp8"})
    )

    assert plain.will_start
    assert weights.will_start
    assert cache.will_start
    assert plain.pool.max_concurrency < weights.pool.max_concurrency < 1.5 * plain.pool.max_concurrency
    assert cache.pool.max_concurrency == pytest.approx(2 * plain.pool.max_concurrency, rel=0.02)


def test_disk_of_an_article_is_slower_than_computing_again() -> None:
    fetch = numbers.fetch(numbers.GQA, "H100 80GB SXM", 8192, (50.0, 0.5))
    host, disk = fetch.tier_seconds

    assert fetch.size_bytes == 2**30  # 128 KiB a token
    assert host < fetch.recompute_seconds < disk
