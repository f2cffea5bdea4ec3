"""`python -m planner fit`: what fits where, a line a model and KV dtype; with a load, the fewest cards that hold it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from planner.demand import Demand, Lengths
from planner.facts import PlanError
from planner.fewest_cards import Search, fewest_cards
from planner.gpu_catalog import find_gpu
from planner.inventory import ModelFacts
from planner.matrix import MatrixQuestion, Sheet, Split, sheet
from planner.model_catalog import catalogue_documents, search
from planner.planning import facts_for
from planner.request import EngineFlags, PlanRequest
from planner.versions import NEWEST, Version, parse_version

_BAD_INPUT = 2
FIRST_AUTO_LENGTH = Version(0, 14, 0)  # of --max-model-len auto


def main(argv: Sequence[str]) -> int:
    """The exit status of `python -m planner fit`: 0, or 2 with one line on stderr for a user's mistake."""
    arguments = _parser().parse_args(argv)
    try:
        has_load = arguments.users is not None or arguments.rate is not None
        lines = _cards(arguments) if has_load else _fits(arguments)
        for line in lines:
            sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
    except PlanError as error:
        sys.stderr.write(f"error: {error.text}\n")
        return _BAD_INPUT
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m planner fit", description=__doc__)
    parser.add_argument("--model", action="append", help="a model of the catalogue; several may be given; none: all")
    parser.add_argument("--gpu", action="append", required=True, help="a card of the catalogue; several may be given")
    parser.add_argument("--tensor-parallel-size", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--kv-cache-dtype", nargs="+", default=["auto"])
    parser.add_argument("--vllm-version", default=NEWEST)
    parser.add_argument("--gpu-memory-utilization", type=float)
    parser.add_argument(
        "--max-model-len", type=int, help="requests of this length are counted; without: the longest length"
    )
    parser.add_argument("--num-requests", type=int, default=1, help="that the longest length must hold at once")
    load = parser.add_argument_group("the fewest cards for a load (one model)")
    load.add_argument("--users", type=int, help="at once, each with one request under way")
    load.add_argument("--rate", type=float, help="requests a second, instead of users")
    load.add_argument("--prompt", type=int, nargs=3, default=[600, 2000, 4000], metavar=("P50", "P95", "P99"))
    load.add_argument("--output", type=int, nargs=3, default=[250, 700, 1200], metavar=("P50", "P95", "P99"))
    load.add_argument("--prefix-tokens", type=int, default=0)
    load.add_argument("--most-preempted-percent", type=float, default=0.0)
    load.add_argument("--most-cards", type=int, default=8)
    return parser


def _request(arguments: argparse.Namespace, model_id: str) -> PlanRequest:
    flags = EngineFlags(gpu_memory_utilization=arguments.gpu_memory_utilization, max_model_len=arguments.max_model_len)
    return PlanRequest(model_id=model_id, vllm_version=arguments.vllm_version, flags=flags)


def _facts(arguments: argparse.Namespace, model_id: str) -> ModelFacts:
    return facts_for(_request(arguments, model_id), catalogue_documents(model_id))


def _fits(arguments: argparse.Namespace) -> Iterator[dict[str, object]]:
    if arguments.num_requests < 1:
        raise PlanError("num_requests", arguments.num_requests, "--num-requests takes a whole number from 1 on.")
    request = _request(arguments, "")
    if arguments.max_model_len is None and parse_version(arguments.vllm_version) >= FIRST_AUTO_LENGTH:
        request = replace(request, flags=replace(request.flags, max_model_len="auto"))
    question = MatrixQuestion(
        request=request,
        gpus=tuple(find_gpu(name) for name in arguments.gpu),
        splits=tuple(Split(tensor_parallel_size=size) for size in arguments.tensor_parallel_size),
        kv_dtypes=tuple(arguments.kv_cache_dtype),
        num_requests=arguments.num_requests,
    )
    for model_id in arguments.model or [entry.model_id for entry in search() if entry.is_plannable]:
        try:
            found = sheet(question, _facts(arguments, model_id))
        except PlanError as error:
            yield {"model": model_id, "error": error.text}
            continue
        yield from _lines(found)


def _lines(found: Sheet) -> Iterator[dict[str, object]]:
    question = found.question
    for place, dtype in enumerate(question.kv_dtypes):
        cells = {
            f"{gpu.name} x{split.num_cards}": _cell(found, (row, place, card))
            for card, gpu in enumerate(question.gpus)
            for row, split in enumerate(question.splits)
        }
        yield {"model": found.model_id, "kv_cache_dtype": dtype, "cells": cells}


def _cell(found: Sheet, cell: tuple[int, int, int]) -> dict[str, object]:
    stop = found.stop(cell)
    if stop != "starts":
        refusal = found.refusal(cell)
        return {"stop": stop} | ({} if refusal is None else {"reason": refusal})
    return {
        "longest_tokens": int(found.longest_tokens[cell]),
        "max_model_len": int(found.max_model_len[cell]),
        "max_concurrency": float(found.max_concurrency[cell]),
        "num_blocks": int(found.num_blocks[cell]),
        "tokens": int(found.tokens[cell]),
    }


def _cards(arguments: argparse.Namespace) -> Iterator[dict[str, object]]:
    if len(arguments.model or ()) != 1:
        raise PlanError("model", arguments.model, "A load is for one model: give --model once.")
    demand = Demand(
        prompt=_lengths("prompt", arguments.prompt),
        output=_lengths("output", arguments.output),
        prefix_tokens=arguments.prefix_tokens,
        users=arguments.users,
        requests_per_second=arguments.rate,
        most_preempted_fraction=arguments.most_preempted_percent / 100,
    )
    model_id = arguments.model[0]
    for name in arguments.gpu:
        search_in = Search(gpu=find_gpu(name), most_cards=arguments.most_cards)
        for found in fewest_cards(_request(arguments, model_id), _facts(arguments, model_id), demand, search_in):
            split = found.split
            yield {
                "gpu": found.gpu.name,
                "num_cards": split.num_cards,
                "tensor_parallel_size": split.tensor_parallel_size,
                "pipeline_parallel_size": split.pipeline_parallel_size,
                "data_parallel_size": split.data_parallel_size,
                "state": found.state,
                "reason": found.reason,
                "needed_blocks": found.needed_blocks,
                "num_blocks": found.num_blocks,
            }


def _lengths(name: str, percentiles: Sequence[int]) -> Lengths:
    low, middle, high = percentiles
    return Lengths(name=name, p50_tokens=low, p95_tokens=middle, p99_tokens=high)
