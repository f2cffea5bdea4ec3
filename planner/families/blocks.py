"""Pieces that many families share: attention, MLPs, norms, vocabulary tables and runs of layers.

A builder composes these; what is particular to one model class stays in that family's module. Rotary caches are in `rope`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from planner.config_view import ConfigView
from planner.inventory import Buffer, Cache, Embedding, Layer, Linear, Module, Part, Role, Stage, Tensor

# Every vLLM attention layer registers k, v, q and probability scales of one float32 each, quantised or not (0.32, 0.33).
ATTENTION_SCALES = "attention_scales"
MLA_SCALES = "mla_attention_scales"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """The sizes of one attention layer, whole model. `qk_norm`: a norm over each head, over all heads together, or none."""

    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    head_size_v: int | None = None
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: str | None = None  # None, "head" (size head_size), "full" (heads x head_size, on every rank), "sharded"

    @property
    def q_size(self) -> int:
        """Outputs of the query projection."""
        return self.num_heads * self.head_size

    @property
    def kv_size(self) -> int:
        """Outputs of the key projection."""
        return self.num_kv_heads * self.head_size


def attention_shape(text: ConfigView, **changes: object) -> AttentionShape:
    """The attention sizes that a Llama-like config names; `changes` replace fields of the result."""
    hidden = text.integer("hidden_size", "n_embd", "d_model")
    heads = text.integer("num_attention_heads", "n_head", "n_heads")
    head_size = text.optional_integer("head_dim") or hidden // heads
    shape = AttentionShape(
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=text.integer("num_key_value_heads", default=heads),
        head_size=head_size,
    )
    return replace(shape, **changes)  # type: ignore[arg-type]  # names are checked by `replace` itself


def attention(
    shape: AttentionShape,
    *,
    prefix: str = "self_attn",
    qkv: tuple[str, ...] = ("q_proj", "k_proj", "v_proj"),
    output: str = "o_proj",
    fused: str = "qkv_proj",
) -> tuple[Module, ...]:
    """Fused QKV, output projection, the norms of Q and K and the scale buffers of one attention layer."""
    value_size = shape.num_kv_heads * (shape.head_size_v or shape.head_size)
    modules: list[Module] = [
        Linear(
            name=f"{prefix}.{fused}",
            role="attention",
            in_features=shape.hidden_size,
            out_features=(shape.q_size, shape.kv_size, value_size),
            parallel="qkv",
            prefixes=tuple(f"{prefix}.{name}" for name in qkv),
            has_bias=shape.qkv_bias,
            kv_heads=shape.num_kv_heads,
            head_size=shape.head_size,
        ),
        row_linear(
            f"{prefix}.{output}",
            shape.num_heads * (shape.head_size_v or shape.head_size),
            shape.hidden_size,
            role="attention",
            has_bias=shape.output_bias,
        ),
        *_qk_norms(shape, prefix),
        attention_scales(),
    ]
    return tuple(modules)


def _qk_norms(shape: AttentionShape, prefix: str) -> tuple[Tensor, ...]:
    if shape.qk_norm is None:
        return ()
    names = (f"{prefix}.q_norm", f"{prefix}.k_norm")
    if shape.qk_norm == "head":
        return tuple(Tensor(name=name, role="norm", shape=(shape.head_size,)) for name in names)
    is_sharded = shape.qk_norm == "sharded"
    sizes = ((shape.q_size, 0), (shape.kv_size, shape.num_kv_heads))
    return tuple(
        Tensor(
            name=name, role="norm", shape=(size,), shard_dim=0 if is_sharded else None, max_shards=heads * is_sharded
        )
        for name, (size, heads) in zip(names, sizes, strict=True)
    )


def attention_scales(*, is_mla: bool = False, repeat: int = 1) -> Buffer:
    """The four float32 scalars that one attention layer keeps as buffers."""
    return Buffer(name=MLA_SCALES if is_mla else ATTENTION_SCALES, shape=(1,), dtype="float32", repeat=4 * repeat)


def column_linear(name: str, size_in: int, *sizes_out: int, role: Role = "mlp", has_bias: bool = False) -> Linear:
    """A linear whose outputs are divided by TP."""
    return Linear(
        name=name,
        role=role,
        in_features=size_in,
        out_features=sizes_out,
        parallel="column",
        prefixes=(name,),
        has_bias=has_bias,
    )


def row_linear(name: str, size_in: int, size_out: int, *, role: Role = "mlp", has_bias: bool = False) -> Linear:
    """A linear whose inputs are divided by TP; its bias is whole on every rank."""
    return Linear(
        name=name,
        role=role,
        in_features=size_in,
        out_features=(size_out,),
        parallel="row",
        prefixes=(name,),
        has_bias=has_bias,
    )


def replicated_linear(name: str, size_in: int, *sizes_out: int, role: Role, has_bias: bool = False) -> Linear:
    """A linear that every rank holds whole."""
    return Linear(
        name=name,
        role=role,
        in_features=size_in,
        out_features=sizes_out,
        parallel="replicated",
        prefixes=(name,),
        has_bias=has_bias,
    )


def gated_mlp(  # noqa: PLR0913 - two sizes, then what is odd by keyword
    hidden_size: int,
    intermediate_size: int,
    *,
    prefix: str = "mlp",
    has_bias: bool = False,
    role: Role = "mlp",
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
) -> tuple[Linear, Linear]:
    """Gate and up fused into one column-parallel linear, then a row-parallel down projection."""
    gate, up, down = names
    fused = Linear(
        name=f"{prefix}.gate_up_proj",
        role=role,
        in_features=hidden_size,
        out_features=(intermediate_size, intermediate_size),
        parallel="column",
        prefixes=tuple(dict.fromkeys((f"{prefix}.{gate}", f"{prefix}.{up}"))),
        has_bias=has_bias,
    )
    return fused, row_linear(f"{prefix}.{down}", intermediate_size, hidden_size, role=role, has_bias=has_bias)


def plain_mlp(  # noqa: PLR0913 - two sizes, then what is odd by keyword
    hidden_size: int, intermediate_size: int, *, up: str, down: str, has_bias: bool, role: Role = "mlp"
) -> tuple[Linear, Linear]:
    """A column-parallel linear, an activation, a row-parallel linear. `up` and `down` are their whole names."""
    return (
        column_linear(up, hidden_size, intermediate_size, role=role, has_bias=has_bias),
        row_linear(down, intermediate_size, hidden_size, role=role, has_bias=has_bias),
    )


def norm(name: str, size: int, *, has_weight: bool = True, has_bias: bool = False) -> tuple[Tensor, ...]:
    """A norm's weight and bias as parameters, whole on every rank."""
    parts = (("", has_weight), (".bias", has_bias))
    return tuple(Tensor(name=f"{name}{suffix}", role="norm", shape=(size,)) for suffix, is_there in parts if is_there)


