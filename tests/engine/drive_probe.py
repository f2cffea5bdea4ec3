"""Run by the engine's own Python: vLLM's scheduler with the probe, driven alone; what it publishes and what it costs, as JSON.

    python drive_probe.py ANSWER.json

Needs the checkout on PYTHONPATH and a free port in KVSCOPE_PROBE_ENDPOINT.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import drive_scheduler
import zmq
from drive_scheduler import Driver

from live.engine import probe
from live.probe_frames import decode_frame, encode_frame, unpack_blocks

ENDPOINT = os.environ["KVSCOPE_PROBE_ENDPOINT"]
CONFIG = {
    "block_size": 16, "max_num_seqs": 256, "max_num_batched_tokens": 8192, "max_model_len": 16384,
    "enable_prefix_caching": True, "async_scheduling": False,
}  # fmt: skip


def workload(num_requests, prompt, output, *, num_gpu_blocks, is_async=False, shared=0, windows=()):
    """Requests that arrive at once; the first `shared` prompt tokens are the same."""
    rows = [
        {
            "request_id": f"r{number}", "arrival_step": 0, "priority": 0, "output_token_ids": [7] * output,
            "prompt_token_ids": [5] * shared + [1 + (number * 131 + place) % 500 for place in range(prompt - shared)],
        }
        for number in range(num_requests)
    ]  # fmt: skip
    config = CONFIG | {"num_gpu_blocks": num_gpu_blocks, "async_scheduling": is_async, "windows": list(windows)}
    return {"config": config, "requests": rows}


def with_probe(is_probed):
    drive_scheduler.Scheduler = probe.ProbeScheduler if is_probed else probe.Scheduler
    drive_scheduler.AsyncScheduler = probe.ProbeScheduler if is_probed else probe.AsyncScheduler


def truth(scheduler, preempted):
    """What the block manager itself says; `preempted` is counted by the driver."""
    manager = scheduler.kv_cache_manager
    pool = manager.block_pool
    return {
        "tables": {
            request.request_id: [list(table) for table in manager.get_block_ids(request.request_id)]
            for request in scheduler.running
        },
        "refs": {str(block.block_id): block.ref_cnt for block in pool.blocks if block.ref_cnt and not block.is_null},
        "free": pool.get_num_free_blocks(),
        "preempted": preempted,
        "cached": len(pool.cached_block_hash_to_block),
    }


def published(frame):
    return {
        "tables": {
            request.request_id: [list(request.blocks(g)) for g in range(frame.num_groups)] for request in frame.requests
        },
        "refs": {str(block): count for block, count in frame.reference_counts().items()},
        "free": frame.num_free_blocks,
        "preempted": frame.num_preemptions,
        "cached": frame.num_cached_hashes,
    }


def subscriber(context):
    socket = context.socket(zmq.SUB)
    socket.subscribe(b"")
    socket.connect(ENDPOINT)
    return socket


def next_frame(socket, is_wanted):
    end = time.monotonic() + 5.0
    while time.monotonic() < end:
        if socket.poll(100):
            frame = decode_frame(socket.recv())
            if is_wanted(frame):
                return frame
    print("no such frame within 5 s", file=sys.stderr)
    os._exit(1)  # the socket's context would wait for ever


def fidelity(is_async):
    """Frames off the wire beside the manager's own state at the same step, for a load that shares and preempts."""
    os.environ["KVSCOPE_PROBE_HZ"] = "1000"
    with_probe(True)
    pairs, preempted = [], 0
    with zmq.Context() as context:
        driver = Driver(workload(12, 96, 40, num_gpu_blocks=61, is_async=is_async, shared=64, windows=[48]))
        kind = type(driver.scheduler).__name__
        socket = subscriber(context)
        first = next_frame(socket, lambda _: True)
        for order, row in enumerate(driver.rows):
            driver.add(order, row)
        for _ in range(400):
            driver.scheduler._probe_due = 0.0  # sample this step, whatever the last one cost
            _, names = driver.schedule()
            preempted += len(names)
            expected = truth(driver.scheduler, preempted)
            step = driver.scheduler._probe_step
            frame = next_frame(socket, lambda frame, step=step: frame.step == step and frame.moment == "scheduled")
            pairs.append({"truth": expected, "published": published(frame)})
            if len(driver.in_flight) >= (2 if is_async else 1):
                driver.update()
            time.sleep(0.002)
            if not driver.scheduler.requests:
                break
        while driver.in_flight:
            driver.update()
        idle = published(next_frame(socket, lambda frame: frame.moment == "idle" and frame.step > 1))
        socket.close(0)
        driver.scheduler.shutdown()
    return {"kind": kind, "first_moment": first.moment, "pairs": pairs, "idle": idle}


