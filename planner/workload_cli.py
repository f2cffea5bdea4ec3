"""`python -m planner workload`: requests drawn from distributions, one JSON object a line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from planner.facts import PlanError
from planner.workload import ArrivalProcess, LengthDistribution, WorkloadSpec, draw_workload
from planner.workload_files import write_requests

_BAD_INPUT = 2


def main(argv: Sequence[str]) -> int:
    """The exit status of `python -m planner workload`: 0 when the requests were written, 2 for a user's mistake."""
    arguments = _parser().parse_args(argv)
    try:
        requests = draw_workload(_spec(arguments), seed=arguments.seed)
        if arguments.out == "-":
            write_requests(requests, sys.stdout)
        else:
            with Path(arguments.out).open("w", encoding="utf-8") as stream:
                write_requests(requests, stream)
    except PlanError as error:
        sys.stderr.write(f"error: {error.text}" + "\n")
        return _BAD_INPUT
    except OSError as error:
        sys.stderr.write(f"error: {arguments.out} cannot be written: {error.strerror}." + "\n")
        return _BAD_INPUT
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m planner workload", description="Draw requests from distributions, one JSON line a request."
    )
    add = parser.add_argument
    add("--num-requests", type=int, default=100)
    for side, mean in (("prompt", 512.0), ("output", 128.0)):
        add(f"--{side}-kind", choices=("fixed", "uniform", "lognormal", "bimodal", "percentiles"), default="lognormal")
        add(f"--{side}-mean", type=float, default=mean, help="tokens")
        add(f"--{side}-spread", type=float, default=0.5)
        add(f"--{side}-low", type=int, default=1)
        add(f"--{side}-high", type=int, default=32_768)
        add(f"--{side}-percentiles", type=float, nargs=3, metavar=("P50", "P95", "P99"))
        add(f"--{side}-long-mean", type=float, default=16_384.0)
        add(f"--{side}-long-fraction", type=float, default=0.1)
    add("--arrivals", choices=("at_once", "poisson", "bursty", "steady"), default="poisson")
    add("--rate", type=float, default=1.0, help="requests a second, or a step")
    add("--burst-size", type=float, default=8.0)
    add("--arrivals-in", choices=("steps", "seconds"), default="steps")
    add("--num-prefixes", type=int, default=0, help="different system prompts")
    add("--prefix-tokens", type=int, default=0)
    add("--shared-fraction", type=float, default=1.0)
    add("--max-priority", type=int, default=0)
    add("--n", type=int, default=1)
    add("--max-model-len", type=int, default=None)
    add("--seed", type=int, default=0)
    add("--out", default="-")
    return parser


def _lengths(arguments: argparse.Namespace, side: str) -> LengthDistribution:
    values = {name.removeprefix(f"{side}_"): value for name, value in vars(arguments).items() if name.startswith(side)}
    plain = LengthDistribution(
        kind="fixed" if values["kind"] == "percentiles" else values["kind"],
        low=values["low"],
        high=values["high"],
        mean_tokens=values["mean"],
        spread=values["spread"],
        long_mean_tokens=values["long_mean"],
        long_fraction=values["long_fraction"],
    )
    if values["kind"] != "percentiles":
        return plain
    if values["percentiles"] is None:
        text = f"Give the three lengths with --{side}-percentiles P50 P95 P99."
        raise PlanError(f"{side}_percentiles", None, text)
    p50, p95, p99 = values["percentiles"]
    return replace(plain, kind="percentiles", p50_tokens=p50, p95_tokens=p95, p99_tokens=p99)


def _spec(arguments: argparse.Namespace) -> WorkloadSpec:
    return WorkloadSpec(
        num_requests=arguments.num_requests,
        prompt=_lengths(arguments, "prompt"),
        output=_lengths(arguments, "output"),
        arrivals=ArrivalProcess(kind=arguments.arrivals, rate=arguments.rate, burst_size=arguments.burst_size),
        arrivals_in=arguments.arrivals_in,
        num_prefixes=arguments.num_prefixes,
        prefix_tokens=arguments.prefix_tokens,
        shared_fraction=arguments.shared_fraction,
        max_priority=arguments.max_priority,
        n=arguments.n,
        max_model_len=arguments.max_model_len,
    )