def layer_norms(hidden_size: int, *names: str, has_bias: bool = False) -> tuple[Tensor, ...]:
    """One norm of the hidden size per name."""
    return tuple(tensor for name in names for tensor in norm(name, hidden_size, has_bias=has_bias))


NO_CACHE = Cache(kind="encoder_only")  # attention over the whole input at once


def kv_cache(shape: AttentionShape, sliding_window: int | None = None) -> Cache:
    """The layer's cache: full attention, or a sliding window of that many tokens."""
    return Cache(
        kind="sliding" if sliding_window else "full",
        num_kv_heads=shape.num_kv_heads,
        head_size=shape.head_size,
        head_size_v=shape.head_size_v,
        sliding_window=sliding_window,
    )


def build_layers(
    num_layers: int, prefix: str, build: Callable[[int], tuple[tuple[Module, ...], tuple[Cache, ...]]]
) -> tuple[Layer, ...]:
    """`num_layers` layers from `build(index)`, equal module tuples being one object."""
    interned: dict[tuple[Module, ...], tuple[Module, ...]] = {}
    layers = []
    for index in range(num_layers):
        modules, caches = build(index)
        layers.append(
            Layer(index=index, prefix=f"{prefix}.{index}", modules=interned.setdefault(modules, modules), caches=caches)
        )
    return tuple(layers)


def same_layers(num_layers: int, prefix: str, modules: tuple[Module, ...], *caches: Cache) -> tuple[Layer, ...]:
    """`num_layers` layers that are all alike."""
    return build_layers(num_layers, prefix, lambda _: (modules, caches))


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The embedding and the head of a decoder: names in the checkpoint, and which pipeline stages build them.

    `is_on_every_stage`: the model class builds both tables without asking for its pipeline rank.
    """

    num_rows: int
    dim: int
    ties: bool
    embedding: str = "model.embed_tokens"
    head: str = "lm_head"
    head_bias: bool = False
    embedding_on_every_stage: bool = False
    head_on_every_stage: bool = False

    def parts(self) -> tuple[Part, ...]:
        """Embedding and head. Tied, there is one table, which the first and the last stage each hold."""
        embedding_stage: Stage = "first_and_last" if self.ties else "first"
        if self.embedding_on_every_stage:
            embedding_stage = "every"
        parts = [self._part(self.embedding, "embedding", embedding_stage)]
        if not self.ties:
            parts.append(self._part(self.head, "head", "every" if self.head_on_every_stage else "last"))
        elif self.head_on_every_stage and not self.embedding_on_every_stage:
            parts[0] = self._part(self.embedding, "embedding", "every")
        if self.ties and self.head_bias:
            parts.append(self._tied_bias())
        return tuple(parts)

    def _part(self, name: str, role: Role, stage: Stage) -> Part:
        table = Embedding(
            name=name,
            role=role,
            num_rows=self.num_rows,
            dim=self.dim,
            has_bias=self.head_bias and role == "head",
            quantizable=role == "head",
            prefixes=(name,),
        )
        return Part(prefix="", stage=stage, modules=(table,))

    def _tied_bias(self) -> Part:
        bias = Tensor(name=f"{self.head}.bias", role="head", shape=(-(-self.num_rows // 64) * 64,), shard_dim=0)
        return Part(prefix="", stage="last", modules=(bias,))


def vocabulary(text: ConfigView, *, ties: bool, **changes: object) -> Vocabulary:
    """The usual tables: `vocab_size` rows of `hidden_size`."""
    table = Vocabulary(
        num_rows=text.integer("vocab_size"), dim=text.integer("hidden_size", "n_embd", "d_model"), ties=ties
    )
    return replace(table, **changes)  # type: ignore[arg-type]  # names are checked by `replace` itself


def final_norm(hidden_size: int, *, name: str = "model.norm", has_bias: bool = False, stage: Stage = "last") -> Part:
    """The norm before the head."""
    return Part(prefix="", stage=stage, modules=norm(name, hidden_size, has_bias=has_bias))
