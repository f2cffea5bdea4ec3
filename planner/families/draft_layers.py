"""Draft layers for speculative decoding: a checkpoint's own MTP layers, and the shapes of EAGLE and EAGLE-3 drafts."""

from __future__ import annotations

from collections.abc import Callable

from planner.config_view import ConfigView
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import (
    attention,
    attention_shape,
    gated_mlp,
    kv_cache,
    layer_norms,
    norm,
    replicated_linear,
)
from planner.families.rope import rope_cache
from planner.inventory import Cache, Embedding, Layer, Linear, Module, Part, Tensor

NUM_AUX_HIDDEN_STATES = 3  # target layers that EAGLE-3 reads, unless the draft's config lists them


def num_mtp_layers(text: ConfigView) -> int:
    """How many multi-token-prediction layers the checkpoint carries."""
    return text.integer("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", default=0, least=0)


def mtp_layers(
    count: int,
    first_index: int,
    hidden_size: int,
    build: Callable[[int], tuple[tuple[Module, ...], tuple[Cache, ...]]],
) -> tuple[Layer, ...]:
    """MTP layers `[first_index, first_index + count)`: a decoder layer, two input norms, a 2h-to-h projection, a norm.

    Embedding and head are the target's own (vLLM shares them once loaded).
    """
    projection = Linear(
        name="eh_proj",
        role="draft",
        in_features=2 * hidden_size,
        out_features=(hidden_size,),
        parallel="replicated",
        prefixes=("eh_proj",),
        quantizable=False,  # a plain torch linear
    )
    around: tuple[Module, ...] = (projection, *layer_norms(hidden_size, "enorm", "hnorm", "shared_head.norm"))
    layers = []
    for index in range(first_index, first_index + count):
        modules, caches = build(index)
        layers.append(Layer(index=index, prefix=f"model.layers.{index}", modules=modules + around, caches=caches))
    return tuple(layers)


def eagle_draft(
    draft: ConfigView, *, method: str, target_hidden_size: int, target_vocab_size: int
) -> tuple[Layer, ...]:
    """The layers of an EAGLE (`method` "eagle") or EAGLE-3 draft of Llama shape, its input projection in the first.

    EAGLE-3's first layer reads twice the width (token and hidden state); both share the target's embedding.
    """
    qk_norm = "head" if draft.text("model_type") == "qwen3" else None
    shape = attention_shape(draft, qkv_bias=draft.flag("attention_bias", default=False), qk_norm=qk_norm)
    width = shape.hidden_size
    is_third = method == "eagle3"
    layers = []
    for index in range(draft.integer("num_hidden_layers", default=1)):
        modules = attention(shape)
        if is_third and index == 0:
            modules = _doubled_input(modules, width)
        modules += gated_mlp(width, draft.integer("intermediate_size"))
        modules += layer_norms(width, *_eagle_norms(index, is_third=is_third))
        modules += (rope_cache(draft, shape.head_size),)
        if index == 0:
            modules += eagle_inputs(draft, width, target_hidden_size, is_third=is_third)
            modules += draft_vocabulary(draft, width, target_vocab_size) if is_third else ()
        layers.append(Layer(index=index, prefix=f"model.layers.{index}", modules=modules, caches=(kv_cache(shape),)))
    return tuple(layers)


def _doubled_input(modules: tuple[Module, ...], width: int) -> tuple[Module, ...]:
    head = modules[0]
    if not isinstance(head, Linear):
        raise TypeError("attention modules start with the fused QKV linear")
    doubled = Linear(
        name=head.name,
        role="draft",
        in_features=2 * width,
        out_features=head.out_features,
        parallel="qkv",
        prefixes=head.prefixes,
        has_bias=head.has_bias,
        kv_heads=head.kv_heads,
        head_size=head.head_size,
    )
    return (doubled, *modules[1:])


def _eagle_norms(index: int, *, is_third: bool) -> tuple[str, ...]:
    names: tuple[str, ...] = ("post_attention_layernorm",)
    if is_third:
        return (*names, "input_layernorm", "hidden_norm", *(("norm",) if index == 0 else ()))
    return names if index == 0 else (*names, "input_layernorm")


