"""Mixture-of-experts decoders with grouped-query attention: what each architecture takes from its config.

Read from vLLM 0.33 model_executor/models/ (from the last release that had the class where it is gone). Architectures
that differ in more than choices are in `gpt_oss`, `llama4` and `moe_variants`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.config_view import ConfigView
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import attention_shape, gated_mlp
from planner.families.expert_layers import ExpertBlock
from planner.families.moe_design import MoeDesign, assemble, attention_sinks, moe_design, sliding_windows, with_mtp
from planner.families.rope import rope_cache, rope_parameters
from planner.inventory import Linear


def local_experts(text: ConfigView, prefix: str = "block_sparse_moe") -> ExpertBlock:
    """Experts as Mixtral's descendants name them."""
    return ExpertBlock(
        num_experts=text.integer("num_local_experts", "num_experts"),
        intermediate_size=text.integer("intermediate_size"),
        top_k=text.integer("num_experts_per_tok", default=2),
        prefix=prefix,
    )


def _mixtral(given: FamilyInput) -> Built:
    design = moe_design(given.text, attention_shape(given.text), local_experts(given.text))
    return assemble(replace(design, is_on_every_stage=True))


def _sparse_steps(text: ConfigView) -> Callable[[int], bool]:
    dense_layers = list(text.items("mlp_only_layers") or [])
    step = text.integer("decoder_sparse_step", default=1)
    return lambda index: index not in dense_layers and (index + 1) % step == 0


def _qwen_experts(text: ConfigView, *, is_always_gated: bool) -> ExpertBlock:
    shared = text.integer("shared_expert_intermediate_size", default=0, least=0)
    return ExpertBlock(
        num_experts=text.integer("num_experts"),
        intermediate_size=text.integer("moe_intermediate_size"),
        top_k=text.integer("num_experts_per_tok"),
        shared_intermediate_size=shared,
        shared_prefix="mlp.shared_expert",
        has_shared_gate=is_always_gated or shared > 0,
    )


