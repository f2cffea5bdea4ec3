"""DFlash and DFlash2 drafts: a few Qwen3 layers that read hidden states of the target and draft a block at once.

Embedding and head are the target's. Read in vLLM 0.33, qwen3_dflash.py and qwen3_dflash2.py.
"""

from __future__ import annotations

from planner.config_view import ConfigView
from planner.facts import PlanError
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import (
    AttentionShape,
    attention,
    attention_shape,
    build_layers,
    gated_mlp,
    kv_cache,
    layer_norms,
    replicated_linear,
)
from planner.families.draft_layers import draft_vocabulary
from planner.families.rope import rope_cache
from planner.inventory import Buffer, Linear, Module, Part, Tensor

_SLIDING = "sliding_attention"


def _settings(text: ConfigView) -> ConfigView:
    return text.section("dflash_config") or ConfigView({}, "dflash_config.")


def num_hidden_states_read(text: ConfigView) -> int:
    """How many of the target's hidden states the draft reads: those that it lists, else one a layer of its own."""
    listed = text.items("eagle_aux_hidden_state_layer_ids") or _settings(text).items("target_layer_ids")
    return len(listed or _settings(text).items("layer_ids") or ()) or text.integer("num_hidden_layers")


def _window(text: ConfigView, index: int) -> int | None:
    """The sliding window of layer `index`, or None for full attention."""
    settings = _settings(text)
    kinds = text.items("layer_types")
    uses_window = settings.flag("use_swa", default=False)
    is_sliding = uses_window if not kinds or (uses_window and _SLIDING not in kinds) else kinds[index] == _SLIDING
    if not is_sliding:
        return None
    window = settings.optional_integer("swa_window_size") or text.optional_integer("sliding_window")
    if window is None:
        raise PlanError("sliding_window", None, "config.json: the draft's sliding layers need sliding_window.")
    return window


def _convolutions(text: ConfigView) -> tuple[Module, ...]:
    """DFlash2's two grouped convolutions of a layer: a kernel each, and what each token adds to it."""
    width, settings = text.integer("hidden_size"), _settings(text)
    taps, group = settings.integer("conv_kernel_size"), settings.integer("conv_group_size")
    modules: list[Module] = []
    for name in ("attention_conv", "mlp_conv"):
        modules.append(Tensor(name=f"{name}.base_kernel", role="draft", shape=(2, taps, width)))
        outputs = 2 * taps * (width // group)
        modules.append(replicated_linear(f"{name}.kernel_projection", width, outputs, role="draft"))
    return tuple(modules)


def _selector(text: ConfigView) -> tuple[Module, ...]:
    """DFlash2's candidate selector: two codebooks over the vocabulary, whole on every rank."""
    rank, shape = _settings(text).integer("selector_rank"), text.integer("vocab_size")
    books = (f"candidate_selector.{name}_codebook" for name in ("predecessor", "successor"))
    projection = Linear(
        name="candidate_selector.hidden_projection",
        role="draft",
        in_features=text.integer("hidden_size"),
        out_features=(rank,),
        parallel="replicated",
        prefixes=("candidate_selector.hidden_projection",),
        quantizable=False,
    )
    return (*(Tensor(name=name, role="draft", shape=(shape, rank)) for name in books), projection)


def _fused_projections(shape: AttentionShape, num_layers: int) -> Buffer:
    """The copies of all layers' K and V projections that vLLM fuses after loading, where they are not quantised."""
    rows = 2 * shape.kv_size * num_layers
    return Buffer(
        name="fused_kv_weight",
        shape=(rows, shape.hidden_size),
        shard_dim=0,
        grouped_size=rows,
        num_groups=shape.num_kv_heads,
    )


def _inputs(text: ConfigView, width: int) -> tuple[Module, ...]:
    size_in = text.integer("target_hidden_size", default=width) * num_hidden_states_read(text)
    projection = (replicated_linear("fc", size_in, width, role="draft"),)
    has_projection = _settings(text).flag("use_aux_hidden_state", default=text.flag("use_aux_hidden_state", True))
    mask = Tensor(name="mask_embedding", role="draft", shape=(width,))
    return (*(projection if has_projection else ()), mask, *layer_norms(width, "hidden_norm", "norm"))


def build_dflash(given: FamilyInput) -> Built:
    """A DFlash draft (DFlash2: with convolutions and a candidate selector) by itself."""
    text, is_second = given.text, given.architecture.startswith("DFlash2")
    shape = attention_shape(
        text,
        qkv_bias=text.flag("attention_bias", default=False),
        output_bias=text.flag("attention_bias", default=False),
        qk_norm="head",
    )
    width, num_layers = shape.hidden_size, text.integer("num_hidden_layers")
    common: tuple[Module, ...] = (
        *attention(shape),
        *gated_mlp(width, text.integer("intermediate_size")),
        *layer_norms(width, "input_layernorm", "post_attention_layernorm"),
        *(_convolutions(text) if is_second else ()),
        rope_cache(text, shape.head_size),
    )
    modules = (*_inputs(text, width), *(_selector(text) if is_second else ()))
    modules += draft_vocabulary(text, width, text.integer("vocab_size"))
    if not given.is_quantized:
        modules += (_fused_projections(shape, num_layers),)
    return Built(
        layers=build_layers(
            num_layers, "model.layers", lambda index: (common, (kv_cache(shape, _window(text, index)),))
        ),
        parts=(Part(prefix="", stage="last", modules=modules),),
        intermediate_size=text.integer("intermediate_size"),
    )


BUILDERS: dict[str, Builder] = dict.fromkeys(("DFlashDraftModel", "DFlash2DraftModel"), build_dflash)
