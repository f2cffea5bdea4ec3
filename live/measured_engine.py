"""What a running engine says of its start in its metrics: pool, tokens, blocks and requests at once."""

from __future__ import annotations

from live.samples import EngineSample
from planner.answer import Plan
from planner.facts import Basis, Estimate
from planner.measured_start import MeasuredRank, MeasuredStart


def measured_engine(sample: EngineSample, plan: Plan, *, version: str | None, served: int | None) -> MeasuredStart:
    """The start of the engine that `sample` is of. Blocks times a block's bytes is the pool, to one block."""
    config = sample.cache_config
    pool = None if config is None else _pool(config.num_gpu_blocks, config.block_size, plan)
    return MeasuredStart(
        source=f"engine {sample.identity.model_name or ''}".strip(),
        version=version,
        model_name=sample.identity.model_name,
        utilization=None if config is None else config.gpu_memory_utilization,
        ranks=() if pool is None else (MeasuredRank(kv_pool=pool),),
        tokens=None if config is None else config.kv_cache_tokens,
        blocks=None if config is None else config.num_gpu_blocks,
        concurrency=None if config is None else config.max_concurrency,
        max_model_len=served,
        outcome="started",
    )


def _pool(num_blocks: int | None, block_size: int | None, plan: Plan) -> Estimate | None:
    """None where the engine's blocks are not the plan's: their bytes are then not known."""
    each = plan.pool.bytes_per_block
    if not num_blocks or not each or block_size not in (None, plan.pool.block_size):
        return None
    basis = Basis(kind="read", note="blocks of cache_config_info, of the plan's bytes each")
    return Estimate(
        best_bytes=num_blocks * each,
        low_bytes=num_blocks * each,
        high_bytes=(num_blocks + 1) * each,
        basis=basis,
        formula=f"{num_blocks:,} blocks x {each:,} B",
    )
