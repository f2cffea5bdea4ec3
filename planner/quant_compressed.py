"""compressed-tensors checkpoints: config groups whose targets are names, patterns or module classes (vLLM's of that name)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from planner.facts import PlanError
from planner.inventory import QuantFacts
from planner.module_names import bare, is_engine_pattern
from planner.quant_formats import PLAIN, Format, fp8, int8, integer_groups, mx, nvfp4
from planner.quant_methods import KernelChoice, Method, Names, block_size, integer, texts

_LINEAR_CLASSES = ("linear", "columnparallellinear", "rowparallellinear", "qkvparallellinear", "replicatedlinear")
# Three float32 scales of one value and three zero points in the model's dtype (CompressedTensorsKVCacheMethod).
_SCALE_BYTES, _ZERO_BYTES = 4, 2
_PATTERN = "re:"


@dataclass(frozen=True, slots=True)
class _Group:
    targets: tuple[str, ...]
    form: Format


class CompressedTensors(Method):
    """Formats by config group; what no target meets, or `ignore` names, stays in the model's dtype."""

    def __init__(self, facts: QuantFacts, kernels: KernelChoice) -> None:
        del kernels
        settings = facts.settings
        self._ignore = texts(settings, "ignore")
        groups = settings.get("config_groups") or {}
        if not isinstance(groups, dict):
            raise PlanError(
                "quantization_config.config_groups", groups, "config.json: config_groups must be an object."
            )
        self._groups = tuple(
            _Group(texts(group, "targets"), _format_of(group, settings))
            for group in groups.values()
            if isinstance(group, dict) and not _is_attention_only(group)
        )

    def _find(self, names: Iterable[str], *, is_class_target: bool) -> Format:
        every = tuple(names)
        if all(_matches(name, self._ignore) for name in every):
            return PLAIN
        for group in self._groups:
            if all(_matches(name, group.targets) for name in every):
                return group.form
        if is_class_target:
            for group in self._groups:
                if any(target.lower() in _LINEAR_CLASSES for target in group.targets):
                    return group.form
        return PLAIN

    def linear(self, names: Names) -> Format:
        """The group's format whose target is the module's name, a pattern of it, or the class Linear."""
        return self._find(names, is_class_target=True)

    def experts(self, names: Names) -> Format:
        """The format of the layer's first expert, which vLLM takes for all."""
        first = [f"{name}.0.{part}" for name in names for part in ("gate_proj", "up_proj", "down_proj")]
        form = self._find(first, is_class_target=True)
        if not form.bits:
            return form
        return replace(form, tensor_scalars=0, moe_shape_bytes=_ZERO_BYTES * 2 if form.shape_bytes else 0)

    def head(self, names: Names) -> Format:
        """Quantised only where a target names it: the class Linear does not mean the head."""
        return self._find(names, is_class_target=False)

    def cache_tensors(self, *, is_mla: bool) -> tuple[int, ...]:
        """Scales and zero points of k, v and q, made whether or not the cache is quantised; none for MLA."""
        return () if is_mla else (_SCALE_BYTES,) * 3 + (_ZERO_BYTES,) * 3


def _matches(name: str, targets: Iterable[str]) -> bool:
    for target in targets:
        if target.startswith(_PATTERN):
            if is_engine_pattern(name, target.removeprefix(_PATTERN)):
                return True
        elif bare(target) == bare(name):
            return True
    return False


def _is_attention_only(group: Mapping[str, Any]) -> bool:
    targets = texts(group, "targets")
    return len(targets) == 1 and targets[0].endswith("Attention")


def _format_of(group: Mapping[str, Any], settings: Mapping[str, Any]) -> Format:
    weights = group.get("weights")
    if not isinstance(weights, dict):
        return PLAIN
    inputs = group.get("input_activations")
    has_static_input = isinstance(inputs, dict) and not inputs.get("dynamic")
    bits = integer(weights, "num_bits", 8)
    name = str(group.get("format") or settings.get("format") or "")
    if weights.get("type") == "float":
        return _float_format(weights, bits, name, has_input=isinstance(inputs, dict), is_static=has_static_input)
    return _integer_format(weights, bits, name, is_static=has_static_input)


def _float_format(weights: Mapping[str, Any], bits: int, name: str, *, has_input: bool, is_static: bool) -> Format:
    strategy = weights.get("strategy")
    if bits == 4:
        if strategy == "tensor_group" or "nvfp4" in name:
            return nvfp4(group_size=integer(weights, "group_size", 16), has_input_scale=has_input)
        return mx(4)
    if strategy == "group" and integer(weights, "group_size", 0) == 32:
        return mx(8)
    if strategy == "block":
        return fp8("block", block=block_size(weights.get("block_structure") or [128, 128]))
    return fp8("channel" if strategy == "channel" else "tensor", is_static=is_static)


def _integer_format(weights: Mapping[str, Any], bits: int, name: str, *, is_static: bool) -> Format:
    if name != "pack-quantized":
        scale = int8() if weights.get("strategy") == "channel" else replace(int8(), scale="tensor")
        return replace(scale, tensor_scalars=0) if not is_static else replace(scale, tensor_scalars=1)
    group = integer(weights, "group_size", -1) if weights.get("strategy") == "group" else -1
    packed = integer_groups(bits, group, has_zeros=weights.get("symmetric") is False)
    return replace(packed, shape_bytes=16, keeps_groups_whole=True)  # weight_shape: two int64
