"""Lesson 7: the budget that vLLM really computes, and the rules about it that are out of date."""

from __future__ import annotations

from functools import partial

import streamlit as st

from pages.parts import charts, words
from pages.parts import learn_numbers as numbers
from pages.parts.language import t
from pages.parts.learn_lesson import Exercise, Lesson, Slip, Trap
from pages.parts.learn_state import Learner, key
from pages.parts.said import said
from planner.answer import Plan
from planner.folk_formulas import FIT_CLAIMS, FitClaim
from planner.gpu_catalog import find_gpu

_QUIET = {"displayModeBar": False}
_MODEL, _CARD = "Qwen/Qwen3-8B", "L40S"
_LOW, _HIGH = 0.90, 0.95


def budget(learner: Learner) -> Lesson:
    """Lesson 7: from the card to the pool."""
    low, high = (
        numbers.plan_of(_MODEL, gpu=_CARD, gpu_memory_utilization=share, max_model_len=8192) for share in (_LOW, _HIGH)
    )
    gained = high.pool.tokens - low.pool.tokens
    total = low.gpu_total.best_bytes
    return Lesson(
        slug="budget",
        goal=t("Follow the budget from the card's total to the pool, and say what one step of a flag buys."),
        minutes=12,
        text=t(
            "vLLM takes gpu_memory_utilization × the card's total as its budget. It loads the weights, runs the largest batch it "
            "would ever run, and notes the peak; it adds what libraries took outside PyTorch and, since 0.20, what the CUDA "
            "graphs will need. What is left is the KV pool. Nothing is asked of the future: a long prompt is cut to "
            "max_num_batched_tokens a step, so the peak is known when the engine starts. What other processes hold is outside, "
            "but it must fit into the rest of the card. Move the share and watch which part moves."
        ),
        figure=partial(_budget_figure, learner),
        exercise=Exercise(
            question=t(
                "{model} on an {card} with {total} seen by CUDA. One token costs {cost} KiB. How many more tokens fit when "
                "gpu_memory_utilization goes from {low} to {high}?",
                model="Qwen3-8B",
                card=_CARD,
                total=words.gib(total),
                cost=f"{low.pool.kv_bytes_per_token / 1024:g}",
                low=f"{_LOW:.2f}",
                high=f"{_HIGH:.2f}",
            ),
            answer=gained,
            unit=t("tokens"),
            tolerance=0.03,
            slips=(
                Slip(value=high.pool.tokens, text=t("That is the whole pool. Only the difference was asked for.")),
                Slip(
                    value=total * _HIGH / low.pool.kv_bytes_per_token,
                    text=t("The weights and the rest come off first."),
                ),
            ),
            hint=t("All parts but the pool stay as they are. What is 0.05 of the card, in tokens?"),
            explanation=t(
                "0.05 × {total} = {step}; over {cost} bytes a token that is {answer} tokens, in whole blocks.",
                total=words.gib(total),
                step=words.gib(total * (_HIGH - _LOW)),
                cost=f"{low.pool.kv_bytes_per_token:,}",
                answer=f"{gained:,}",
            ),
        ),
        traps=(_default_trap(), _usable_trap(), _worked_trap(), _table_trap(), _eighty_percent_trap()),
        discussion=t("Two engines share a card with 0.45 each. Why may the second still refuse to start?"),
    )


def _share_by_default(version: str) -> object:
    plan = numbers.plan_of(numbers.MHA, version=version, max_model_len=1024)
    return next(entry.value for entry in plan.resolved if entry.name == "gpu_memory_utilization")


def _default_trap() -> Trap:
    return Trap(
        claim=t("gpu_memory_utilization is 0.9 by default."),
        exact=t(
            "{old} up to 0.19, {new} from 0.20 on; since then the graphs' estimate is charged too.",
            old=_share_by_default("0.19.0"),
            new=_share_by_default("0.20.0"),
        ),
        why=t("The share and what counts against it changed together, so old rules of thumb for either are off."),
    )


def _usable_trap() -> Trap:
    cards = (numbers.SMALL_CARD, "L4", "H100 80GB SXM")
    found = [find_gpu(card) for card in cards]
    return Trap(
        claim=t("Usable memory is 90 to 95 % of the marketed size."),
        exact="; ".join(
            t(
                "{card}: {total} of {marketed} GB",
                card=gpu.name,
                total=words.gib(gpu.total.best_bytes),
                marketed=f"{gpu.marketed_gb or 0:g}",
            )
            for gpu in found
        ),
        why=t(
            "Take the driver's total, not a percentage: error correction and the driver take different amounts from each card."
        ),
    )


