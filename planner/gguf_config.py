"""A GGUF header's metadata as the config.json vLLM would read for the same model, and its tensors by their checkpoint names."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.facts import PlanError
from planner.gguf_types import TYPES_BY_NAME, tensor_bytes
from planner.inventory import CheckpointTensor, ModelDocuments


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """How llama.cpp's architecture name reads in a config.json: `keys` add (config field, metadata key) pairs to the common ones."""

    architecture: str
    model_type: str
    keys: tuple[tuple[str, str], ...] = ()
    fixed: tuple[tuple[str, object], ...] = ()


_COMMON = (
    ("num_hidden_layers", "block_count"),
    ("hidden_size", "embedding_length"),
    ("intermediate_size", "feed_forward_length"),
    ("num_attention_heads", "attention.head_count"),
    ("num_key_value_heads", "attention.head_count_kv"),
    ("max_position_embeddings", "context_length"),
    ("rope_theta", "rope.freq_base"),
    ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
    ("vocab_size", "vocab_size"),
)
_HEAD_DIM = (("head_dim", "attention.key_length"),)
_WINDOW = (("sliding_window", "attention.sliding_window"),)
_QWEN_MOE = (
    ("num_experts", "expert_count"),
    ("num_experts_per_tok", "expert_used_count"),
    ("moe_intermediate_size", "expert_feed_forward_length"),
)
_MIXTRAL = (("num_local_experts", "expert_count"), ("num_experts_per_tok", "expert_used_count"))
_DEEPSEEK = (
    ("n_routed_experts", "expert_count"),
    ("num_experts_per_tok", "expert_used_count"),
    ("moe_intermediate_size", "expert_feed_forward_length"),
    ("n_shared_experts", "expert_shared_count"),
    ("first_k_dense_replace", "leading_dense_block_count"),
    ("q_lora_rank", "attention.q_lora_rank"),
    ("kv_lora_rank", "attention.kv_lora_rank"),
    ("qk_rope_head_dim", "rope.dimension_count"),
)
# llama.cpp's names (its convert scripts) to the class vLLM registers for the same checkpoint.
_FAMILIES: dict[str, _Family] = {
    "llama": _Family(architecture="LlamaForCausalLM", model_type="llama", keys=_HEAD_DIM),
    "mistral3": _Family(
        architecture="MistralForCausalLM",
        model_type="mistral",
        keys=_HEAD_DIM,
        fixed=(("sliding_window", None),),  # the config class's default is 4096, which none of these models has
    ),
    "qwen2": _Family(architecture="Qwen2ForCausalLM", model_type="qwen2"),
    "qwen2moe": _Family(
        architecture="Qwen2MoeForCausalLM",
        model_type="qwen2_moe",
        keys=(*_QWEN_MOE, ("shared_expert_intermediate_size", "expert_shared_feed_forward_length")),
    ),
    "qwen3": _Family(architecture="Qwen3ForCausalLM", model_type="qwen3", keys=_HEAD_DIM),
    "qwen3moe": _Family(architecture="Qwen3MoeForCausalLM", model_type="qwen3_moe", keys=_HEAD_DIM + _QWEN_MOE),
    "gemma": _Family(architecture="GemmaForCausalLM", model_type="gemma", keys=_HEAD_DIM),
    "gemma2": _Family(architecture="Gemma2ForCausalLM", model_type="gemma2", keys=_HEAD_DIM + _WINDOW),
    "gemma3": _Family(
        architecture="Gemma3ForCausalLM",
        model_type="gemma3_text",
        keys=_HEAD_DIM + _WINDOW,
        fixed=(("sliding_window_pattern", 6),),  # every Gemma 3: five sliding layers, then a full one
    ),
    "phi3": _Family(architecture="Phi3ForCausalLM", model_type="phi3", keys=_WINDOW),
    "olmo2": _Family(architecture="Olmo2ForCausalLM", model_type="olmo2"),
    "granite": _Family(architecture="GraniteForCausalLM", model_type="granite"),
    "granitemoe": _Family(architecture="GraniteMoeForCausalLM", model_type="granitemoe", keys=_MIXTRAL),
    "command-r": _Family(architecture="CohereForCausalLM", model_type="cohere"),
    "starcoder2": _Family(architecture="Starcoder2ForCausalLM", model_type="starcoder2", keys=_WINDOW),
    "stablelm": _Family(architecture="StableLmForCausalLM", model_type="stablelm"),
    "smollm3": _Family(architecture="SmolLM3ForCausalLM", model_type="smollm3"),
    "seed_oss": _Family(architecture="SeedOssForCausalLM", model_type="seed_oss", keys=_HEAD_DIM),
    "nemotron": _Family(architecture="NemotronForCausalLM", model_type="nemotron"),
    "gpt-oss": _Family(architecture="GptOssForCausalLM", model_type="gpt_oss", keys=_HEAD_DIM + _WINDOW + _MIXTRAL),
    "deepseek2": _Family(architecture="DeepseekV2ForCausalLM", model_type="deepseek_v2", keys=_DEEPSEEK),
}
_SIGMOID_GATING = 2  # llama.cpp's expert_gating_func: 2 is DeepSeek-V3's sigmoid


def _value(metadata: Mapping[str, Any], key: str) -> object:
    value = metadata.get(key)
    if not isinstance(value, list):
        return value
    if value and all(item == value[0] for item in value):
        return value[0]
    raise PlanError(
        "gguf",
        key,
        f"The GGUF file gives {key} layer by layer, which is not read yet; give the base model's config.json.",
    )


