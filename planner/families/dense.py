"""Dense decoders that differ little from Llama: what vLLM's class of each architecture changes."""

from __future__ import annotations

from dataclasses import replace

from planner.config_view import ConfigView
from planner.facts import PlanError
from planner.families import Builder, Built, FamilyInput, without_head
from planner.families.blocks import gated_mlp, plain_mlp
from planner.families.dense_classic import CLASSIC_BUILDERS
from planner.families.dense_early import EARLY_BUILDERS
from planner.families.dense_style import (
    Style,
    Windows,
    layer_windows,
    on_every_stage,
    styled,
)
from planner.families.rope import rope_cache, rope_parameters
from planner.inventory import Buffer, Linear, Part, Tensor

llama_like = styled()
_FIRST_MINOR_WITH_QWEN2_MODEL_AS_GENERATOR = 9  # before, a class of its own without a head


def _width(text: ConfigView) -> int:
    return text.integer("intermediate_size")


def _qwen2(text: ConfigView, style: Style) -> Style:
    head_size = style.shape.hidden_size // style.shape.num_heads
    qk_norm = "head" if text.flag("qk_norm", default=False) else None
    shape = replace(style.shape, qkv_bias=True, output_bias=False, qk_norm=qk_norm, head_size=head_size)
    return replace(style, shape=shape, rope=_qwen_rope(text, head_size), windows=_qwen_windows(text))


def _qwen3(text: ConfigView, style: Style) -> Style:
    shape = replace(style.shape, qk_norm="head", output_bias=False)
    return replace(style, shape=shape, rope=_qwen_rope(text, shape.head_size), windows=_qwen_windows(text))


def _qwen_windows(text: ConfigView) -> Windows:
    """A window on all layers or on none: `use_sliding_window` decides, and vLLM refuses a mixture."""
    window = text.optional_integer("sliding_window") if text.flag("use_sliding_window", default=False) else None
    num_layers = text.integer("num_hidden_layers")
    num_full = min(text.integer("max_window_layers", default=num_layers, least=0), num_layers)
    if num_full == num_layers:
        return (None,) * num_layers
    if window and num_full:
        raise PlanError(
            "max_window_layers",
            num_full,
            f"Sliding window for some but all layers is not supported: max_window_layers is {num_full}, the model has "
            f"{num_layers} layers; set use_sliding_window to false in config.json.",
        )
    return (window or None,) * num_layers


def _qwen_rope(text: ConfigView, head_size: int) -> tuple[Buffer, ...]:
    """One cache, or five under dual chunk attention (Qwen2.5-1M): two of a chunk's length, three of the whole."""
    whole = rope_cache(text, head_size)
    chunked = text.section("dual_chunk_attention_config")
    if chunked is None:
        return (whole,)
    chunk = chunked.integer("chunk_size", default=262144) - chunked.integer("local_size", default=8192)
    columns = whole.shape[1]
    return (
        Buffer(name="rotary_chunk", shape=(chunk, columns), repeat=3, is_shared=True),
        Buffer(name="rotary_whole", shape=(text.integer("max_position_embeddings"), columns), repeat=2, is_shared=True),
    )


def _phi3(text: ConfigView, style: Style) -> Style:
    mlp = gated_mlp(style.shape.hidden_size, _width(text), names=("gate_up_proj", "gate_up_proj", "down_proj"))
    return replace(style, qkv=("qkv_proj",), mlp=mlp)


def _seed_oss(text: ConfigView, style: Style) -> Style:
    bias = text.flag("attention_out_bias", default=False)
    return replace(style, shape=replace(style.shape, output_bias=bias))


def _smollm3(text: ConfigView, style: Style) -> Style:
    windows = style.windows if text.flag("use_sliding_window", default=False) else (None,) * len(style.windows)
    return replace(style, windows=windows)


def _olmo1(text: ConfigView, style: Style) -> Style:
    del text
    return replace(style, has_norm_weight=False)


def _olmo2(text: ConfigView, style: Style) -> Style:
    del text
    norms = ("post_attention_layernorm", "post_feedforward_layernorm")
    return replace(style, shape=replace(style.shape, qk_norm="full"), norms=norms)