def high_water(is_async, sampled_every=7):
    """What each frame tells of the steps since the one before, beside what was seen after every step of them."""
    os.environ["KVSCOPE_PROBE_HZ"] = "0.001"
    with_probe(True)
    rows = []
    driver = Driver(workload(12, 96, 60, num_gpu_blocks=61, is_async=is_async, shared=64))
    scheduler, pool = driver.scheduler, driver.scheduler.kv_cache_manager.block_pool
    scheduler._probe_due = float("inf")
    frames = []
    scheduler._probe_publisher.offer = frames.append
    for order, row in enumerate(driver.rows):
        driver.add(order, row)
    least, settled, names = pool.get_num_free_blocks(), [], []
    for number in range(2000):
        is_sampled = number % sampled_every == 0
        scheduler._probe_due = 0.0 if is_sampled else float("inf")
        names += driver.schedule()[1]
        least = min(least, pool.get_num_free_blocks())
        if is_sampled:
            rows.append({"least": least, "settled": settled, "preempted": names})
            least, settled, names = pool.get_num_free_blocks(), [], []
        if len(driver.in_flight) >= (2 if is_async else 1):
            driver.update()
            settled.append(pool.get_num_free_blocks())
        if not scheduler.requests:
            break
    scheduler.shutdown()
    told = [
        {"least": frame.least_free_blocks, "settled": list(unpack_blocks(frame.settled_history)),
         "preempted": list(frame.preempted_ids)}
        for frame in frames
    ]  # fmt: skip
    return {"seen": rows, "told": told}


def decode_steps(driver, steps):
    marks = driver.time(steps)
    return marks[-1] - marks[0]


def cost(context_tokens, steps=300):
    """Seconds of one sample and of its encoding at 256 running requests, and of a scheduler step with and without hooks."""
    os.environ["KVSCOPE_PROBE_HZ"] = "0.001"  # hooks only; samples are taken by hand below
    num_blocks = 256 * ((context_tokens + 3 * steps) // 16 + 2)
    seconds = {}
    for is_probed in (False, True):
        with_probe(is_probed)
        driver = Driver(workload(256, context_tokens, 4 * steps, num_gpu_blocks=num_blocks))
        best = decode_steps(driver, steps) / steps
        driver.rows = []
        seconds[is_probed] = min(best, decode_steps(driver, steps) / steps)
        if is_probed:
            scheduler = driver.scheduler
            assert len(scheduler.running) == 256
            samples, encodings, size = [], [], 0
            for _ in range(40):
                start = time.thread_time()
                frame = scheduler._frame("scheduled", is_cached_due=False)
                middle = time.thread_time()
                size = len(encode_frame(frame))
                samples.append(middle - start)
                encodings.append(time.thread_time() - middle)
            start = time.thread_time()
            listed = scheduler._frame("scheduled", is_cached_due=True)
            scheduler.shutdown()
    return {
        "context_tokens": context_tokens, "sample_seconds": statistics.median(samples),
        "encode_seconds": statistics.median(encodings), "frame_bytes": size,
        "sample_with_hashes_seconds": time.thread_time() - start, "num_cached": listed.num_cached_hashes,
        "plain_step_seconds": seconds[False], "hooked_step_seconds": seconds[True],
    }  # fmt: skip


def limited(context_tokens=4096, seconds=8.0):
    """The fraction of the scheduler's time that samples take at the default rate, over a while of decode steps."""
    os.environ["KVSCOPE_PROBE_HZ"] = "5"
    with_probe(True)
    driver = Driver(workload(256, context_tokens, 6000, num_gpu_blocks=256 * (context_tokens // 16 + 400)))
    driver.time(1)
    driver.rows = []
    scheduler = driver.scheduler
    costs = []
    offer = scheduler._probe_publisher.offer

    def counted(frame):
        offer(frame)
        costs.append(frame.sample_seconds)

    scheduler._probe_publisher.offer = counted
    start, steps = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        driver.time(20)
        steps += 20
    wall = time.perf_counter() - start
    costs = [*costs[1:], scheduler._probe_cost]
    scheduler.shutdown()
    return {"samples": len(costs), "steps": steps, "seconds": wall, "sampled_fraction": sum(costs) / wall}


def main(target):
    answer = {
        "fidelity": {"sync": fidelity(False), "async": fidelity(True)},
        "high_water": {"sync": high_water(False), "async": high_water(True)},
        "cost": [cost(512), cost(4096)],
        "limited": limited(),
        "overridden": sorted(
            name for name in vars(probe._Probe) if not name.startswith("__") and hasattr(probe.AsyncScheduler, name)
        ),
        "refusal": probe.refusal("0.99.1"),
    }
    Path(target).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
