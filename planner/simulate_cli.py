"""`python -m planner simulate`: requests in, steps out, one JSON object a line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from planner.facts import PlanError
from planner.schedule import Scheduler
from planner.sequence import SimulatedRequest
from planner.simulation import SimulationOptions, StepSeconds, step_frames
from planner.simulator_config import FULL_ATTENTION, KvGroup, SimulatorConfig
from planner.step_frames import StepFrame
from planner.workload_files import has_times, read_workload

_BAD_INPUT = 2


def main(argv: Sequence[str]) -> int:
    """The exit status of `python -m planner simulate`: 0 when all steps were written, 2 for a user's mistake."""
    arguments = _simulate_parser().parse_args(argv)
    try:
        config = _config(arguments)
        requests = read_workload(Path(arguments.requests))
        _write_steps(config, requests, arguments)
    except PlanError as error:
        sys.stderr.write(f"error: {error.text}" + "\n")
        return _BAD_INPUT
    except BrokenPipeError:
        sys.stderr.close()  # the reader has seen enough
    return 0


def _write_steps(config: SimulatorConfig, requests: Sequence[SimulatedRequest], arguments: argparse.Namespace) -> None:
    options = SimulationOptions(
        seed=arguments.seed,
        draft_acceptance=arguments.draft_acceptance,
        step_seconds=_step_seconds(requests, arguments),
    )
    totals = _Totals()
    for frame in step_frames(config, requests, options):
        totals.add(frame)
        if not arguments.summary:
            sys.stdout.write(json.dumps(frame.to_mapping(), separators=(", ", ": ")) + "\n")
    if arguments.summary and arguments.json:
        sys.stdout.write(json.dumps(totals.to_mapping()) + "\n")
    elif arguments.summary:
        sys.stdout.write(totals.text(len(requests), config) + "\n")


class _Totals:
    """Sums over the steps."""

    def __init__(self) -> None:
        self.num_steps = 0
        self.num_preemptions = 0
        self.num_finished = 0
        self.least_free_blocks: int | None = None
        self.peak_running = 0
        self.scheduled_tokens = 0

    def add(self, frame: StepFrame) -> None:
        """Count one step."""
        self.num_steps += 1
        self.num_preemptions += len(frame.preempted)
        self.num_finished += len(frame.finished)
        self.peak_running = max(self.peak_running, len(frame.running))
        self.scheduled_tokens += sum(num_tokens for _, num_tokens in frame.scheduled)
        before = frame.free_blocks if self.least_free_blocks is None else self.least_free_blocks
        self.least_free_blocks = min(before, frame.free_blocks)

    def to_mapping(self) -> dict[str, int | None]:
        """The sums by name."""
        return dict(vars(self))

    def text(self, num_requests: int, config: SimulatorConfig) -> str:
        """The sums in two sentences."""
        used = config.num_usable_blocks - (self.least_free_blocks or 0)
        return (
            f"{self.num_finished:,} sequences of {num_requests:,} requests finished in {self.num_steps:,} steps "
            f"with {self.num_preemptions:,} preemptions. At most {self.peak_running:,} ran at once, and at most "
            f"{used:,} of {config.num_usable_blocks:,} blocks were in use."
        )


def _step_seconds(requests: Sequence[SimulatedRequest], arguments: argparse.Namespace) -> StepSeconds | None:
    if not has_times(requests):
        return None
    seconds = arguments.step_seconds
    if seconds is None:
        text = "The requests arrive at times, not at steps: say how long a step takes with --step-seconds."
        raise PlanError("step_seconds", None, text)
    if not 0.0 < seconds <= 3600.0:
        raise PlanError("step_seconds", seconds, "A step takes from 0 to 3,600 seconds.")

    def fixed(_scheduler: Scheduler) -> float:
        return float(seconds)

    return fixed


def _config(arguments: argparse.Namespace) -> SimulatorConfig:
    windows = [
        KvGroup(kind="sliding_window", span_tokens=span) for span in arguments.sliding_window or () if span is not None
    ]
    return SimulatorConfig(
        num_gpu_blocks=arguments.num_gpu_blocks,
        block_size=arguments.block_size,
        max_num_seqs=arguments.max_num_seqs,
        max_num_batched_tokens=arguments.max_num_batched_tokens,
        max_model_len=arguments.max_model_len,
        enable_prefix_caching=arguments.enable_prefix_caching,
        groups=(FULL_ATTENTION, *windows),
        scheduling_policy=arguments.scheduling_policy,
        async_scheduling=arguments.async_scheduling,
        enable_chunked_prefill=arguments.enable_chunked_prefill,
        long_prefill_token_threshold=arguments.long_prefill_token_threshold,
        watermark=arguments.watermark,
        prefix_cache_retention_interval=arguments.prefix_cache_retention_interval,
        num_speculative_tokens=arguments.num_speculative_tokens,
        num_lookahead_tokens=arguments.num_lookahead_tokens,
    )


def _simulate_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m planner simulate",
        description="Simulate vLLM's scheduler and block table, one JSON line a step.",
    )
    add = parser.add_argument
    add("--requests", required=True, help="JSONL, JSON or CSV: our own columns, or a Mooncake or Azure trace")
    add("--num-gpu-blocks", type=int, required=True, help="with the null block, as vLLM counts")
    add("--block-size", type=int, default=16)
    add("--max-num-seqs", type=int, default=256)
    add("--max-num-batched-tokens", type=int, default=8192)
    add("--max-model-len", type=int, default=8192)
    add("--enable-prefix-caching", action=argparse.BooleanOptionalAction, default=True)
    add("--sliding-window", type=int, action="append", help="a second KV group with this window; may be repeated")
    add("--scheduling-policy", choices=("fcfs", "priority"), default="fcfs")
    add("--async-scheduling", action=argparse.BooleanOptionalAction, default=False)
    add("--enable-chunked-prefill", action=argparse.BooleanOptionalAction, default=True)
    add("--long-prefill-token-threshold", type=int, default=0)
    add("--watermark", type=float, default=0.0, help="fraction of the pool kept free when admitting")
    add(
        "--prefix-cache-retention-interval", type=int, default=None, help="tokens; not given: keep every block findable"
    )
    add("--num-speculative-tokens", type=int, default=0)
    add("--num-lookahead-tokens", type=int, default=0)
    add("--draft-acceptance", type=float, default=0.0, help="chance that a draft token is right")
    add("--step-seconds", type=float, default=None, help="for requests that arrive at times")
    add("--seed", type=int, default=0)
    add("--summary", action="store_true", help="only what the whole run comes to")
    add("--json", action="store_true", help="JSON also for the summary; steps are JSON always")
    return parser
