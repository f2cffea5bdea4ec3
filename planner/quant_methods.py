"""Quantisation methods that need little more than a list of what to leave alone: FP8, MXFP4, Quark, online.

Each `Method` answers with a `Format` for a linear, a layer's experts or the head, given their names in the checkpoint.
Rules are those of vLLM 0.33's `get_quant_method` of the class of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from planner.facts import PlanError
from planner.inventory import QuantFacts
from planner.module_names import bare, holds_experts
from planner.quant_formats import PLAIN, Format, fp8, int8, integer_groups, mx, nvfp4

Names = tuple[str, ...]
Settings = Mapping[str, Any]  # parsed JSON; every read below checks its type
_LARGEST_SETTING = 2**20  # of bits and group sizes
_SCALAR_BYTES = 2  # made in the default dtype while loading, which is the model's


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelChoice:
    """What decides between kernels that store weights differently: the card, `--moe-backend`, the release."""

    capability: tuple[int, int] | None
    vendor: str = "NVIDIA"
    moe_backend: str | None = None
    vllm_minor: int = 33


def texts(settings: Settings, *keys: str) -> tuple[str, ...]:
    """The first present of `keys` as texts; a list of lists is flattened; anything that is no text is refused."""
    for key in keys:
        value = settings.get(key)
        if not value:
            continue
        items = value if isinstance(value, list) else [value]
        flat = [inner for item in items for inner in (item if isinstance(item, list) else [item])]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in flat):
            raise _bad(key, value, "a list of module names")
        return tuple(flat)
    return ()


def integer(settings: Settings, key: str, default: int) -> int:
    """`key` as a whole number above nought; a group size may be -1, which means one group over the input."""
    value = settings.get(key)
    if value is None:
        return default
    is_whole = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _LARGEST_SETTING
    if is_whole or (value == -1 and "group" in key):
        return int(value)
    raise _bad(key, value, "a whole number above nought")


def _bad(key: str, value: object, allowed: str) -> PlanError:
    field = f"quantization_config.{key}"
    return PlanError(field, value, f"config.json: {field} is {value!r:.60}, but {allowed} is needed.")


class Method:
    """A method that leaves everything in the model's dtype; the others override what they quantise."""

    def linear(self, names: Names) -> Format:
        """The format of a linear, by the checkpoint names it fuses."""
        del names
        return PLAIN

    def experts(self, names: Names) -> Format:
        """The format of one layer's routed experts."""
        del names
        return PLAIN

    def head(self, names: Names) -> Format:
        """The format of the output head."""
        del names
        return PLAIN

    def embedding(self, names: Names) -> Format:
        """The format of the input embedding."""
        del names
        return PLAIN

    def cache_tensors(self, *, is_mla: bool) -> tuple[int, ...]:
        """The bytes of each scale parameter a layer's KV cache gets."""
        del is_mla
        return ()


class Unquantized(Method):
    """No quantisation."""


class _AllButListed(Method):
    """One format for every linear and expert that a list does not name, with scales beside the KV cache."""

    def __init__(self, ignored: Iterable[str], quantized: Format) -> None:
        self._ignored = frozenset(bare(name) for name in ignored)
        self._format = quantized

    def linear(self, names: Names) -> Format:
        """Quantised unless every fused name is on the list."""
        return PLAIN if all(bare(name) in self._ignored for name in names) else self._format

    def experts(self, names: Names) -> Format:
        """Quantised unless the list names the layer's experts."""
        return PLAIN if any(holds_experts(name, self._ignored) for name in names) else self._format

    def cache_tensors(self, *, is_mla: bool) -> tuple[int, ...]:
        """Scales of q, k, v and probabilities; MLA layers get none."""
        return () if is_mla else (_SCALAR_BYTES,) * 4


class Fp8(_AllButListed):
    """`quant_method: fp8`: static or dynamic per tensor, or in blocks (DeepSeek, Qwen)."""

    def __init__(self, facts: QuantFacts, kernels: KernelChoice) -> None:
        del kernels
        settings = facts.settings
        block = settings.get("weight_block_size")
        is_static = settings.get("activation_scheme") == "static"
        quantized = fp8("block", block=block_size(block)) if block else fp8("tensor", is_static=is_static)
        super().__init__(texts(settings, "ignored_layers", "modules_to_not_convert"), quantized)


def block_size(value: object) -> tuple[int, int]:
    """A `weight_block_size` as rows and columns."""
    if (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in value)
    ):
        return value[0], value[1]
    raise _bad("weight_block_size", value, "a list of two whole numbers")


class FbgemmFp8(Method):
    """`quant_method: fbgemm_fp8` (Llama-3.1-405B-FP8): a float32 scale per output row."""

    def __init__(self, facts: QuantFacts, kernels: KernelChoice) -> None:
        del kernels
        self._ignored = frozenset(bare(name) for name in texts(facts.settings, "modules_to_not_convert"))

    def linear(self, names: Names) -> Format:
        """FP8 by channel unless on the list."""
        return PLAIN if all(bare(name) in self._ignored for name in names) else fp8("channel")


class DeepseekV4(Fp8):
    """DeepSeek-V4: FP8 blocks for linears, MXFP4 or FP8 experts by `expert_dtype`."""

    def __init__(self, facts: QuantFacts, kernels: KernelChoice) -> None:
        super().__init__(facts, kernels)
        expert_dtype = facts.settings.get("expert_dtype", "fp4")
        self._experts = self._format
        if expert_dtype == "fp4":
            self._format = replace(self._format, scale_bytes=1)
            self._experts = mxfp4_experts(kernels, is_gpt_oss=False)
        if str(facts.settings.get("moe_quant_algo", "")).upper() == "NVFP4":
            self._experts = nvfp4()

    def experts(self, names: Names) -> Format:
        """The experts' own format."""
        del names
        return self._experts

    def cache_tensors(self, *, is_mla: bool) -> tuple[int, ...]:
        """None: its attention is a class of its own."""
        del is_mla
        return ()