def _olmo3(text: ConfigView, style: Style) -> Style:
    """OLMo 2 with local layers, whose rotary cache is one of its own."""
    own = tuple(replace(cache, repeat=2) for cache in style.rope)
    return replace(_olmo2(text, style), windows=_patterned_windows(text, 4), rope=own)


def _patterned_windows(text: ConfigView, default_pattern: int) -> Windows:
    """`layer_types` where given, else every n-th layer full and the others sliding."""
    num_layers = text.integer("num_hidden_layers")
    if text.has("layer_types"):
        return layer_windows(text, num_layers)
    window = text.optional_integer("sliding_window") or None
    pattern = text.values.get("sliding_window_pattern", default_pattern)
    if isinstance(pattern, str) and pattern:
        return tuple(window if pattern[index % len(pattern)] == "L" else None for index in range(num_layers))
    period = text.integer("sliding_window_pattern", default=default_pattern)
    return tuple(window if (index + 1) % period else None for index in range(num_layers))


def _arcee(text: ConfigView, style: Style) -> Style:
    return replace(style, mlp=_up_down(text, style, has_bias=text.flag("mlp_bias", default=False)))


def _up_down(text: ConfigView, style: Style, *, has_bias: bool) -> tuple[Linear, Linear]:
    return plain_mlp(style.shape.hidden_size, _width(text), up="mlp.up_proj", down="mlp.down_proj", has_bias=has_bias)


def _jais2(text: ConfigView, style: Style) -> Style:
    return replace(_arcee(text, style), norm_bias=True)


def _glm(text: ConfigView, style: Style) -> Style:
    """GLM-4-9B in transformers' own class: fused gate and up in the checkpoint, half of each head rotated."""
    mlp = gated_mlp(style.shape.hidden_size, _width(text), names=("gate_up_proj", "gate_up_proj", "down_proj"))
    return replace(style, mlp=mlp, shape=replace(style.shape, output_bias=False), rope=_half_rope(text, style))


def _half_rope(text: ConfigView, style: Style) -> tuple[Buffer, ...]:
    settings = dict(rope_parameters(text))
    settings.setdefault("partial_rotary_factor", 0.5)
    return (rope_cache(text, style.shape.head_size, settings=settings),)


def _glm4(text: ConfigView, style: Style) -> Style:
    mlp = gated_mlp(style.shape.hidden_size, _width(text), names=("gate_up_proj", "gate_up_proj", "down_proj"))
    norms = ("input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm")
    shape = replace(style.shape, output_bias=False)
    return replace(style, mlp=mlp, norms=norms, shape=shape, rope=_half_rope(text, style))


def _cohere(text: ConfigView, style: Style) -> Style:
    """Command-R: one norm before attention and MLP in parallel, the table tied, Q and K normed per head and divided."""
    shape = replace(
        style.shape,
        qkv_bias=False,
        output_bias=False,
        qk_norm="sharded" if text.flag("use_qk_norm", default=False) else None,
    )
    longest = text.integer("model_max_length", "max_position_embeddings", default=8192)
    rope = (rope_cache(text, shape.head_size, max_position=longest),)
    style = replace(style, shape=shape, norms=("input_layernorm",), rope=rope)
    return on_every_stage(replace(style, vocabulary=replace(style.vocabulary, ties=True)))


def _cohere2(text: ConfigView, style: Style) -> Style:
    windows = tuple(window + 1 if window else None for window in _patterned_windows(text, 4))
    return replace(_cohere(text, style), windows=windows)


def _exaone(text: ConfigView, style: Style) -> Style:
    mlp = gated_mlp(style.shape.hidden_size, _width(text), names=("c_fc_0", "c_fc_1", "c_proj"))
    return replace(
        style,
        mlp=mlp,
        norms=("ln_1", "ln_2"),
        final_norm="transformer.ln_f",
        layers="transformer.h",
        attention_prefix="attn.attention",
        output="out_proj",
        vocabulary=replace(style.vocabulary, embedding="transformer.wte"),
    )


def _exaone4(text: ConfigView, style: Style) -> Style:
    norms = ("post_attention_layernorm", "post_feedforward_layernorm")
    shape = replace(style.shape, qk_norm="head")
    return replace(style, shape=shape, norms=norms, windows=_patterned_windows(text, 4))


