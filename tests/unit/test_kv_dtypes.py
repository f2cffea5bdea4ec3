"""Bytes of a KV head's token for every --kv-cache-dtype, and who refuses which."""

from __future__ import annotations

import pytest

from planner.facts import PlanError
from planner.kv_dtypes import KvUse, check_kv_cache_dtype, content_bytes, is_packed, is_quantized, mla_content_bytes
from planner.versions import Version


@pytest.mark.parametrize(
    ("kv_cache_dtype", "num_bytes"),
    [
        ("bfloat16", 512),
        ("float16", 512),
        ("float32", 1024),
        ("fp8", 256),
        ("fp8_e4m3", 256),
        ("fp8_e5m2", 256),
        ("fp8_inc", 256),
        ("int8_per_token_head", 264),
        ("fp8_per_token_head", 264),
        ("int4_per_token_head", 136),
        ("nvfp4", 144),
        ("nvfp4_4over6", 144),
        ("turboquant_k8v4", 196),
        ("turboquant_4bit_nc", 134),
        ("turboquant_k3v4_nc", 118),
        ("turboquant_3bit_nc", 102),
        ("ultraquant_4bit", 136),
        ("octave_k3v4", 136),  # 128 * 4/8 K with rotary bits, 128 * 4/8 V, three fp16 scales, to a multiple of 8
        ("octave_k3v3", 120),
        ("octave_k3v3_compact", 100),  # 128 * 3/8 twice, two fp16 scales, to a multiple of 4
    ],
)
def test_token_of_a_head_of_128(kv_cache_dtype: str, num_bytes: int) -> None:
    assert content_bytes(kv_cache_dtype, 128) == num_bytes


@pytest.mark.parametrize(
    ("kv_cache_dtype", "num_bytes"),
    [
        ("bfloat16", 1152),
        ("fp8_e4m3", 576),
        ("fp8_ds_mla", 656),
        ("nvfp4_ds_mla", 352),
        ("int8_per_token_head", 584),
        ("int4_per_token_head", 296),
    ],
)
def test_token_of_a_latent_of_576(kv_cache_dtype: str, num_bytes: int) -> None:
    assert mla_content_bytes(kv_cache_dtype, 576) == num_bytes


def test_unequal_value_heads_are_counted_apart() -> None:
    assert content_bytes("bfloat16", 192, 128) == 640


@pytest.mark.parametrize("size", [content_bytes, mla_content_bytes])
def test_unknown_dtype_is_refused_by_name(size: object) -> None:
    with pytest.raises(PlanError, match="fp7"):
        size("fp7", 128)  # type: ignore[operator] # both take a name and a size


def _use(**changes: object) -> KvUse:
    facts: dict[str, object] = {
        "version": Version(0, 33, 0),
        "vendor": "NVIDIA",
        "capability": (9, 0),
        "is_mla": False,
        "is_sparse": False,
        "weights_method": None,
    }
    return KvUse(**(facts | changes))  # type: ignore[arg-type] # the test's own keywords


@pytest.mark.parametrize(
    ("kv_cache_dtype", "use", "words"),
    [
        ("fp8_ds_mla", _use(), "no MLA"),
        ("turboquant_4bit_nc", _use(is_mla=True), "MLA attention backend"),
        ("nvfp4", _use(), "Blackwell"),
        ("octave_k3v4", _use(), "AMD"),
        ("ultraquant_4bit", _use(), "AMD"),
        ("fp8_e5m2", _use(weights_method="fp8"), "fp8 checkpoints"),
        ("fp8_e4m3", _use(is_mla=True, is_sparse=True, version=Version(0, 32, 0)), "Hopper"),
    ],
)
def test_refusals_say_why(kv_cache_dtype: str, use: KvUse, words: str) -> None:
    finding = check_kv_cache_dtype(kv_cache_dtype, use)

    assert finding is not None
    assert finding.severity == "refusal"
    assert words in finding.text


@pytest.mark.parametrize(
    ("kv_cache_dtype", "use"),
    [
        ("bfloat16", _use()),
        ("fp8_e4m3", _use()),
        ("fp8_ds_mla", _use(is_mla=True, is_sparse=True)),
        ("nvfp4", _use(capability=(10, 0))),
        ("octave_k3v3", _use(vendor="AMD", capability=None)),
        ("turboquant_k8v4", _use(capability=(8, 6))),
    ],
)
def test_served_dtypes_raise_no_finding(kv_cache_dtype: str, use: KvUse) -> None:
    assert check_kv_cache_dtype(kv_cache_dtype, use) is None


def test_packed_and_quantized_are_told_apart() -> None:
    assert is_packed("turboquant_4bit_nc")
    assert not is_packed("fp8_e4m3")
    assert is_quantized("fp8_e4m3")
    assert not is_quantized("bfloat16")
