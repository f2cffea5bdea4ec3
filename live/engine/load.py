"""Named loads for the demo engine: who asks what when, sent to a server, and what the simulator says of them beforehand."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import httpx

from live.engine.tiny_model import FIRST_TOKEN, LAST_TOKEN
from live.probe_frames import ProbeFrame
from planner.facts import PlanError
from planner.sequence import SimulatedRequest
from planner.simulate import SimulationResult, simulate
from planner.simulation import SimulationOptions
from planner.simulator_config import SimulatorConfig
from planner.step_time import FixedStepTime
from planner.workload_files import write_requests

# The demo engine, by vLLM's names. The pool is small so that a burst fills it.
DEMO_CONFIG = SimulatorConfig(
    num_gpu_blocks=256,
    block_size=32,  # the CPU backend wants multiples of 32
    max_num_seqs=32,
    max_num_batched_tokens=512,
    max_model_len=2048,
    release=(0, 32),
)
_REQUEST_SECONDS = 300.0
_FEWEST_STEP_TIMES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Requests whose arrivals, prompts and lengths are known; `arrival_seconds` count from the load's start."""

    name: str
    title: str
    requests: tuple[SimulatedRequest, ...]

    def write(self, path: Path) -> Path:
        """The file, now with one request a line in the simulator's format."""
        with path.open("w", encoding="utf-8") as stream:
            write_requests(self.requests, stream)
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What became of one request; times count from the load's start."""

    request_id: str
    sent_seconds: float
    done_seconds: float
    num_output_tokens: int | None  # None: it failed
    text: str = ""


TITLES = {
    "calm": "A request every second: the pool stays nearly empty",
    "shared-prefix": "Requests with one of two long prompts in common: later ones find it cached",
    "burst": "Many long requests at once: the pool stays full and requests are preempted",
    "tour": "Calm, shared prefixes, then a burst",
}


def named_load(name: str, seed: int = 7) -> Load:
    """The load of that name; equal seeds give equal loads."""
    source = random.Random(seed)  # noqa: S311 - repeatable, not secret
    makers = {"calm": _calm, "shared-prefix": _shared_prefix, "burst": _burst, "tour": _tour}
    if name not in makers:
        raise PlanError("load", name, f"There is no load {name!r:.40}; choose one of {', '.join(TITLES)}.")
    requests = tuple(sorted(makers[name](source, 0.0), key=lambda request: request.arrival_seconds or 0.0))
    return Load(name=name, title=TITLES[name], requests=requests)


def _tokens(source: random.Random, count: int) -> tuple[int, ...]:
    return tuple(source.randint(FIRST_TOKEN, LAST_TOKEN) for _ in range(count))


def _request(name: str, seconds: float, prompt: tuple[int, ...], num_output_tokens: int) -> SimulatedRequest:
    return SimulatedRequest(
        request_id=name,
        arrival_seconds=round(seconds, 3),
        num_prompt_tokens=len(prompt),
        num_output_tokens=num_output_tokens,
        prompt_token_ids=prompt,
    )


def _calm(source: random.Random, start: float) -> Iterator[SimulatedRequest]:
    for number in range(15):
        prompt = _tokens(source, source.randint(60, 240))
        yield _request(f"calm-{number}", start + number, prompt, source.randint(250, 450))


def _shared_prefix(source: random.Random, start: float) -> Iterator[SimulatedRequest]:
    prefixes = (_tokens(source, 640), _tokens(source, 416))
    for number in range(26):
        # the first of each prefix alone, then clumps of six that hold the cached prefix together
        seconds = 0.5 * number if number < 2 else 3.0 + 3.0 * ((number - 2) // 6) + 0.05 * number
        prompt = prefixes[number % 2] + _tokens(source, source.randint(10, 60))
        yield _request(f"shared-{number}", start + seconds, prompt, source.randint(300, 450))


def _burst(source: random.Random, start: float) -> Iterator[SimulatedRequest]:
    for number in range(90):
        prompt = _tokens(source, source.randint(160, 260))
        yield _request(f"burst-{number}", start + 0.02 * number, prompt, source.randint(600, 900))


def _tour(source: random.Random, start: float) -> Iterator[SimulatedRequest]:
    yield from _calm(source, start)
    yield from _shared_prefix(source, start + 18.0)
    yield from _burst(source, start + 36.0)


def predict(load: Load, step_seconds: float, config: SimulatorConfig = DEMO_CONFIG) -> SimulationResult:
    """What the simulator says of `load` on the demo engine, whose steps take `step_seconds` on this machine."""
    return simulate(config, load.requests, SimulationOptions(step_seconds=FixedStepTime(step_seconds)))


def drive(
    load: Load,
    address: str,
    *,
    model: str,
    should_stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Answered, ...]:
    """What became of each request of `load`, all sent at their times to the server at `address`."""
    return asyncio.run(_drive(load, address, model, should_stop, clock))


async def _drive(
    load: Load, address: str, model: str, should_stop: Callable[[], bool], clock: Callable[[], float]
) -> tuple[Answered, ...]:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=address, timeout=_REQUEST_SECONDS, limits=limits, trust_env=False) as client:
        start = clock()
        tasks = [asyncio.create_task(_ask(client, request, model, start, clock)) for request in load.requests]
        pending = set(tasks)
        while pending and not should_stop():
            _, pending = await asyncio.wait(pending, timeout=0.2)
        for task in pending:
            task.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
    return tuple(answer for answer in answers if isinstance(answer, Answered))


async def _ask(
    client: httpx.AsyncClient, request: SimulatedRequest, model: str, start: float, clock: Callable[[], float]
) -> Answered:
    await asyncio.sleep(max(0.0, start + (request.arrival_seconds or 0.0) - clock()))
    sent = clock() - start
    body = {
        "model": model,
        "prompt": list(request.prompt_token_ids or ()),
        "max_tokens": request.num_output_tokens,
        "ignore_eos": True,
        "temperature": 0.0,
    }
    tokens, text = None, ""
    try:
        answer = await client.post("/v1/completions", json=body, headers={"X-Request-Id": request.request_id})
        if answer.status_code == httpx.codes.OK:
            tokens = int(answer.json()["usage"]["completion_tokens"])
        else:
            text = f"The server answered {answer.status_code}: {answer.text[:200]}"
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        text = f"The request failed ({type(error).__name__})."
    return Answered(
        request_id=request.request_id,
        sent_seconds=sent,
        done_seconds=clock() - start,
        num_output_tokens=tokens,
        text=text,
    )


def step_seconds(frames: Sequence[ProbeFrame]) -> float | None:
    """How long a step took between frames of a busy engine: the median; None where there are too few to say."""
    found = [
        (later.time_unix_ns - earlier.time_unix_ns) / 1e9 / (later.step - earlier.step)
        for earlier, later in pairwise(frames)
        if later.step > earlier.step and earlier.moment == later.moment == "scheduled"
    ]
    return statistics.median(found) if len(found) >= _FEWEST_STEP_TIMES else None