def mxfp4_experts(kernels: KernelChoice, *, is_gpt_oss: bool) -> Format:
    """MXFP4 experts as the kernel that vLLM picks pads them (fused_moe/oracle/mxfp4.py).

    gpt-oss: TRT-LLM on compute capability 10, Triton on 9.0 (Marlin there before vLLM brought triton_kernels along), Marlin
    elsewhere, 256 on AMD. Others never take Triton.
    """
    backend = _mxfp4_backend(kernels, is_gpt_oss=is_gpt_oss)
    hidden, intermediate = _PADDING_BY_BACKEND[backend]
    form = mx(4, pad_hidden=hidden, pad_intermediate=intermediate)
    if backend.startswith("triton") and kernels.capability == _HOPPER:
        return replace(form, pad_columns_after_load=_HOPPER_COLUMNS)
    return form


_HOPPER = (9, 0)
# third_party/triton_kernels: not in 0.11.0 (an optional package there), in 0.14.0; H100 logs show Marlin's 65.97 GiB in 0.10.
_FIRST_MINOR_WITH_TRITON_KERNELS = 12
# triton_kernels' Hopper value layout: 64.38 GiB logged for gpt-oss-120b and 13.47 for 20b fit inputs rounded up to this.
_HOPPER_COLUMNS = 256
_PADDING_BY_BACKEND = {
    "marlin": (256, 128),
    "flashinfer_trtllm": (256, 128),
    "flashinfer_cutlass": (128, 128),
    "deep_gemm": (128, 128),
    "triton": (1, 64),
    "triton_unfused": (1, 64),
    "humming": (1, 64),
    "aiter": (256, 256),
    "xpu": (1, 64),
    "emulation": (32, 32),
}


def _mxfp4_backend(kernels: KernelChoice, *, is_gpt_oss: bool) -> str:
    if kernels.moe_backend in _PADDING_BY_BACKEND:
        return kernels.moe_backend
    if kernels.capability is None:
        return "xpu" if kernels.vendor == "Intel" else "aiter"
    if kernels.capability[0] == 10:
        return "flashinfer_trtllm"
    is_triton = is_gpt_oss and kernels.capability == _HOPPER and kernels.vllm_minor >= _FIRST_MINOR_WITH_TRITON_KERNELS
    return "triton" if is_triton else "marlin"


class Mxfp4(Method):
    """`quant_method: mxfp4` (gpt-oss): only the routed experts; attention, head and embedding stay."""

    def __init__(self, facts: QuantFacts, kernels: KernelChoice) -> None:
        del facts
        self._experts = mxfp4_experts(kernels, is_gpt_oss=True)

    def experts(self, names: Names) -> Format:
        """Always MXFP4."""
        del names
        return self._experts


class Quark(_AllButListed):
    """AMD Quark: one global scheme with an exclude list; per-layer schemes are refused rather than guessed."""

    _BITS: ClassVar[dict[str, int]] = {"fp8_e4m3": 8, "fp4": 4, "int8": 8, "int4": 4}

    def __init__(self, facts: QuantFacts, kernels: KernelChoice) -> None:
        del kernels
        settings = facts.settings
        scheme = settings.get("global_quant_config")
        weight = scheme.get("weight") if isinstance(scheme, dict) else None
        if settings.get("layer_quant_config") or not isinstance(weight, dict):
            raise _bad(
                "global_quant_config", scheme, "one scheme for all layers (per-layer Quark schemes are not known)"
            )
        dtype = str(weight.get("dtype"))
        if dtype not in self._BITS:
            raise _bad("global_quant_config.weight.dtype", dtype, " or ".join(self._BITS))
        super().__init__(texts(settings, "exclude"), _quark_format(dtype, self._BITS[dtype], weight))


def _quark_format(dtype: str, bits: int, weight: Settings) -> Format:
    if dtype == "fp4":
        return mx(4)
    if weight.get("qscheme") == "per_group":
        return integer_groups(bits, integer(weight, "group_size", 128), has_zeros=False)
    return Format(bits=bits, scale="tensor" if weight.get("qscheme") == "per_tensor" else "channel")


def nf4() -> Format:
    """Four-bit values with a float32 scale per 64."""
    return Format(bits=4, scale="group", group_size=64)


class Online(Method):
    """Weights quantised while loading a checkpoint that is not: linears and experts, never the tables."""

    METHODS: ClassVar[dict[str, tuple[Format | None, Format | None]]] = {
        "fp8": (fp8("tensor"), fp8("tensor")),
        "fp8_per_tensor": (fp8("tensor"), fp8("tensor")),
        "fp8_per_block": (fp8("block"), fp8("block")),
        "fp8_per_channel": (fp8("channel"), fp8("channel")),
        "ptpc_fp8": (fp8("channel"), fp8("channel")),
        "mxfp8": (mx(8), mx(8)),
        "int8_per_channel_weight_only": (None, int8()),
        "experts_int8": (None, int8()),
        "nvfp4_per_token": (None, nvfp4()),
        "bitsandbytes": (nf4(), nf4()),
    }

    def __init__(self, method: str, kernels: KernelChoice) -> None:
        del kernels
        linear, experts = self.METHODS[method]
        self._linear, self._experts = linear or PLAIN, experts or PLAIN

    def linear(self, names: Names) -> Format:
        """The method's format for linears."""
        del names
        return self._linear

    def experts(self, names: Names) -> Format:
        """The method's format for experts."""
        del names
        return self._experts
