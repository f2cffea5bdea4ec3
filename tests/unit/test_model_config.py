from __future__ import annotations

import json
from typing import Any

import pytest
from factories import make_documents

from planner.facts import PlanError
from planner.inventory import CheckpointTensor
from planner.model_config import read_model

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}


def _codes(**changes: Any) -> set[str]:
    return {finding.code for finding in read_model(make_documents(LLAMA | changes)).findings}


@pytest.mark.parametrize("missing", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
def test_a_size_that_is_missing_is_named(missing: str) -> None:
    config = {key: value for key, value in LLAMA.items() if key != missing}

    with pytest.raises(PlanError, match=missing):
        read_model(make_documents(config))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not valid JSON"),
        ("[]", "one JSON object"),
        ("[" * 200_000, "nested too deeply"),
        (" " * (21 * 2**20), "characters"),
    ],
)
def test_a_file_that_is_no_config_is_refused(text: str, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        read_model(make_documents({}, config_json=text))


def test_more_layers_than_any_model_has_are_refused_before_they_are_made() -> None:
    with pytest.raises(PlanError, match="num_hidden_layers"):
        read_model(make_documents(LLAMA | {"num_hidden_layers": 10**9}))


def test_an_architecture_that_is_missing_follows_from_the_model_type() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "architectures"}

    assert read_model(make_documents(config)).architecture == "LlamaForCausalLM"


def test_an_unknown_llama_like_architecture_is_sized_with_a_warning() -> None:
    model = read_model(make_documents(LLAMA | {"architectures": ["BrandNewForCausalLM"], "model_type": "brand_new"}))

    assert len(model.layers) == 2
    assert "architecture-assumed" in {finding.code for finding in model.findings}


def test_an_unknown_architecture_with_experts_is_refused() -> None:
    with pytest.raises(PlanError, match="num_experts"):
        read_model(
            make_documents(LLAMA | {"architectures": ["NewMoeForCausalLM"], "model_type": "x", "num_experts": 8})
        )


def test_a_dtype_that_is_nowhere_is_assumed_and_said() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "torch_dtype"}

    model = read_model(make_documents(config))

    assert model.dtype == "bfloat16"
    assert "dtype-assumed" in {finding.code for finding in model.findings}


def test_a_dtype_that_is_missing_is_read_from_the_headers() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "torch_dtype"}
    tensors = (CheckpointTensor(name="model.norm.weight", dtype="F16", shape=(256,), num_bytes=512),)

    assert read_model(make_documents(config, tensors=tensors)).dtype == "float16"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 4096),
        ({"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, 16384),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 8192),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}}, 4096),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 4096),
        ({"model_max_length": 131072}, 131072),
        ({"seq_length": 2048}, 2048),
        (
            {
                "rope_scaling": {"type": "longrope", "short_factor": [], "long_factor": []},
                "original_max_position_embeddings": 512,
            },
            4096,
        ),
    ],
)
def test_the_longest_length_is_vllms(changes: dict[str, Any], expected: int) -> None:
    assert read_model(make_documents(LLAMA | changes)).max_position == expected


def test_the_tokenizers_length_bounds_the_models() -> None:
    assert read_model(make_documents(LLAMA, tokenizer_max_length=1000)).max_position == 1000


def test_a_config_without_any_length_gets_vllms_fallback_and_says_so() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "max_position_embeddings"} | {"model_type": "odd"}

    model = read_model(make_documents(config))

    assert model.max_position == 2048
    assert "length-assumed" in {finding.code for finding in model.findings}


def test_modelopts_own_file_is_the_quantisation_when_config_has_none() -> None:
    separate = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "exclude_modules": []}}

    model = read_model(make_documents(LLAMA, hf_quant_config_json=json.dumps(separate)))

    assert model.quantization is not None
    assert (model.quantization.method, model.quantization.source) == ("modelopt_fp4", "hf_quant_config.json")


def test_compression_config_counts_as_quantisation() -> None:
    model = read_model(make_documents(LLAMA | {"compression_config": {"quant_method": "compressed_tensors"}}))

    assert model.quantization is not None
    assert model.quantization.method == "compressed-tensors"


def test_a_reduced_copy_is_said_to_be_one() -> None:
    model = read_model(make_documents(LLAMA, is_config_complete=False))

    assert "config-incomplete" in {finding.code for finding in model.findings}


def test_a_complete_config_raises_no_finding() -> None:
    assert _codes() == set()


def test_sizes_that_a_multimodal_config_leaves_to_its_class_are_named() -> None:
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "torch_dtype": "bfloat16",
        "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34},
        "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152, "num_hidden_layers": 27},
    }

    model = read_model(make_documents(config))

    finding = next(finding for finding in model.findings if finding.code == "size-from-class")
    assert "vocab_size 262208" in finding.text


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "LlamaModel", "MistralModel"])
@pytest.mark.parametrize("is_sentence_transformer", [True, False])
def test_a_head_is_built_unless_the_model_embeds_sentences(architecture: str, is_sentence_transformer: bool) -> None:
    config = LLAMA | {"architectures": [architecture]}

    model = read_model(make_documents(config, is_sentence_transformer=is_sentence_transformer))

    roles = [getattr(module, "role", None) for part in model.parts for module in part.modules]
    assert roles.count("head") == (0 if is_sentence_transformer else 1)
