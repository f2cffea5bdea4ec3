"""ModelOpt checkpoints: FP8, NVFP4, MXFP8 or a mix, with wildcards for what is left alone (vLLM modelopt.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.facts import PlanError
from planner.inventory import QuantFacts
from planner.module_names import bare, holds_experts, is_part, is_wild
from planner.quant_formats import PLAIN, Format, fp8, mx, nvfp4
from planner.quant_methods import KernelChoice, Method, Names, integer, texts

_VISION = ("vision_tower", "vision_model", "vit_large_projector")
_SCALAR_BYTES = 2  # made in the default dtype while loading, which is the model's


class ModelOpt(Method):
    """One algorithm for all modules but the excluded, or `quantized_layers` for each (MIXED_PRECISION)."""

    def __init__(self, facts: QuantFacts, kernels: KernelChoice) -> None:
        del kernels
        inner = facts.settings.get("quantization")
        self._settings: Mapping[str, Any] = inner if isinstance(inner, dict) else facts.settings
        self._algorithm = str(self._settings.get("quant_algo") or "").upper()
        self._excluded = texts(self._settings, "exclude_modules", "ignore")
        self._exact = frozenset(bare(name) for name in self._excluded)
        self._wildcards = tuple(name for name in self._excluded if any(sign in name for sign in "*?["))
        self._group = integer(self._settings, "group_size", 16)
        layers = self._settings.get("quantized_layers") or {}
        self._layers = {bare(name): value for name, value in layers.items()} if isinstance(layers, dict) else {}
        self._is_mixed = self._algorithm == "MIXED_PRECISION"
        self._has_cache_scales = bool(
            self._settings.get("kv_cache_quant_algo") or self._settings.get("kv_cache_scheme") or not self._is_mixed
        )
        self._is_weight_only = _is_weight_only(facts.settings)
        if not self._is_mixed:
            self._format(self._algorithm)

    def _format(self, algorithm: str) -> Format:
        match algorithm:
            case "FP8":
                return fp8("tensor", is_static=True)
            case "FP8_PER_CHANNEL_PER_TOKEN":
                return fp8("channel")
            case "FP8_PB_WO" | "FP8_BLOCK_SCALES":
                return fp8("block")
            case "NVFP4":
                return self._weight_only() if self._is_weight_only else nvfp4(group_size=self._group)
            case "W4A16_NVFP4":
                return self._weight_only()
            case "MXFP8":
                return mx(8)
        raise PlanError(
            "quantization_config.quant_algo",
            algorithm,
            f"quant_algo {algorithm or 'missing'} is not one vLLM knows for ModelOpt; "
            "it knows FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, NVFP4, W4A16_NVFP4, MXFP8 and MIXED_PRECISION.",
        )

    def _weight_only(self) -> Format:
        """NVFP4 without activations: linears keep a place for an input scale that is dropped (_DropInputScale)."""
        return replace(nvfp4(group_size=self._group, has_input_scale=False), dtype_scalars=1)

    def _is_excluded(self, names: Names) -> bool:
        if all(bare(name) in self._exact for name in names):
            return True
        if all(self._is_matched(name) for name in names):
            return True
        return (fused := _fused_name(names)) is not None and self._is_matched(fused)

    def _is_matched(self, name: str) -> bool:
        return is_part(name, self._excluded) or is_wild(name, self._wildcards)

    def linear(self, names: Names) -> Format:
        """The algorithm's format unless excluded, or the layer's own in a mix."""
        if self._is_excluded(names):
            return PLAIN
        if self._is_mixed:
            return self._mixed(names, is_experts=False)
        return PLAIN if is_part(names[0], _VISION) else self._format(self._algorithm)

    def experts(self, names: Names) -> Format:
        """The algorithm's format unless excluded."""
        if self._is_excluded(names) or any(holds_experts(name, self._exact) for name in names):
            return PLAIN
        if self._is_mixed:
            return self._mixed(names, is_experts=True)
        return self._format(self._algorithm)

    def head(self, names: Names) -> Format:
        """As a linear: ModelOpt quantises the head unless it is excluded."""
        return self.linear(names)

    def _mixed(self, names: Names, *, is_experts: bool) -> Format:
        algorithm = next((found for name in names if (found := self._of_layer(name, is_experts=is_experts))), None)
        return self._format(algorithm) if algorithm else PLAIN

    def _of_layer(self, name: str, *, is_experts: bool) -> str | None:
        plain = bare(name)
        entry = self._layers.get(plain)
        if entry is None and is_experts:
            parents = (f"{plain}.", f"{plain.removesuffix('.experts')}.")
            entry = next(
                (value for parent in parents for key, value in self._layers.items() if key.startswith(parent)), None
            )
        algorithm = entry.get("quant_algo") if isinstance(entry, dict) else None
        return algorithm.upper() if isinstance(algorithm, str) else None

    def cache_tensors(self, *, is_mla: bool) -> tuple[int, ...]:
        """Scales of q, k, v and probabilities, for MLA layers too; in a mix only where the cache is quantised."""
        if self._is_mixed and (is_mla or not self._has_cache_scales):
            return ()
        return (_SCALAR_BYTES,) * 4


# The name under which vLLM fuses a set of projections: patterns are held against it as well.
_FUSED = {
    frozenset(("gate_proj", "up_proj")): "gate_up_proj",
    frozenset(("q_proj", "k_proj", "v_proj")): "qkv_proj",
    frozenset(("q_a_proj", "kv_a_proj_with_mqa")): "fused_qkv_a_proj",
}


def _fused_name(names: Names) -> str | None:
    parent = names[0].rpartition(".")[0]
    fused = _FUSED.get(frozenset(name.rpartition(".")[2] for name in names))
    return f"{parent}.{fused}" if fused else None


def _is_weight_only(settings: Mapping[str, Any]) -> bool:
    """Whether every config group leaves activations alone: then NVFP4 means W4A16."""
    groups = settings.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        return False
    return all(isinstance(group, dict) and group.get("input_activations") is None for group in groups.values())