def _vocabulary(metadata: Mapping[str, Any], tensors: tuple[CheckpointTensor, ...]) -> int | None:
    rows = [tensor.shape[0] for tensor in tensors if tensor.name == "model.embed_tokens.weight" and tensor.shape]
    tokens = metadata.get("tokenizer.ggml.tokens")
    return rows[0] if rows else tokens if isinstance(tokens, int) else None


def _deepseek_fields(metadata: Mapping[str, Any], config: dict[str, Any]) -> None:
    rope = config.get("qk_rope_head_dim") or 0
    key_length = metadata.get("deepseek2.attention.key_length_mla") or metadata.get("deepseek2.attention.key_length")
    value_length = metadata.get("deepseek2.attention.value_length_mla") or metadata.get(
        "deepseek2.attention.value_length"
    )
    if not isinstance(key_length, int) or not isinstance(value_length, int) or not isinstance(rope, int):
        raise PlanError(
            "gguf",
            None,
            "The GGUF file does not give deepseek2.attention.key_length and value_length; give the base model's config.json.",
        )
    config["qk_nope_head_dim"] = key_length - rope
    config["v_head_dim"] = value_length
    config["num_key_value_heads"] = config["num_attention_heads"]  # converters write 1 for the latent cache
    if metadata.get("deepseek2.expert_gating_func") == _SIGMOID_GATING:
        config.update(architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3", topk_method="noaux_tc")


def _family(metadata: Mapping[str, Any], name: object) -> _Family:
    family = _FAMILIES.get(name) if isinstance(name, str) else None
    if family is None:
        known = ", ".join(sorted(_FAMILIES))
        raise PlanError(
            "gguf",
            name,
            f"GGUF architecture {name!r:.40} is not one of those read ({known}); give the base model's config.json.",
        )
    if name == "llama" and metadata.get("llama.expert_count"):
        return _Family(architecture="MixtralForCausalLM", model_type="mixtral", keys=_HEAD_DIM + _MIXTRAL)
    return family


def config_from_gguf(metadata: Mapping[str, Any], tensors: tuple[CheckpointTensor, ...]) -> dict[str, object]:
    """The config.json that says the same as `metadata`; no `torch_dtype`, as a GGUF file has none (vLLM then takes its default)."""
    name = metadata.get("general.architecture")
    family = _family(metadata, name)
    config: dict[str, Any] = {
        "architectures": [family.architecture],
        "model_type": family.model_type,
        **dict(family.fixed),
    }
    for key, source in _COMMON + family.keys:
        value = _value(metadata, f"{name}.{source}")
        if value is not None and not (key == "sliding_window" and value == 0):
            config[key] = value
    vocabulary = _vocabulary(metadata, tensors)
    if vocabulary is not None:
        config["vocab_size"] = vocabulary
    config["tie_word_embeddings"] = not any(tensor.name == "lm_head.weight" for tensor in tensors)
    config["quantization_config"] = {"quant_method": "gguf"}
    if name == "deepseek2":
        _deepseek_fields(metadata, config)
    return config


_OUTER = {
    "token_embd": "model.embed_tokens",
    "output": "lm_head",
    "output_norm": "model.norm",
}
_INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_sinks": "self_attn.sinks",
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_b": "self_attn.q_b_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_kv_b": "self_attn.kv_b_proj",
    "ffn_norm": "post_attention_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.gate_proj",
    "ffn_up_exps": "mlp.experts.up_proj",
    "ffn_down_exps": "mlp.experts.down_proj",
    "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
    "ffn_up_shexp": "mlp.shared_experts.up_proj",
    "ffn_down_shexp": "mlp.shared_experts.down_proj",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "exp_probs_b": "mlp.gate.e_score_correction",
}
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


def checkpoint_name(gguf_name: str) -> str:
    """The Hugging Face name of a GGUF tensor ("blk.0.attn_q.weight" is "model.layers.0.self_attn.q_proj.weight"); unknown ones as they are."""
    block = _BLOCK.fullmatch(gguf_name)
    if block is not None and block[2] in _INNER:
        return f"model.layers.{block[1]}.{_INNER[block[2]]}.{block[3]}"
    stem, _, leaf = gguf_name.rpartition(".")
    return f"{_OUTER[stem]}.{leaf}" if stem in _OUTER else gguf_name


def tensor_of(row: Any, field: str) -> CheckpointTensor:
    """The tensor that a header row `[name, dimensions, type name]` states; dimensions fastest first, as GGUF writes them."""
    is_row = (
        isinstance(row, list | tuple) and len(row) == 3 and isinstance(row[0], str) and isinstance(row[1], list | tuple)
    )
    kind = TYPES_BY_NAME.get(row[2]) if is_row and isinstance(row[2], str) else None
    if kind is None or not all(isinstance(size, int) and 0 <= size < 2**48 for size in row[1]):
        raise PlanError(field, None, f"A GGUF tensor row is broken or of an unknown type: {row!r:.80}.")
    dimensions = tuple(row[1])
    return CheckpointTensor(
        name=checkpoint_name(row[0]),
        dtype=kind.name,
        shape=tuple(reversed(dimensions)),
        num_bytes=tensor_bytes(row[0], kind, dimensions, field),
    )


def documents_from_gguf(
    metadata: Mapping[str, Any], tensors: tuple[CheckpointTensor, ...], *, model_id: str, source: str
) -> ModelDocuments:
    """The documents of a GGUF file, its config.json made from the metadata."""
    return ModelDocuments(
        model_id=model_id,
        config_json=json.dumps(config_from_gguf(metadata, tensors)),
        tensors=tensors,
        checkpoint_total_bytes=sum(tensor.num_bytes for tensor in tensors),
        source=source,
        gguf_metadata_json=json.dumps(metadata),
    )
