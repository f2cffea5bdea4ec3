"""Qwen3-Next and Qwen3.5 (dense and mixture of experts): gated delta nets with full attention in every fourth layer.

Sources: qwen3_next.py, qwen3_5.py, qwen3_next_mtp.py and qwen3_5_mtp.py of vLLM 0.33.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.config_view import ConfigView
from planner.facts import PlanError
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import (
    AttentionShape,
    attention,
    attention_shape,
    build_layers,
    column_linear,
    final_norm,
    gated_mlp,
    kv_cache,
    layer_norms,
    vocabulary,
)
from planner.families.expert_layers import ExpertBlock
from planner.families.mamba_layers import GatedDeltaNetShape
from planner.families.rope import rope_cache, rope_parameters
from planner.inventory import Buffer, Cache, Layer, Linear, Module, Part, Tensor

# The multimodal rotary cache held four times the positions before 0.32, and holds them once since, where no video is pruned.
_FIRST_MINOR_WITH_SINGLE_MROPE = 32
# Weight formats under which vLLM 0.33 keeps Qwen3.5's in_proj_ba whole on every rank (QwenGatedDeltaNetAttention.maybe_disable_tp).
_METHODS_REPLICATING_BA = {"awq", "awq_marlin", "gptq", "gptq_marlin", "auto-round", "auto_round", "inc"}


def multimodal_rotary_cache(
    view: ConfigView, head_size: int, vllm_minor: int, *, partial_factor: float = 1.0
) -> Buffer:
    """The rotary cache of a Qwen3-VL class text model; `partial_factor` is the class's default share of rotated columns."""
    settings = dict(rope_parameters(view))
    settings.setdefault("partial_rotary_factor", partial_factor)
    factor = 1 if vllm_minor >= _FIRST_MINOR_WITH_SINGLE_MROPE else 4
    return rope_cache(view, head_size, settings=settings, positions_factor=factor)


