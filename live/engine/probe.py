"""A scheduler that vLLM loads by `--scheduler-cls live.engine.probe.ProbeScheduler` and that publishes its block tables.

It schedules exactly as vLLM's own does. A few times a second it copies what the block manager holds; a thread of its own
encodes and sends. A reader that is slow, absent or broken costs frames, never a step.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections import deque
from typing import Any

import vllm
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from live.engine.probe_publisher import ProbePublisher, endpoint_of_rank
from live.engine.probe_tables import TableCopier
from live.probe_frames import (
    DEFAULT_PROBE_ENDPOINT,
    ENDPOINT_VARIABLE,
    HASH_MASK,
    LONGEST_HISTORY,
    MOST_PREEMPTED_IDS,
    RATE_VARIABLE,
    CachedBlocks,
    Moment,
    ProbeFrame,
    pack_blocks,
    pack_hashes,
)

KNOWN_RELEASES = ("0.32",)  # whose scheduler and block pool this module was tried on
DEFAULT_RATE_HZ = 5.0
_LARGEST_RATE_HZ = 1000.0
# A sample may take this fraction of the scheduler's time; a costly one is followed by a longer pause.
_LARGEST_DUTY_FRACTION = 0.0125
_MOST_CACHED_ENTRIES = 65_536  # listed in one frame: 1 MiB
_CACHED_ALWAYS = 4096  # as many cached hashes are listed in every frame
_CACHED_SECONDS = 2.0  # more of them this seldom

_log = logging.getLogger("vllm.kvscope.probe")


def refusal(version: str) -> str | None:
    """Why the probe must not be loaded into vLLM `version`; None: it may."""
    release = ".".join(version.split("+", maxsplit=1)[0].split(".")[:2])
    if release in KNOWN_RELEASES:
        return None
    known = ", ".join(KNOWN_RELEASES)
    return (
        f"KVScope's probe reads the scheduler of vLLM {known}, and this is {version}: start without --scheduler-cls "
        "(metrics and KV events still work), or use a KVScope that knows this release."
    )


_refused = refusal(vllm.__version__)
if _refused is not None:
    raise ImportError(_refused)


def rate_hz(text: str | None) -> float:
    """Samples per second that the environment asks for; a text that is no rate raises `ValueError`."""
    if not text:
        return DEFAULT_RATE_HZ
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0.0 < rate <= _LARGEST_RATE_HZ:
        raise ValueError(f"{RATE_VARIABLE} must be above 0 and at most {_LARGEST_RATE_HZ:g}, not {text!r:.40}.")
    return rate


class _Probe:
    """What both schedulers add. Only the scheduler's thread calls `_sample`; the publisher's thread calls `_idle_frame`."""

    # vLLM's scheduler, which comes after this class, has no types where this project is checked
    kv_cache_manager: Any
    requests: dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._probe_step = self._probe_sequence = self._probe_preemptions = 0
        self._probe_preempted: list[str] = []
        self._probe_history: deque[int] = deque(maxlen=LONGEST_HISTORY)
        self._probe_due = self._probe_cached_due = 0.0
        self._probe_cost = 0.0
        self._probe_idle_since: float | None = None
        self._probe_period = 1.0 / rate_hz(os.environ.get(RATE_VARIABLE))
        super().__init__(*args, **kwargs)
        scheduler: Any = self
        self._probe_rank = int(scheduler.parallel_config.data_parallel_index)
        self._probe_copier = TableCopier(self.kv_cache_manager)
        self._probe_settled = self._probe_least_free = self._probe_free_blocks()
        self._probe_idle_since = time.perf_counter()
        endpoint = endpoint_of_rank(os.environ.get(ENDPOINT_VARIABLE) or DEFAULT_PROBE_ENDPOINT, self._probe_rank)
        self._probe_publisher = ProbePublisher(endpoint, self._idle_frame)
        _log.info("KVScope's probe publishes block tables at %s.", endpoint)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        self._probe_idle_since = None
        self._probe_step += 1
        output = super().schedule(*args, **kwargs)  # type: ignore[misc]  # vLLM's scheduler comes next
        self._probe_least_free = min(self._probe_least_free, self._probe_free_blocks())
        now = time.perf_counter()
        if now >= self._probe_due:
            self._sample(now)
        return output

    def update_from_output(self, *args: Any, **kwargs: Any) -> Any:
        outputs = super().update_from_output(*args, **kwargs)  # type: ignore[misc]  # vLLM's scheduler comes next
        self._probe_settled = self._probe_free_blocks()
        self._probe_history.append(self._probe_settled)
        if not self.requests:
            self._probe_idle_since = time.perf_counter()
        return outputs

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        self._probe_preemptions += 1
        self._probe_least_free = min(self._probe_least_free, self._probe_free_blocks())  # it is about to give some back
        if len(self._probe_preempted) < MOST_PREEMPTED_IDS:
            self._probe_preempted.append(request.request_id)
        return super()._preempt_request(request, *args, **kwargs)  # type: ignore[misc]  # vLLM's scheduler comes next

    def shutdown(self) -> None:
        self._probe_publisher.close()
        super().shutdown()  # type: ignore[misc]  # vLLM's scheduler comes next

    def _probe_free_blocks(self) -> int:
        return int(self.kv_cache_manager.block_pool.get_num_free_blocks())

    def _sample(self, now: float) -> None:
        start = time.thread_time()  # waiting for a core is not the probe's cost
        try:
            frame = self._frame("scheduled", is_cached_due=now >= self._probe_cached_due)
            self._probe_publisher.offer(frame)
        except Exception:  # noqa: BLE001 - whatever breaks here, the engine must not
            _log.exception("KVScope's probe failed and stops; the engine goes on.")
            self._probe_due = math.inf
            return
        self._probe_forget(frame)
        self._probe_cost = time.thread_time() - start
        self._probe_due = time.perf_counter() + max(self._probe_period, self._probe_cost / _LARGEST_DUTY_FRACTION)

    def _probe_forget(self, sent: ProbeFrame) -> None:
        """Begin the next frame's stretch; what came while `sent` was made belongs to it."""
        del self._probe_preempted[: len(sent.preempted_ids)]
        for _ in range(len(sent.settled_history) // 4):
            self._probe_history.popleft()
        self._probe_least_free = self._probe_free_blocks()

    def _idle_frame(self, idle_seconds: float) -> ProbeFrame | None:
        """The frame of an engine idle for so long; None where it is not, or works again before the copy is whole."""
        step, since = self._probe_step, self._probe_idle_since
        if since is None or time.perf_counter() - since < idle_seconds:
            return None
        try:
            frame = self._frame("idle", is_cached_due=True)
        except RuntimeError:  # a table grew while it was copied
            return None
        if self._probe_step != step or self._probe_idle_since != since:
            return None
        self._probe_idle_since = None
        self._probe_forget(frame)
        return frame

    def _frame(self, moment: Moment, *, is_cached_due: bool) -> ProbeFrame:
        scheduler: Any = self
        pool = self.kv_cache_manager.block_pool
        num_running, num_waiting = scheduler.get_request_counts()
        requests, left_out = self._probe_copier.copy((*scheduler.running, *scheduler.kv_holding_waiting))
        shared = self._probe_copier.shared(requests, is_exhaustive=scheduler.connector is not None)
        self._probe_sequence += 1
        return ProbeFrame(
            vllm_version=vllm.__version__,
            data_parallel_rank=self._probe_rank,
            sequence=self._probe_sequence,
            step=self._probe_step,
            moment=moment,
            time_unix_ns=time.time_ns(),
            num_gpu_blocks=pool.num_gpu_blocks,
            block_size=scheduler.block_size,
            num_groups=len(scheduler.kv_cache_config.kv_cache_groups),
            num_free_blocks=pool.get_num_free_blocks(),
            settled_free_blocks=self._probe_settled,
            settled_history=pack_blocks(tuple(self._probe_history)),
            least_free_blocks=self._probe_least_free,
            num_running=num_running,
            num_waiting=num_waiting,
            num_preemptions=self._probe_preemptions,
            preempted_ids=tuple(self._probe_preempted),
            requests=requests,
            num_requests_left_out=left_out,
            shared_blocks=pack_blocks(shared),
            shared_counts=pack_blocks(shared.values()),
            num_cached_hashes=len(pool.cached_block_hash_to_block),
            cached=self._cached(pool, is_due=is_cached_due),
            sample_seconds=self._probe_cost,
        )

    def _cached(self, pool: Any, *, is_due: bool) -> CachedBlocks | None:
        size = len(pool.cached_block_hash_to_block)
        if size > _MOST_CACHED_ENTRIES or (size > _CACHED_ALWAYS and not is_due):
            return None
        self._probe_cached_due = time.perf_counter() + _CACHED_SECONDS
        keys: list[bytes] = []
        blocks: list[int] = []
        # vLLM keeps one block under its hash, or a dict of equal ones
        for key, held in list(pool.cached_block_hash_to_block._cache.items()):  # noqa: SLF001 - it offers no other look
            ids = tuple(held) if isinstance(held, dict) else (held.block_id,)
            keys += [key] * len(ids)
            blocks += ids
        # a key is the hash and 4 bytes of group number
        return CachedBlocks(
            hashes=pack_hashes(int.from_bytes(key[:-4], "big") & HASH_MASK for key in keys),
            blocks=pack_blocks(blocks),
            groups=pack_blocks(int.from_bytes(key[-4:], "big") for key in keys),
        )


class AsyncProbeScheduler(_Probe, AsyncScheduler):  # type: ignore[misc]  # vLLM's classes have no types here
    """vLLM's scheduler for async scheduling, with the probe."""


class ProbeScheduler(_Probe, Scheduler):  # type: ignore[misc]  # vLLM's classes have no types here
    """vLLM's scheduler with the probe; where the engine schedules asynchronously, its async sibling."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        config = kwargs["vllm_config"] if "vllm_config" in kwargs else args[0]
        if cls is ProbeScheduler and config.scheduler_config.async_scheduling:
            return AsyncProbeScheduler(*args, **kwargs)
        return super().__new__(cls)
