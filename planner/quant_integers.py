"""Quantisation methods of packed integers and of files that state each tensor's bits: AWQ, GPTQ, auto-round, bitsandbytes, GGUF."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from planner.inventory import CheckpointTensor, QuantFacts
from planner.module_names import bare, is_part, is_pattern
from planner.quant_formats import PLAIN, Format, int8, integer_groups
from planner.quant_methods import KernelChoice, Method, Names, Settings, integer, nf4, texts


class Awq(Method):
    """AWQ: packed integers with zero points in groups over the input."""

    def __init__(self, facts: QuantFacts, kernels: KernelChoice) -> None:
        del kernels
        settings = facts.settings
        self._ignored = texts(settings, "modules_to_not_convert")
        self._quantises_head = settings.get("lm_head") is True
        bits = integer(settings, "bits" if "bits" in settings else "w_bit", 4)
        group = integer(settings, "group_size" if "group_size" in settings else "q_group_size", 128)
        self._format = replace(integer_groups(bits, group, has_zeros=True), keeps_groups_whole=True)

    def linear(self, names: Names) -> Format:
        """Packed unless a listed text is part of every fused name."""
        return PLAIN if all(is_part(name, self._ignored) for name in names) else self._format

    def experts(self, names: Names) -> Format:
        """Packed unless a listed text is part of the name."""
        return self.linear(names)

    def head(self, names: Names) -> Format:
        """Packed only where the config says so."""
        return self.linear(names) if self._quantises_head else PLAIN


class Gptq(Method):
    """GPTQ: packed integers; `dynamic` patterns change or exempt modules; experts always carry zero points and biases."""

    def __init__(self, facts: QuantFacts, kernels: KernelChoice) -> None:
        self._settings = facts.settings
        self._only = texts(facts.settings, "modules_in_block_to_quantize")
        self._quantises_head = facts.settings.get("lm_head") is True
        has_order = facts.settings.get("desc_act") is True and kernels.vllm_minor < 32
        dynamic = facts.settings.get("dynamic") or {}
        self._dynamic: Mapping[str, Any] = dynamic if isinstance(dynamic, dict) else {}
        base = integer_groups(
            integer(facts.settings, "bits", 4), integer(facts.settings, "group_size", 128), has_zeros=True
        )
        self._format = replace(base, has_order=has_order, experts_have_bias=kernels.vllm_minor >= 32)

    def linear(self, names: Names) -> Format:
        """The base format, what a `dynamic` pattern makes of it, or none."""
        if self._only and not all(is_part(name, self._only) for name in names):
            return PLAIN
        for pattern, change in self._dynamic.items():
            is_exempt = pattern.startswith("-:")
            if not any(is_pattern(name, pattern.removeprefix("-:").removeprefix("+:")) for name in names):
                continue
            return PLAIN if is_exempt or not isinstance(change, dict) else self._changed(change)
        return self._format

    def _changed(self, change: Settings) -> Format:
        bits = integer(change, "bits", int(self._format.bits))
        return replace(self._format, bits=bits, group_size=integer(change, "group_size", self._format.group_size))

    def experts(self, names: Names) -> Format:
        """As a linear of that name."""
        return self.linear(names)

    def head(self, names: Names) -> Format:
        """Packed only where the config says so."""
        return self.linear(names) if self._quantises_head else PLAIN


class AutoRound(Method):
    """auto-round (`inc`): GPTQ- or AWQ-packed within `block_name_to_quantize`, with per-layer exceptions."""

    def __init__(self, facts: QuantFacts, kernels: KernelChoice) -> None:
        settings = facts.settings
        is_awq = "awq" in str(settings.get("packing_format") or "")
        self._experts_have_bias = kernels.vllm_minor >= 32 and not is_awq  # they are GPTQ's then
        blocks = settings.get("block_name_to_quantize") or settings.get("to_quant_block_names") or ()
        listed = blocks.split(",") if isinstance(blocks, str) else texts({"blocks": blocks or None}, "blocks")
        self._blocks = tuple(bare(name.strip()) for name in listed)
        extra = settings.get("extra_config") or {}
        self._extra: Mapping[str, Any] = extra if isinstance(extra, dict) else {}
        self._bits = integer(settings, "bits", 4)
        self._group = integer(settings, "group_size", 128)

    def linear(self, names: Names) -> Format:
        """The layer's own setting, else the general one within the blocks that are quantised."""
        change = self._exception(names)
        is_inside = not self._blocks or any(bare(name).startswith(self._blocks) for name in names)
        bits = integer(change, "bits", self._bits if is_inside else 16)
        if bits >= 16:
            return PLAIN
        return integer_groups(bits, integer(change, "group_size", self._group), has_zeros=True)

    def _exception(self, names: Names) -> Settings:
        for key, change in self._extra.items():
            is_regular = any(sign in key for sign in "*+?^$()[]{}|\\")
            for name in names:
                if bare(key) == bare(name) or (is_regular and is_pattern(name, f".*(?:{key})")):
                    return change if isinstance(change, dict) else {}
        return {}

    def experts(self, names: Names) -> Format:
        """As a linear of that name, with the biases that GPTQ's experts carry."""
        form = self.linear(names)
        return form if form is PLAIN else replace(form, experts_have_bias=self._experts_have_bias)


class BitsAndBytes(Method):
    """bitsandbytes: 4 bits with a float32 scale per 64 values, or 8 bits with a float32 scale per output."""

    def __init__(self, facts: QuantFacts, kernels: KernelChoice) -> None:
        del kernels
        settings = facts.settings
        self._ignored = texts(settings, "llm_int8_skip_modules")
        self._format = int8() if settings.get("load_in_8bit") is True else nf4()

    def linear(self, names: Names) -> Format:
        """Quantised unless a listed text is part of every fused name."""
        return PLAIN if all(is_part(name, self._ignored) for name in names) else self._format

    def experts(self, names: Names) -> Format:
        """As a linear of that name."""
        return self.linear(names)


class Gguf(Method):
    """GGUF: each tensor keeps the bits it has in the file; a module's bits are those of its tensors together."""

    def __init__(self, facts: QuantFacts, kernels: KernelChoice) -> None:
        del kernels
        tensors = facts.settings.get("tensors")
        listed = tensors if isinstance(tensors, tuple) else ()
        self._tensors = {bare(tensor.name): tensor for tensor in listed if isinstance(tensor, CheckpointTensor)}

    def linear(self, names: Names) -> Format:
        """The bits a value takes over all tensors the module fuses."""
        found = [tensor for name in names if (tensor := self._tensors.get(f"{bare(name)}.weight")) is not None]
        num_values = sum(_num_values(tensor) for tensor in found)
        if not num_values:
            return PLAIN
        num_bits = 8 * sum(tensor.num_bytes for tensor in found)
        return Format(bits=Fraction(num_bits, num_values))

    def experts(self, names: Names) -> Format:
        """The bits of a value over gate, up and down of all the layer's experts."""
        return self.linear(tuple(f"{name}.{part}" for name in names for part in ("gate_proj", "up_proj", "down_proj")))

    def head(self, names: Names) -> Format:
        """The bits of `output.weight`."""
        return self.linear(names)

    def embedding(self, names: Names) -> Format:
        """The bits of `token_embd.weight`: vLLM keeps GGUF embeddings packed."""
        return self.linear(names)


def _num_values(tensor: CheckpointTensor) -> int:
    count = 1
    for size in tensor.shape:
        count *= size
    return count
