"""vLLM's own error texts for a pool that is too small, release by release."""

from __future__ import annotations

import pytest
from factories import make_resolved

from planner.kv_cache import PoolOptions, fit_error, layout_of, plan_pool
from planner.kv_errors import no_memory_text, too_long_text
from planner.kv_rules import rules_of
from planner.layer_specs import FullSpec, Serving
from planner.units import GIB
from planner.versions import parse_version


def _error(version: str, pool_gib: float, *, is_auto_length: bool = False) -> str | None:
    parsed = parse_version(version)
    options = PoolOptions(
        version=parsed,
        rules=rules_of(parsed),
        serving=Serving(max_in_flight_tokens=8192),
        max_model_len=131072,
        longest_model_len=131072,
        is_auto_length=is_auto_length,
    )
    layers = ((FullSpec(block_size=16, num_kv_heads=8, content_bytes=512), 0),) * 32
    pool = plan_pool(layout_of(layers, options), (round(pool_gib * GIB),))
    return fit_error(pool, make_resolved(version=version, is_auto_length=is_auto_length))


@pytest.mark.parametrize("version", ["0.6.6", "0.11.0", "0.19.0", "0.33.0"])
def test_a_pool_that_fits_has_no_error(version: str) -> None:
    assert _error(version, 20) is None


@pytest.mark.parametrize(
    ("version", "start"),
    [
        ("0.33.0", "To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache is needed"),
        (
            "0.19.0",
            "To serve at least one request with the models's max seq len (131072), (16.0 GiB KV cache is needed",
        ),
        (
            "0.11.0",
            "To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed",
        ),
        (
            "0.6.6",
            "The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in KV",
        ),
    ],
)
def test_a_length_that_does_not_fit_is_named(version: str, start: str) -> None:
    text = _error(version, 10)

    assert text is not None
    assert text.startswith(start)


@pytest.mark.parametrize("version", ["0.6.6", "0.11.0", "0.19.0", "0.33.0"])
def test_a_pool_below_zero_has_no_memory_at_all(version: str) -> None:
    text = _error(version, -1)

    assert text == no_memory_text(parse_version(version))
    assert text.startswith("No available memory for the cache blocks. Try increasing `gpu_memory_utilization`")


def test_auto_length_fails_only_without_room_for_a_token() -> None:
    assert _error("0.33.0", 10, is_auto_length=True) is None
    text = _error("0.33.0", 0, is_auto_length=True)
    assert text is not None
    assert text.startswith("Cannot auto-fit max_model_len")


def test_old_releases_print_no_estimate_of_zero() -> None:
    text = too_long_text(
        parse_version("0.11.0"), max_model_len=10, needed_bytes=GIB, available_bytes=1, estimated_max_model_len=0
    )

    assert "estimated" not in text
    assert "(1.00 GiB KV cache is needed" in text
