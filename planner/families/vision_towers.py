"""Vision encoders shared by many models: CLIP, SigLIP, Pixtral, InternViT, MoonViT, and the stack of blocks all of them are.

Each function gives the tower's modules as vLLM 0.33 builds them; blocks that are alike are one module with a `repeat`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from planner.config_view import ConfigView
from planner.families.blocks import column_linear, norm, replicated_linear, row_linear
from planner.inventory import Buffer, Linear, Module, Role, Tensor

_SIGLIP_MULTIPLE = 64  # both sizes of SigLIP's MLP must be multiples of it to be quantised


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderStack:
    """`depth` equal encoder blocks: attention, MLP and two norms, with the names and biases one model class gives them.

    `is_sharded`: vLLM's parallel linears; else the blocks are whole on every rank. `extras` are further tensors of each block.
    """

    depth: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    prefix: str
    head_size: int | None = None
    num_kv_heads: int | None = None  # None: one for each query head
    qkv: str = "self_attn.qkv_proj"
    projections: tuple[str, ...] = ()
    output: str = "self_attn.out_proj"
    up: str = "mlp.fc1"
    down: str = "mlp.fc2"
    gate: str | None = None  # of a gated MLP: the gate projection's own name in the checkpoint
    norms: tuple[str, ...] = ("layer_norm1", "layer_norm2")
    has_qkv_bias: bool = True
    has_output_bias: bool = True
    has_mlp_bias: bool = True
    norms_have_bias: bool = True
    is_sharded: bool = True
    is_quantizable: bool = True
    is_mlp_odd_sized: bool = False
    role: Role = "vision"
    extras: tuple[Tensor | Buffer, ...] = ()
    attention_whole_unless_divides: int | None = None

    def modules(self) -> tuple[Module, ...]:
        """The modules of all blocks."""
        made = (*self._attention(), *self._mlp(), *self._norms(), *self.extras)
        return tuple(self._repeated(module) for module in made)

    def _repeated(self, module: Module) -> Module:
        name = f"{self.prefix}.0.{module.name}"
        if isinstance(module, Linear):
            prefixes = tuple(f"{self.prefix}.0.{prefix}" for prefix in module.prefixes)
            parallel = module.parallel if self.is_sharded else "replicated"
            return replace(
                module,
                name=name,
                prefixes=prefixes,
                parallel=parallel,
                quantizable=self.is_quantizable,
                role=self.role,
                repeat=self.depth,
            )
        return replace(module, name=name, repeat=self.depth * module.repeat)

    def _attention(self) -> tuple[Linear, Linear]:
        size = self.head_size or self.hidden_size // self.num_heads
        width, kv_heads = self.num_heads * size, self.num_kv_heads or self.num_heads
        fused = Linear(
            name=self.qkv,
            role=self.role,
            in_features=self.hidden_size,
            out_features=(width, kv_heads * size, kv_heads * size),
            parallel="qkv",
            prefixes=self.projections or (self.qkv,),
            has_bias=self.has_qkv_bias,
            kv_heads=kv_heads,
            head_size=size,
            whole_unless_divides=self.attention_whole_unless_divides,
        )
        output = row_linear(self.output, width, self.hidden_size, has_bias=self.has_output_bias)
        return fused, replace(output, whole_unless_divides=self.attention_whole_unless_divides)

    def _mlp(self) -> tuple[Linear, Linear]:
        sizes = (self.intermediate_size,) * (2 if self.gate else 1)
        up = column_linear(self.up, self.hidden_size, *sizes, has_bias=self.has_mlp_bias)
        if self.gate:
            up = replace(up, prefixes=(self.gate, self.up))
        down = row_linear(self.down, self.intermediate_size, self.hidden_size, has_bias=self.has_mlp_bias)
        return replace(up, is_odd_sized=self.is_mlp_odd_sized), replace(down, is_odd_sized=self.is_mlp_odd_sized)

    def _norms(self) -> tuple[Tensor, ...]:
        return tuple(
            tensor for name in self.norms for tensor in norm(name, self.hidden_size, has_bias=self.norms_have_bias)
        )


def vision_tensor(name: str, *shape: int, role: Role = "vision", repeat: int = 1) -> Tensor:
    """A tower's parameter that every rank holds whole."""
    return Tensor(name=name, role=role, shape=shape, repeat=repeat)


def plain_linear(
    name: str, size_in: int, size_out: int, *, role: Role = "projector", has_bias: bool = True
) -> tuple[Tensor, ...]:
    """A torch linear: whole on every rank and never quantised."""
    weight = Tensor(name=f"{name}.weight", role=role, shape=(size_out, size_in))
    bias = Tensor(name=f"{name}.bias", role=role, shape=(size_out,))
    return (weight, bias) if has_bias else (weight,)


def pair(value: object, view: ConfigView, name: str) -> int:
    """`name` as one integer, also where the config holds a list of two equal ones."""
    if isinstance(value, list) and value:
        return ConfigView({name: value[0]}, view.path).integer(name)
    return view.integer(name)