def quantization_method(root: ConfigView) -> str | None:
    """The checkpoint's quantisation method as its config names it, or None."""
    section = root.section("quantization_config")
    return None if section is None else section.text("quant_method")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """One Qwen3-Next or Qwen3.5 config."""

    given: FamilyInput
    prefix: str  # of the text model in the checkpoint
    is_next: bool  # Qwen3-Next: interleaved projections, MoE by layer

    @property
    def text(self) -> ConfigView:
        return self.given.text

    @property
    def hidden_size(self) -> int:
        return self.text.integer("hidden_size")

    @property
    def head_size(self) -> int:
        return self.text.integer("head_dim", default=256)

    def layer_types(self) -> list[str]:
        """The kind of each layer; without a list, every `full_attention_interval`-th is attention."""
        num_layers = self.text.integer("num_hidden_layers")
        listed = self.text.items("layer_types")
        interval = self.text.integer("full_attention_interval", default=4)
        kinds = listed or [
            "linear_attention" if (index + 1) % interval else "full_attention" for index in range(num_layers)
        ]
        if len(kinds) < num_layers or not set(kinds) <= {"linear_attention", "full_attention"}:
            raise PlanError(
                "layer_types", kinds, f"config.json: layer_types must name one kind for each of {num_layers} layers."
            )
        return kinds[:num_layers]

    def delta_net(self) -> GatedDeltaNetShape:
        return GatedDeltaNetShape(
            hidden_size=self.hidden_size,
            num_k_heads=self.text.integer("linear_num_key_heads", default=16),
            num_v_heads=self.text.integer("linear_num_value_heads", default=32),
            head_k_size=self.text.integer("linear_key_head_dim", default=128),
            head_v_size=self.text.integer("linear_value_head_dim", default=128),
            conv_kernel=self.text.integer("linear_conv_kernel_dim", default=4),
            is_interleaved=self.is_next,
            replicates_ba=not self.is_next and quantization_method(self.given.root) in _METHODS_REPLICATING_BA,
        )

    def rotary(self) -> Buffer:
        return multimodal_rotary_cache(self.text, self.head_size, self.given.vllm_minor, partial_factor=0.25)

    def attention_shape(self) -> AttentionShape:
        """The gate, where there is one, doubles the query projection."""
        return attention_shape(
            self.text, head_size=self.head_size, qkv_bias=self.text.flag("qkv_bias", False), qk_norm="head"
        )

    def attention(self) -> tuple[Module, ...]:
        shape = self.attention_shape()
        fused, *rest = attention(shape)
        if self.text.flag("attn_output_gate", True) and isinstance(fused, Linear):
            query, key, value = fused.out_features
            fused = replace(fused, out_features=(2 * query, key, value))
        return (fused, *rest, self.rotary())

    def attention_cache(self) -> Cache:
        return kv_cache(self.attention_shape())

    def is_moe_layer(self, index: int) -> bool:
        """Whether layer `index` routes to experts."""
        if not self.is_next:
            return "moe" in (self.text.text("model_type", "") or "") or self.text.has("num_experts")
        if index in (self.text.items("mlp_only_layers") or []) or not self.text.has("num_experts"):
            return False
        return (index + 1) % self.text.integer("decoder_sparse_step", default=1) == 0

    def mlp(self, index: int) -> tuple[Module, ...]:
        if not self.is_moe_layer(index):
            return gated_mlp(self.hidden_size, self.text.integer("intermediate_size"), prefix="mlp")
        block = ExpertBlock(
            num_experts=self.text.integer("num_experts"),
            intermediate_size=self.text.integer("moe_intermediate_size"),
            top_k=self.text.integer("num_experts_per_tok"),
            shared_intermediate_size=self.text.integer("shared_expert_intermediate_size", default=512, least=0),
            shared_prefix="mlp.shared_expert",
            has_shared_gate=True,
        )
        return block.modules(self.hidden_size)

    def layer_modules(self, kind: str, index: int) -> tuple[Module, ...]:
        mixer = self.attention() if kind == "full_attention" else self.delta_net().modules("linear_attn")
        return (
            *mixer,
            *self.mlp(index),
            *layer_norms(self.hidden_size, "input_layernorm", "post_attention_layernorm"),
            *self._layer_scales(),
        )

    def _layer_scales(self) -> tuple[Tensor, ...]:
        if not self.text.flag("layer_scale", False):
            return ()
        return tuple(
            Tensor(name=name, role="other", shape=(self.hidden_size,))
            for name in ("attn_layer_scale", "ffn_layer_scale")
        )

    def layers(self) -> tuple[Layer, ...]:
        kinds = self.layer_types()
        caches = {"full_attention": (self.attention_cache(),), "linear_attention": (self.delta_net().cache(),)}
        return build_layers(
            len(kinds),
            f"{self.prefix}.layers",
            lambda index: (self.layer_modules(kinds[index], index), caches[kinds[index]]),
        )

    def draft_layers(self) -> tuple[Layer, ...]:
        names = ("num_nextn_predict_layers",) if self.is_next else ("mtp_num_hidden_layers",)
        count = self.text.integer(*names, default=1 if self.is_next else 0, least=0)
        return build_layers(
            count,
            "mtp.layers",
            lambda index: (self.layer_modules("full_attention", index), (self.attention_cache(),)),
        )

    def draft_parts(self) -> tuple[Part, ...]:
        """The projection of two hidden states to one and its norms; the tables are the target's."""
        size = self.hidden_size
        norms = layer_norms(size, "norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding")
        return (Part(prefix="mtp", stage="last", modules=(column_linear("fc", 2 * size, size, role="draft"), *norms)),)


def _reader(given: FamilyInput) -> _Reader:
    is_next = given.architecture.startswith("Qwen3Next")
    prefix = "model.language_model" if given.architecture.endswith("ForConditionalGeneration") else "model"
    return _Reader(given=given, prefix=prefix, is_next=is_next)


def build_qwen_next(given: FamilyInput) -> Built:
    """A Qwen3-Next or Qwen3.5 language model."""
    reader = _reader(given)
    is_tied = (
        given.text.flag("tie_word_embeddings", given.root.flag("tie_word_embeddings", False)) and not reader.is_next
    )
    layers = reader.layers()
    drafts = reader.draft_layers()
    return Built(
        layers=layers,
        parts=(
            *vocabulary(
                given.text,
                ties=is_tied,
                embedding=f"{reader.prefix}.embed_tokens",
                embedding_on_every_stage=True,
                head_on_every_stage=reader.is_next,
            ).parts(),
            final_norm(reader.hidden_size, name=f"{reader.prefix}.norm"),
        ),
        is_hybrid=True,
        is_moe=any(reader.is_moe_layer(layer.index) for layer in layers),
        ties_embeddings=is_tied,
        draft_layers=drafts,
        draft_parts=reader.draft_parts() if drafts else (),
    )


BUILDERS: dict[str, Builder] = {
    "Qwen3NextForCausalLM": build_qwen_next,
    "Qwen3_5ForCausalLM": build_qwen_next,
    "Qwen3_5MoeForCausalLM": build_qwen_next,
}
