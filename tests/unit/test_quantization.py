from __future__ import annotations

from typing import Any

import pytest
from factories import make_documents, make_gpu, make_resolved

from planner.facts import PlanError
from planner.inventory import ModelFacts, QuantFacts
from planner.model_config import read_model
from planner.quant_compressed import CompressedTensors
from planner.quant_formats import PLAIN, fp8, integer_groups, mx, nvfp4
from planner.quant_integers import Gptq
from planner.quant_methods import Fp8, KernelChoice, Quark, mxfp4_experts
from planner.quant_modelopt import ModelOpt
from planner.request import EngineFlags
from planner.weights import rank_weights

KERNELS = KernelChoice(capability=(9, 0))
QKV = tuple(f"model.layers.0.self_attn.{name}_proj" for name in "qkv")
DOWN = ("model.layers.0.mlp.down_proj",)
EXPERTS = ("model.layers.1.mlp.experts",)


def _facts(**settings: Any) -> QuantFacts:
    return QuantFacts(method="test", settings=settings)


def _llama(**changes: Any) -> ModelFacts:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 512,
        "vocab_size": 1000,
        "max_position_embeddings": 128,
        "torch_dtype": "bfloat16",
    }
    return read_model(make_documents(config | changes))


def test_fp8_leaves_a_fused_linear_alone_when_all_its_parts_are_listed() -> None:
    method = Fp8(_facts(modules_to_not_convert=list(QKV)), KERNELS)

    assert method.linear(QKV) == PLAIN
    assert method.linear(DOWN) == fp8("tensor")


def test_fp8_leaves_experts_alone_when_one_of_them_is_listed() -> None:
    method = Fp8(_facts(ignored_layers=["model.layers.1.mlp.experts.0.gate_proj"]), KERNELS)

    assert method.experts(EXPERTS) == PLAIN


def test_fp8_gives_latent_attention_no_scales() -> None:
    method = Fp8(_facts(), KERNELS)

    assert method.cache_tensors(is_mla=True) == ()
    assert method.cache_tensors(is_mla=False) == (2, 2, 2, 2)


def test_modelopt_excludes_by_wildcard() -> None:
    settings = {
        "quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["model.layers.0.self_attn*"]}
    }
    method = ModelOpt(_facts(**settings), KERNELS)

    assert method.linear(QKV) == PLAIN
    assert method.linear(DOWN) == nvfp4()


def test_modelopt_quantises_the_head_unless_it_is_excluded() -> None:
    assert ModelOpt(_facts(quant_algo="FP8"), KERNELS).head(("lm_head",)) == fp8("tensor", is_static=True)
    assert ModelOpt(_facts(quant_algo="FP8", ignore=["lm_head"]), KERNELS).head(("lm_head",)) == PLAIN


def test_compressed_tensors_meets_layers_by_class_name_and_pattern() -> None:
    weights = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": {"dynamic": True}}
    method = CompressedTensors(_facts(config_groups={"g": group}, ignore=["re:.*self_attn.*", "lm_head"]), KERNELS)

    assert method.linear(QKV) == PLAIN
    assert method.linear(DOWN) == fp8("channel")
    assert method.head(("lm_head",)) == PLAIN


def test_gptq_exempts_what_a_dynamic_pattern_says() -> None:
    method = Gptq(_facts(bits=4, group_size=128, dynamic={r"-:.*\.down_proj": {}, r"+:.*q_proj": {"bits": 8}}), KERNELS)

    assert method.linear(DOWN) == PLAIN
    assert method.linear(QKV).bits == 8


@pytest.mark.parametrize(
    ("kernels", "hidden", "intermediate"),
    [
        (KernelChoice(capability=(9, 0)), 1, 64),
        (KernelChoice(capability=(9, 0), moe_backend="marlin"), 256, 128),
        (KernelChoice(capability=(8, 0)), 256, 128),
        (KernelChoice(capability=(10, 0)), 256, 128),
        (KernelChoice(capability=None, vendor="Intel"), 1, 64),
        (KernelChoice(capability=None, vendor="AMD"), 256, 256),
    ],
)
def test_mxfp4_padding_follows_the_card_and_the_backend(kernels: KernelChoice, hidden: int, intermediate: int) -> None:
    form = mxfp4_experts(kernels, is_gpt_oss=True)

    assert (form.pad_hidden, form.pad_intermediate) == (hidden, intermediate)


def test_an_unknown_method_is_refused_by_name() -> None:
    model = _llama(quantization_config={"quant_method": "exl3", "bits": 4})

    with pytest.raises(PlanError, match="exl3") as caught:
        rank_weights(model, make_resolved(), 0)
    assert caught.value.field == "quantization_config.quant_method"


def test_quantising_while_loading_shrinks_the_linears_only() -> None:
    model = _llama()

    plain = rank_weights(model, make_resolved(), 0)
    online = rank_weights(model, make_resolved(quantization="fp8"), 0)

    linears = 2 * (256 * (256 + 2 * 128) + 256 * 256 + 3 * 256 * 512)
    scales = 2 * 4 * (3 + 1 + 2 + 1)
    assert plain.parameter_bytes - online.parameter_bytes == linears - scales


def test_a_group_size_of_nought_is_refused() -> None:
    model = _llama(quantization_config={"quant_method": "awq", "bits": 4, "group_size": 0})

    with pytest.raises(PlanError, match="group_size"):
        rank_weights(model, make_resolved(gpu=make_gpu(), flags=EngineFlags()), 0)


def _quark(weight: dict[str, Any], **settings: Any) -> Quark:
    return Quark(_facts(global_quant_config={"weight": weight}, **settings), KERNELS)


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        ({"dtype": "fp8_e4m3", "qscheme": "per_tensor"}, (8, "tensor")),
        ({"dtype": "fp8_e4m3", "qscheme": "per_channel"}, (8, "channel")),
        ({"dtype": "int8", "qscheme": "per_channel"}, (8, "channel")),
    ],
)
def test_quark_scales_as_its_scheme_says(weight: dict[str, Any], expected: tuple[int, str]) -> None:
    made = _quark(weight).linear(DOWN)

    assert (made.bits, made.scale) == expected


def test_quark_in_groups_is_mxfp4_or_integers_by_the_group() -> None:
    assert _quark({"dtype": "fp4", "qscheme": "per_group"}).linear(DOWN) == mx(4)
    four_bits = _quark({"dtype": "int4", "qscheme": "per_group", "group_size": 64}).linear(DOWN)
    assert four_bits == integer_groups(4, 64, has_zeros=False)


def test_quark_leaves_alone_what_it_excludes() -> None:
    method = _quark({"dtype": "fp4"}, exclude=[*QKV, "model.layers.1.mlp.experts.0.w1"])

    assert method.linear(QKV) == PLAIN
    assert method.experts(EXPERTS) == PLAIN
    assert method.experts(("model.layers.2.mlp.experts",)) == mx(4)
    assert method.cache_tensors(is_mla=True) == ()


@pytest.mark.parametrize(
    "settings",
    [
        {"global_quant_config": None},
        {"global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}, "layer_quant_config": {"*.q_proj": {}}},
        {"global_quant_config": {"weight": {"dtype": "int3"}}},
    ],
)
def test_a_quark_scheme_that_is_not_known_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="global_quant_config"):
        Quark(_facts(**settings), KERNELS)