def patch_count(view: ConfigView) -> int:
    """Patches of the square image a fixed-size tower takes."""
    image = pair(view.values.get("image_size"), view, "image_size")
    patch = pair(view.values.get("patch_size"), view, "patch_size")
    return (image // patch) ** 2


def _patches(view: ConfigView, hidden: int, name: str, *, has_bias: bool, frames: int = 1) -> tuple[Tensor, ...]:
    patch = pair(view.values.get("patch_size"), view, "patch_size")
    channels = view.integer("num_channels", "in_channels", "in_chans", default=3)
    weight = vision_tensor(f"{name}.weight", hidden, channels * frames * patch * patch)
    return (weight, vision_tensor(f"{name}.bias", hidden)) if has_bias else (weight,)


def clip_like_depth(view: ConfigView, feature_layers: object) -> int:
    """How many layers vLLM builds of a CLIP or SigLIP tower: up to the last one whose output is read."""
    depth = view.integer("num_hidden_layers")
    layers = feature_layers if isinstance(feature_layers, list) else [feature_layers]
    needed = [layer + depth + 1 if layer < 0 else layer for layer in layers if isinstance(layer, int)]
    return min(depth, max(needed, default=depth))


def clip_tower(view: ConfigView, feature_layers: object = None, *, has_last_norm: bool = False) -> tuple[Module, ...]:
    """CLIP's vision transformer, up to the last layer that is read."""
    hidden, depth = view.integer("hidden_size"), clip_like_depth(view, feature_layers)
    positions = patch_count(view) + 1
    return (
        vision_tensor("embeddings.class_embedding", hidden),
        *_patches(view, hidden, "embeddings.patch_embedding", has_bias=False),
        vision_tensor("embeddings.position_embedding", positions, hidden),
        Buffer(name="embeddings.position_ids", shape=(1, positions), dtype="int64"),
        *norm("pre_layrnorm", hidden, has_bias=True),
        *_clip_stack(view, depth).modules(),
        *(norm("post_layernorm", hidden, has_bias=True) if has_last_norm else ()),
    )


def _clip_stack(view: ConfigView, depth: int) -> EncoderStack:
    parts = tuple(f"self_attn.{name}_proj" for name in "qkv")
    return EncoderStack(
        depth=depth,
        hidden_size=view.integer("hidden_size"),
        intermediate_size=view.integer("intermediate_size"),
        num_heads=view.integer("num_attention_heads"),
        prefix="encoder.layers",
        projections=parts,
    )


def siglip_tower(
    view: ConfigView, feature_layers: object = None, *, has_last_norm: bool = False, has_position_ids: bool = True
) -> tuple[Module, ...]:
    """SigLIP's vision transformer (and Idefics3's, which keeps no position ids)."""
    hidden, positions = view.integer("hidden_size"), patch_count(view)
    ids = (Buffer(name="embeddings.position_ids", shape=(1, positions), dtype="int64"),) if has_position_ids else ()
    stack = _clip_stack(view, clip_like_depth(view, feature_layers))
    is_odd = any(size % _SIGLIP_MULTIPLE for size in (stack.hidden_size, stack.intermediate_size))
    stack = replace(stack, is_mlp_odd_sized=is_odd and has_position_ids)  # Idefics's class quantises what it can
    return (
        *_patches(view, hidden, "embeddings.patch_embedding", has_bias=True),
        vision_tensor("embeddings.position_embedding", positions, hidden),
        *ids,
        *stack.modules(),
        *(norm("post_layernorm", hidden, has_bias=True) if has_last_norm else ()),
    )


def pixtral_tower(view: ConfigView, feature_layers: object = None) -> tuple[Module, ...]:
    """Pixtral's vision transformer in its Hugging Face form."""
    hidden, heads = view.integer("hidden_size"), view.integer("num_attention_heads")
    size = view.integer("head_dim", default=hidden // heads)
    stack = EncoderStack(
        depth=clip_like_depth(view, feature_layers),
        hidden_size=hidden,
        intermediate_size=view.integer("intermediate_size"),
        num_heads=heads,
        head_size=size,
        prefix="transformer.layers",
        qkv="attention.qkv_proj",
        projections=tuple(f"attention.{name}_proj" for name in "qkv"),
        output="attention.o_proj",
        up="feed_forward.up_proj",
        gate="feed_forward.gate_proj",
        down="feed_forward.down_proj",
        norms=("attention_norm", "ffn_norm"),
        has_qkv_bias=False,
        has_output_bias=False,
        has_mlp_bias=False,
        norms_have_bias=False,
    )
    return (
        *_patches(view, hidden, "patch_conv", has_bias=False),
        *norm("ln_pre", hidden),
        *stack.modules(),
        Buffer(name="patch_positional_embedding.inv_freq", shape=(size // 2,), dtype="float32", repeat=2),
    )


def intern_tower(view: ConfigView, feature_layer: int = -1) -> tuple[Module, ...]:
    """InternViT as InternVL's own checkpoints hold it, up to the layer that is read; attention is whole where TP cannot cut it."""
    hidden, depth = view.integer("hidden_size"), view.integer("num_hidden_layers")
    heads = view.integer("num_attention_heads")
    extras: tuple[Tensor, ...] = (vision_tensor("ls1", hidden), vision_tensor("ls2", hidden))
    if view.flag("qk_normalization", False):
        extras += (*norm("attn.q_norm", hidden), *norm("attn.k_norm", hidden))
    stack = EncoderStack(
        depth=feature_layer + (depth + 1 if feature_layer < 0 else 1),
        hidden_size=hidden,
        intermediate_size=view.integer("intermediate_size"),
        num_heads=heads,
        prefix="encoder.layers",
        qkv="attn.qkv",
        output="attn.proj",
        norms=("norm1", "norm2"),
        has_qkv_bias=view.flag("qkv_bias", True),
        norms_have_bias=view.text("norm_type", "rms_norm") == "layer_norm",
        extras=extras,
        attention_whole_unless_divides=heads,
    )
    return (
        vision_tensor("embeddings.class_embedding", hidden),
        *_patches(view, hidden, "embeddings.patch_embedding", has_bias=True),
        vision_tensor("embeddings.position_embedding", patch_count(view) + 1, hidden),
        *stack.modules(),
    )


def intern_hf_tower(view: ConfigView) -> tuple[Module, ...]:
    """InternViT in its Hugging Face form: attention on every rank, MLP divided."""
    hidden, depth = view.integer("hidden_size"), view.integer("num_hidden_layers")
    wide, has_bias = view.integer("intermediate_size"), view.flag("attention_bias", False)
    block: list[Module] = [
        *(linear for name in "qkv" for linear in _whole(f"attention.{name}_proj", hidden, has_bias=has_bias)),
        *_whole("attention.projection_layer", hidden, has_bias=True),
        column_linear("mlp.fc1", hidden, wide, role="vision", has_bias=True),
        row_linear("mlp.fc2", wide, hidden, role="vision", has_bias=True),
        vision_tensor("lambda_1", hidden),
        vision_tensor("lambda_2", hidden),
    ]
    if view.flag("use_qk_norm", False):
        block += [*norm("attention.q_norm", hidden), *norm("attention.k_norm", hidden)]
    with_bias = view.text("norm_type", "layer_norm") == "layer_norm"
    block += [
        *norm("layernorm_before", hidden, has_bias=with_bias),
        *norm("layernorm_after", hidden, has_bias=with_bias),
    ]
    positions = patch_count(view) + 1
    has_positions = view.flag("use_absolute_position_embeddings", True)
    return (
        vision_tensor("embeddings.cls_token", hidden),
        *(vision_tensor("embeddings.position_embeddings", positions, hidden) for _ in range(has_positions)),
        *_patches(view, hidden, "embeddings.patch_embeddings.projection", has_bias=True),
        *repeated("encoder.layer", depth, block),
    )


def _whole(name: str, size: int, *, has_bias: bool) -> tuple[Linear, ...]:
    return (replicated_linear(name, size, size, role="vision", has_bias=has_bias),)


def repeated(prefix: str, depth: int, modules: Iterable[Module]) -> tuple[Module, ...]:
    """Each of `modules` once per block of a stack of `depth`."""
    made: list[Module] = []
    for module in modules:
        name = f"{prefix}.0.{module.name}"
        if isinstance(module, Linear):
            prefixes = tuple(f"{prefix}.0.{part}" for part in module.prefixes)
            made.append(replace(module, name=name, prefixes=prefixes, repeat=depth))
        else:
            made.append(replace(module, name=name, repeat=depth * module.repeat))
    return tuple(made)


def moonvit_tower(view: ConfigView, *, is_sharded: bool = True) -> tuple[Module, ...]:
    """MoonViT, the tower of Kimi-VL, Kimi-K2.5 and, with heads of their own width and RMS norms, Kimi-K3."""
    hidden, heads = (
        view.integer("hidden_size", "vt_hidden_size"),
        view.integer("num_attention_heads", "vt_num_attention_heads"),
    )
    height = view.integer("init_pos_emb_height", default=64)
    width = view.integer("init_pos_emb_width", default=64)
    has_norm_bias = view.text("norm_type", "layernorm") == "layernorm"
    stack = EncoderStack(
        depth=view.integer("num_hidden_layers", "vt_num_hidden_layers"),
        hidden_size=hidden,
        intermediate_size=view.integer("intermediate_size", "vt_intermediate_size"),
        num_heads=heads,
        head_size=view.integer("qkv_hidden_size", default=hidden) // heads,
        prefix="encoder.blocks",
        qkv="wqkv",
        output="wo",
        up="mlp.fc0",
        down="mlp.fc1",
        norms=("norm0", "norm1"),
        norms_have_bias=has_norm_bias,
        has_qkv_bias=view.flag("attn_bias", default=True),
        has_output_bias=view.flag("attn_bias", default=True),
        has_mlp_bias=view.flag("linear_bias", default=True),
        is_sharded=is_sharded,
    )
    return (
        *_patches(view, hidden, "patch_embed.proj", has_bias=view.flag("patch_embed_proj_bias", default=True)),
        vision_tensor("patch_embed.pos_emb", height, width, hidden),
        *stack.modules(),
        *norm("encoder.final_layernorm", hidden, has_bias=has_norm_bias),
    )
