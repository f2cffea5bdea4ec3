"""What lies below the card's pool, from real metrics texts: each exported number a row, each absent tier named."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from live.metrics import read_metrics
from live.samples import CacheConfig, EngineIdentity, EngineSample, LabelledValue
from pages.parts.watch_evidence import Evidence
from pages.parts.watch_tiers import absent_tiers, tier_rows
from planner.model_catalog import catalogue_documents
from planner.planning import answer
from planner.request import EngineFlags, PlanRequest
from planner.units import GIB

TEXTS = Path(__file__).parents[2].parent / "shared" / "groundtruth" / "metrics"
NOTHING = Evidence(seconds=300.0, num_ticks=300)
EMPTY = EngineSample(time_unix_ns=0, identity=EngineIdentity(model_name="m"))


def sample(name: str) -> EngineSample:
    path = TEXTS / name
    if not path.exists() and os.environ.get("CI") != "true":
        pytest.skip(f"{path} is not here")
    return read_metrics(path.read_text(encoding="utf-8"), 0).engines[0]


def rows(shown: EngineSample, facts: Evidence = NOTHING) -> dict[tuple[str, str], str]:
    return {(row.tier, row.name): row.shown.replace("\xa0", " ") for row in tier_rows(shown, facts, None)}


def test_an_engine_that_exports_no_tier_has_none() -> None:
    assert tier_rows(EMPTY, NOTHING, None) == ()
    assert len(absent_tiers(EMPTY)) == 5


def test_v0s_swap_space_is_a_tier() -> None:
    found = rows(sample("v0-054-two-models.txt"))

    assert ("Swap space (V0)", "requests swapped out") in found
    assert ("Swap space (V0)", "in use") in found


def test_tiers_below_the_host_are_told_one_by_one() -> None:
    shown = sample("v1-kv-offload-tiering-lines.txt")

    found = rows(shown)

    assert any(tier.startswith("Tier ") for tier, _ in found)
    assert "tiers below the host" not in absent_tiers(shown)


def test_native_offload_tells_bytes_rates_time_and_failures() -> None:
    shown = replace(
        EMPTY,
        offload_store_bytes=3.0 * GIB,
        offload_load_bytes=0.0,
        offload_stores_skipped=7.0,
        offload_allocation_failures=2.0,
        kv_offload_cpu_pinned_fraction=0.25,
        cache_config=CacheConfig(kv_offloading_size_gib=16.0),
    )
    facts = replace(NOTHING, store_bytes_per_second=0.5 * GIB, store_seconds_per_second=0.125)

    found = {row.name: row for row in tier_rows(shown, facts, None)}

    assert found["stored"].shown.replace("\xa0", " ") == "3.00 GiB"
    assert found["stored"].lately.replace("\xa0", " ") == "512 MiB/s; transferring 12.5% of the time"
    assert found["stored"].plan.replace("\xa0", " ") == "engine: 16.0 GiB"
    assert found["loaded"].shown.replace("\xa0", " ") == "0 bytes"
    assert found["stores skipped"].shown == "7"
    assert found["allocations failed"].shown == "2"
    assert found["pinned by transfers"].shown.replace("\xa0", " ") == "25.0 %"


def test_a_tier_stands_beside_the_plans_size() -> None:
    request = PlanRequest(
        model_id="meta-llama/Llama-3.1-8B-Instruct", gpu="H100 SXM5 80GB", flags=EngineFlags(kv_offloading_size=32.0)
    )
    plan = answer(request, catalogue_documents(request.model_id))[0]

    (stored,) = tier_rows(replace(EMPTY, offload_store_bytes=1.0), NOTHING, plan)

    assert stored.plan.replace("\xa0", " ") == "32.0 GiB"


def test_the_simple_connector_and_caches_by_source() -> None:
    source = LabelledValue(name="vllm:prompt_tokens_cached_by_source", labels=(("source", "disk"),), value=640.0)
    shown = replace(
        EMPTY,
        simple_offload_used_blocks=12.0,
        simple_offload_pending_store_blocks=3.0,
        external_prefix_cache_queries_tokens=1000.0,
        external_prefix_cache_hits_tokens=250.0,
        labelled=(source,),
    )

    found = rows(shown)

    assert found["Host (simple connector)", "blocks in use"] == "12"
    assert found["Host (simple connector)", "blocks waiting to be stored"] == "3"
    assert found["External prefix cache", "prompt tokens found of those asked for"] == "250 / 1,000"
    assert found["Prefix caches by source", "prompt tokens found, source disk"] == "640"
