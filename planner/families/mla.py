"""DeepSeek V2, V3 and V3.2 and the models that share their classes: Kimi-K2, GLM-5, GLM-4.7-Flash and others.

Latent attention with dense first layers, then experts with a shared MLP; V3.2 and GLM-5 add an indexer. Read from vLLM
0.33 model_executor/models/deepseek_v2.py, glm4_moe_lite.py and models/deepseek_v32/. Relatives that differ in layout are
in `mla_variants`, DeepSeek-V4 in `deepseek_v4`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from planner.config_view import ConfigView
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import (
    attention,
    attention_shape,
    build_layers,
    final_norm,
    gated_mlp,
    kv_cache,
    layer_norms,
    vocabulary,
)
from planner.families.draft_layers import mtp_layers, num_mtp_layers
from planner.families.expert_layers import ExpertBlock
from planner.families.mla_layers import (
    IndexerShape,
    MlaShape,
    indexer_cache,
    indexer_modules,
    indexer_shape,
    mla_attention,
    mla_cache,
    mla_shape,
)
from planner.families.rope import rope_cache, rope_parameters
from planner.inventory import Buffer, Cache, Layer, Module


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MlaDesign:
    """One model's choices. `experts` None: every MLP is dense. `has_indexer(layer)`: that layer scores keys itself."""

    text: ConfigView
    shape: MlaShape
    experts: ExpertBlock | None
    first_sparse_layer: int
    sparse_step: int
    indexer: IndexerShape | None
    has_indexer: Callable[[int], bool]
    rotary: tuple[Buffer, ...]
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    vllm_minor: int


def mla_design(text: ConfigView, vllm_minor: int) -> MlaDesign:
    """The design of a DeepSeek-like config; `text` is the language part where there are others."""
    indexer = indexer_shape(text)
    return MlaDesign(
        text=text,
        shape=mla_shape(text),
        experts=deepseek_experts(text) if text.has("n_routed_experts") else None,
        first_sparse_layer=text.integer("first_k_dense_replace", default=0, least=0),
        sparse_step=text.integer("moe_layer_freq", default=1),
        indexer=indexer,
        has_indexer=_indexed_layers(text) if indexer else lambda _: False,
        rotary=mla_rotary(text, has_indexer=indexer is not None),
        vllm_minor=vllm_minor,
    )


def deepseek_experts(text: ConfigView) -> ExpertBlock:
    """Experts as DeepSeek V2 and V3 name them; the shared ones are one MLP of that many widths."""
    size = text.integer("moe_intermediate_size")
    has_score_bias = text.text("topk_method") == "noaux_tc"
    return ExpertBlock(
        num_experts=text.integer("n_routed_experts"),
        intermediate_size=size,
        top_k=text.integer("num_experts_per_tok"),
        score_bias_name="gate.e_score_correction_bias" if has_score_bias else None,
        shared_intermediate_size=size * text.integer("n_shared_experts", default=0, least=0),
        is_shared_whole_in_sequence_parallel=True,
    )


def mla_rotary(text: ConfigView, *, has_indexer: bool = False) -> tuple[Buffer, ...]:
    """The rotary caches of latent attention, in the model's dtype; an indexer that pairs its halves needs its own."""
    settings = dict(rope_parameters(text))
    if settings["rope_type"] != "default":
        settings["rope_type"] = "deepseek_yarn"
    cache = rope_cache(text, text.integer("qk_rope_head_dim"), settings=settings)
    if not has_indexer or text.flag("indexer_rope_interleave", default=False):
        return (cache,)
    return cache, replace(cache, name=f"{cache.name}_indexer")


def _indexed_layers(text: ConfigView) -> Callable[[int], bool]:
    """Which layers have an indexer; the others reuse the keys that the last one chose (vLLM's IndexCache settings)."""
    pattern = text.values.get("index_topk_pattern")
    if isinstance(pattern, str | list):
        return lambda index: index >= len(pattern) or pattern[index] != "S"
    every = text.integer("index_topk_freq", default=1)
    offset = text.integer("index_skip_topk_offset", default=2, least=0)
    return lambda index: max(index - offset + 1, 0) % every == 0


def mla_layer(design: MlaDesign, index: int, *, is_draft: bool = False) -> tuple[tuple[Module, ...], tuple[Cache, ...]]:
    """The modules and caches of layer `index`; a draft layer always has an indexer of its own."""
    width = design.shape.hidden_size
    modules: tuple[Module, ...] = mla_attention(design.shape)
    caches: tuple[Cache, ...] = (mla_cache(design.shape, design.vllm_minor),)
    if design.indexer and (is_draft or design.has_indexer(index)):
        modules += indexer_modules(design.indexer, width, design.shape.q_lora_rank or width, design.vllm_minor)
        caches += (indexer_cache(design.indexer),)
    is_sparse = index >= design.first_sparse_layer and index % design.sparse_step == 0
    if design.experts is not None and is_sparse:
        modules += design.experts.modules(width)
    else:
        modules += gated_mlp(width, design.text.integer("intermediate_size"))
    return modules + layer_norms(width, *design.norms) + design.rotary, caches


