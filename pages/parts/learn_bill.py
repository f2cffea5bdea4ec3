"""Lessons 1 to 3: what the weights cost, what one token costs, and how attention kinds change that."""

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
    AWQ_CLAIM_PERCENT,
    COST_CLAIMS,
    folk_kv_bytes_per_token,
    folk_weight_bytes,
    head_kv_bytes_per_token,
    latent_bytes_per_token,
)
from planner.units import GIB, KIB, MIB

_PLAIN, _PACKED = "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct-AWQ"
_THIRTEEN = "meta-llama/Llama-2-13b-hf"
_GB = 10**9
_QUIET = {"displayModeBar": False}


def weights(learner: Learner) -> Lesson:
    """Lesson 1: the bill of the weights."""
    loaded = numbers.plan_of(_THIRTEEN, max_model_len=1024).ranks[0].weights.load.best_bytes
    parameters = loaded // 2
    return Lesson(
        slug="weights",
        goal=t("Tell from a model's size what its weights will take, in the unit that vLLM prints."),
        minutes=8,
        text=t(
            "Before the first request, the weights move in, and they stay. A parameter in FP16 or BF16 takes two bytes, so a "
            "model of 7 billion parameters takes about 14 GB. That rule is right to a few percent, with two snags. A marketing "
            "GB is 1,000,000,000 bytes; vLLM and `nvidia-smi` count in GiB of 1,073,741,824 bytes, which makes the same "
            "weights look 7 % smaller. And “7B” is a name: the exact number of parameters stands in the checkpoint, with "
            "embeddings, scales of quantised layers and a vision tower in it."
        ),
        figure=partial(_weights_figure, learner),
        exercise=Exercise(
            question=t(
                "Llama-2-13B has {parameters} parameters in FP16. Which number will vLLM print in its line “Model loading took … "
                "GiB memory”?",
                parameters=f"{parameters:,}",
            ),
            answer=loaded / GIB,
            unit="GiB",
            slips=(
                Slip(
                    value=loaded / _GB,
                    text=t("That is right in GB. vLLM prints GiB: divide the bytes by 1,073,741,824."),
                ),
                Slip(value=loaded / GIB / 2, text=t("FP16 takes two bytes a parameter, not one.")),
                Slip(value=loaded / GIB * 2, text=t("That is FP32. FP16 takes two bytes a parameter.")),
            ),
            hint=t("Two bytes a parameter, then bytes over 1,073,741,824."),
            explanation=t(
                "{parameters} × 2 bytes = {bytes} bytes; over 1,073,741,824 that is {answer}.",
                parameters=f"{parameters:,}",
                bytes=f"{loaded:,}",
                answer=words.gib(loaded),
            ),
        ),
        traps=(_round_gb_trap(), _awq_trap()),
        discussion=t("Why does the same card “of 80 GB” show 79.2 GiB on one machine and 79.6 on another?"),
    )


def _round_gb_trap() -> Trap:
    models = ("meta-llama/Llama-2-7b-hf", _THIRTEEN, numbers.LARGE_GQA)
    sizes = [numbers.plan_of(each, max_model_len=1024).ranks[0].weights.parameter_bytes for each in models]
    claims = [folk_weight_bytes(billions * _GB) for billions in (7, 13, 70)]
    return Trap(
        claim=t("7B, 13B and 70B in FP16 take {claims} GB.", claims=", ".join(f"{each / _GB:.0f}" for each in claims)),
        exact=t(
            "{exact}; the rule is {errors} off.",
            exact=", ".join(words.gib(size) for size in sizes),
            errors=", ".join(f"{claim / size - 1:+.1%}" for claim, size in zip(claims, sizes, strict=True)),
        ),
        why=t("True to a few percent in bytes; the bigger difference is GB against GiB."),
    )


def _awq_trap() -> Trap:
    before = numbers.plan_of(_PLAIN, max_model_len=1024).ranks[0].weights
    after = numbers.plan_of(_PACKED, max_model_len=1024).ranks[0].weights
    linear = 1 - dict(after.by_role)["mlp"] / dict(before.by_role)["mlp"]
    low, high = AWQ_CLAIM_PERCENT
    return Trap(
        claim=t("AWQ saves {low} to {high} % of the weights.", low=low, high=high),
        exact=t(
            "Qwen2.5-7B: {linear} of the linear layers, {total} of all weights.",
            linear=f"{linear:.0%}",
            total=f"{1 - after.parameter_bytes / before.parameter_bytes:.0%}",
        ),
        why=t(
            "Four bits and a scale replace sixteen bits in the linear layers; embedding and head stay whole, so small models "
            "with big vocabularies save less."
        ),
    )


