"""Which weight format vLLM gives each module of a checkpoint: one `Quantizer` per method, chosen by `quantizer_for`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.facts import PlanError
from planner.inventory import Embedding, Experts, Linear, ModelFacts, QuantFacts
from planner.quant_compressed import CompressedTensors
from planner.quant_formats import PLAIN, Format
from planner.quant_integers import AutoRound, Awq, BitsAndBytes, Gguf, Gptq
from planner.quant_methods import (
    DeepseekV4,
    FbgemmFp8,
    Fp8,
    KernelChoice,
    Method,
    Mxfp4,
    Online,
    Quark,
    Unquantized,
)
from planner.quant_modelopt import ModelOpt

QuantizedModule = Linear | Experts | Embedding
_METHODS: dict[str, Callable[[QuantFacts, KernelChoice], Method]] = {
    "fp8": Fp8,
    "fbgemm_fp8": FbgemmFp8,
    "deepseek_v4_fp8": DeepseekV4,
    "modelopt": ModelOpt,
    "modelopt_fp4": ModelOpt,
    "modelopt_mixed": ModelOpt,
    "modelopt_mxfp8": ModelOpt,
    "compressed-tensors": CompressedTensors,
    "awq": Awq,
    "awq_marlin": Awq,
    "auto_awq": Awq,
    "gptq": Gptq,
    "gptq_marlin": Gptq,
    "auto_gptq": Gptq,
    "mxfp4": Mxfp4,
    "gpt_oss_mxfp4": Mxfp4,
    "auto-round": AutoRound,
    "auto_round": AutoRound,
    "inc": AutoRound,
    "intel": AutoRound,
    "bitsandbytes": BitsAndBytes,
    "gguf": Gguf,
    "quark": Quark,
}
ONLINE_METHODS = Online.METHODS
# Methods whose kernels, and so the bytes they store, differ by card.
_ASKING_THE_CARD = frozenset({"deepseek_v4_fp8", "mxfp4", "gpt_oss_mxfp4"})


@dataclass(frozen=True, slots=True, eq=False)
class Quantizer:
    """Formats for one model under one method on one kind of card."""

    method: Method

    @property
    def leaves_all(self) -> bool:
        """Whether every module keeps the model's dtype."""
        return isinstance(self.method, Unquantized)

    def format_of(self, module: QuantizedModule, prefix: str) -> Format:
        """The format of a module below `prefix`, its layer's or part's name in the checkpoint."""
        names = tuple(f"{prefix}.{name}" if prefix else name for name in module.prefixes or (module.name,))
        if isinstance(module, Experts):
            return self.method.experts(names)
        if isinstance(module, Embedding):
            return self.method.head(names) if module.role == "head" else self.method.embedding(names)
        if module.is_odd_sized and not isinstance(self.method, BitsAndBytes):
            return PLAIN
        return self.method.linear(names)

    def cache_tensors(self, *, is_mla: bool) -> tuple[int, ...]:
        """The bytes of each KV-cache scale parameter that one attention layer gets."""
        return self.method.cache_tensors(is_mla=is_mla)


def quantizer_for(model: ModelFacts, method: str | None, kernels: KernelChoice) -> Quantizer:
    """The quantizer of the checkpoint's method, or of an online `method` for a checkpoint that has none."""
    if model.quantization is not None:
        return Quantizer(_checkpoint_method(model.quantization, kernels))
    if method is None:
        return Quantizer(Unquantized())
    if method not in ONLINE_METHODS:
        raise PlanError(
            "quantization",
            method,
            f"quantization {method} needs a checkpoint that is already quantised so; "
            f"for this one use one of {', '.join(sorted(ONLINE_METHODS))}, or none.",
        )
    return Quantizer(Online(method, kernels))


def asks_card(facts: QuantFacts | None) -> bool:
    """Whether a checkpoint's bytes on a card depend on which card it is."""
    return facts is not None and facts.method in _ASKING_THE_CARD


def _checkpoint_method(facts: QuantFacts, kernels: KernelChoice) -> Method:
    maker = _METHODS.get(facts.method)
    if maker is None:
        raise PlanError(
            "quantization_config.quant_method",
            facts.method,
            f"quant_method {facts.method} in {facts.source} is not one this planner knows; "
            f"it knows {', '.join(sorted(_METHODS))}.",
        )
    return maker(facts, kernels)


__all__ = ["ONLINE_METHODS", "PLAIN", "KernelChoice", "Quantizer", "asks_card", "quantizer_for"]
