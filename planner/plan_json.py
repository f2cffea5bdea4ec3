"""A `Plan` as the JSON object that the command line prints and the page downloads."""

from __future__ import annotations

from typing import Any

from planner.answer import KvGroup, Plan, RankPlan
from planner.facts import Estimate, Finding
from planner.inventory import ModelFacts


def to_json(plan: Plan, model: ModelFacts) -> dict[str, Any]:  # Any: JSON
    """The answer with the keys that the command line documents; figures are those of the rank that bounds the pool."""
    rank = plan.ranks[plan.bounding_rank]
    return {
        "model_id": plan.request.model_id,
        "model_source": model.documents.source if model.documents else None,
        "architecture": model.architecture,
        "gpu": plan.gpu_name,
        "gpu_memory_bytes": plan.gpu_total.best_bytes,
        "vllm_version": plan.vllm_version,
        "era": plan.era,
        "calibration": plan.calibration,
        "will_start": plan.will_start,
        "reason": plan.reason,
        "vllm_error": plan.vllm_error,
        "findings": [_finding(finding) for finding in plan.findings],
        "resolved": {item.name: item.value for item in plan.resolved},
        **_rank(rank),
        **_pool(plan),
        "advice": [
            {"change": item.change, "effect": item.effect, "flag": item.flag, "value": item.value}
            for item in plan.advice
        ],
        "serve_command": plan.serve_command,
        "host_lines": [_line(line.name, line.estimate, is_inside=False) for line in plan.host],
        "bounding_rank": plan.bounding_rank,
        "per_rank": [{"pp_rank": each.pp_rank, "num_layers": each.num_layers, **_rank(each)} for each in plan.ranks],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {"code": finding.code, "severity": finding.severity, "text": finding.text, "field": finding.field}


def _line(name: str, estimate: Estimate, *, is_inside: bool) -> dict[str, Any]:
    return {
        "name": name,
        "bytes": estimate.best_bytes,
        "low_bytes": estimate.low_bytes,
        "high_bytes": estimate.high_bytes,
        "basis": f"{estimate.basis.kind}: {estimate.basis.note}",
        "formula": estimate.formula,
        "is_inside_budget": is_inside,
    }


def _rank(rank: RankPlan) -> dict[str, Any]:
    load, pool = rank.weights.load, rank.kv_pool
    return {
        "lines": [_line(line.name, line.estimate, is_inside=line.is_inside_budget) for line in rank.lines],
        "parameter_bytes": rank.weights.parameter_bytes,
        "weight_bytes": load.best_bytes,
        "weight_low_bytes": load.low_bytes,
        "weight_high_bytes": load.high_bytes,
        "weights_by_role": dict(rank.weights.by_role),
        "activation_peak_bytes": rank.activation.best_bytes,
        "non_torch_bytes": rank.non_torch.best_bytes,
        "cuda_graph_bytes": rank.cuda_graphs.best_bytes,
        "kv_pool_bytes": pool.best_bytes,
        "kv_pool_low_bytes": pool.low_bytes,
        "kv_pool_high_bytes": pool.high_bytes,
    }


def _group(group: KvGroup) -> dict[str, Any]:
    return {
        "kind": group.kind,
        "num_layers": group.num_layers,
        "block_size": group.block_size,
        "page_bytes": group.page_bytes,
        "sliding_window": group.sliding_window,
        "blocks_per_request": group.blocks_per_request,
    }


def _pool(plan: Plan) -> dict[str, Any]:
    pool = plan.pool
    return {
        "block_size": pool.block_size,
        "kv_groups": [_group(group) for group in pool.groups],
        "kv_bytes_per_token": pool.kv_bytes_per_token,
        "state_bytes_per_request": pool.state_bytes_per_request,
        "bytes_per_block": pool.bytes_per_block,
        "num_gpu_blocks": pool.num_blocks,
        "num_gpu_blocks_low": plan.pool_low.num_blocks,
        "num_gpu_blocks_high": plan.pool_high.num_blocks,
        "kv_cache_tokens": pool.tokens,
        "max_model_len": pool.max_model_len,
        "max_concurrency": pool.max_concurrency,
        "max_concurrency_low": plan.pool_low.max_concurrency,
        "max_concurrency_high": plan.pool_high.max_concurrency,
        "estimated_max_model_len": pool.estimated_max_model_len,
        "needed_kv_bytes": pool.needed_bytes,
    }
