"""DeepSeek-V4: compressed latent attention with a window beside it, hyper-connections and hash-routed first layers.

Read from vLLM 0.32 and 0.33 models/deepseek_v4/ (attention.py, compressor.py, nvidia/model.py). A layer with compress
ratio 4 has an indexer; a ratio of 0 or 1 leaves only the window.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.config_view import ConfigView
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import (
    build_layers,
    column_linear,
    final_norm,
    layer_norms,
    norm,
    replicated_linear,
    row_linear,
    vocabulary,
)
from planner.families.draft_layers import num_mtp_layers
from planner.families.expert_layers import ExpertBlock
from planner.families.rope import rope_cache, rope_parameters
from planner.inventory import Buffer, Cache, Layer, Linear, Module, Part, Tensor

WINDOW_ROLE, COMPRESSED_ROLE, INDEXER_ROLE, STATE_ROLE, INDEXER_STATE_ROLE = range(5)
INDEXED_RATIO = 4  # the only compress ratio with an indexer, and with overlapping compressor states
WINDOW_BLOCK_TOKENS = 64
STATE_BLOCK_TOKENS = {4: 4, 128: 8}  # by compress ratio
ROPE_PART_BYTES = 2  # a rotary element stays bfloat16, the others are float8
SCALE_GROUP = 64  # float8 elements per one-byte scale, and one byte of padding a state
QUERY_HEAD_STEPS = (64, 128)  # FlashMLA's decode kernel pads the heads to one of these


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """The sizes that every layer needs."""

    hidden: int
    heads: int
    head: int
    rope: int
    q_rank: int
    o_rank: int
    o_groups: int
    window: int
    index_heads: int
    index_head: int
    index_topk: int
    hyper: int
    vocab: int


def _sizes(text: ConfigView) -> _Sizes:
    return _Sizes(
        hidden=text.integer("hidden_size"),
        heads=text.integer("num_attention_heads"),
        head=text.integer("head_dim"),
        rope=text.integer("qk_rope_head_dim"),
        q_rank=text.integer("q_lora_rank"),
        o_rank=text.integer("o_lora_rank"),
        o_groups=text.integer("o_groups"),
        window=text.integer("sliding_window"),
        index_heads=text.integer("index_n_heads"),
        index_head=text.integer("index_head_dim"),
        index_topk=text.integer("index_topk"),
        hyper=text.integer("hc_mult"),
        vocab=text.integer("vocab_size"),
    )


def _attention(sizes: _Sizes) -> tuple[Module, ...]:
    query = sizes.heads * sizes.head
    padded_heads = next((step for step in QUERY_HEAD_STEPS if sizes.heads <= step), sizes.heads)
    fused = Linear(
        name="attn.fused_wqa_wkv",
        role="attention",
        in_features=sizes.hidden,
        out_features=(sizes.q_rank, sizes.head),
        parallel="replicated",
        prefixes=("attn.wq_a", "attn.wkv"),
    )
    return (
        fused,
        *norm("attn.q_norm", sizes.q_rank),
        column_linear("attn.wq_b", sizes.q_rank, query, role="attention"),
        *norm("attn.kv_norm", sizes.head),
        column_linear("attn.wo_a", query // sizes.o_groups, sizes.o_groups * sizes.o_rank, role="attention"),
        row_linear("attn.wo_b", sizes.o_groups * sizes.o_rank, sizes.hidden, role="attention"),
        Tensor(name="attn.attn_sink", role="attention", shape=(padded_heads,), dtype="float32"),
    )


def _compressor(sizes: _Sizes, prefix: str, ratio: int, head: int) -> tuple[Module, ...]:
    width = _state_width(ratio, head)
    fused = Linear(
        name=f"{prefix}.fused_wkv_wgate",
        role="indexer" if "indexer" in prefix else "attention",
        in_features=sizes.hidden,
        out_features=(width, width),
        parallel="replicated",
        prefixes=(f"{prefix}.wkv", f"{prefix}.wgate"),
        quantizable=False,
    )
    position = Tensor(name=f"{prefix}.ape", role=fused.role, shape=(ratio, width), dtype="float32")
    return (fused, position, *norm(f"{prefix}.norm", head))


def _state_width(ratio: int, head: int) -> int:
    return head * (2 if ratio == INDEXED_RATIO else 1)


def _indexer(sizes: _Sizes) -> tuple[Module, ...]:
    weights = Linear(
        name="attn.indexer.weights_proj",
        role="indexer",
        in_features=sizes.hidden,
        out_features=(sizes.index_heads,),
        parallel="replicated",
        prefixes=("attn.indexer.weights_proj",),
        quantizable=False,
    )
    query = replicated_linear("attn.indexer.wq_b", sizes.q_rank, sizes.index_heads * sizes.index_head, role="indexer")
    return (query, weights, *_compressor(sizes, "attn.indexer.compressor", INDEXED_RATIO, sizes.index_head))


def _hyper_connections(sizes: _Sizes) -> tuple[Tensor, ...]:
    streams = sizes.hyper
    mixes = (2 + streams) * streams
    shapes = {"fn": (mixes, streams * sizes.hidden), "base": (mixes,), "scale": (3,)}
    return tuple(
        Tensor(name=f"hc_{place}_{name}", role="other", shape=shape, dtype="float32")
        for place in ("attn", "ffn")
        for name, shape in shapes.items()
    )


def _head_connections(sizes: _Sizes) -> tuple[Tensor, ...]:
    shapes = {"fn": (sizes.hyper, sizes.hyper * sizes.hidden), "base": (sizes.hyper,), "scale": (1,)}
    return tuple(
        Tensor(name=f"hc_head_{name}", role="other", shape=shape, dtype="float32") for name, shape in shapes.items()
    )


def _feed_forward(text: ConfigView, sizes: _Sizes, *, is_hashed: bool) -> tuple[Module, ...]:
    size = text.integer("moe_intermediate_size")
    top_k = text.integer("num_experts_per_tok")
    has_score_bias = text.text("topk_method") == "noaux_tc" and not is_hashed
    block = ExpertBlock(
        num_experts=text.integer("n_routed_experts"),
        intermediate_size=size,
        top_k=top_k,
        prefix="ffn",
        score_bias_name="gate.e_score_correction_bias" if has_score_bias else None,
        shared_intermediate_size=size * text.integer("n_shared_experts", default=0, least=0),
        is_shared_whole_in_sequence_parallel=True,
    )
    modules = block.modules(sizes.hidden)
    if not is_hashed:
        return modules
    table = Tensor(name="ffn.gate.tid2eid", role="router", shape=(sizes.vocab, top_k), dtype="int32")
    return (*modules, table)


def _state_bytes(sizes: _Sizes) -> int:
    """One cached state: float8 elements with a scale per group, and the rotary part in bfloat16."""
    plain = sizes.head - sizes.rope
    return plain + sizes.rope * ROPE_PART_BYTES + plain // SCALE_GROUP + 1


def _caches(sizes: _Sizes, ratio: int) -> tuple[Cache, ...]:
    state_bytes = _state_bytes(sizes)
    window = _cache(WINDOW_ROLE, sizes.head, state_bytes, sliding_window=sizes.window, block_size=WINDOW_BLOCK_TOKENS)
    if ratio <= 1:
        return (window,)
    compressed = _cache(COMPRESSED_ROLE, sizes.head, state_bytes, compress_ratio=ratio)
    state = _compressor_state(STATE_ROLE, ratio, sizes.head)
    if ratio != INDEXED_RATIO:
        return (window, compressed, state)
    index_bytes = sizes.index_head + sizes.index_head // 128 * 4
    keys = _cache(INDEXER_ROLE, index_bytes, index_bytes, compress_ratio=ratio, index_topk=sizes.index_topk)
    return (window, keys, _compressor_state(INDEXER_STATE_ROLE, ratio, sizes.index_head), compressed, state)


def _compressor_state(role: int, ratio: int, head: int) -> Cache:
    width = 2 * _state_width(ratio, head)
    overlap = 2 if ratio == INDEXED_RATIO else 1
    block_size = STATE_BLOCK_TOKENS.get(ratio, ratio)
    return _cache(role, width, width * 4, sliding_window=overlap * ratio, block_size=block_size)


def _cache(
    role: int,
    head_size: int,
    state_bytes: int,
    *,
    sliding_window: int | None = None,
    compress_ratio: int | None = None,
    **extra: int,
) -> Cache:
    return Cache(
        kind="deepseek_v4",
        num_kv_heads=1,
        head_size=head_size,
        head_size_v=0,
        sliding_window=sliding_window,
        compress_ratio=compress_ratio,
        extra=(("role", role), ("state_bytes", state_bytes), *sorted(extra.items())),
    )


def _rotary(text: ConfigView, sizes: _Sizes, ratio: int) -> Buffer:
    """The rotary cache of a layer, float32: scaled for compressed layers, plain for windows."""
    longest = text.integer("max_position_embeddings")
    settings = dict(rope_parameters(text, "compress" if ratio > 1 else "main"))
    settings["rope_dim"] = sizes.rope
    if ratio <= 1 or settings["rope_type"] == "default":
        settings = {"rope_type": "default", "rope_dim": sizes.rope}
    else:
        settings["rope_type"] = "deepseek_yarn"
    cache = rope_cache(text, sizes.head, max_position=longest, settings=settings, dtype="float32")
    name = "compressed_rotary_cache" if ratio > 1 else "window_rotary_cache"
    return Buffer(name=name, shape=cache.shape, dtype=cache.dtype, is_shared=True)


def _layer(text: ConfigView, sizes: _Sizes, ratio: int, *, is_hashed: bool) -> tuple[Module, ...]:
    modules = _attention(sizes)
    if ratio > 1:
        modules += _compressor(sizes, "attn.compressor", ratio, sizes.head)
    if ratio == INDEXED_RATIO:
        modules += _indexer(sizes)
    return (
        *modules,
        *_feed_forward(text, sizes, is_hashed=is_hashed),
        *layer_norms(sizes.hidden, "attn_norm", "ffn_norm"),
        *_hyper_connections(sizes),
        _rotary(text, sizes, ratio),
    )


def _drafts(text: ConfigView, sizes: _Sizes, first: int) -> tuple[Layer, ...]:
    """MTP layers: windowed attention with experts, two h-to-h projections and their own output mixing."""
    projections = tuple(
        replicated_linear(name, sizes.hidden, sizes.hidden, role="draft") for name in ("e_proj", "h_proj")
    )
    around: tuple[Module, ...] = (
        *projections,
        *layer_norms(sizes.hidden, "enorm", "hnorm", "shared_head.norm"),
        *_head_connections(sizes),
    )
    modules = _layer(text, sizes, 1, is_hashed=False) + around
    indices = range(first, first + num_mtp_layers(text))
    return tuple(Layer(index=i, prefix=f"model.layers.{i}", modules=modules, caches=_caches(sizes, 1)) for i in indices)


def _ratios(text: ConfigView) -> tuple[int, ...]:
    """Each layer's compress ratio; 1 for a layer that is not compressed."""
    listed = text.items("compress_ratios") or []
    numbers = [ConfigView({"compress_ratios": ratio}, text.path) for ratio in listed]
    return tuple(max(1, number.integer("compress_ratios", default=0, least=0)) for number in numbers)


def _deepseek_v4(given: FamilyInput) -> Built:
    text = given.text
    sizes = _sizes(text)
    num_layers = text.integer("num_hidden_layers")
    ratios = _ratios(text)
    hashed = text.integer("num_hash_layers", default=0, least=0)

    def build(index: int) -> tuple[tuple[Module, ...], tuple[Cache, ...]]:
        ratio = ratios[index] if index < len(ratios) else 1
        return _layer(text, sizes, ratio, is_hashed=index < hashed), _caches(sizes, ratio)

    mixing = Part(prefix="model", stage="every", modules=_head_connections(sizes))
    return Built(
        layers=build_layers(num_layers, "model.layers", build),
        parts=(*vocabulary(text, ties=False).parts(), final_norm(sizes.hidden), mixing),
        is_mla=True,
        is_moe=True,
        intermediate_size=text.integer("moe_intermediate_size"),
        draft_layers=_drafts(text, sizes, num_layers),
        qk_rope_head_dim=sizes.rope,
    )


BUILDERS: dict[str, Builder] = {"DeepseekV4ForCausalLM": _deepseek_v4}