def assemble_mla(design: MlaDesign) -> Built:
    """What vLLM builds for `design`, with the checkpoint's MTP layers as drafts."""
    text, shape = design.text, design.shape
    ties = text.flag("tie_word_embeddings", default=False)
    num_layers = text.integer("num_hidden_layers")
    return Built(
        layers=build_layers(num_layers, "model.layers", lambda index: mla_layer(design, index)),
        parts=(*vocabulary(text, ties=ties).parts(), final_norm(shape.hidden_size)),
        is_mla=design.vllm_minor >= 7,
        is_moe=design.experts is not None,
        ties_embeddings=ties,
        intermediate_size=text.integer("intermediate_size"),
        draft_layers=_drafts(design, num_layers),
        mla_nope_head_dim=shape.nope_head_dim,
        mla_v_head_dim=shape.v_head_dim,
        kv_lora_rank=shape.kv_lora_rank,
        qk_rope_head_dim=shape.rope_head_dim,
    )


def _drafts(design: MlaDesign, num_layers: int) -> tuple[Layer, ...]:
    return mtp_layers(
        num_mtp_layers(design.text),
        num_layers,
        design.shape.hidden_size,
        lambda index: mla_layer(design, index, is_draft=True),
    )


def deepseek_language_model(text: ConfigView, vllm_minor: int) -> Built:
    """The language part of Kimi-K2.5, Kimi-VL, DeepSeek-VL2 and others that embed a DeepSeek V2 or V3."""
    if _has_latent_attention(text):
        return assemble_mla(mla_design(text, vllm_minor))
    return _deepseek_without_mla(text)


def _has_latent_attention(text: ConfigView) -> bool:
    dims = text.integer("qk_nope_head_dim", default=0, least=0) + text.integer("qk_rope_head_dim", default=0, least=0)
    return text.text("model_type") != "deepseek" and dims > 0


def _deepseek_without_mla(text: ConfigView) -> Built:
    """DeepSeek-MoE, V1: plain attention under the experts of V2."""
    shape = attention_shape(text)
    shape = replace(shape, head_size=shape.hidden_size // shape.num_heads)
    experts = deepseek_experts(text)
    first, step = text.integer("first_k_dense_replace", default=0, least=0), text.integer("moe_layer_freq", default=1)
    rotary = rope_cache(text, shape.head_size)
    ties = text.flag("tie_word_embeddings", default=False)

    def build(index: int) -> tuple[tuple[Module, ...], tuple[Cache, ...]]:
        is_sparse = index >= first and index % step == 0
        dense = gated_mlp(shape.hidden_size, text.integer("intermediate_size"))
        feed_forward = experts.modules(shape.hidden_size) if is_sparse else dense
        norms = layer_norms(shape.hidden_size, "input_layernorm", "post_attention_layernorm")
        return (*attention(shape), *feed_forward, *norms, rotary), (kv_cache(shape),)

    return Built(
        layers=build_layers(text.integer("num_hidden_layers"), "model.layers", build),
        parts=(*vocabulary(text, ties=ties).parts(), final_norm(shape.hidden_size)),
        is_moe=True,
        ties_embeddings=ties,
        intermediate_size=text.integer("intermediate_size"),
    )


def _deepseek(given: FamilyInput) -> Built:
    return deepseek_language_model(given.text, given.vllm_minor)


def _glm4_moe_lite(given: FamilyInput) -> Built:
    design = mla_design(given.text, given.vllm_minor)
    if design.experts is not None:
        experts = replace(design.experts, router_dtype="float32", score_bias_name="gate.e_score_correction_bias")
        design = replace(design, experts=experts)
    return assemble_mla(design)


BUILDERS: dict[str, Builder] = {
    "DeepseekForCausalLM": _deepseek,
    "DeepseekV2ForCausalLM": _deepseek,
    "DeepseekV3ForCausalLM": _deepseek,
    "DeepseekV32ForCausalLM": _deepseek,
    "GlmMoeDsaForCausalLM": _deepseek,
    "MistralLarge3ForCausalLM": _deepseek,
    "AXK1ForCausalLM": _deepseek,
    "Glm4MoeLiteForCausalLM": _glm4_moe_lite,
}