def _weights_figure(learner: Learner) -> None:
    ranks = st.segmented_control(
        t("Cards that share the weights (tensor parallel)"), (1, 2, 4, 8), default=1, key=key("weights_tp")
    )
    plan = learner.plan_with(tensor_parallel_size=ranks or 1)
    if plan is None:
        return
    found = plan.ranks[0].weights
    model, size = words.plain(learner.model_id), words.gib(found.parameter_bytes)
    st.markdown(
        t("**{model}** on one of {ranks} cards: {size} of parameters.", model=model, ranks=ranks, size=size)
        if ranks and ranks > 1
        else t("**{model}** on one card: {size} of parameters.", model=model, size=size)
    )
    parts = [part for part in found.by_role if part[1]]
    alt = "; ".join(f"{name} {words.gib(size)}" for name, size in parts)
    st.plotly_chart(learn_figures.role_bars(parts), key=key("weights_chart"), config=_QUIET, alt=alt)


def cost_of_a_token(learner: Learner) -> Lesson:
    """Lesson 2: what one token costs in the KV cache."""
    exact = numbers.catalogue_folk("mistralai/Mistral-7B-Instruct-v0.2")
    shape = head_kv_bytes_per_token(32, 8, 128)
    return Lesson(
        slug="token",
        goal=t("Compute the KV bytes of one token from a config, and see when the rule of thumb misleads."),
        minutes=12,
        text=t(
            "Every token that a request has read or written leaves a key and a value in every layer, so that the next token "
            "can attend to it. Its price is 2 × layers × KV heads × head size × bytes a number. Articles often write the hidden "
            "size in place of KV heads × head size. That was the same thing when every query head had a KV head of its own. "
            "Most models of today share KV heads, and then the rule of thumb overstates by the number of query heads that share "
            "one. The figure does it for your model, with the factor."
        ),
        figure=partial(_token_figure, learner),
        exercise=Exercise(
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
        ),
        traps=(_hidden_size_trap(), _cost_table_trap(), _product_trap()),
        discussion=t("A colleague halves the weights with a 4-bit model. Why does the number of requests hardly move?"),
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
            rows="; ".join(f"{claim.model.rpartition('/')[2]} {claim.claimed_mb}" for claim, _ in rows),
        ),
        exact="; ".join(
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


def _token_figure(learner: Learner) -> None:
    pairs = [numbers.catalogue_folk(each) for each in (numbers.MHA, numbers.GQA, numbers.LARGE_GQA, numbers.MLA)]
    plan = learner.plan_with()
    if plan is not None and learner.facts is not None:
        own = numbers.folk_and_exact(learner.model_id, learner.facts, plan)
        pairs = [own, *(pair for pair in pairs if pair.model_id != own.model_id)]
        st.markdown(own_words(own))
    alt = "; ".join(f"{pair.model_id}: {pair.folk_bytes / KIB:g} KiB, {pair.exact_bytes / KIB:g} KiB" for pair in pairs)
    st.plotly_chart(learn_figures.cost_per_token(pairs), key=key("token_chart"), config=_QUIET, alt=alt)


def own_words(own: numbers.FolkAndExact) -> str:
    """The cost of a token of the learner's own model: by the rule of thumb, as vLLM keeps it, and why they differ."""
    model = words.plain(own.model_id)
    if own.factor is None:
        return t("**{model}** keeps nothing that grows with every token.", model=model)
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
    return f"{compared} {_window_words(own)}".rstrip()


def _window_words(own: numbers.FolkAndExact) -> str:
    """What sliding windows change about the cost of a token; empty without any."""
    if own.window_tokens is None:
        return ""
    window = f"{own.window_tokens:,}"
    if own.has_windows_only:
        return t("That holds until its window of {window} tokens is full; then it keeps no more.", window=window)
    return t("Layers with a window are not in it: they keep their latest {window} tokens.", window=window)


def attention_kinds(_learner: Learner) -> Lesson:
    """Lesson 3: shared heads, latents, windows and states."""
    latent = latent_bytes_per_token(61, 512, 64)
    exact = numbers.catalogue_folk(numbers.LARGE_MLA).exact_bytes
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
        figure=_attention_figure,
        exercise=Exercise(
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
        ),
        traps=(_hybrid_capacity_trap(),),
        discussion=t(
            "Which of these models would you take for 100 users with 100,000 tokens each, and what does it cost them?"
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


def _attention_figure() -> None:
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
    alt = "; ".join(f"{name}: {words.gib(sizes[-1])} at {lengths[-1]:,}" for name, lengths, sizes in curves)
    st.plotly_chart(learn_figures.cost_by_length(curves), key=key("attention_chart"), config=_QUIET, alt=alt)
