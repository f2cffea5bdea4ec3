"""Rules of thumb give what the articles print."""

from __future__ import annotations

from planner.folk_formulas import (
    blocks_of,
    folk_kv_bytes_per_token,
    folk_weight_bytes,
    head_kv_bytes_per_token,
    latent_bytes_per_token,
    reserved_slots_wasted,
    shared_blocks_total,
)
from planner.units import GIB, KIB


def test_weights_of_seven_billion_are_14_gb() -> None:
    assert folk_weight_bytes(7 * 10**9) == 14 * 10**9


def test_article_of_the_70b_comes_to_2_68_gb() -> None:
    assert round(folk_kv_bytes_per_token(80, 4096) * 2048 / 1e9, 2) == 2.68


def test_multi_head_attention_costs_512_kib_a_token() -> None:
    assert head_kv_bytes_per_token(32, 32, 128) == folk_kv_bytes_per_token(32, 4096) == 512 * KIB
    assert head_kv_bytes_per_token(32, 32, 128) * 2048 * 16 == 16 * GIB


def test_latent_of_deepseek_v3_is_70272_bytes_a_token() -> None:
    assert latent_bytes_per_token(61, 512, 64) == 70_272


def test_blocks_are_given_whole() -> None:
    assert [blocks_of(tokens, 16) for tokens in (0, 1, 16, 17)] == [0, 1, 1, 2]
    assert reserved_slots_wasted(1_030, 4_096) == 3_066


def test_only_full_blocks_are_shared() -> None:
    assert shared_blocks_total(8, 120, 100, 16) == 6 + 8 * 2
    assert shared_blocks_total(8, 120, 15, 16) == 8 * 8
