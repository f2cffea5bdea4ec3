"""What `--kv-cache-dtype` stores: bytes of one head's state for each value, and who refuses what."""

from __future__ import annotations

from dataclasses import dataclass

from planner.facts import Finding, PlanError
from planner.units import div_ceil, round_up
from planner.versions import Version

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "half": 2, "float": 4, "uint8": 1, "int8": 1}
_ONE_BYTE = ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc")
# K bits (8: FP8 without scale), V bits. K carries an fp16 norm, V an fp16 scale and zero.
_TURBOQUANT_BITS = {
    "turboquant_k8v4": (8, 4),
    "turboquant_4bit_nc": (4, 4),
    "turboquant_k3v4_nc": (3, 4),
    "turboquant_3bit_nc": (3, 3),
}
_OCTAVE = {"octave_k3v4": (4, False), "octave_k3v3": (3, False), "octave_k3v3_compact": (3, True)}  # V bits, compact K
_OCTAVE_BLOCK = 64  # values that share a scale (v1/attention/ops/rocm_octave.py, HADAMARD_BLOCK)
_OCTAVE_ROPE_BITS, _OCTAVE_NOPE_BITS = 4, 3
_ULTRAQUANT_GROUP = 32
_DS_MLA_BYTES = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}  # latent, rotary part and scales of one token

_OTHERS = ("nvfp4", "nvfp4_4over6", "ultraquant_4bit", *_DS_MLA_BYTES, *_OCTAVE, *_TURBOQUANT_BITS)


def is_packed(kv_cache_dtype: str) -> bool:
    """Whether K and V are packed into one slot by a backend of its own, which leaves boundary layers unquantised."""
    return kv_cache_dtype in _TURBOQUANT_BITS or kv_cache_dtype == "ultraquant_4bit"


def is_quantized(kv_cache_dtype: str) -> bool:
    """Whether the cache holds anything but the model's 16- or 32-bit values."""
    return kv_cache_dtype not in DTYPE_BYTES


