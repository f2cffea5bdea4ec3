"""`make bench`: how fast planning is, printed as figures and as ratios measured in the same run. Asserts nothing."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench_browser import main as bench_block_map
from bench_live import bench_recording
from bench_readers import bench_readers
from log_bench import bench_logs
from simulator_bench import bench_large_run, bench_simulator

from live.engine.environment import find_engine
from planner.budget import plan
from planner.gpu_catalog import find_gpu, gpu_names
from planner.matrix import MatrixQuestion, Split, sheet
from planner.model_catalog import catalogue_documents, search
from planner.planning import answer, facts_for
from planner.request import EngineFlags, PlanRequest
from planner.sweep import sweep

ROOT = Path(__file__).parents[1]
MODELS = ("meta-llama/Llama-3.1-8B", "google/gemma-3-27b-it", "deepseek-ai/DeepSeek-V3", "Qwen/Qwen3.5-397B-A17B")


def median_seconds(work: Callable[[int], object], rounds: int = 25) -> float:
    """The median of `rounds` timings of `work(round)`."""
    seconds = []
    for number in range(rounds):
        start = time.perf_counter()
        work(number)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def bench_plan(model_id: str) -> None:
    """A plan whose flags change each time, so that nothing is answered from a cache of whole plans."""
    request = PlanRequest(model_id=model_id, gpu="H100 80GB SXM", flags=EngineFlags(tensor_parallel_size=8))
    model = facts_for(request, catalogue_documents(model_id))
    plan(request, model)

    def one(number: int) -> object:
        flags = replace(request.flags, max_model_len=4096 + 16 * number, gpu_memory_utilization=0.8 + number / 1000)
        return plan(replace(request, flags=flags), model)

    print(f"  plan {model_id:32} {median_seconds(one) * 1e3:8.2f} ms")


def bench_failing() -> None:
    """A plan that does not start, with all its advice."""
    request = PlanRequest(model_id=MODELS[0], gpu="GeForce RTX 4090")
    documents = catalogue_documents(MODELS[0])
    seconds = median_seconds(lambda number: answer(replace(request, other_processes_bytes=number), documents))
    print(f"  failing plan with advice              {seconds * 1e3:8.2f} ms")


def bench_sweep() -> float:
    """Cells a second of the table behind the what-ifs."""
    request = PlanRequest(model_id=MODELS[0], gpu="H100 80GB SXM")
    model = facts_for(request, catalogue_documents(MODELS[0]))
    utilizations = tuple(0.5 + step / 1000 for step in range(480))
    lengths = tuple(range(1024, 131_073, 1024))
    variants = tuple((tp, dtype) for tp in (1, 2, 4, 8) for dtype in ("auto", "fp8"))

    def table(number: int) -> object:
        held = replace(request, other_processes_bytes=number)
        return sweep(held, model, utilizations=utilizations, max_model_lens=lengths, variants=variants)

    cells = len(utilizations) * len(lengths) * len(variants)
    rate = cells / median_seconds(table, rounds=5)
    print(f"  sweep                                 {rate:10,.0f} plans/s")
    return rate


def bench_matrix() -> None:
    """The table of what fits over 90 models, all cards, four splits and four KV dtypes, beside planning cell by cell."""
    ids = [entry.model_id for entry in search() if entry.is_plannable][:90]
    request = PlanRequest(model_id="any", flags=EngineFlags(max_model_len="auto"))
    question = MatrixQuestion(
        request=request,
        gpus=tuple(find_gpu(name) for name in gpu_names()),
        splits=tuple(Split(tensor_parallel_size=size) for size in (1, 2, 4, 8)),
        kv_dtypes=("auto", "fp8", "fp8_e5m2", "turboquant_4bit_nc"),
    )
    seconds, sheets = [], []
    for _ in range(2):
        start = time.perf_counter()
        facts = [facts_for(replace(request, model_id=model_id), catalogue_documents(model_id)) for model_id in ids]
        sheets = [sheet(question, model) for model in facts]
        seconds.append(time.perf_counter() - start)
    cells = sum(each.stops.size for each in sheets)
    planned = next(
        (place, each.request((0, 0, 0))) for place, each in enumerate(sheets) if each.stop((0, 0, 0)) == "starts"
    )
    one = median_seconds(lambda number: plan(replace(planned[1], other_processes_bytes=number), facts[planned[0]]))
    ratio = one * cells / seconds[0]
    print(
        f"  what fits, {cells:,} plans: {seconds[0]:.1f} s, again {seconds[1]:.2f} s ({ratio:.0f} x planning one by one)"
    )


def process_seconds(*words: str) -> float:
    """The median wall time of `python words...`."""
    command = [sys.executable, *words]
    return median_seconds(lambda _: subprocess.run(command, cwd=ROOT, check=True, capture_output=True), rounds=9)


def bench_scheduler() -> None:
    """Our scheduler beside vLLM's own on the same requests, where `make engine` has been run."""
    engine = find_engine()
    python = engine.python if engine.state == "ready" else None
    print("simulator" if python else "simulator (no engine environment: vLLM's own scheduler is not measured)")
    for speed in bench_simulator(python):
        beside = "" if speed.vllm is None else f"   vLLM {speed.vllm:8,.0f}   ratio {speed.ratio:5.1f}"
        print(
            f"  {speed.num_running:4} running: {speed.ours:9,.0f} steps/s, recorded {speed.ours_recorded:9,.0f}{beside}"
        )
    seconds, steps = bench_large_run()
    print(f"  1,000 requests over 100,000 blocks, recorded: {seconds:.1f} s for {steps:,} steps")


def main() -> None:
    """Print every figure."""
    print("planning (median)")
    for model_id in MODELS:
        bench_plan(model_id)
    bench_failing()
    bench_sweep()
    bench_matrix()
    empty = process_seconds("-c", "pass")
    whole = process_seconds("-m", "planner", "plan", "--model", MODELS[0], "--gpu", "H100 80GB SXM", "--json")
    print(f"  python -m planner plan                {whole * 1e3:8.0f} ms ({whole / empty:.0f} x an empty Python)")
    bench_scheduler()
    print("recording")
    bench_recording()
    bench_logs()
    print("readers of one recorder")
    bench_readers()
    bench_block_map()


if __name__ == "__main__":
    main()
