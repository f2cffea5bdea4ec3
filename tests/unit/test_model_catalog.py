"""The offline catalogue: what it holds, how it is searched, what it refuses."""

from __future__ import annotations

import json

import pytest

from planner.facts import PlanError
from planner.model_catalog import catalogue_documents, catalogue_ids, known_parameters, search


def test_every_plannable_entry_yields_documents_with_its_source():
    plannable = [entry for entry in search() if entry.is_plannable]

    assert len(plannable) >= 100
    for entry in plannable:
        documents = catalogue_documents(entry.model_id)
        assert json.loads(documents.config_json)["architectures"]
        assert documents.source == f"offline catalogue: {entry.source}"
        assert documents.model_id == entry.model_id


def test_every_id_is_an_entry_once():
    assert sorted(entry.model_id for entry in search()) == sorted(catalogue_ids())
    assert len(set(catalogue_ids())) == len(catalogue_ids())


def test_reduced_copy_is_found_but_not_planned():
    (entry,) = search("falcon-h1-7b")

    assert entry.completeness == "reduced"
    with pytest.raises(PlanError, match="python -m live fetch tiiuae/Falcon-H1-7B-Instruct --out DIR") as caught:
        catalogue_documents(entry.model_id)
    assert caught.value.field == "model"


def test_config_made_from_a_sister_model_says_so():
    (entry,) = search("meta-llama/Llama-3.1-8B-Instruct")

    assert entry.completeness == "derived"
    assert entry.source.startswith("derived: ")


def test_copy_that_lacks_its_quantisation_file_counts_as_incomplete():
    assert not catalogue_documents("nvidia/GLM-5-NVFP4").is_config_complete
    assert catalogue_documents("nvidia/DeepSeek-V3.1-NVFP4").is_config_complete


def test_modelopt_quantisation_file_comes_along():
    documents = catalogue_documents("nvidia/Llama-3.1-70B-Instruct-FP8")

    assert json.loads(documents.hf_quant_config_json)["quantization"]["quant_algo"] == "FP8"


def test_exact_checkpoint_total_is_given_and_an_inferred_one_is_not():
    assert catalogue_documents("meta-llama/Llama-3.1-8B").checkpoint_total_bytes == 16060522496
    assert catalogue_documents("meta-llama/Llama-3.2-1B").checkpoint_total_bytes is None


def test_id_is_found_in_any_case():
    assert catalogue_documents(" qwen/qwen3-8b ").model_id == "Qwen/Qwen3-8B"


def test_unknown_id_names_the_nearest_and_the_way_to_the_hub():
    with pytest.raises(PlanError) as caught:
        catalogue_documents("Qwen/Qwen3-9B")

    assert "Qwen/Qwen3-8B" in caught.value.text
    assert "python -m live fetch Qwen/Qwen3-9B --out DIR" in caught.value.text


@pytest.mark.parametrize("model_id", ["", "   ", "x" * 5000, "../../etc/passwd", "a\nb", "\0", "🦙/🦙"])
def test_nonsense_id_is_one_sentence(model_id):
    with pytest.raises(PlanError) as caught:
        catalogue_documents(model_id)

    assert "\n" not in caught.value.text
    assert len(caught.value.text) < 500


def test_search_finds_by_architecture_and_quantisation():
    assert all(entry.quantization == "fp8" for entry in search("deepseekv3 fp8"))
    assert "deepseek-ai/DeepSeek-V3" in [entry.model_id for entry in search("deepseekv3 fp8")]
    assert search("no such model anywhere") == ()


def test_search_puts_names_that_start_with_the_text_first():
    assert search("llama-3.1-8b")[0].model_id.split("/")[1].lower().startswith("llama-3.1-8b")


def test_packed_checkpoint_is_counted_in_parameters_not_in_stored_elements():
    (entry,) = search("nvidia/DeepSeek-V3.1-NVFP4")

    assert entry.num_parameters == 671026419200


def test_parameter_total_of_a_model_without_a_config_is_known():
    assert known_parameters("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B") == 32763876352
    assert known_parameters("no/such") is None


def test_gguf_entry_yields_a_config_and_its_tensors():
    documents = catalogue_documents("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF")
    config = json.loads(documents.config_json)

    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["num_key_value_heads"] == 8
    assert config["vocab_size"] == 128256
    assert config["tie_word_embeddings"] is False
    assert config["quantization_config"] == {"quant_method": "gguf"}
    assert sum(tensor.num_bytes for tensor in documents.tensors) == 8532934912  # the header's own modelSize
