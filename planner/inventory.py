"""What vLLM builds for a model, before any split over cards: layers, the modules in each, and each layer's cache.

A family builder (`planner/families`) turns a config into a `ModelFacts`; `weights` turns its modules into bytes
per rank, `kv_specs` its caches into cache specs. Shapes are those of the whole model (TP 1).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from planner.facts import Finding

Role = Literal[
    "embedding",
    "head",
    "attention",
    "mlp",
    "experts",
    "shared_experts",
    "router",
    "norm",
    "mamba",
    "indexer",
    "vision",
    "audio",
    "projector",
    "draft",
    "other",
]
# Where a module outside the decoder layers lives under pipeline parallelism.
Stage = Literal["first", "last", "first_and_last", "every"]
# How tensor parallelism divides a linear module (vLLM's classes of the same names).
Parallel = Literal["column", "row", "replicated", "qkv", "vocab"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """One linear module as vLLM fuses it: `out_features` holds one entry per fused checkpoint projection.

    `column` divides each output by TP, `row` divides the input, `qkv` is (q, k, v) with heads replicated once TP exceeds
    the KV heads (`kv_heads`, `head_size`), `replicated` divides nothing. `prefixes` are the checkpoint's module names,
    relative to the layer ("self_attn.q_proj"), matched against a quantisation config's ignore lists.
    """

    name: str
    role: Role
    in_features: int
    out_features: tuple[int, ...]
    parallel: Parallel
    prefixes: tuple[str, ...]
    has_bias: bool = False
    quantizable: bool = True
    is_odd_sized: bool = False  # of sizes that only bitsandbytes (and torchao) takes: the other methods leave it whole
    kv_heads: int | None = None  # for `qkv`
    head_size: int | None = None  # for `qkv`
    dtype: str | None = None  # None: the model's dtype; else e.g. "float32"
    repeat: int = 1
    # For `column`: output i is cut into min(TP, max_shards[i]) pieces and copied beyond that (Mamba-2's B and C groups);
    # 0 or an empty tuple: no bound.
    max_shards: tuple[int, ...] = ()
    whole_unless_divides: int | None = None  # heads that TP must divide, else every rank holds the linear whole
    padded_to: int = 1  # a rank's outputs together are padded to a multiple of this
    # Held whole where vLLM splits an expert layer by tokens: expert parallelism with TP and data parallelism both above 1.
    is_whole_in_sequence_parallel: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The routed experts of one layer, fused by vLLM into w13 `[E, 2*I, H]` (or `[E, I, H]` ungated) and w2 `[E, H, I]`."""

    name: str
    num_experts: int
    hidden_size: int
    intermediate_size: int
    top_k: int
    prefixes: tuple[str, ...]
    is_gated: bool = True
    has_bias: bool = False
    quantizable: bool = True
    repeat: int = 1
    role: Role = "experts"
    least_shard: int = 1  # an expert cut over ranks is padded to at least this width on each


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A parameter that is not a linear weight: a norm, a convolution, a state vector. `shard_dim` is divided by TP."""

    name: str
    role: Role
    shape: tuple[int, ...]
    shard_dim: int | None = None
    dtype: str | None = None
    repeat: int = 1
    max_shards: int = 0  # cut into min(TP, max_shards) pieces and copied beyond that; 0: no bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """A vocabulary table (`role` embedding or head). `is_padded`: rows rounded up to 64 and divided by TP, else replicated whole."""

    name: str
    role: Role
    num_rows: int
    dim: int
    is_padded: bool = True
    is_sharded: bool = True
    has_bias: bool = False
    quantizable: bool = False
    prefixes: tuple[str, ...] = ()
    dtype: str | None = None
    repeat: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A tensor that is no parameter and no checkpoint tensor but is allocated while loading: a rotary cache, a mask.

    `shape[shard_dim]` is divided by TP, but for the last `grouped_size` of it, which is cut into at most `num_groups` pieces.
    `is_shared`: a rank holds it once, however many of its layers name it (rotary caches that only some layers use).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str | None = None
    repeat: int = 1
    is_shared: bool = False
    shard_dim: int | None = None
    grouped_size: int = 0
    num_groups: int = 0
    is_per_batched_token: bool = False  # one copy a token of max_num_batched_tokens; no module registers it


Module = Linear | Experts | Tensor | Embedding | Buffer

CacheKind = Literal[
    "full",
    "sliding",
    "chunked",
    "mla",
    "indexer",
    "index_keys",
    "mamba1",
    "mamba2",
    "gdn",
    "linear_attention",
    "short_conv",
    "kda",
    "cross",
    "encoder_only",
    "shared",
    "none",
    "deepseek_v4",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTensor:
    """One recurrent state tensor of a layer for one sequence, whole model: `shape[shard_dim]` is divided by TP.

    `conv_extra_dim` names the axis that grows by one per speculative token (the convolution window), if any.
    `dtype_rule`: "conv" or "ssm" (resolved by mamba_cache_dtype / mamba_ssm_cache_dtype) or a dtype name.
    `grouped_size` of `shape[shard_dim]` is cut into min(TP, num_groups) pieces only (Mamba-2's B and C).
    """

    shape: tuple[int, ...]
    shard_dim: int | None
    dtype_rule: str
    conv_extra_dim: int | None = None
    grouped_size: int = 0
    num_groups: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """What one layer keeps per token or per sequence. `kind` "shared" or "none" keeps nothing of its own.

    "index_keys" (MiniMax-M3's block-sparse attention): one bfloat16 vector of `head_size` a token, whole on every rank.
    "indexer" (DSA keys): uint8, `head_size` bytes a token; `extra` has `index_topk`, the width of the int32 buffer
    `[max_num_batched_tokens, index_topk]` that a rank allocates once while loading.
    "deepseek_v4": one of a layer's several caches, told apart by which fields are set. `extra` has `state_bytes`, the
    bytes of one state, and `role` (0 window, 1 compressed keys, 2 indexer keys, 3 compressor state, 4 indexer's
    compressor state). Roles 1 and 2 keep one state per `compress_ratio` tokens in the engine's block size; 0, 3 and 4
    are a `sliding_window` in blocks of `extra["block_size"]` tokens. Pages round up to 576 bytes (fp8_ds_mla; else 512).
    """

    kind: CacheKind
    num_kv_heads: int = 0
    head_size: int = 0
    head_size_v: int | None = None  # None: as head_size
    sliding_window: int | None = None
    chunk_size: int | None = None
    states: tuple[StateTensor, ...] = ()
    compress_ratio: int | None = None  # DeepSeek-V4
    extra: tuple[tuple[str, int], ...] = ()  # family-specific integers, by name


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layer:
    """One decoder layer. Equal layers share one `modules` tuple object, so that work per tuple is done once.

    `prefix` is the checkpoint's name of the layer ("model.layers.17"); `caches` may hold several (attention + indexer).
    """

    index: int
    prefix: str
    modules: tuple[Module, ...]
    caches: tuple[Cache, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """Modules outside the decoder layers (embedding, head, final norm, encoders, rotary caches) and where PP puts them.

    A tower names its `modalities`: vLLM leaves it out where the prompt may hold none of any of them
    (`--limit-mm-per-prompt` zero, `--language-model-only`). `whole_unless_divides`: heads that TP must divide, else every
    rank holds the part whole.
    """

    prefix: str
    stage: Stage
    modules: tuple[Module, ...]
    caches: tuple[Cache, ...] = ()  # e.g. an encoder-decoder's
    modalities: tuple[str, ...] = ()
    whole_unless_divides: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTensor:
    """One tensor of a safetensors or GGUF header: nothing but its name, dtype and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelDocuments:
    """The files a model is known by, as text or headers: what any source (catalogue, Hub, folder, upload) must yield."""

    model_id: str
    config_json: str
    hf_quant_config_json: str | None = None
    generation_max_length: int | None = None
    tokenizer_max_length: int | None = None  # tokenizer_config.json model_max_length, where sane
    tensors: tuple[CheckpointTensor, ...] | None = None
    checkpoint_total_bytes: int | None = None  # the index's total_size, or the sum over headers
    is_config_complete: bool = True
    source: str = ""  # said to the reader: "offline catalogue: …", "Hugging Face Hub: ID at REVISION"
    revision: str | None = None
    gguf_metadata_json: str | None = None
    is_sentence_transformer: bool = False  # modules.json lists a pooling module: vLLM builds no head
    draft: ModelDocuments | None = None  # of the draft model that goes with it, where the source says which


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantFacts:
    """A checkpoint's quantisation: `method` as vLLM names it, `settings` the config as parsed JSON (never changed)."""

    method: str
    settings: dict[str, object] = field(default_factory=dict)
    source: str = "config.json"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EncoderFacts:
    """A multimodal encoder: enough to estimate its activation and its token budget."""

    modality: Literal["image", "audio", "video"]
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    patch_tokens_per_item: int  # encoder tokens of the largest item
    output_tokens_per_item: int  # text-side tokens of the largest item


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelFacts:
    """All that planning needs to know of a model; made once by `model_config.read_model`, compared by identity."""

    model_id: str
    architecture: str  # as vLLM's registry names it
    model_type: str
    dtype: str  # the config's: "bfloat16", "float16", "float32"
    hidden_size: int
    intermediate_size: int  # the widest dense MLP (or one expert's when there is none)
    vocab_size: int
    num_attention_heads: int
    max_position: int  # vLLM's derived longest length
    layers: tuple[Layer, ...]
    parts: tuple[Part, ...]
    quantization: QuantFacts | None
    is_mla: bool = False
    is_hybrid: bool = False  # attention + recurrent state
    is_multimodal: bool = False
    is_encoder_decoder: bool = False
    is_moe: bool = False
    has_mtp: bool = False  # checkpoint holds MTP layers that load only for speculative decoding
    ties_embeddings: bool = False
    encoders: tuple[EncoderFacts, ...] = ()
    draft_layers: tuple[Layer, ...] = ()  # the checkpoint's own MTP layers, built only when asked for
    draft_parts: tuple[Part, ...] = ()
    max_encoder_tokens: int = 0  # encoder-decoder: tokens of the longest encoder input
    mla_nope_head_dim: int = 0
    mla_v_head_dim: int = 0
    kv_lora_rank: int = 0
    qk_rope_head_dim: int = 0
    config: dict[str, object] = field(default_factory=dict)  # parsed config.json, for reference
    text_config: dict[str, object] = field(default_factory=dict)
    documents: ModelDocuments | None = None
    findings: tuple[Finding, ...] = ()
    draft: ModelFacts | None = None  # the model that a speculative config names, where its config is known