def eagle_inputs(draft: ConfigView, width: int, target_width: int, *, is_third: bool) -> tuple[Module, ...]:
    """The projection of what an EAGLE draft reads from its target down to its own width."""
    size_in = 2 * width
    norms: tuple[Module, ...] = ()
    if is_third:
        count = num_aux_hidden_states(draft)
        size_in = target_width * count
        if (draft.section("eagle_config") or draft).flag("norm_before_fc", draft.flag("norm_before_fc", False)):
            norms = norm("input_norm", size_in)
        if draft.flag("fc_norm", default=False):
            norms += layer_norms(target_width, *(f"fc_norm.{index}" for index in range(count)))
        if not (draft.section("eagle_config") or draft).flag("use_aux_hidden_state", default=True):
            return ()
    return (replicated_linear("fc", size_in, width, role="draft"), *norms)


def num_aux_hidden_states(draft: ConfigView) -> int:
    """How many hidden states of the target an EAGLE-3 draft reads."""
    eagle = draft.section("eagle_config")
    listed = eagle.items("eagle_aux_hidden_state_layer_ids") if eagle else None
    return draft.integer("num_aux_hidden_states", default=len(listed) if listed else NUM_AUX_HIDDEN_STATES)


def draft_vocabulary(draft: ConfigView, width: int, target_vocab_size: int) -> tuple[Module, ...]:
    """EAGLE-3's own head; a smaller draft vocabulary also needs the table that maps it to the target's."""
    rows = draft.integer("draft_vocab_size", default=target_vocab_size)
    head = Embedding(name="lm_head", role="draft", num_rows=rows, dim=width, prefixes=("lm_head",))
    if rows == target_vocab_size:
        return ()
    return head, Tensor(name="draft_id_to_target_id", role="draft", shape=(rows,), dtype="int64")


def _medusa(given: FamilyInput) -> Built:
    """Medusa heads: residual blocks of plain linears, each with a table over the vocabulary (models/medusa.py, 0.27)."""
    text = given.text
    width, num_heads = text.integer("hidden_size"), text.integer("num_heads", "medusa_num_heads", default=5)
    linear = Linear(
        name="blocks.layers",
        role="draft",
        in_features=width,
        out_features=(width,),
        parallel="replicated",
        prefixes=("blocks.layers",),
        has_bias=text.flag("medusa_fc_bias", default=False),
        quantizable=False,
        repeat=num_heads * text.integer("num_hidden_layers", "medusa_num_layers", default=1),
    )
    is_one_table = text.flag("original_lm_head", default=False)
    rows = text.integer("vocab_size", default=32001)
    table = Embedding(
        name="lm_heads",
        role="draft",
        num_rows=text.integer("truncated_vocab_size", default=rows) if is_one_table else rows,
        dim=width,
        repeat=1 if is_one_table else num_heads,
    )
    return Built(layers=(), parts=(Part(prefix="", stage="last", modules=(linear, table)),), intermediate_size=width)


def _eagle(given: FamilyInput) -> Built:
    """An EAGLE or EAGLE-3 draft by itself; its embedding, and EAGLE's head, are the target's and cost nothing here."""
    text = given.text
    method = "eagle" if given.architecture == "EagleLlamaForCausalLM" else "eagle3"
    width = text.integer("target_hidden_size", default=text.integer("hidden_size"))
    layers = eagle_draft(text, method=method, target_hidden_size=width, target_vocab_size=text.integer("vocab_size"))
    return Built(layers=layers, parts=(), intermediate_size=text.integer("intermediate_size"))


_EAGLE_CLASSES = (
    "EagleLlamaForCausalLM",
    "LlamaForCausalLMEagle3",
    "Eagle3LlamaForCausalLM",
    "Eagle3MiniMaxM2ForCausalLM",
    "Eagle3Qwen2_5vlForCausalLM",
    "Eagle3Qwen3vlForCausalLM",
    "PEagleDraftModel",
    "PeagleLlamaForCausalLM",
    "Eagle3Qwen3ForCausalLM",
    "PeagleQwen3ForCausalLM",
)
BUILDERS: dict[str, Builder] = {**dict.fromkeys(_EAGLE_CLASSES, _eagle), "MedusaModel": _medusa}
