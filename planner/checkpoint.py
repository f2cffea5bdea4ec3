"""The checkpoint's own sizes beside those of vLLM's modules: where they differ, by how much and why."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from planner.defaults import Resolved
from planner.facts import Finding
from planner.inventory import ModelFacts
from planner.units import GIB
from planner.weights import whole_model_bytes

_AGREES_PARTS_PER_MILLION = 3000  # 0.3 %: scales and padding of a well-formed quantised file stay under it
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_HEAD_NAMES = ("lm_head.weight", "output.weight", "embed_out.weight")


def checkpoint_findings(model: ModelFacts, resolved: Resolved) -> tuple[Finding, ...]:
    """One finding with both sizes where the checkpoint's bytes and vLLM's parameters (one rank, TP 1) differ by over 0.3 %."""
    documents = model.documents
    stored = documents.checkpoint_total_bytes if documents is not None else None
    if not stored or documents is None:
        return ()
    built = whole_model_bytes(model, resolved)
    if abs(built - stored) * 1_000_000 <= stored * _AGREES_PARTS_PER_MILLION:
        return ()
    reasons = _reasons(model)
    text = (
        f"The checkpoint holds {stored / GIB:.2f} GiB, vLLM's modules for this config take {built / GIB:.2f} GiB "
        f"({100 * (built - stored) / stored:+.1f} %)"
    )
    why = f": {', '.join(reasons)}." if reasons else "; the modules' size is used, as vLLM allocates those."
    return (Finding(code="checkpoint-differs", severity="info", text=text + why, field="model"),)


@lru_cache(maxsize=64)
def _reasons(model: ModelFacts) -> tuple[str, ...]:
    """What the file holds that vLLM leaves out, in the order of size; without headers, what the config tells."""
    left_out: Counter[str] = Counter()
    widths: Counter[str] = Counter()
    for tensor in (model.documents.tensors if model.documents else None) or ():
        widths[tensor.dtype] += tensor.num_bytes
        reason = _left_out(model, tensor.name)
        if reason is not None:
            left_out[reason] += tensor.num_bytes
    reasons = [f"{reason} ({num_bytes / GIB:.2f} GiB) is left out" for reason, num_bytes in left_out.most_common()]
    if widths and widths.most_common(1)[0][0] == "F32" and model.dtype == "float32":
        reasons.append("float32 weights load in 16 bits")
    if not widths:
        if model.has_mtp:
            reasons.append("multi-token-prediction layers load only for speculative decoding")
        if model.ties_embeddings:
            reasons.append("a stored copy of the tied head is not loaded")
        if model.dtype == "float32":
            reasons.append("float32 weights load in 16 bits")
    return tuple(reasons)


def _left_out(model: ModelFacts, name: str) -> str | None:
    if model.ties_embeddings and name.endswith(_HEAD_NAMES):
        return "the stored copy of the tied head"
    layer = _LAYER.search(name)
    is_beyond = layer is not None and int(layer[1]) >= len(model.layers) and not _is_encoder(name)
    if name.startswith(("mtp.", "model.mtp.")) or is_beyond:
        return "the multi-token-prediction part"
    if "rotary_emb.inv_freq" in name or name.endswith((".attn.bias", ".attn.masked_bias")):
        return "rotary or mask buffers"
    return None


def _is_encoder(name: str) -> bool:
    return any(word in name for word in ("vision", "visual", "audio", "encoder"))
