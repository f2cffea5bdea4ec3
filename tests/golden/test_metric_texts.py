"""Real /metrics texts, with the reading that a careful person made of each (../shared/groundtruth/metrics)."""

import json
import os
from pathlib import Path

import pytest

from live.__main__ import main
from live.metrics import read_metrics

TEXTS = Path(__file__).parents[2].parent / "shared" / "groundtruth" / "metrics"
RENAMED = {"model": "model_name", "kv_cache_max_concurrency": "max_concurrency"}
DERIVED = {
    "kv_cache_tokens_derived"
}  # blocks x block size, which is not always the capacity: not reported as if it were


def rows() -> list[dict]:
    index = TEXTS / "index.jsonl"
    return [json.loads(line) for line in index.read_text().splitlines()] if index.exists() else []


def test_the_texts_are_there():
    if not rows() and os.environ.get("CI") != "true":
        pytest.skip("the checkout has no shared folder beside it")

    assert rows()


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["file"])
def test_every_expected_reading_is_reproduced(row, capsys):
    status = main(["snapshot", "--file", str(TEXTS / row["file"]), "--json"])

    engines = json.loads(capsys.readouterr().out)["engines"]
    expected = [
        {RENAMED.get(name, name): value for name, value in reading.items() if name not in DERIVED}
        for reading in row["expected"]
    ]
    assert status == 0
    assert [
        {name: engine[name] for name in reading} for engine, reading in zip(engines, expected, strict=True)
    ] == expected


def test_the_guess_whose_blocks_these_are_is_said():
    if not rows() and os.environ.get("CI") != "true":
        pytest.skip("the checkout has no shared folder beside it")
    text = (TEXTS / "v0-054-two-models.txt").read_text()

    reading = read_metrics(text, 0)

    assert [finding.code for finding in reading.findings] == ["cache-config-owner-guessed"]


def test_transfers_by_tier_stay_readable():
    if not rows() and os.environ.get("CI") != "true":
        pytest.skip("the checkout has no shared folder beside it")
    text = (TEXTS / "v1-kv-offload-tiering-lines.txt").read_text()

    (engine,) = read_metrics(text, 0).engines

    hits = {dict(one.labels)["tier"]: one.value for one in engine.labelled_values("vllm:kv_offload_tiering_block_hits")}
    failures = engine.labelled_values("vllm:kv_offload_tiering_promotion_allocation_failures")
    assert hits == {"1:PeerMirroredFileSystemTierManager": 12, "0:primary": 7}
    assert [one.value for one in failures] == [4]


# A scrape of vLLM 0.32.0 on the CPU (a random two-layer Llama, --num-gpu-blocks-override 64, block size 32) after 25 requests
# that share a prefix and overfill the pool; bucket rows and the HTTP families are left out.
OWN_SCRAPE = Path(__file__).with_name("metrics-0.32.0-cpu.txt")


def test_our_own_scrape_of_0_32_reads_as_the_engine_logged_it():
    reading = read_metrics(OWN_SCRAPE.read_text(), 0)

    (engine,) = reading.engines
    assert reading.findings == ()
    assert (engine.identity.model_name, engine.identity.engine) == ("tiny", "0")
    assert (engine.cache_config.num_gpu_blocks, engine.cache_config.block_size) == (64, 32)
    assert (engine.cache_config.kv_cache_tokens, engine.cache_config.max_concurrency) == (2048, 4)
    assert (engine.num_preemptions, engine.generation_tokens) == (13, 3000)
    assert (engine.prefix_cache_queries_tokens, engine.prefix_cache_hits_tokens) == (4634, 2304)
    assert engine.histogram("vllm:request_prompt_tokens").count == 25
    assert (engine.num_requests_swapped, engine.offload_store_bytes) == (None, None)
