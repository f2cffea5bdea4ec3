"""Lesson 3: how shared heads, latents, windows and states change what a request keeps."""

from __future__ import annotations

import streamlit as st

from pages.parts import learn_figures, words
from pages.parts import learn_numbers as numbers
from pages.parts.language import t
from pages.parts.learn_lesson import Exercise, Lesson, Slip, Trap
from pages.parts.learn_state import Learner, key
from planner.folk_formulas import head_kv_bytes_per_token, latent_bytes_per_token
from planner.units import KIB

_QUIET = {"displayModeBar": False}


def attention_kinds(_learner: Learner) -> Lesson:
    """Lesson 3: shared heads, latents, windows and states."""
    return Lesson(
        slug="attention",
        goal=t("Read from a config which layers grow with length, and by how much."),
        minutes=10,
        text=t(
            "Four inventions made the cache small. Grouped-query attention lets query heads share KV heads. Multi-head latent "
            "attention keeps one compressed vector a token and layer, for all heads. A sliding window keeps only the latest "
            "tokens, so such a layer stops growing. And linear layers keep a state of fixed size in place of tokens. A hybrid "
            "model mixes them, and vLLM then gives each kind its own group of block tables over one pool. Follow the lines: "
            "where one bends, windows are full; where one starts high and flat, states are most of it."
        ),
        figure=_figure,
        exercise=_exercise(),
        traps=(_hybrid_capacity_trap(),),
        discussion=t(
            "Which of these models would you take for 100 users with 100,000 tokens each, and what does it cost them?"
        ),
    )


def _exercise() -> Exercise:
    latent = latent_bytes_per_token(61, 512, 64)
    exact = numbers.catalogue_folk(numbers.LARGE_MLA).exact_bytes
    return Exercise(
        question=t(
            "DeepSeek-V3 has 61 layers with kv_lora_rank 512 and qk_rope_head_dim 64, two bytes a number. What does one token "
            "cost in its cache?"
        ),
        answer=exact / KIB,
        unit="KiB",
        slips=(
            Slip(value=2 * latent / KIB, text=t("There is no factor 2: the latent serves as key and as value.")),
            Slip(value=61 * 512 * 2 / KIB, text=t("The rotary part of 64 is kept beside the latent.")),
            Slip(value=latent / KIB / 61, text=t("That is one layer of 61.")),
        ),
        hint=t("Layers × (kv_lora_rank + qk_rope_head_dim) × 2 bytes."),
        explanation=t(
            "61 × (512 + 64) × 2 = {bytes} bytes, {kib} KiB. With 128 heads of their own it would be {folk}.",
            bytes=f"{exact:,}",
            kib=words.three_digits(exact / KIB),
            folk=words.small_bytes(head_kv_bytes_per_token(61, 128, 128)),
        ),
    )


def _hybrid_capacity_trap() -> Trap:
    pool = numbers.plan_of(numbers.WINDOWS, max_model_len=32768).pool
    product = pool.num_blocks * pool.block_size
    return Trap(
        claim=t("Tokens that fit = blocks × block size: {tokens} for Gemma-3-27B here.", tokens=f"{product:,}"),
        exact=t(
            "{tokens} tokens, {factor} times fewer.",
            tokens=f"{pool.tokens:,}",
            factor=words.three_digits(product / pool.tokens),
        ),
        why=t(
            "{groups} groups of layers share the blocks: a token takes a block slot in each.", groups=len(pool.groups)
        ),
    )


def _figure() -> None:
    kinds = (
        (numbers.MHA, t("Llama-2-7B: a KV head for each head")),
        (numbers.GQA, t("Llama-3.1-8B: shared KV heads")),
        (numbers.MLA, t("DeepSeek-V2-Lite: latent")),
        (numbers.WINDOWS, t("Gemma-3-27B: 5 of 6 layers with a window")),
        (numbers.STATES, t("Qwen3-Next-80B: 3 of 4 layers linear")),
    )
    is_fp8 = st.toggle(t("8-bit cache"), key=key("attention_fp8"))
    dtype = "fp8" if is_fp8 else "auto"
    curves = []
    for model_id, name in kinds:
        lengths = [length for length in numbers.LENGTHS if length <= numbers.longest(model_id)]
        curves.append((name, lengths, [numbers.kv_bytes_of(model_id, length, dtype) for length in lengths]))
    alt = words.listed_long(
        t("{name}: {size} at {tokens} tokens", name=name, size=words.gib(sizes[-1]), tokens=f"{lengths[-1]:,}")
        for name, lengths, sizes in curves
    )
    st.plotly_chart(learn_figures.cost_by_length(curves), key=key("attention_chart"), config=_QUIET, alt=alt)
