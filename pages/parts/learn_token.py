"""Lesson 2: what one token costs, by the rule of thumb and as vLLM keeps it."""

from __future__ import annotations

from functools import partial

import streamlit as st

from pages.parts import learn_figures, words
from pages.parts import learn_numbers as numbers
from pages.parts.language import t
from pages.parts.learn_lesson import Exercise, Lesson, Slip, Trap
from pages.parts.learn_state import Learner, key
from planner.folk_formulas import (
    ARTICLE_70B_HIDDEN,
    ARTICLE_70B_TOKENS,
    COST_CLAIMS,
    folk_kv_bytes_per_token,
    head_kv_bytes_per_token,
)
from planner.units import KIB, MIB

_GB = 10**9
_QUIET = {"displayModeBar": False}


def cost_of_a_token(learner: Learner) -> Lesson:
    """Lesson 2: what one token costs in the KV cache."""
    return Lesson(
        slug="token",
        goal=t("Compute the KV bytes of one token from a config, and see when the rule of thumb misleads."),
        minutes=12,
        text=t(
            "Every token that a request has read or written leaves a key and a value in every attention layer, so that the next "
            "token can attend to it. Its price is 2 × layers × KV heads × head size × bytes a number. Articles often write the "
            "hidden size in place of KV heads × head size. That was the same thing when every query head had a KV head of its "
            "own. Most models of today share KV heads, and then the rule of thumb overstates by the number of query heads that "
            "share one. The figure does it for your model, with the factor; what latents, windows and states change is the next "
            "lesson's."
        ),
        figure=partial(_figure, learner),
        exercise=_exercise(),
        traps=(_hidden_size_trap(), _cost_table_trap(), _product_trap()),
        discussion=t("A colleague halves the weights with a 4-bit model. Why does the number of requests hardly move?"),
    )


def _exercise() -> Exercise:
    exact = numbers.catalogue_folk("mistralai/Mistral-7B-Instruct-v0.2")
    shape = head_kv_bytes_per_token(32, 8, 128)
    return Exercise(
        question=t(
            "Mistral-7B has 32 layers, 32 query heads, 8 KV heads, a head size of 128 and a 16-bit cache. What does one token "
            "cost?"
        ),
        answer=exact.exact_bytes / KIB,
        unit="KiB",
        slips=(
            Slip(
                value=exact.folk_bytes / KIB,
                text=t("That takes the 32 query heads. Only the 8 KV heads keep keys and values."),
            ),
            Slip(value=shape / KIB / 2, text=t("A key and a value are kept: the factor 2 is missing.")),
            Slip(value=shape / KIB / 32, text=t("That is one layer. All 32 keep their own.")),
            Slip(value=shape / 1000, text=t("Nearly: a KiB has 1,024 bytes.")),
        ),
        hint=t("2 × layers × KV heads × head size × 2 bytes, over 1,024."),
        explanation=t(
            "2 × 32 × 8 × 128 × 2 = {bytes} bytes, {kib} KiB. {length} tokens of it are {whole}.",
            bytes=f"{exact.exact_bytes:,}",
            kib=f"{exact.exact_bytes / KIB:g}",
            length="2,048",
            whole=words.gib(2048 * exact.exact_bytes),
        ),
    )


def _hidden_size_trap() -> Trap:
    folk = folk_kv_bytes_per_token(80, ARTICLE_70B_HIDDEN) * ARTICLE_70B_TOKENS
    exact = numbers.catalogue_folk(numbers.LARGE_GQA)
    whole = exact.exact_bytes * ARTICLE_70B_TOKENS
    return Trap(
        claim=t(
            "KV = 2 × layers × hidden size × tokens × bytes: a 70B needs {folk} GB for 2,048 tokens.",
            folk=f"{folk / _GB:.2f}",
        ),
        exact=t(
            "{exact}. The rule overstates {factor} times with the article's hidden size of 4,096, {real} times with the real one "
            "of 8,192.",
            exact=words.gib(whole),
            factor=f"{folk / whole:g}",
            real=f"{exact.factor:g}",
        ),
        why=t("Llama-2-70B shares each of its 8 KV heads among 8 query heads."),
    )


def _cost_table_trap() -> Trap:
    rows = [(claim, numbers.catalogue_folk(claim.model).exact_bytes / MIB) for claim in COST_CLAIMS]
    return Trap(
        claim=t(
            "KV cost per token in MB: {rows}.",
            rows=words.listed_long(f"{claim.model.rpartition('/')[2]} {claim.claimed_mb}" for claim, _ in rows),
        ),
        exact=words.listed_long(
            t(
                "{model} {exact} MiB ({factor} times)",
                model=claim.model.rpartition("/")[2],
                exact=words.three_digits(exact),
                factor=words.three_digits(exact / claim.claimed_mb),
            )
            for claim, exact in rows
        ),
        why=t("The table has no rule that gives all its rows: Llama-2-7B's is Mistral's value."),
    )


