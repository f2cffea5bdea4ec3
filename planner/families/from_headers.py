"""A model of an architecture no family knows, sized from its checkpoint's headers: tensors by name, split by usual roles."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import replace

from planner.config_view import ConfigView
from planner.facts import Finding, PlanError
from planner.families import Built, FamilyInput
from planner.families.blocks import attention_scales, attention_shape, kv_cache
from planner.families.dense_style import layer_windows
from planner.inventory import Cache, CheckpointTensor, Embedding, Layer, Module, Part, Role, Stage, Tensor

_LAYER = re.compile(r"^(?P<stack>.*?(?:layers|h|blocks|block|layer))\.(?P<index>\d+)\.(?P<rest>.+)$")
_DTYPES = {
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "uint8",
    "I8": "int8",
    "U8": "uint8",
    "I32": "int32",
    "I64": "int64",
    "BOOL": "bool",
}  # the rest are floats, which load in the model's dtype
_ROWS = ("o_proj", "down_proj", "out_proj", "c_proj", "dense", "dense_4h_to_h", "wo", "w2", "fc2", "fc_out")
_WHOLE = ("gate", "router", "norm", "conv1d", "rotary", "inv_freq", "A_log", "dt_bias", "kv_a", "q_a")
_TABLES = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "tok_embeddings.weight", "embed_in.weight")
_HEADS = ("lm_head.weight", "output.weight", "embed_out.weight")
_SMALLEST_MATRIX = 2  # dimensions


def build(family: FamilyInput, tensors: tuple[CheckpointTensor, ...]) -> tuple[Built, tuple[Finding, ...]]:
    """The inventory the headers show; attention is assumed full, as wide as the config says."""
    stacks = Counter(match["stack"] for tensor in tensors if (match := _LAYER.match(tensor.name)))
    if not stacks:
        raise PlanError(
            "architectures",
            family.architecture,
            f"{family.architecture} is not known and its checkpoint names no layers, so it cannot be sized.",
        )
    stack = stacks.most_common(1)[0][0]
    by_layer: dict[int, list[Module]] = defaultdict(list)
    parts: list[Part] = []
    for tensor in tensors:
        match = _LAYER.match(tensor.name)
        if match and match["stack"] == stack:
            by_layer[int(match["index"])].append(_module(match["rest"], tensor))
        else:
            parts.append(Part(prefix="", stage=_stage(tensor.name), modules=(_outer(tensor),)))
    layers = _layers(family.text, stack, by_layer)
    finding = Finding(
        code="architecture-from-headers",
        severity="warning",
        text=f"{family.architecture} is not known; its weights are sized from the checkpoint's {len(tensors):,} tensors, "
        f"and its cache as {_cache_words(layers)}.",
        field="architectures",
    )
    return Built(layers=layers, parts=tuple(parts), is_moe=any("experts" in t.name for t in tensors)), (finding,)


def _layers(text: ConfigView, stack: str, by_layer: dict[int, list[Module]]) -> tuple[Layer, ...]:
    shape = attention_shape(text)
    windows = layer_windows(text, len(by_layer))
    interned: dict[tuple[Module, ...], tuple[Module, ...]] = {}
    layers = []
    for position, index in enumerate(sorted(by_layer)):
        modules = (*by_layer[index], attention_scales())
        layers.append(
            Layer(
                index=position,
                prefix=f"{stack}.{index}",
                modules=interned.setdefault(modules, modules),
                caches=(_cache(text, kv_cache(shape, windows[position])),),
            )
        )
    return tuple(layers)


def _cache(text: ConfigView, full: Cache) -> Cache:
    latent, rope = text.optional_integer("kv_lora_rank"), text.optional_integer("qk_rope_head_dim")
    if latent and rope is not None:
        return replace(full, kind="mla", num_kv_heads=1, head_size=latent + rope, sliding_window=None)
    return full


def _cache_words(layers: tuple[Layer, ...]) -> str:
    cache = layers[0].caches[0]
    return f"{len(layers)} layers of {cache.kind} attention with {cache.num_kv_heads} KV heads of {cache.head_size}"


def _stage(name: str) -> Stage:
    if name.endswith(_TABLES):
        return "first"
    return "last" if name.endswith(_HEADS) or "norm" in name else "every"


def _outer(tensor: CheckpointTensor) -> Module:
    is_table, is_head = tensor.name.endswith(_TABLES), tensor.name.endswith(_HEADS)
    if (is_table or is_head) and len(tensor.shape) == _SMALLEST_MATRIX and tensor.dtype not in _DTYPES:
        role: Role = "embedding" if is_table else "head"
        return Embedding(name=tensor.name, role=role, num_rows=tensor.shape[0], dim=tensor.shape[1])
    return Tensor(name=tensor.name, role="other", shape=tensor.shape or (1,), dtype=_DTYPES.get(tensor.dtype))


def _module(name: str, tensor: CheckpointTensor) -> Module:
    """A tensor of a layer: whole where it is a norm or a router, else divided by rows of its inputs or by outputs."""
    role: Role = "experts" if "experts" in name else "norm" if "norm" in name else "other"
    return Tensor(
        name=name,
        role=role,
        shape=tensor.shape or (1,),
        shard_dim=_shard_dim(name, tensor.shape),
        dtype=_DTYPES.get(tensor.dtype),
    )


def _shard_dim(name: str, shape: tuple[int, ...]) -> int | None:
    owner = name.split(".")[-2] if "." in name else name
    if any(word in part for part in name.split(".") for word in _WHOLE if part != "gate_proj") or not shape:
        return None
    is_row = owner in _ROWS
    if len(shape) < _SMALLEST_MATRIX:
        return None if is_row else 0
    return len(shape) - 1 if is_row else len(shape) - 2
