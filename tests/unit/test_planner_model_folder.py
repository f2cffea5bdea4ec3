"""Model folders, configs and headers from disk: what is read, and one clear sentence for everything else."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest

from planner.facts import PlanError
from planner.model_folder import config_documents, folder_documents
from tests.fakes.hub_server import safetensors_bytes

CONFIG = '{"architectures": ["LlamaForCausalLM"], "time_step_limit": [0.0, Infinity]}'
A_FILE = safetensors_bytes({"a.weight": ("BF16", [4, 8], 64)})
B_FILE = safetensors_bytes({"b.weight": ("U8", [16], 16)})


def folder_of(path: Path, **files: bytes | str) -> Path:
    path.mkdir(exist_ok=True)
    for name, content in files.items():
        target = path / name.replace("__", ".").replace("--", "-")
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refused(path: Path | str) -> PlanError:
    with pytest.raises(PlanError) as caught:
        folder_documents(path)
    assert "\n" not in caught.value.text
    assert caught.value.text.rstrip().endswith(".")
    return caught.value


def test_folder_with_a_config_alone_is_enough(tmp_path):
    folder = folder_of(tmp_path / "tiny", config__json=CONFIG)

    documents = folder_documents(folder)

    assert documents.model_id == "tiny"
    assert documents.config_json == CONFIG
    assert documents.tensors is None
    assert documents.checkpoint_total_bytes is None


def test_config_text_is_passed_on_as_it_is_without_its_byte_order_mark(tmp_path):
    folder = folder_of(tmp_path / "tiny", config__json=b"\xef\xbb\xbf" + CONFIG.encode())

    assert folder_documents(folder).config_json == CONFIG


def test_headers_are_read_and_the_second_copy_is_not(tmp_path):
    folder = folder_of(tmp_path / "t", config__json=CONFIG, model__safetensors=A_FILE, consolidated__safetensors=B_FILE)

    documents = folder_documents(folder)

    assert [tensor.name for tensor in documents.tensors] == ["a.weight"]
    assert documents.checkpoint_total_bytes == 64


def test_index_names_the_shards_and_headers_give_the_total(tmp_path):
    index = json.dumps(
        {"metadata": {"total_size": 999}, "weight_map": {"a.weight": "x.safetensors", "b.weight": "y.safetensors"}}
    )
    folder = folder_of(tmp_path / "t", config__json=CONFIG, model__safetensors__index__json=index)
    folder_of(folder, x__safetensors=A_FILE, y__safetensors=B_FILE, other__safetensors=b"junk")

    assert folder_documents(folder).checkpoint_total_bytes == 80


def test_index_without_all_shards_gives_its_own_total_and_no_tensors(tmp_path):
    index = json.dumps({"metadata": {"total_size": 999.0}, "weight_map": {"a": "x.safetensors", "b": "y.safetensors"}})
    folder = folder_of(
        tmp_path / "t", config__json=CONFIG, model__safetensors__index__json=index, x__safetensors=A_FILE
    )

    documents = folder_documents(folder)

    assert documents.tensors is None
    assert documents.checkpoint_total_bytes == 999


def test_lfs_pointer_stands_for_a_file_that_is_not_there(tmp_path):
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"
    folder = folder_of(tmp_path / "t", config__json=CONFIG, model__safetensors=pointer)

    assert folder_documents(folder).tensors is None


def test_pytorch_index_gives_a_total(tmp_path):
    folder = folder_of(
        tmp_path / "t", config__json=CONFIG, pytorch_model__bin__index__json='{"metadata": {"total_size": 7}}'
    )

    assert folder_documents(folder).checkpoint_total_bytes == 7


@pytest.mark.parametrize(
    ("modules", "is_pooling"),
    [
        (
            '[{"type": "sentence_transformers.models.Transformer"}, {"type": "sentence_transformers.models.Pooling"}]',
            True,
        ),
        ('[{"type": "sentence_transformers.models.Transformer"}]', False),
        ("{}", False),
        ("nonsense", False),
        ("[" * 100_000, False),
    ],
)
def test_modules_json_tells_a_sentence_transformer(tmp_path, modules, is_pooling):
    folder = folder_of(tmp_path / "tiny", config__json=CONFIG, modules__json=modules)

    assert folder_documents(folder).is_sentence_transformer is is_pooling


def test_limits_of_tokenizer_and_generation_are_read_where_sane(tmp_path):
    folder = folder_of(
        tmp_path / "t",
        config__json=CONFIG,
        tokenizer_config__json='{"model_max_length": 1000000000000000019884624838656}',
        generation_config__json='{"max_length": 2048}',
        hf_quant_config__json='{"quantization": {}}',
    )

    documents = folder_documents(folder)

    assert documents.tokenizer_max_length is None
    assert documents.generation_max_length == 2048
    assert documents.hf_quant_config_json == '{"quantization": {}}'


def test_fetched_headers_stand_for_the_files(tmp_path):
    headers = {
        "model_id": "a/b",
        "revision": "r",
        "source": "s",
        "tensors": {"x": {"dtype": "F4", "shape": [8], "bytes": 4}},
    }
    folder = folder_of(tmp_path / "t", config__json=CONFIG, kvscope____headers__json="{}")
    (folder / "kvscope-headers.json").write_text(json.dumps(headers))

    documents = folder_documents(folder)

    assert (documents.model_id, documents.revision, documents.source) == ("a/b", "r", "s")
    assert documents.checkpoint_total_bytes == 4


@pytest.mark.parametrize(
    "headers",
    [
        '{"tensors": []}',
        '{"tensors": {"x": 1}}',
        '{"tensors": {"x": {"dtype": "BF16", "shape": [8], "bytes": 4}}}',
        "[",
    ],
)
def test_broken_fetched_headers_are_named(tmp_path, headers):
    folder = folder_of(tmp_path / "t", config__json=CONFIG)
    (folder / "kvscope-headers.json").write_text(headers)

    assert "kvscope-headers.json" in refused(folder).text


def test_folder_that_is_not_there(tmp_path):
    assert "does not exist" in refused(tmp_path / "none").text


def test_file_instead_of_a_folder(tmp_path):
    (tmp_path / "config.json").write_text(CONFIG)

    assert "--config" in refused(tmp_path / "config.json").text


def test_folder_without_a_config(tmp_path):
    assert "no config.json" in refused(tmp_path).text


def test_folder_with_mistral_params_only(tmp_path):
    assert "params.json" in refused(folder_of(tmp_path / "t", params__json="{}")).text


def test_config_that_is_a_loop_of_links(tmp_path):
    (tmp_path / "config.json").symlink_to(tmp_path / "config.json")

    assert "cannot be read" in refused(tmp_path).text


def test_folder_that_is_a_loop_of_links(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")

    assert "cannot be read" in refused(tmp_path / "loop").text


def test_config_that_is_a_folder(tmp_path):
    (tmp_path / "config.json").mkdir()

    assert "is a folder" in refused(tmp_path).text


def test_config_that_is_a_pipe_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "config.json")

    assert "not a regular file" in refused(tmp_path).text


def test_weights_that_are_a_pipe_do_not_hang(tmp_path):
    folder = folder_of(tmp_path / "t", config__json=CONFIG)
    os.mkfifo(folder / "model.safetensors")

    assert "not a regular file" in refused(folder).text


def test_link_to_weights_that_are_gone(tmp_path):
    folder = folder_of(tmp_path / "t", config__json=CONFIG)
    (folder / "model.safetensors").symlink_to(tmp_path / "gone")

    assert "model.safetensors" in refused(folder).text


def test_name_with_a_nul_character():
    assert "cannot be read" in refused("a\0b").text
    with pytest.raises(PlanError, match="cannot be read"):
        config_documents("a\0b")


def test_config_of_100_mib_is_refused_without_reading_it_all(tmp_path):
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(100 * 2**20)

    assert "larger than 10.0 MiB" in refused(tmp_path).text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "line 1"),
        (b"[]", "no JSON object"),
        (b'{"a": 1, "a": 2}', "stands twice"),
        (b'{"a":' * 100_000, "too deeply"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "cannot be used"),
        (b"\x89PNG\r\n\x1a\n\xff", "not UTF-8"),
        (b"\xff\xfe{\0}\0", "not UTF-8"),
    ],
)
def test_broken_config_is_one_sentence(tmp_path, content, words):
    error = refused(folder_of(tmp_path / "t", config__json=content))

    assert words in error.text
    assert "config.json" in error.text
    assert error.field == "model_dir"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "shorter than the 8 bytes"),
        (struct.pack("<Q", 2**40), "no safetensors file"),
        (struct.pack("<Q", 1) + b"{", "header of 1 bytes"),
        (struct.pack("<Q", 100) + b"{}", "truncated"),
        (struct.pack("<Q", 2) + b"{]", "not valid JSON"),
        (safetensors_bytes({"a": ("BF16", [3], 8)}), "does not fill"),
        (struct.pack("<Q", 26) + b'{"a": {"dtype": "BF16"}}  ', "broken"),
        (struct.pack("<Q", 10) + b'{"a": 123}', "broken"),
        (safetensors_bytes({"a": ("BF16", [2**60], 0)}), "broken"),
        (safetensors_bytes({"a": ("BF16", [True], 2)}), "broken"),
    ],
)
def test_broken_header_is_one_sentence(tmp_path, content, words):
    error = refused(folder_of(tmp_path / "t", config__json=CONFIG, model__safetensors=content))

    assert words in error.text


def test_index_that_names_a_file_elsewhere_is_refused(tmp_path):
    index = json.dumps({"weight_map": {"a": "../../secret.safetensors"}})

    assert (
        "no safetensors file of its folder"
        in refused(folder_of(tmp_path / "t", config__json=CONFIG, model__safetensors__index__json=index)).text
    )


def test_tensor_of_a_newer_dtype_keeps_its_bytes(tmp_path):
    folder = folder_of(
        tmp_path / "t", config__json=CONFIG, model__safetensors=safetensors_bytes({"a": ("F3_E1M1", [8], 3)})
    )

    (tensor,) = folder_documents(folder).tensors

    assert (tensor.dtype, tensor.num_bytes) == ("F3_E1M1", 3)


def test_config_as_a_path_takes_its_folders_name(tmp_path):
    folder = folder_of(tmp_path / "tiny", config__json=CONFIG, other__json=CONFIG)

    assert config_documents(folder / "config.json").model_id == "tiny"
    assert config_documents(str(folder / "other.json")).model_id == "other"


def test_config_as_a_text():
    documents = config_documents(CONFIG)

    assert documents.config_json == CONFIG
    assert documents.model_id == "uploaded config"


def test_wrapped_config_is_unwrapped():
    wrapped = {
        "model_id": "a/b",
        "config": {"hidden_size": 8},
        "hf_quant_config": {"q": 1},
        "weights": {"total_size_bytes": 5},
    }

    documents = config_documents(json.dumps(wrapped))

    assert documents.model_id == "a/b"
    assert json.loads(documents.config_json) == {"hidden_size": 8}
    assert json.loads(documents.hf_quant_config_json) == {"q": 1}
    assert documents.checkpoint_total_bytes == 5


def test_wrapped_config_with_several_ids_takes_the_first():
    assert config_documents('{"model_ids": ["x", "y"], "config": {}}').model_id == "x"


@pytest.mark.parametrize(
    "text",
    [
        '{"model_id": 3, "config": {}}',
        '{"model_id": "x", "gguf": {}}',
        '{"model_id": "x", "gguf": {"metadata": {}, "tensors": [1]}}',
    ],
)
def test_broken_wrapping_is_one_sentence(text):
    with pytest.raises(PlanError):
        config_documents(text)


def test_config_that_is_not_there_names_the_option(tmp_path):
    with pytest.raises(PlanError, match="--config") as caught:
        config_documents(tmp_path / "none.json")

    assert caught.value.field == "config"


def test_config_that_is_a_folder_is_refused(tmp_path):
    with pytest.raises(PlanError, match="is a folder"):
        config_documents(tmp_path)


def test_config_text_of_100_mb_is_refused():
    with pytest.raises(PlanError, match="larger than"):
        config_documents('{"a": "' + "x" * (11 * 2**20) + '"}')