def _worked_trap() -> Trap:
    plan = numbers.plan_of(numbers.MHA, gpu=numbers.SMALL_CARD, max_model_len=1024)
    return Trap(
        claim=t("24 GB card, 22 usable, 14 of weights: 8 GB of pool, 16,384 tokens, 16 requests of 1,024."),
        exact=t(
            "{pool} of pool, {tokens} tokens, {requests} requests on an RTX 4090.",
            pool=words.gib(plan.ranks[0].kv_pool.best_bytes),
            tokens=f"{plan.pool.tokens:,}",
            requests=words.concurrency(plan.pool.max_concurrency),
        ),
        why=t(
            "Near, by luck: weights in GiB are less than 14, and peak, graphs and the share of the card take it back."
        ),
    )


def _table_trap() -> Trap:
    rows = [
        (claim, numbers.plan_of(claim.model, gpu=numbers.SMALL_CARD, max_model_len=claim.length_tokens))
        for claim in FIT_CLAIMS
    ]
    return Trap(
        claim=t(
            "On 24 GB: {rows}.",
            rows="; ".join(f"{_name(claim)} {claim.length_tokens:,} × {claim.num_requests}" for claim, _ in rows),
        ),
        exact="; ".join(
            t("{model} {times} at {length}", model=_name(claim), times=_times(plan), length=f"{claim.length_tokens:,}")
            for claim, plan in rows
        ),
        why=t(
            "The first two hold with room. Phi-3 keeps a KV head for each head, so 12 requests of 8,192 tokens do not fit."
        ),
    )


def _name(claim: FitClaim) -> str:
    return claim.model.rpartition("/")[2]


def _times(plan: Plan) -> str:
    return words.concurrency(plan.pool.max_concurrency)


def _eighty_percent_trap() -> Trap:
    small, large = (
        numbers.plan_of(_MODEL, gpu=_CARD, max_model_len=8192, max_num_batched_tokens=budget)
        for budget in (2048, 16384)
    )
    return Trap(
        claim=t("Set max_num_batched_tokens to 80 % of what fits."),
        exact=t(
            "From 2,048 to 16,384 the reserved peak grows from {small} to {large} and the pool loses {tokens} tokens.",
            small=words.gib(small.ranks[0].activation.best_bytes),
            large=words.gib(large.ranks[0].activation.best_bytes),
            tokens=f"{small.pool.tokens - large.pool.tokens:,}",
        ),
        why=t(
            "It is a choice between time to first token and room for requests; compute both instead of a percentage."
        ),
    )


def _budget_figure(learner: Learner) -> None:
    share = st.slider(
        "gpu_memory_utilization",
        0.50,
        0.98,
        0.90,
        0.01,
        key=key("budget_share"),
        help=t("A share of the card's total."),
    )
    plan = _own_plan(learner, share)
    if plan is None:
        return
    rank = plan.ranks[plan.bounding_rank]
    if not plan.will_start:
        st.warning(f"**{words.plain(learner.model_id)}**: {words.plain(said(plan.reason))}", icon=":material/cancel:")
        return
    st.markdown(
        t(
            "**{model}** on {card}: {pool} for the pool, {tokens} tokens.",
            model=words.plain(learner.model_id),
            card=words.plain(said(plan.gpu_name)),
            pool=words.gib(rank.kv_pool.best_bytes),
            tokens=f"{plan.pool.tokens:,}",
        )
    )
    figure = charts.budget_waterfall(rank)
    st.plotly_chart(figure, key=key("budget_chart"), config=_QUIET, alt=charts.budget_alt(rank))


def _own_plan(learner: Learner, share: float) -> Plan | None:
    """The learner's own model on the Plan page's card and number of cards, at another share of it."""
    if learner.plan is None:
        return None
    flags = learner.request.flags
    length = min(8192, learner.facts.max_position) if learner.facts is not None else 8192
    return learner.plan_with(
        learner.request.gpu,
        gpu_memory_utilization=share,
        tensor_parallel_size=flags.tensor_parallel_size,
        pipeline_parallel_size=flags.pipeline_parallel_size,
        max_model_len=length,
    )
