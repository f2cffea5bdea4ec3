"""A random Llama of about 2.5 million parameters and a tokenizer of single bytes, written as a model folder in a second."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

NUM_LAYERS = 3
_HIDDEN, _INTERMEDIATE = 256, 704
_HEADS, _KV_HEADS, _HEAD_SIZE = 4, 2, 64
_VOCABULARY = 320  # 256 bytes, two special tokens, padding
_BEGIN, _END = 256, 257
FIRST_TOKEN, LAST_TOKEN = 32, 126  # prompts are made of these: printable bytes
MAX_POSITION = 4096

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": _HIDDEN,
    "intermediate_size": _INTERMEDIATE,
    "num_hidden_layers": NUM_LAYERS,
    "num_attention_heads": _HEADS,
    "num_key_value_heads": _KV_HEADS,
    "head_dim": _HEAD_SIZE,
    "hidden_act": "silu",
    "vocab_size": _VOCABULARY,
    "max_position_embeddings": MAX_POSITION,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": _BEGIN,
    "eos_token_id": _END,
    "torch_dtype": "bfloat16",
}


def write_tiny_model(folder: Path, seed: int = 7) -> Path:
    """The folder, now with a config, weights and a tokenizer that vLLM loads."""
    folder.mkdir(parents=True, exist_ok=True)
    documents = {
        "config.json": CONFIG,
        "generation_config.json": {"bos_token_id": _BEGIN, "eos_token_id": _END},
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "model_max_length": MAX_POSITION,
        },
    }
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document), encoding="utf-8")
    _write_weights(folder / "model.safetensors", seed)
    return folder


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "model.embed_tokens.weight", (_VOCABULARY, _HIDDEN)
    for layer in range(NUM_LAYERS):
        prefix = f"model.layers.{layer}"
        yield f"{prefix}.input_layernorm.weight", (_HIDDEN,)
        yield f"{prefix}.self_attn.q_proj.weight", (_HEADS * _HEAD_SIZE, _HIDDEN)
        yield f"{prefix}.self_attn.k_proj.weight", (_KV_HEADS * _HEAD_SIZE, _HIDDEN)
        yield f"{prefix}.self_attn.v_proj.weight", (_KV_HEADS * _HEAD_SIZE, _HIDDEN)
        yield f"{prefix}.self_attn.o_proj.weight", (_HIDDEN, _HEADS * _HEAD_SIZE)
        yield f"{prefix}.post_attention_layernorm.weight", (_HIDDEN,)
        yield f"{prefix}.mlp.gate_proj.weight", (_INTERMEDIATE, _HIDDEN)
        yield f"{prefix}.mlp.up_proj.weight", (_INTERMEDIATE, _HIDDEN)
        yield f"{prefix}.mlp.down_proj.weight", (_HIDDEN, _INTERMEDIATE)
    yield "model.norm.weight", (_HIDDEN,)
    yield "lm_head.weight", (_VOCABULARY, _HIDDEN)


def num_parameters() -> int:
    """How many numbers the weights hold."""
    return sum(int(np.prod(shape)) for _, shape in _shapes())


def _write_weights(path: Path, seed: int) -> None:
    """A safetensors file: the header's length, the header as JSON, then the tensors one after the other."""
    source = np.random.default_rng(seed)
    header: dict[str, object] = {}
    parts: list[bytes] = []
    start = 0
    for name, shape in _shapes():
        is_norm = len(shape) == 1
        numbers = np.ones(shape, np.float32) if is_norm else source.normal(0.0, 0.02, shape).astype(np.float32)
        part = (numbers.view(np.uint32) >> 16).astype("<u2").tobytes()  # bfloat16: the upper half of a float32
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, start + len(part)]}
        parts.append(part)
        start += len(part)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def _tokenizer() -> dict[str, object]:
    """A byte-level BPE tokenizer without merges: token n is byte n."""
    special = [
        {"id": token, "content": content, "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for token, content in ((_BEGIN, "<s>"), (_END, "</s>"))
    ]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model: dict[str, object] = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {character: byte for byte, character in enumerate(_byte_characters())},
        "merges": [],
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": model,
    }


def _byte_characters() -> Iterator[str]:
    """The character that byte-level tokenizers write for each byte: itself where it prints, else one past the last byte."""
    num_moved = 0
    for byte in range(256):
        if 33 <= byte <= 126 or (byte >= 161 and byte != 173):
            yield chr(byte)
        else:
            yield chr(256 + num_moved)
            num_moved += 1
