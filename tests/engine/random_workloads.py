"""Random workloads for the scheduler oracle, small enough to fill a pool and collide in it."""

from __future__ import annotations

import random
from typing import Any

from planner.sequence import SimulatedRequest
from planner.simulator_config import FULL_ATTENTION, KvGroup, SimulatorConfig
from planner.units import div_ceil

Workload = dict[str, Any]


def draw(seed: int) -> Workload:
    """One workload: `config`, `requests`, and `spec` when tokens are drafted."""
    source = random.Random(seed)  # noqa: S311 - repeatable, not secret
    config = _config(source)
    config |= _rarer_rules(source, config)
    spec = None
    if source.random() < 0.35:
        drafted = source.choice([1, 2, 3, 5])
        spec = {
            "num_speculative_tokens": drafted,
            "num_lookahead_tokens": source.choice([0, drafted, drafted + 1]),
        }
    requests = _requests(source, spec)
    longest = max(len(row["prompt_token_ids"]) + len(row["output_token_ids"]) for row in requests)
    longest_prompt = max(len(row["prompt_token_ids"]) for row in requests)
    config["max_model_len"] = max(longest + source.choice([-10, 0, 1, 20, 60]), longest_prompt + 2)
    needed = _blocks_for_one(config)
    config["num_gpu_blocks"] = 1 + needed + source.choice([0, 1, 3, 10, needed, 3 * needed])
    return {"config": config, "requests": requests} | ({"spec": spec} if spec else {})


def _config(source: random.Random) -> dict[str, Any]:
    config: dict[str, Any] = {
        "block_size": source.choice([4, 8, 16, 16, 32]),
        "max_num_seqs": source.choice([2, 4, 8, 16]),
        "max_num_batched_tokens": source.choice([32, 64, 128, 512]),
        "enable_prefix_caching": source.random() < 0.75,
        "scheduling_policy": source.choice(["fcfs", "priority"]),
        "async_scheduling": source.random() < 0.5,
        "windows": source.choice([[], [], [32], [100], [64], [24, 80], [32, 32]]),
    }
    if source.random() < 0.2:
        config["long_prefill_token_threshold"] = source.choice([16, 40])
    if source.random() < 0.2:
        config["watermark"] = source.choice([0.05, 0.2])
    return config


def _rarer_rules(source: random.Random, config: dict[str, Any]) -> dict[str, Any]:
    """Now and then: EAGLE's dropped block, sparse retention, local chunks, windows without full attention."""
    size = config["block_size"]
    windows = config["windows"] or [source.choice([40, 2 * size])]
    return source.choice(
        [
            {},
            {},
            {},
            {"drop_last_hit_block": True},
            {"windows": windows, "prefix_cache_retention_interval": source.choice([0, 2 * size, 4 * size])},
            {"chunks": [source.choice([32, 64, 2 * size])]},
            {"windows": windows[:1], "without_full": True},
        ]
    )


def _requests(source: random.Random, spec: dict[str, int] | None) -> list[dict[str, Any]]:
    prefixes = [[source.randrange(1000) for _ in range(source.randrange(8, 120))] for _ in range(3)]
    rows: list[dict[str, Any]] = []
    step = 0
    for number in range(source.randrange(3, 16)):
        step += source.choice([0, 0, 0, 1, 3, 10])
        shared = source.choice(prefixes)[: source.randrange(4, 130)] if source.random() < 0.6 else []
        row: dict[str, Any] = {
            "request_id": f"r{number}",
            "arrival_step": step,
            "prompt_token_ids": shared + [source.randrange(1000) for _ in range(source.randrange(1, 150))],
            "output_token_ids": [source.randrange(1000) for _ in range(source.randrange(1, 90))],
            "priority": source.randrange(3),
        }
        if spec:
            row["accepted_drafts"] = [source.randrange(spec["num_speculative_tokens"] + 1) for _ in range(17)]
        rows.append(row)
    return rows


def _blocks_for_one(config: dict[str, Any]) -> int:
    """What the longest request needs over all groups, so that nothing waits for ever."""
    longest, size = config["max_model_len"], config["block_size"]
    in_flight = (2 if config["async_scheduling"] else 1) * config["max_num_batched_tokens"]
    whole = div_ceil(longest, size)
    needed = 0 if config.get("without_full") else whole
    for window in config["windows"]:
        needed += min(whole, div_ceil(min(window - 1 + in_flight, longest), size) + 1)
    for chunk in config.get("chunks", []):
        needed += min(whole, div_ceil(min(chunk + in_flight, longest), size))
    return needed


def to_simulator(workload: Workload, release: tuple[int, int]) -> tuple[SimulatorConfig, list[SimulatedRequest]]:
    """The same workload for our simulator."""
    config = dict(workload["config"])
    groups = [] if config.pop("without_full", False) else [FULL_ATTENTION]
    groups += [KvGroup(kind="sliding_window", span_tokens=span) for span in config.pop("windows")]
    groups += [KvGroup(kind="chunked_local", span_tokens=span) for span in config.pop("chunks", [])]
    requests = [
        SimulatedRequest(
            request_id=row["request_id"],
            arrival_step=row["arrival_step"],
            num_prompt_tokens=len(row["prompt_token_ids"]),
            num_output_tokens=len(row["output_token_ids"]),
            prompt_token_ids=tuple(row["prompt_token_ids"]),
            output_token_ids=tuple(row["output_token_ids"]),
            priority=row["priority"],
            accepted_drafts=tuple(row["accepted_drafts"]) if "accepted_drafts" in row else None,
        )
        for row in workload["requests"]
    ]
    spec = workload.get("spec", {})
    return SimulatorConfig(groups=tuple(groups), release=release, **config, **spec), requests