def _octave_bytes(kv_cache_dtype: str, head_size: int, rotary_dim: int) -> int:
    v_bits, is_compact = _OCTAVE[kv_cache_dtype]
    wide = 0 if is_compact else rotary_dim
    key_bytes = wide * _OCTAVE_ROPE_BITS // 8 + (head_size - wide) * _OCTAVE_NOPE_BITS // 8
    num_scales = (1 if is_compact else head_size // _OCTAVE_BLOCK) + 1
    raw = key_bytes + head_size * v_bits // 8 + 2 * num_scales
    return round_up(raw, 4 if is_compact else 8)


def content_bytes(kv_cache_dtype: str, head_size: int, head_size_v: int | None = None, rotary_dim: int = 0) -> int:
    """Bytes of K and V of one token in one KV head; raises `PlanError` for a value that vLLM does not know.

    Sixteen bits: 2 * (K + V); FP8: K + V; per token and head: K + V + two fp32 scales (INT4: half the values);
    NVFP4: each side half its values and a sixteenth in FP8 scales.
    """
    size_v = head_size if head_size_v is None else head_size_v
    both = head_size + size_v
    plain = _plain_bytes(kv_cache_dtype, both, both // 2)
    if plain is not None:
        return plain
    if kv_cache_dtype in ("nvfp4", "nvfp4_4over6"):
        return head_size // 2 + head_size // 16 + size_v // 2 + size_v // 16
    if kv_cache_dtype in _TURBOQUANT_BITS:
        key_bits, value_bits = _TURBOQUANT_BITS[kv_cache_dtype]
        key = head_size if key_bits == 8 else div_ceil(head_size * key_bits, 8) + 2
        return round_up(key + div_ceil(head_size * value_bits, 8) + 4, 2)
    if kv_cache_dtype == "ultraquant_4bit":
        return 2 * (head_size // 2 + head_size // _ULTRAQUANT_GROUP)
    if kv_cache_dtype in _OCTAVE:
        return _octave_bytes(kv_cache_dtype, head_size, rotary_dim or head_size)
    raise _unknown(kv_cache_dtype)


def _plain_bytes(kv_cache_dtype: str, num_values: int, four_bit_bytes: int) -> int | None:
    if kv_cache_dtype in DTYPE_BYTES:
        return num_values * DTYPE_BYTES[kv_cache_dtype]
    if kv_cache_dtype in _ONE_BYTE:
        return num_values
    if kv_cache_dtype in ("int8_per_token_head", "fp8_per_token_head"):
        return num_values + 8
    return four_bit_bytes + 8 if kv_cache_dtype == "int4_per_token_head" else None


def mla_content_bytes(kv_cache_dtype: str, latent_size: int) -> int:
    """Bytes of one token's latent vector (kv_lora_rank + rotary part); raises `PlanError` for an unknown value."""
    if kv_cache_dtype in _DS_MLA_BYTES:
        return _DS_MLA_BYTES[kv_cache_dtype]
    plain = _plain_bytes(kv_cache_dtype, latent_size, latent_size // 2)
    if plain is not None:
        return plain
    if kv_cache_dtype in _OTHERS:
        # Refused by `check_kv_cache_dtype`; sized as the model's own values so that the plan still adds up.
        return latent_size * 2
    raise _unknown(kv_cache_dtype)


def _unknown(kv_cache_dtype: str) -> PlanError:
    text = f"kv_cache_dtype {kv_cache_dtype!r:.40} is no KV cache dtype of vLLM; write auto, bfloat16, fp8 or one of its others."
    return PlanError("kv_cache_dtype", kv_cache_dtype, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvUse:
    """Who stores the cache: what decides whether a KV dtype is served."""

    version: Version
    vendor: str
    capability: tuple[int, int] | None
    is_mla: bool
    is_sparse: bool  # an indexer picks the tokens (DSA)
    weights_method: str | None


def _refusal(text: str) -> Finding:
    return Finding(code="kv-dtype-refused", severity="refusal", text=text, field="kv_cache_dtype")


def check_kv_cache_dtype(kv_cache_dtype: str, use: KvUse) -> Finding | None:
    """The refusal that vLLM answers with, or None when some attention backend of the card serves `kv_cache_dtype`."""
    checks = (_refused_by_model, _refused_by_card)
    return next((finding for check in checks if (finding := check(kv_cache_dtype, use)) is not None), None)


def _refused_by_model(kv_cache_dtype: str, use: KvUse) -> Finding | None:
    if kv_cache_dtype in _DS_MLA_BYTES and not use.is_mla:
        return _refusal(f"kv_cache_dtype {kv_cache_dtype} is a layout of DeepSeek's sparse MLA; this model has no MLA.")
    is_slot = is_packed(kv_cache_dtype) or kv_cache_dtype in _OCTAVE or kv_cache_dtype in ("nvfp4", "nvfp4_4over6")
    if is_slot and use.is_mla:
        return _refusal(f"No MLA attention backend of vLLM stores kv_cache_dtype {kv_cache_dtype}; use fp8.")
    if kv_cache_dtype == "fp8_e5m2" and use.weights_method in ("fp8", "modelopt"):
        return _refusal("fp8_e5m2 kv-cache is not supported with fp8 checkpoints; use fp8_e4m3.")
    return None


def _refused_by_card(kv_cache_dtype: str, use: KvUse) -> Finding | None:
    major = use.capability[0] if use.capability is not None else None
    if kv_cache_dtype in _OCTAVE and use.vendor != "AMD":
        return _refusal(f"kv_cache_dtype {kv_cache_dtype} has kernels for AMD cards only.")
    if kv_cache_dtype == "ultraquant_4bit" and use.vendor != "AMD":
        return _refusal("kv_cache_dtype ultraquant_4bit has kernels for AMD cards only.")
    if kv_cache_dtype in ("nvfp4", "nvfp4_4over6") and major != 10:
        return _refusal(f"kv_cache_dtype {kv_cache_dtype} needs a Blackwell data-centre card (capability 10.x).")
    if kv_cache_dtype == "nvfp4_ds_mla" and major != 10:
        return _refusal("kv_cache_dtype nvfp4_ds_mla needs a Blackwell data-centre card (capability 10.x).")
    if use.is_sparse and kv_cache_dtype == "fp8_e4m3" and major == 9 and use.version < (0, 33, 0):
        return _refusal(
            "No sparse MLA backend stores fp8_e4m3 on Hopper; use --kv-cache-dtype fp8_ds_mla or bfloat16 there."
        )
    return None
