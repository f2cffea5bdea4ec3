"""The Watch page on the project's own recording: the map of its tables, what is expected, and what is said where nothing is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from live.cache_summary import SUMMARY_KIND, encode_summary, summarize
from live.cached_blocks import CachedBlocks
from live.kv_event_frames import BlocksStored, KvEventBatch
from live.nvml import DetectedGpu, NvmlState, ProcessMemory
from live.sample_codec import encode
from live.samples import CacheConfig, EngineIdentity, EngineSample, EngineSnapshot, ServedModel
from live.store import About, Store
from planner.units import GIB
from tests.fakes.metrics_server import MetricsServer

ROOT = Path(__file__).parents[2]
START_MS = 1_760_000_000_000
OpenPage = Callable[[], AppTest]


def said(app: AppTest) -> str:
    kinds = (app.header, app.subheader, app.markdown, app.caption, app.error, app.warning, app.info, app.code)
    return "\n".join(element.value.replace("\\", "").replace("\xa0", " ") for kind in kinds for element in kind)


def table(app: AppTest, column: str) -> list[dict[str, str]]:
    found = next(each.value for each in app.dataframe if column in each.value.columns)
    return found.to_dict("records")


def snapshot(second: int, **numbers: object) -> EngineSnapshot:
    time_ns = (START_MS + 1000 * second) * 1_000_000
    model = str(numbers.pop("model", "tiny-llama"))
    sample = EngineSample(time_unix_ns=time_ns, identity=EngineIdentity(model_name=model, engine="0"), **numbers)  # type: ignore[arg-type]
    served = ServedModel(model_id=model, max_model_len=4096)
    return EngineSnapshot(
        time_unix_ns=time_ns, source="http://localhost:8000", engines=(sample,), models=(served,), vllm_version="0.32.0"
    )


def write_recording(path: Path, snapshots: list[EngineSnapshot], extras: dict[str, float] | None = None) -> Path:
    store = Store.create(path, About(source="http://localhost:8000"))
    for each in snapshots:
        encoded = encode(each)
        store.append(encoded.time_ms, {**(extras or {}), **encoded.numbers}, encoded.document)
    if extras:
        batch = KvEventBatch(
            sequence=0,
            time_seconds=1.0,
            events=(
                BlocksStored(
                    block_hashes=(1, 2, 3),
                    parent_block_hash=None,
                    num_tokens=48,
                    block_size=16,
                    medium="GPU",
                    group=0,
                    spec_kind="full_attention",
                ),
            ),
        )
        cached = CachedBlocks()
        cached.apply(batch)
        store.append_frame(START_MS, SUMMARY_KIND, encode_summary(summarize(cached)))
    store.close()
    return path


def play(app: AppTest, seconds: int) -> AppTest:
    """Play the recording that stands first in the list, from a place in it."""
    app.button(key="watch_replay_chosen").click().run()
    return app.slider(key="watch_place").set_value(seconds).run()


def test_the_recorded_session_shows_tables_expectation_and_plan(open_watch: OpenPage) -> None:
    app = open_watch()
    app.slider(key="watch_place").set_value(44).run()

    assert not app.exception
    shown = said(app)
    assert "Block tables of the engine itself, by KVScope's probe" in shown
    assert "Expected: the simulator, given the load" in shown
    assert "of the pool on average" in shown
    assert "Cached blocks by KV events, in use or not" in shown
    numbers = {row["Number"]: row["Verdict"] for row in table(app, "Number")}
    assert numbers["KV blocks"] == "equal"


def test_without_tables_the_pool_is_a_bar_and_the_way_to_see_more(open_watch: OpenPage, folder: Path) -> None:
    config = CacheConfig(num_gpu_blocks=1001, block_size=16)
    ticks = [snapshot(second, kv_usage_fraction=0.25, cache_config=config) for second in range(20)]
    write_recording(folder / "plain.kvscope", ticks)

    app = play(open_watch(), 15)

    assert not app.exception
    shown = said(app)
    assert "Which block belongs to whom is not exported by vLLM's metrics or events." in shown
    assert "--scheduler-cls live.engine.probe.ProbeScheduler" in shown
    assert any("About 250 of 1,000 blocks are in use" in each.proto.text for each in app.get("progress"))


def test_events_without_a_probe_are_a_table_of_cached_blocks(open_watch: OpenPage, folder: Path) -> None:
    ticks = [snapshot(second, kv_usage_fraction=0.25) for second in range(5)]
    write_recording(folder / "events.kvscope", ticks, {f"{SUMMARY_KIND}/num_batches": 1.0})

    app = play(open_watch(), 4)

    assert not app.exception
    (row,) = table(app, "Where")
    assert (row["KV group"], row["Where"], row["Blocks"], row["Tokens"]) == ("0 · full_attention", "GPU", "3", "48")
    assert "Prefix tree of group 0 on GPU: 1 different beginnings in 1 runs" in said(app)


def test_a_model_that_the_form_does_not_plan_is_planned_by_name(open_watch: OpenPage, folder: Path) -> None:
    labels = (("gpu_memory_utilization", "0.8"), ("cache_dtype", "auto"))
    config = CacheConfig(
        num_gpu_blocks=999, block_size=16, gpu_memory_utilization=0.8, cache_dtype="auto", labels=labels
    )
    ticks = [
        snapshot(second, model="Qwen/Qwen3-32B", kv_usage_fraction=0.5, cache_config=config) for second in range(5)
    ]
    write_recording(folder / "other.kvscope", ticks)

    app = play(open_watch(), 4)

    assert not app.exception
    shown = said(app)
    assert "this plan was made for the served one by its name" in shown
    assert "Qwen3-32B on 1 ×" in shown
    assert "tensor_parallel_size is not exported" in shown.replace("`", "")
    row = next(row for row in table(app, "Number") if row["Number"] == "KV blocks")
    assert row["Engine"] == "999"
    assert row["Verdict"] == "unexplained"


def test_a_model_that_nobody_knows_has_no_plan(open_watch: OpenPage, folder: Path) -> None:
    ticks = [snapshot(second, model="our/secret-model", kv_usage_fraction=0.5) for second in range(5)]
    write_recording(folder / "unknown.kvscope", ticks)

    app = play(open_watch(), 4)

    assert "There is no plan for our/secret-model" in said(app)


def test_offload_rows_stand_where_they_are_exported(open_watch: OpenPage, folder: Path) -> None:
    ticks = [
        snapshot(second, kv_usage_fraction=0.5, offload_store_bytes=second * 1e9, offload_load_bytes=0.0)
        for second in range(30)
    ]
    write_recording(folder / "offload.kvscope", ticks)

    app = play(open_watch(), 29)

    assert not app.exception
    rows = {row["What"]: row for row in table(app, "Tier")}
    assert rows["stored"]["Last 5 min"].replace("\xa0", " ").startswith("954 MiB/s")
    assert "swap space (V0)" in said(app)


def test_a_cards_memory_is_split_by_the_plan(
    open_watch: OpenPage, engine: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = DetectedGpu(
        index=0,
        name="NVIDIA H100 80GB HBM3",
        total_bytes=80 * GIB,
        used_bytes=74 * GIB,
        free_bytes=6 * GIB,
        reserved_bytes=None,
        compute_capability=(9, 0),
        is_mig_enabled=False,
        processes=(ProcessMemory(pid=41, used_bytes=73 * GIB),),
    )
    monkeypatch.setattr("pages.parts.watch_state.cards", lambda: NvmlState(kind="ok", gpus=(gpu,)))
    engine.text = engine.text.replace("tiny-llama", "Qwen/Qwen3-8B")
    app = open_watch()
    app.text_input(key="watch_address").input(engine.url)
    app.button(key="watch_watch").click().run()
    for _ in range(40):
        if "how the engine's divides is told by the plan" in said(app):
            break
        app.run()

    assert not app.exception
    assert "how the engine's divides is told by the plan" in said(app)
    assert "41 holds 73.0 GiB" in said(app)
