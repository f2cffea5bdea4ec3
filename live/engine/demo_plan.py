"""What the demo engine is asked for, as a plan's request, so that its pool has an exact prediction.

The CPU backend has no card: it takes VLLM_CPU_KVCACHE_SPACE for its pool, which is what `kv_cache_memory_bytes` says to the
planner. The card's size stands in the request only because each request has one; no number of the pool comes from it.
"""

from __future__ import annotations

import json

from live.engine.demo_process import MODEL_NAME, DemoSettings
from live.engine.environment import VLLM_RELEASE
from live.engine.load import DEMO_CONFIG
from live.engine.tiny_model import CONFIG
from planner.request import EngineFlags, PlanRequest
from planner.units import GIB

_STAND_IN_CARD_BYTES = 16 * GIB


def demo_request(settings: DemoSettings | None = None) -> PlanRequest:
    """The request whose plan has the demo engine's pool, started with `settings`."""
    settings = settings or DemoSettings()
    return PlanRequest(
        model_id=MODEL_NAME,
        config_json=json.dumps(CONFIG),
        gpu_memory_bytes=_STAND_IN_CARD_BYTES,
        vllm_version=VLLM_RELEASE,
        flags=EngineFlags(
            kv_cache_memory_bytes=settings.kv_cache_space_gib * GIB,
            num_gpu_blocks_override=settings.num_gpu_blocks_override,
            max_model_len=DEMO_CONFIG.max_model_len,
            max_num_seqs=DEMO_CONFIG.max_num_seqs,
            max_num_batched_tokens=DEMO_CONFIG.max_num_batched_tokens,
            block_size=DEMO_CONFIG.block_size,
            async_scheduling=False,
            enforce_eager=True,
        ),
    )
