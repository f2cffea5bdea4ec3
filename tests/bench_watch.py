"""What a tick of the Watch page costs the server, part by part and for many readers, printed as figures. Asserts nothing.

The recording is the project's own; `large` is a pool of 131,072 scattered blocks of 240 requests.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from streamlit.testing.v1 import AppTest

from live.block_view import BlockHistory
from live.probe_frames import (
    CachedBlocks,
    ProbeFrame,
    RequestBlocks,
    decode_frame,
    encode_frame,
    pack_blocks,
    pack_hashes,
)
from pages.parts.block_moment import MomentView, encode_moment

ROOT = Path(__file__).parents[1]
NUM_BLOCKS, NUM_REQUESTS = 131_072, 240


def large_frame(step: int) -> ProbeFrame:
    """A nearly full pool whose tables are scattered as after hours of work."""
    blocks = np.random.default_rng(7).permutation(np.arange(1, NUM_BLOCKS))
    tables = np.split(blocks[: NUM_REQUESTS * 500], NUM_REQUESTS)
    listed = range(1, 60_000)
    return ProbeFrame(
        vllm_version="0.32.0",
        data_parallel_rank=0,
        sequence=step,
        step=step,
        moment="scheduled",
        time_unix_ns=step * 10**9,
        num_gpu_blocks=NUM_BLOCKS,
        block_size=16,
        num_groups=1,
        num_free_blocks=NUM_BLOCKS - 1 - NUM_REQUESTS * 500,
        settled_free_blocks=0,
        num_running=NUM_REQUESTS,
        num_waiting=0,
        num_preemptions=0,
        preempted_ids=(),
        requests=tuple(
            RequestBlocks(
                request_id=f"r{place}",
                is_running=True,
                num_prompt_tokens=4000,
                num_tokens=8000,
                num_computed_tokens=7999,
                num_preemptions=0,
                tables=(pack_blocks(table.tolist()),),
            )
            for place, table in enumerate(tables)
        ),
        num_cached_hashes=len(listed),
        cached=CachedBlocks(
            hashes=pack_hashes(listed), blocks=pack_blocks(listed), groups=pack_blocks(0 for _ in listed)
        ),
        sample_seconds=0.0,
    )


def cpu_ms(work: Callable[[], object], times: int = 9) -> float:
    """The median milliseconds of this thread's work."""
    found = []
    for _ in range(times):
        start = time.thread_time()
        work()
        found.append((time.thread_time() - start) * 1e3)
    return statistics.median(found)


def bench_map() -> None:
    """Print what a large pool costs from the recorded bytes to the browser's."""
    payload = encode_frame(large_frame(1))
    history = BlockHistory()
    frames = iter(large_frame(step) for step in range(2, 40))
    moment = history.take(decode_frame(payload))
    view = MomentView(source="a", title="a", moment=moment)
    print(f"  {NUM_BLOCKS:,} blocks, {len(payload) / 2**20:.1f} MiB a frame")
    print(f"  decoding it                  {cpu_ms(lambda: decode_frame(payload)):8.1f} ms")
    next_frames = [next(frames) for _ in range(9)]
    print(f"  making the moment            {cpu_ms(lambda: history.take(next_frames.pop())):8.1f} ms")
    sent = encode_moment(view)
    print(f"  encoding for the browser     {cpu_ms(lambda: encode_moment(view)):8.1f} ms, {len(sent) / 2**20:.2f} MiB")


def bench_page() -> None:
    """Print what one run of the whole page costs, all fragments together, in a replay of the project's recording."""
    app = AppTest.from_file(str(ROOT / "pages" / "_frame.py"), default_timeout=60).run()
    app.switch_page("watch.py")
    app.run()
    for place in (20, 44):
        app.slider(key="watch_place").set_value(place).run()
        app.run()
        start = time.process_time()
        for _ in range(5):
            app.run()
        print(f"  the whole page at second {place}    {(time.process_time() - start) / 5 * 1e3:8.1f} ms")


if __name__ == "__main__":
    import os

    with tempfile.TemporaryDirectory() as folder:
        os.environ["KVSCOPE_RECORDINGS"] = folder
        print("the block map of a large pool")
        bench_map()
        print("the page")
        bench_page()