def _nemotron(text: ConfigView, style: Style) -> Style:
    mlp = _up_down(text, style, has_bias=text.flag("mlp_bias", default=False))
    return replace(style, mlp=mlp, norm_bias=True)


def _stablelm(text: ConfigView, style: Style) -> Style:
    shape = replace(style.shape, qkv_bias=text.flag("use_qkv_bias", default=False), output_bias=False)
    return on_every_stage(replace(style, shape=shape, norm_bias=True))


def _orion(text: ConfigView, style: Style) -> Style:
    del text
    return on_every_stage(replace(style, norm_bias=True))


def _internlm2(text: ConfigView, style: Style) -> Style:
    mlp = gated_mlp(style.shape.hidden_size, _width(text), prefix="feed_forward", names=("w1", "w3", "w2"))
    style = replace(
        style,
        mlp=mlp,
        shape=replace(style.shape, qkv_bias=False, output_bias=False),
        attention_prefix="attention",
        qkv=("wqkv",),
        fused_qkv="wqkv",
        output="wo",
        norms=("attention_norm", "ffn_norm"),
        vocabulary=replace(style.vocabulary, embedding="model.tok_embeddings", head="output"),
    )
    return on_every_stage(style)


def _minicpm(text: ConfigView, style: Style) -> Style:
    del text
    return on_every_stage(style)


def _ernie45(text: ConfigView, style: Style) -> Style:
    bias = text.flag("use_bias", default=False)
    return replace(style, shape=replace(style.shape, qkv_bias=bias or style.shape.qkv_bias, output_bias=False))


def _telechat2(text: ConfigView, style: Style) -> Style:
    """Biases on the output and down projections only."""
    gate, down = gated_mlp(style.shape.hidden_size, _width(text))
    shape = replace(style.shape, qkv_bias=False, output_bias=True)
    return replace(style, shape=shape, mlp=(gate, replace(down, has_bias=True)))


def _apertus(text: ConfigView, style: Style) -> Style:
    """An MLP without a gate whose activation learns two numbers and keeps two more."""
    return replace(
        style,
        shape=replace(style.shape, qk_norm="head"),
        mlp=_up_down(text, style, has_bias=text.flag("mlp_bias", default=False)),
        norms=("attention_layernorm", "feedforward_layernorm"),
        extra=(
            Tensor(name="mlp.act_fn", role="mlp", shape=(1,), repeat=2),
            Buffer(name="mlp.act_fn", shape=(1,), repeat=2),
        ),
    )


def _hunyuan(text: ConfigView, style: Style) -> Style:
    del text
    return replace(style, shape=replace(style.shape, qk_norm="head"))


def _hyperclovax(text: ConfigView, style: Style) -> Style:
    extra = ("post_norm1", "post_norm2") if text.flag("use_post_norm", default=False) else ()
    return replace(style, norms=(*style.norms, *extra))


def _baichuan(text: ConfigView, style: Style) -> Style:
    """7B rotates, 13B (hidden size above 4096) uses ALiBi."""
    is_rotary = style.shape.hidden_size <= 4096
    rope = style.rope if is_rotary and text.has("max_position_embeddings") else ()
    return on_every_stage(replace(style, qkv=("W_pack",), fused_qkv="W_pack", rope=rope))


def _internlm1(text: ConfigView, style: Style) -> Style:
    bias = text.flag("bias", default=True)
    return replace(style, shape=replace(style.shape, qkv_bias=bias, output_bias=bias))


def _headless(builder: Builder) -> Builder:
    """An embedding model: the same decoder with no head built."""
    return lambda family: without_head(builder(family))


def _qwen2_model(family: FamilyInput) -> Built:
    """Qwen2Model: taken for a generator, head and all, since it shares the class of Qwen2ForCausalLM."""
    built = _QWEN2(family)
    return built if family.vllm_minor >= _FIRST_MINOR_WITH_QWEN2_MODEL_AS_GENERATOR else without_head(built)


def _with_score(builder: Builder) -> Builder:
    """A classifier or reward model: no head, a float32 score projection instead."""
    headless = _headless(builder)

    def build(family: FamilyInput) -> Built:
        built = headless(family)
        labels = len(family.root.values.get("id2label") or ()) or family.root.integer("num_labels", default=2)
        score = Tensor(name="score", role="head", shape=(labels, family.text.integer("hidden_size")), dtype="float32")
        return replace(built, parts=(*built.parts, Part(prefix="", stage="every", modules=(score,))))

    return build