def _product_trap() -> Trap:
    one = numbers.kv_bytes_of(numbers.MHA, 2048)
    return Trap(
        claim=t("Total = weights + length × cost + batch × a constant."),
        exact=t(
            "Llama-2-7B at 2,048 tokens: {one} for one request, {many} for 16.",
            one=words.gib(one),
            many=words.gib(16 * one),
        ),
        why=t(
            "Every request keeps its own tokens: the cache grows with length × requests. The formula has no product."
        ),
    )


def _figure(learner: Learner) -> None:
    pairs = [numbers.catalogue_folk(each) for each in (numbers.MHA, numbers.GQA, numbers.LARGE_GQA, numbers.MLA)]
    plan = learner.plan_with()
    if plan is not None and learner.facts is not None:
        own = numbers.folk_and_exact(learner.model_id, learner.facts, plan)
        pairs = [own, *(pair for pair in pairs if pair.model_id != own.model_id)]
        st.markdown(words.sentences(own_words(own), _dtype_words(learner, own)))
    alt = words.listed_long(
        t(
            "{model}: {folk} by the rule of thumb, {exact} in vLLM",
            model=pair.model_id,
            folk=words.small_bytes(pair.folk_bytes),
            exact=words.small_bytes(pair.exact_bytes),
        )
        for pair in pairs
    )
    st.plotly_chart(learn_figures.cost_per_token(pairs), key=key("token_chart"), config=_QUIET, alt=alt)


def _dtype_words(learner: Learner, own: numbers.FolkAndExact) -> str:
    """What the Plan page's `kv_cache_dtype` makes of the cost; empty where it changes nothing."""
    dtype = learner.request.flags.kv_cache_dtype
    plan = learner.plan_with(kv_cache_dtype=dtype) if dtype != "auto" else None
    exact = plan.pool.kv_bytes_per_token if plan is not None else 0
    if not exact or exact == own.exact_bytes:
        return ""
    return t(
        "With the Plan page's `kv_cache_dtype` {dtype} it is {exact}.", dtype=dtype, exact=words.small_bytes(exact)
    )


def own_words(own: numbers.FolkAndExact) -> str:
    """The cost of a token of the learner's own model: by the rule of thumb, as vLLM keeps it, and why they differ."""
    model = words.plain(own.model_id)
    if own.factor is None:
        return _without_growth(own, model)
    folk, exact = (words.three_digits(size / KIB) for size in (own.folk_bytes, own.exact_bytes))
    if folk == exact:
        compared = t(
            "**{model}**: the rule of thumb is right: {exact} KiB a token. Its KV heads together are as wide as its hidden size.",
            model=model,
            exact=exact,
        )
    elif own.factor > 1:
        compared = t(
            "**{model}**: the rule of thumb says {folk} KiB a token, vLLM keeps {exact} KiB on one card: {factor} times less.",
            model=model,
            folk=folk,
            exact=exact,
            factor=words.three_digits(own.factor),
        )
    else:
        compared = t(
            "**{model}**: the rule of thumb says {folk} KiB a token, vLLM keeps {exact} KiB on one card: {factor} times more, "
            "as its KV heads together are wider than its hidden size.",
            model=model,
            folk=folk,
            exact=exact,
            factor=words.three_digits(1 / own.factor),
        )
    return words.sentences(compared, _window_words(own), _state_words(own))


def _without_growth(own: numbers.FolkAndExact, model: str) -> str:
    """The cost of a token where no layer keeps any: a fixed state a request, or no cache at all."""
    if own.state_bytes:
        return t(
            "**{model}** keeps nothing that grows with every token: each request holds a state of {size}, however long it is.",
            model=model,
            size=words.small_bytes(own.state_bytes),
        )
    return t("**{model}** keeps no keys and values from one step to the next, so it needs no KV cache.", model=model)


def _state_words(own: numbers.FolkAndExact) -> str:
    """What layers with a state of fixed size keep beside the tokens; empty without any."""
    if not own.state_bytes:
        return ""
    return t(
        "Its layers with a state add {size} a request, however long it is.", size=words.small_bytes(own.state_bytes)
    )


def _window_words(own: numbers.FolkAndExact) -> str:
    """What sliding windows change about the cost of a token; empty without any."""
    if own.window_tokens is None:
        return ""
    window = f"{own.window_tokens:,}"
    if own.has_windows_only:
        return t("That holds until its window of {window} tokens is full; then it keeps no more.", window=window)
    return t("Layers with a window are not in it: they keep their latest {window} tokens.", window=window)
