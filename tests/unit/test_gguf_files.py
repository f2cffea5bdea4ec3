"""GGUF headers: held to package gguf's writer, reader and type table; broken ones are one sentence."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from live.gguf_files import gguf_path_documents, gguf_upload_documents
from live.model_files import upload_documents
from planner.facts import PlanError
from planner.gguf_config import checkpoint_name, config_from_gguf
from planner.gguf_types import GGML_TYPES
from planner.model_folder import config_documents, folder_documents


def write_gguf(path: Path, arch: str = "llama", *, tied: bool = False, **extra: int) -> Path:
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(4096)
    writer.add_embedding_length(64)
    writer.add_block_count(1)
    writer.add_feed_forward_length(128)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_token_list([f"token {number}" for number in range(2000)])
    writer.add_array("some.flags", [True, False])
    for key, value in extra.items():
        writer.add_uint32(f"{arch}.{key.replace('__', '.')}", value)
    writer.add_tensor("token_embd.weight", np.zeros((256, 64), np.float16))
    writer.add_tensor("blk.0.attn_q.weight", np.zeros((64, 68), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("blk.0.attn_norm.weight", np.zeros(64, np.float32))
    if not tied:
        writer.add_tensor("output.weight", np.zeros((256, 64), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_type_table_is_that_of_package_gguf():
    theirs = {kind.value: (kind.name, *gguf.GGML_QUANT_SIZES[kind]) for kind in gguf.GGMLQuantizationType}

    assert {number: tuple(kind) for number, kind in GGML_TYPES.items()} == theirs


def test_header_reads_as_package_gguf_reads_it(tmp_path):
    path = write_gguf(tmp_path / "tiny.gguf")
    reader = gguf.GGUFReader(path)

    documents = gguf_path_documents(path)

    ours = [(t.name, t.dtype, t.num_bytes) for t in documents.tensors]
    theirs = [(checkpoint_name(t.name), t.tensor_type.name, int(t.n_bytes)) for t in reader.tensors]
    assert ours == theirs
    assert documents.checkpoint_total_bytes == sum(int(t.n_bytes) for t in reader.tensors)
    metadata = json.loads(documents.gguf_metadata_json)
    assert metadata["llama.context_length"] == reader.fields["llama.context_length"].contents()
    assert metadata["tokenizer.ggml.tokens"] == 2000  # a vocabulary's length stands for it


def test_config_of_a_gguf_file(tmp_path):
    config = json.loads(gguf_path_documents(write_gguf(tmp_path / "tiny.gguf")).config_json)

    assert config == {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "rope_theta": 10000.0,
        "rms_norm_eps": pytest.approx(1e-5),
        "vocab_size": 256,
        "tie_word_embeddings": False,
        "quantization_config": {"quant_method": "gguf"},
    }


def test_file_without_an_output_matrix_ties_its_embeddings(tmp_path):
    path = write_gguf(
        tmp_path / "tiny.gguf", "gemma3", tied=True, attention__sliding_window=512, attention__key_length=32
    )

    config = json.loads(gguf_path_documents(path).config_json)

    assert config["tie_word_embeddings"] is True
    assert (config["sliding_window"], config["sliding_window_pattern"], config["head_dim"]) == (512, 6, 32)


def test_llama_with_experts_is_mixtral(tmp_path):
    path = write_gguf(tmp_path / "moe.gguf", expert_count=8, expert_used_count=2)

    config = json.loads(gguf_path_documents(path).config_json)

    assert config["architectures"] == ["MixtralForCausalLM"]
    assert (config["num_local_experts"], config["num_experts_per_tok"]) == (8, 2)


def test_deepseek_with_sigmoid_gating_is_v3():
    metadata = {
        "general.architecture": "deepseek2",
        "deepseek2.block_count": 61,
        "deepseek2.attention.head_count": 128,
        "deepseek2.attention.head_count_kv": 1,
        "deepseek2.attention.key_length": 576,
        "deepseek2.attention.value_length": 512,
        "deepseek2.attention.key_length_mla": 192,
        "deepseek2.attention.value_length_mla": 128,
        "deepseek2.attention.kv_lora_rank": 512,
        "deepseek2.rope.dimension_count": 64,
        "deepseek2.expert_gating_func": 2,
        "tokenizer.ggml.tokens": 129280,
    }

    config = config_from_gguf(metadata, ())

    assert config["architectures"] == ["DeepseekV3ForCausalLM"]
    assert (config["qk_nope_head_dim"], config["v_head_dim"], config["num_key_value_heads"]) == (128, 128, 128)
    assert config["vocab_size"] == 129280


def test_deepseek_without_head_lengths_is_refused():
    with pytest.raises(PlanError, match="key_length"):
        config_from_gguf({"general.architecture": "deepseek2", "deepseek2.attention.head_count": 2}, ())


def test_equal_counts_layer_by_layer_are_one_count():
    metadata = {"general.architecture": "llama", "llama.attention.head_count_kv": [8, 8]}

    assert config_from_gguf(metadata, ())["num_key_value_heads"] == 8


def test_counts_that_differ_layer_by_layer_are_refused():
    with pytest.raises(PlanError, match="layer by layer"):
        config_from_gguf({"general.architecture": "llama", "llama.attention.head_count_kv": [8, 4]}, ())


@pytest.mark.parametrize("architecture", ["rwkv7", None, 3, ["llama"]])
def test_unknown_architecture_is_refused(architecture):
    with pytest.raises(PlanError, match="base model's config"):
        config_from_gguf({"general.architecture": architecture}, ())


def test_upload_needs_only_the_header(tmp_path):
    path = write_gguf(tmp_path / "tiny.gguf")
    whole = gguf_path_documents(path)
    data_starts = gguf.GGUFReader(path).data_offset

    documents = upload_documents(io.BytesIO(path.read_bytes()[:data_starts]), "tiny.gguf")

    assert documents.config_json == whole.config_json
    assert documents.checkpoint_total_bytes == whole.checkpoint_total_bytes
    assert documents.model_id == "tiny"


def test_upload_of_a_config():
    assert upload_documents(io.BytesIO(b'{"hidden_size": 8}'), "config.json").config_json == '{"hidden_size": 8}'


@pytest.mark.parametrize("content", [b"", b"\xff\x00", b"[1]", b"x" * (11 * 2**20)])
def test_upload_of_anything_else_is_one_sentence(content):
    with pytest.raises(PlanError) as caught:
        upload_documents(io.BytesIO(content), "thing.bin")

    assert caught.value.field == "upload"


def test_folder_with_one_gguf_file_is_that_model(tmp_path):
    write_gguf(tmp_path / "tiny.gguf")
    (tmp_path / "mmproj-tiny.gguf").write_bytes(b"")

    assert folder_documents(tmp_path).model_id == "tiny"
    assert config_documents(tmp_path / "tiny.gguf").model_id == "tiny"


def test_folder_with_several_models_asks_which(tmp_path):
    for name in ("a.gguf", "b.gguf"):
        write_gguf(tmp_path / name)

    with pytest.raises(PlanError, match="2 GGUF models"):
        folder_documents(tmp_path)


def test_split_file_is_read_whole(tmp_path):
    for part in (1, 2):
        write_gguf(tmp_path / f"tiny-0000{part}-of-00002.gguf")

    assert len(folder_documents(tmp_path).tensors) == 8


def test_split_file_with_a_part_missing_is_refused(tmp_path):
    write_gguf(tmp_path / "tiny-00001-of-00002.gguf")

    with pytest.raises(PlanError, match="00002-of-00002"):
        folder_documents(tmp_path)


def entry(key: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value


def header(entries: list[bytes], tensors: list[bytes], *, version: int = 3, num_tensors: int | None = None) -> bytes:
    counts = struct.pack("<QQ", len(tensors) if num_tensors is None else num_tensors, len(entries))
    return b"GGUF" + struct.pack("<I", version) + counts + b"".join(entries + tensors)


def tensor(name: str, dimensions: tuple[int, ...], kind: int) -> bytes:
    sizes = b"".join(struct.pack("<Q", size) for size in dimensions)
    return (
        struct.pack("<Q", len(name))
        + name.encode()
        + struct.pack("<I", len(dimensions))
        + sizes
        + struct.pack("<IQ", kind, 0)
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "truncated"),
        (b"PK\x03\x04 zip", "does not start with GGUF"),
        (header([], [], version=1), "version 1"),
        (header([], [], version=0x03000000), "big-endian"),
        (header([], [], num_tensors=2**40), "tensors"),
        (header([], [])[:-4], "truncated"),
        (header([entry("a", 99, b"")], []), "unknown type 99"),
        (header([entry("a", 8, struct.pack("<Q", 2**50))], []), "bytes of one text"),
        (header([entry("a", 8, struct.pack("<Q", 2**20))], []), "truncated"),
        (header([entry("a", 9, struct.pack("<IQ", 0, 2**29))], []), "header is larger"),
        (header([entry("a", 9, struct.pack("<IQ", 77, 1))], []), "array of unknown type"),
        (header([entry("a", 9, struct.pack("<IQ", 9, 1) * 5)], []), "array of unknown type"),
        (header([], [tensor("t", (32,), 999)]), "does not know"),
        (header([], [tensor("t", (33,), 8)]), "do not fill"),
        (header([], [tensor("t", (1,) * 9, 0)]), "9 dimensions"),
        (header([], [tensor("t", (2**60,), 0)]), "elements in one dimension"),
        (header([], []), "not one of those read"),
    ],
)
def test_broken_header_is_one_sentence(content, words):
    with pytest.raises(PlanError) as caught:
        gguf_upload_documents(io.BytesIO(content), "x.gguf")

    assert words in caught.value.text
    assert "\n" not in caught.value.text


def test_file_that_cannot_be_read_is_one_sentence(tmp_path):
    (tmp_path / "x.gguf").symlink_to(tmp_path / "gone")

    with pytest.raises(PlanError, match=r"x\.gguf cannot be read"):
        folder_documents(tmp_path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("blk.12.ffn_down_exps.weight", "model.layers.12.mlp.experts.down_proj.weight"),
        ("blk.0.attn_q.bias", "model.layers.0.self_attn.q_proj.bias"),
        ("rope_freqs.weight", "rope_freqs.weight"),
        ("blk.0.unheard_of.weight", "blk.0.unheard_of.weight"),
    ],
)
def test_tensor_names_become_the_checkpoints(name, expected):
    assert checkpoint_name(name) == expected