_BIDIRECTIONAL_LLAMA = styled(lambda _, style: replace(style, is_causal=False))
_QWEN2, _QWEN3 = styled(_qwen2), styled(_qwen3)
# `transformers_since`: the class of its own is there in 0.23 and gone in 0.27 (24), there in 0.27 and gone in 0.31 (28), there
# in 0.31 and gone in 0.32 (32), or there never was one (0).
_LLAMAS = (
    "LlamaForCausalLM",
    "LLaMAForCausalLM",
    "MistralForCausalLM",
    "Ministral3ForCausalLM",
    "GraniteForCausalLM",
    "InternLM3ForCausalLM",
    "IQuestCoderForCausalLM",
    "TeleChat3ForCausalLM",
    "TeleFLMForCausalLM",
    "SolarForCausalLM",
    "AquilaForCausalLM",
    "AquilaModel",
    "XverseForCausalLM",
)
BUILDERS: dict[str, Builder] = {
    **CLASSIC_BUILDERS,
    **EARLY_BUILDERS,
    **dict.fromkeys(_LLAMAS, llama_like),
    "Qwen2ForCausalLM": _QWEN2,
    "MiMoForCausalLM": _QWEN2,
    "Qwen3ForCausalLM": _QWEN3,
    "Phi3ForCausalLM": styled(_phi3),
    "SeedOssForCausalLM": styled(_seed_oss, transformers_since=32),
    "SmolLM3ForCausalLM": styled(_smollm3, transformers_since=0),
    "CwmForCausalLM": styled(transformers_since=0),
    "NanbeigeForCausalLM": styled(transformers_since=0),
    "OlmoForCausalLM": styled(_olmo1, transformers_since=24),
    "Olmo2ForCausalLM": styled(_olmo2, transformers_since=24),
    "Olmo3ForCausalLM": styled(_olmo3, transformers_since=24),
    "ArceeForCausalLM": styled(_arcee, transformers_since=32),
    "Jais2ForCausalLM": styled(_jais2, transformers_since=0),
    "GlmForCausalLM": styled(_glm, transformers_since=32),
    "Glm4ForCausalLM": styled(_glm4),
    "CohereForCausalLM": styled(_cohere),
    "Cohere2ForCausalLM": styled(_cohere2),
    "ExaoneForCausalLM": styled(_exaone),
    "Exaone4ForCausalLM": styled(_exaone4),
    "NemotronForCausalLM": styled(_nemotron),
    "StableLmForCausalLM": styled(_stablelm),
    "StableLMEpochForCausalLM": styled(_stablelm),
    "OrionForCausalLM": styled(_orion),
    "InternLM2ForCausalLM": styled(_internlm2),
    "InternLMForCausalLM": styled(_internlm1),
    "MiniCPMForCausalLM": styled(_minicpm),
    "Ernie4_5ForCausalLM": styled(_ernie45),
    "TeleChat2ForCausalLM": styled(_telechat2),
    "ApertusForCausalLM": styled(_apertus),
    "HunYuanDenseV1ForCausalLM": styled(_hunyuan, transformers_since=28),
    "HyperCLOVAXForCausalLM": styled(_hyperclovax),
    "BaichuanForCausalLM": styled(_baichuan),
    "BaiChuanForCausalLM": styled(_baichuan),
    "LlamaModel": llama_like,  # in vLLM's registry under its generator's class, which is then not taken for a pooling model
    "MistralModel": llama_like,
    "Qwen2Model": _qwen2_model,
    "Qwen3Model": _headless(_QWEN3),  # not in the registry: its name alone decides, and says embeddings
    "Phi3Model": _headless(styled(_phi3)),
    "LlamaBidirectionalModel": _headless(_BIDIRECTIONAL_LLAMA),
    "LlamaBidirectionalForSequenceClassification": _with_score(_BIDIRECTIONAL_LLAMA),
    "LlamaForSequenceClassification": _with_score(llama_like),
    "Qwen2ForSequenceClassification": _with_score(_QWEN2),
    "Qwen3ForSequenceClassification": _with_score(_QWEN3),
}
