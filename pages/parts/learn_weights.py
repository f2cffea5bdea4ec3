"""Lesson 1: what the weights cost, and in which unit."""

from __future__ import annotations

from functools import partial

import streamlit as st

from pages.parts import learn_figures, words
from pages.parts import learn_numbers as numbers
from pages.parts.language import t
from pages.parts.learn_lesson import Exercise, Lesson, Slip, Trap
from pages.parts.learn_state import Learner, key
from pages.parts.tables import role_word
from planner.folk_formulas import AWQ_CLAIM_PERCENT, folk_weight_bytes
from planner.units import GIB

_PLAIN, _PACKED = "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct-AWQ"
_THIRTEEN = "meta-llama/Llama-2-13b-hf"
_GB = 10**9
_QUIET = {"displayModeBar": False}


def weights(learner: Learner) -> Lesson:
    """Lesson 1: the bill of the weights."""
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
        figure=partial(_figure, learner),
        exercise=_exercise(),
        traps=(_round_gb_trap(), _awq_trap()),
        discussion=t("Why does the same card “of 80 GB” show 79.2 GiB on one machine and 79.6 on another?"),
    )


def _exercise() -> Exercise:
    loaded = numbers.plan_of(_THIRTEEN, max_model_len=1024).ranks[0].weights.load.best_bytes
    parameters = f"{loaded // 2:,}"
    return Exercise(
        question=t(
            "Llama-2-13B has {parameters} parameters in FP16. Which number will vLLM print in its line “Model loading took … "
            "GiB memory”?",
            parameters=parameters,
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
            parameters=parameters,
            bytes=f"{loaded:,}",
            answer=words.gib(loaded),
        ),
    )


def _round_gb_trap() -> Trap:
    models = ("meta-llama/Llama-2-7b-hf", _THIRTEEN, numbers.LARGE_GQA)
    sizes = [numbers.plan_of(each, max_model_len=1024).ranks[0].weights.parameter_bytes for each in models]
    claims = [folk_weight_bytes(billions * _GB) for billions in (7, 13, 70)]
    return Trap(
        claim=t(
            "7B, 13B and 70B in FP16 take {claims} GB.", claims=words.listed(f"{each / _GB:.0f}" for each in claims)
        ),
        exact=t(
            "{exact}; the rule is {errors} off.",
            exact=words.listed(words.gib(size) for size in sizes),
            errors=words.listed(
                words.signed_percent(claim / size - 1) for claim, size in zip(claims, sizes, strict=True)
            ),
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


def _figure(learner: Learner) -> None:
    ranks = st.segmented_control(
        t("Cards that share the weights (tensor parallel)"), (1, 2, 4, 8), default=1, key=key("weights_tp")
    )
    plan = learner.plan_with(tensor_parallel_size=ranks or 1)
    if plan is None:
        return
    found = plan.ranks[0].weights
    model, size = words.plain(learner.model_id), words.small_bytes(found.parameter_bytes)
    st.markdown(
        t("**{model}** on one of {ranks} cards: {size} of parameters.", model=model, ranks=ranks, size=size)
        if ranks and ranks > 1
        else t("**{model}** on one card: {size} of parameters.", model=model, size=size)
    )
    parts = [(role_word(role), size) for role, size in found.by_role if size]
    alt = words.listed_long(f"{name} {words.small_bytes(size)}" for name, size in parts)
    st.plotly_chart(learn_figures.role_bars(parts), key=key("weights_chart"), config=_QUIET, alt=alt)
