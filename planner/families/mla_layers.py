"""Multi-head latent attention and the DSA indexer as vLLM fuses them: DeepSeek's projections, norms and caches."""

from __future__ import annotations

from dataclasses import dataclass

from planner.config_view import ConfigView
from planner.families.blocks import attention_scales, column_linear, norm, replicated_linear, row_linear
from planner.inventory import Cache, Linear, Module, Tensor

# vLLM before 0.7 ran latent attention as plain attention with every head padded to this size (0.6.6 deepseek_v2.py).
FIRST_MINOR_WITH_MLA = 7
PADDED_HEAD_SIZE = 256
# The indexer's two small projections are one unquantised linear in 0.23, still two in 0.19; between was not looked up.
FIRST_MINOR_WITH_FUSED_INDEXER = 20
INDEXER_QUANT_BLOCK = 128  # key elements per float32 scale


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaShape:
    """The sizes of one latent attention layer, whole model. `q_lora_rank` None: queries are projected directly."""

    hidden_size: int
    num_heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    nope_head_dim: int
    rope_head_dim: int
    v_head_dim: int

    @property
    def query_head_dim(self) -> int:
        """The width of a query head: the part without and the part with rotary position."""
        return self.nope_head_dim + self.rope_head_dim

    @property
    def latent_size(self) -> int:
        """The cached vector of one token: the compressed keys and values, and the rotary key."""
        return self.kv_lora_rank + self.rope_head_dim


def mla_shape(text: ConfigView) -> MlaShape:
    """The latent attention that a DeepSeek-like config describes."""
    return MlaShape(
        hidden_size=text.integer("hidden_size"),
        num_heads=text.integer("num_attention_heads"),
        q_lora_rank=text.optional_integer("q_lora_rank", least=1),
        kv_lora_rank=text.integer("kv_lora_rank"),
        nope_head_dim=text.integer("qk_nope_head_dim"),
        rope_head_dim=text.integer("qk_rope_head_dim"),
        v_head_dim=text.integer("v_head_dim"),
    )


def mla_attention(shape: MlaShape, prefix: str = "self_attn") -> tuple[Module, ...]:
    """The modules of one latent attention layer. Down-projections are on every rank; the rest goes by heads."""
    key_value_size = shape.num_heads * (shape.nope_head_dim + shape.v_head_dim)
    return (
        *_query_modules(shape, prefix),
        *norm(f"{prefix}.kv_a_layernorm", shape.kv_lora_rank),
        column_linear(f"{prefix}.kv_b_proj", shape.kv_lora_rank, key_value_size, role="attention"),
        row_linear(f"{prefix}.o_proj", shape.num_heads * shape.v_head_dim, shape.hidden_size, role="attention"),
        attention_scales(is_mla=True),
    )


def _query_modules(shape: MlaShape, prefix: str) -> tuple[Module, ...]:
    query_size = shape.num_heads * shape.query_head_dim
    latent = f"{prefix}.kv_a_proj_with_mqa"
    if shape.q_lora_rank is None:
        return (
            column_linear(f"{prefix}.q_proj", shape.hidden_size, query_size, role="attention"),
            replicated_linear(latent, shape.hidden_size, shape.latent_size, role="attention"),
        )
    fused = Linear(
        name=f"{prefix}.fused_qkv_a_proj",
        role="attention",
        in_features=shape.hidden_size,
        out_features=(shape.q_lora_rank, shape.latent_size),
        parallel="replicated",
        prefixes=(f"{prefix}.q_a_proj", latent),
    )
    return (
        fused,
        *norm(f"{prefix}.q_a_layernorm", shape.q_lora_rank),
        column_linear(f"{prefix}.q_b_proj", shape.q_lora_rank, query_size, role="attention"),
    )


def mla_cache(shape: MlaShape, vllm_minor: int) -> Cache:
    """The cache of one latent attention layer: one latent vector a token, never divided by TP."""
    if vllm_minor < FIRST_MINOR_WITH_MLA:
        return Cache(kind="full", num_kv_heads=shape.num_heads, head_size=PADDED_HEAD_SIZE)
    return Cache(kind="mla", num_kv_heads=1, head_size=shape.latent_size, head_size_v=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexerShape:
    """The sizes of DeepSeek Sparse Attention's indexer."""

    num_heads: int
    head_size: int
    topk: int


def indexer_shape(text: ConfigView) -> IndexerShape | None:
    """The indexer that a config describes; None for models with dense attention."""
    if not text.has("index_topk"):
        return None
    return IndexerShape(
        num_heads=text.integer("index_n_heads"),
        head_size=text.integer("index_head_dim"),
        topk=text.integer("index_topk"),
    )


def indexer_modules(
    shape: IndexerShape, hidden_size: int, q_lora_rank: int, vllm_minor: int, prefix: str = "self_attn.indexer"
) -> tuple[Module, ...]:
    """The modules of one indexer, whole on every rank."""
    query = replicated_linear(f"{prefix}.wq_b", q_lora_rank, shape.num_heads * shape.head_size, role="indexer")
    keys, weights = f"{prefix}.wk", f"{prefix}.weights_proj"
    key_norm = Tensor(name=f"{prefix}.k_norm", role="indexer", shape=(2, shape.head_size), dtype="float32")
    if vllm_minor < FIRST_MINOR_WITH_FUSED_INDEXER:
        key_projection = replicated_linear(keys, hidden_size, shape.head_size, role="indexer")
        return query, key_projection, _plain(weights, hidden_size, (shape.num_heads,), (weights,)), key_norm
    sizes = (shape.head_size, shape.num_heads)
    return query, _plain(f"{prefix}.wk_weights_proj", hidden_size, sizes, (keys, weights)), key_norm


def _plain(name: str, size_in: int, sizes_out: tuple[int, ...], prefixes: tuple[str, ...]) -> Linear:
    return Linear(
        name=name,
        role="indexer",
        in_features=size_in,
        out_features=sizes_out,
        parallel="replicated",
        prefixes=prefixes,
        quantizable=False,
    )


def indexer_cache(shape: IndexerShape) -> Cache:
    """The indexer's keys: float8 elements and a float32 scale per block of them, in bytes."""
    scale_bytes = shape.head_size // INDEXER_QUANT_BLOCK * 4
    return Cache(
        kind="indexer",
        num_kv_heads=1,
        head_size=shape.head_size + scale_bytes,
        head_size_v=0,
        extra=(("index_topk", shape.topk),),
    )