def _qwen2_moe(given: FamilyInput) -> Built:
    text = given.text
    plain = attention_shape(text, qkv_bias=True)
    shape = replace(plain, head_size=plain.hidden_size // plain.num_heads)  # this class ignores head_dim
    design = moe_design(text, shape, _qwen_experts(text, is_always_gated=True))
    return assemble(replace(design, is_sparse=_sparse_steps(text), is_on_every_stage=True))


def qwen3_moe_design(text: ConfigView) -> MoeDesign:
    """The language part of Qwen3-MoE, also inside Qwen3-VL-MoE and Qwen3-Omni."""
    shape = attention_shape(text, qkv_bias=text.flag("attention_bias", default=False), qk_norm="head")
    design = moe_design(text, shape, replace(_qwen_experts(text, is_always_gated=False), quantizes_router=True))
    return replace(design, is_sparse=_sparse_steps(text), is_on_every_stage=True)


def _qwen3_moe(given: FamilyInput) -> Built:
    return assemble(qwen3_moe_design(given.text))


def _olmoe(given: FamilyInput) -> Built:
    text = given.text
    experts = local_experts(text, prefix="mlp")
    design = moe_design(text, attention_shape(text, qk_norm="full"), experts)
    return assemble(replace(design, is_on_every_stage=True, ties=False))


def _granite_moe(given: FamilyInput) -> Built:
    text = given.text
    plain = attention_shape(text)
    shape = replace(plain, head_size=plain.hidden_size // plain.num_heads)
    has_sinks = text.flag("attention_sinks", default=text.items("layer_types") is not None)
    sinks = (attention_sinks(shape),) if has_sinks else ()
    shared = _granite_shared(given)
    design = moe_design(text, shape, local_experts(text))
    return assemble(
        replace(design, window_of=sliding_windows(text), extras_of=lambda _: (*sinks, *shared), is_on_every_stage=True)
    )


def _granite_shared(given: FamilyInput) -> tuple[Linear, ...]:
    size = given.text.integer("shared_intermediate_size", default=0, least=0)
    if given.architecture == "GraniteMoeForCausalLM" or size == 0:
        return ()
    names = ("input_linear", "input_linear", "output_linear")
    width = given.text.integer("hidden_size")
    return gated_mlp(width, size, prefix="shared_mlp", role="shared_experts", names=names)


def _minimax_m2(given: FamilyInput) -> Built:
    text = given.text
    shape = attention_shape(text, qkv_bias=text.flag("attention_bias", default=False), qk_norm="sharded")
    has_bias = text.flag("use_routing_bias", default=False)
    experts = replace(
        local_experts(text),
        router_dtype="float32",
        score_bias_name="e_score_correction_bias" if has_bias else None,
    )
    rotary_size = text.integer("rotary_dim", default=shape.head_size)
    settings = {"partial_rotary_factor": rotary_size / shape.head_size, **rope_parameters(text)}
    rotary = rope_cache(text, shape.head_size, settings=settings)
    return assemble(replace(moe_design(text, shape, experts), rotary=rotary, ties=False))


def _phi_moe(given: FamilyInput) -> Built:
    text = given.text
    design = moe_design(text, attention_shape(text, qkv_bias=True, output_bias=True), local_experts(text))
    return assemble(replace(design, norms_have_bias=True, head_has_bias=True, is_on_every_stage=True, ties=False))


def scored_experts(text: ConfigView, *, score_bias: str | None, router_dtype: str | None = None) -> ExpertBlock:
    """Experts as DeepSeek's descendants name them, with shared experts as one MLP of that many widths."""
    size = text.integer("moe_intermediate_size")
    shared = text.integer("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", default=0, least=0)
    return ExpertBlock(
        num_experts=text.integer("n_routed_experts", "num_experts", "moe_num_experts"),
        intermediate_size=size,
        top_k=text.integer("num_experts_per_tok", "moe_k"),
        router_dtype=router_dtype,
        score_bias_name=score_bias,
        shared_intermediate_size=size * shared,
    )


def _glm4_moe(given: FamilyInput) -> Built:
    return with_mtp(glm4_moe_design(given.text))


def glm4_moe_design(text: ConfigView) -> MoeDesign:
    """The language part of GLM-4.5 and its successors with grouped-query attention, also inside GLM-4.5V."""
    has_norms = text.flag("use_qk_norm", default=False)
    shape = attention_shape(
        text, qkv_bias=text.flag("attention_bias", default=False), qk_norm="head" if has_norms else None
    )
    experts = scored_experts(text, score_bias="gate.e_score_correction_bias", router_dtype="float32")
    first_sparse = text.integer("first_k_dense_replace", default=1, least=0)
    return replace(moe_design(text, shape, experts), is_sparse=lambda index: index >= first_sparse, ties=False)


def _ernie_moe(given: FamilyInput) -> Built:
    text = given.text
    bias = text.flag("use_bias", default=False)
    experts = scored_experts(text, score_bias="gate.e_score_correction_bias", router_dtype="float32")
    first = text.integer("moe_layer_start_index", default=0, least=0)
    last = text.integer("moe_layer_end_index", default=text.integer("num_hidden_layers") - 1, least=-1)
    step = text.integer("moe_layer_interval", default=1)
    return with_mtp(
        replace(
            moe_design(text, attention_shape(text, qkv_bias=bias), experts),
            is_sparse=lambda index: first <= index <= last and (index + 1) % step == 0,
            dense_has_bias=bias,
            ties=text.flag("tie_word_embeddings", default=True),
        )
    )


def _bailing_moe(given: FamilyInput) -> Built:
    text = given.text
    bias = text.flag("use_bias", default=False)
    has_norms = text.flag("use_qk_norm", default=False)
    shape = attention_shape(
        text,
        qkv_bias=bias or text.flag("use_qkv_bias", default=False),
        output_bias=bias,
        qk_norm="head" if has_norms else None,
    )
    is_biased = text.flag("moe_router_enable_expert_bias", default=False)
    names = {None: None, "fp32": "float32"}
    experts = scored_experts(
        text,
        score_bias="gate.expert_bias" if is_biased else None,
        router_dtype=names.get(text.text("router_dtype"), "bfloat16"),
    )
    shared = text.integer("moe_shared_expert_intermediate_size", default=experts.intermediate_size)
    num_shared = text.integer("num_shared_experts", default=0, least=0)
    experts = replace(experts, shared_intermediate_size=shared * num_shared, has_shared_bias=bias)
    first_sparse = text.integer("first_k_dense_replace", default=0, least=0)
    settings = dict(rope_parameters(text))
    if text.has("rotary_dim"):
        settings["partial_rotary_factor"] = text.integer("rotary_dim") / shape.head_size
    return assemble(
        replace(
            moe_design(text, shape, experts),
            is_sparse=lambda index: index >= first_sparse,
            rotary=rope_cache(text, shape.head_size, settings=settings),
            attention_prefix="attention",
            attention_names=("query_key_value",),
            output_name="dense",
            dense_has_bias=bias,
            embedding="model.word_embeddings",
        )
    )


BUILDERS: dict[str, Builder] = {
    "MixtralForCausalLM": _mixtral,
    "Qwen2MoeForCausalLM": _qwen2_moe,
    "Qwen3MoeForCausalLM": _qwen3_moe,
    "OlmoeForCausalLM": _olmoe,
    "GraniteMoeForCausalLM": _granite_moe,
    "GraniteMoeSharedForCausalLM": _granite_moe,
    "GraniteMoeSWAForCausalLM": _granite_moe,
    "MiniMaxM2ForCausalLM": _minimax_m2,
    "PhiMoEForCausalLM": _phi_moe,
    "Glm4MoeForCausalLM": _glm4_moe,
    "Ernie4_5_MoeForCausalLM": _ernie_moe,
    "BailingMoeForCausalLM": _bailing_moe,
    "BailingMoeV2ForCausalLM": _bailing_moe,
    "SarvamMoEForCausalLM": _bailing_moe,
}
