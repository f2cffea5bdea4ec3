"""What loading allocates besides the modules' own tensors: tables that follow the batch, a latent attention workspace."""

from __future__ import annotations

from functools import lru_cache

from planner.defaults import Resolved
from planner.inventory import Buffer, ModelFacts
from planner.units import MIB


@lru_cache(maxsize=64)
def has_batched_buffers(model: ModelFacts) -> bool:
    """Whether the model keeps a tensor per token of max_num_batched_tokens."""
    modules = (module for part in model.parts for module in part.modules)
    return any(isinstance(module, Buffer) and module.is_per_batched_token for module in modules)


def latent_workspace_bytes(model: ModelFacts, resolved: Resolved) -> int:
    """FlashInfer's 128 MiB for latent attention: allocated on import, hence by trying backends, whichever is chosen.

    So in 0.14, 0.19 and 0.23 (v1/attention/backends/mla/flashinfer_mla.py, g_fi_workspace); not in 0.11 nor 0.27.1. A
    0.19 start of DeepSeek-V2-Lite logs 0.13 GiB over its tensors.
    """
    is_tried = model.is_mla and index_topk(model) == 0 and resolved.gpu.capability is not None
    has_workspace = (0, 12) <= resolved.version[:2] <= (0, 26)
    return 128 * MIB if is_tried and has_workspace else 0


@lru_cache(maxsize=64)
def index_topk(model: ModelFacts) -> int:
    """How many keys a sparse attention layer chooses per token; 0 for dense attention."""
    caches = {cache for layer in model.layers for cache in layer.caches}
    return max((dict(cache.extra).get("index_topk", 0) for cache in caches), default=0)
