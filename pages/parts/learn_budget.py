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
from planner import field_table
from planner.answer import Plan
from planner.facts import Estimate
from planner.gpu_catalog import find_gpu
from planner.request import PlanRequest
from planner.units import GIB, KIB

_QUIET = {"displayModeBar": False}
_MODEL, _CARD = "Qwen/Qwen3-8B", "L40S"
_LOW, _HIGH = 0.90, 0.95
_LENGTH = 8192  # tokens
_RELEASE = PlanRequest(model_id=_MODEL).vllm_version


def budget(learner: Learner) -> Lesson:
    """Lesson 7: from the card to the pool."""
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
        figure=partial(_figure, learner),
        exercise=_exercise(),
        traps=(
            _default_trap(),
            _usable_trap(),
            _context_trap(),
            _worked_trap(),
            _table_trap(),
            _quantised_trap(),
            _eighty_percent_trap(),
        ),
        discussion=t("Two engines share a card with 0.45 each. Why may the second still refuse to start?"),
    )


def _exercise() -> Exercise:
    low, high = (_at_share(share) for share in (_LOW, _HIGH))
    gained, total = high.pool.tokens - low.pool.tokens, low.gpu_total.best_bytes
    cost = low.pool.kv_bytes_per_token
    return Exercise(
        question=t(
            "{model} on an {card} with {total} seen by CUDA. One token costs {cost} KiB. How many more tokens fit when "
            "gpu_memory_utilization goes from {low} to {high}?",
            model="Qwen3-8B",
            card=_CARD,
            total=words.gib(total),
            cost=f"{cost / KIB:g}",
            low=f"{_LOW:.2f}",
            high=f"{_HIGH:.2f}",
        ),
        answer=gained,
        unit=t("tokens"),
        tolerance=0.03,
        slips=(
            Slip(value=high.pool.tokens, text=t("That is the whole pool. Only the difference was asked for.")),
            Slip(value=total * _HIGH / cost, text=t("The weights and the rest come off first.")),
        ),
        hint=t("All parts but the pool stay as they are. What is 0.05 of the card, in tokens?"),
        explanation=t(
            "0.05 × {total} = {step}; over {cost} bytes a token that is {answer} tokens, in whole blocks.",
            total=words.gib(total),
            step=words.gib(total * (_HIGH - _LOW)),
            cost=f"{cost:,}",
            answer=f"{gained:,}",
        ),
    )


def _at_share(share: float) -> Plan:
    return numbers.plan_of(_MODEL, gpu=_CARD, gpu_memory_utilization=share, max_model_len=_LENGTH)


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
        exact=words.listed_long(
            t(
                "{card}: {total} of “{marketed} GB”, {percent}",
                card=gpu.name,
                total=words.gib(gpu.total.best_bytes),
                marketed=f"{marketed:g}",
                percent=f"{gpu.total.best_bytes / (marketed * GIB):.0%}",
            )
            for gpu in found
            if (marketed := gpu.marketed_gb)
        ),
        why=t(
            "Take the driver's total, not a percentage: error correction and the driver take different amounts from each card. The “GB” "
            "on its box are nearer to GiB."
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
            requests=words.three_digits(plan.pool.max_concurrency),
        ),
        why=t(
            "Near, by luck: weights in GiB are less than 14, and peak, graphs and the share of the card take it back."
        ),
    )


def _context_trap() -> Trap:
    cards = (numbers.SMALL_CARD, _CARD, "H100 80GB SXM")
    lines = [(card, _context(numbers.plan_of(_MODEL, gpu=card, max_model_len=_LENGTH))) for card in cards]
    return Trap(
        claim=t("The CUDA context takes 0.5 to 1 GB of vLLM's budget."),
        exact=words.listed_long(
            t("{card}: {size} ({band})", card=card, size=words.gib(line.best_bytes), band=words.band(line))
            for card, line in lines
        ),
        why=t(
            "It is gone before vLLM takes its first look at the card, so it comes out of what the share leaves free, not of the "
            "budget. Communication buffers and workspaces come out of the budget."
        ),
    )


def _context(plan: Plan) -> Estimate:
    return next(line.estimate for line in plan.ranks[0].lines if line.name == "context")


def _table_trap() -> Trap:
    found = field_table.rows(_RELEASE)
    return Trap(
        claim=t(
            "On 24 GB: {rows}.",
            rows=words.listed_long(
                f"{row.claim.title} {row.claim.length_tokens:,} × {row.claim.num_requests}" for row in found
            ),
        ),
        exact=words.listed_long(
            t(
                "{model} {times} at {length}",
                model=row.claim.title,
                times=words.concurrency(row.max_concurrency),
                length=f"{row.claim.length_tokens:,}",
            )
            for row in found
        ),
        why=t(
            "The first three hold, two of them with room. Phi-3 keeps a KV head for each head, so 12 requests of 8,192 tokens do "
            "not fit."
        ),
    )


def _quantised_trap() -> Trap:
    plain, weights, cache = (
        numbers.plan_of(_MODEL, gpu=_CARD, max_model_len=_LENGTH, **flags).pool.max_concurrency
        for flags in ({}, {"quantization": "fp8_per_tensor"}, {"kv_cache_dtype": "fp8"})
    )
    return Trap(
        claim=t("Quantise the weights, and twice as many requests run at once."),
        exact=t(
            "{model} on an {card}: {plain} requests of {length} tokens as it is, {weights} with 8-bit weights, {cache} with an "
            "8-bit cache.",
            model="Qwen3-8B",
            card=_CARD,
            plain=words.three_digits(plain),
            length=f"{_LENGTH:,}",
            weights=words.three_digits(weights),
            cache=words.three_digits(cache),
        ),
        why=t(
            "The pool grows by what the weights give up, while a token still costs the same; an 8-bit cache halves that cost, "
            "maybe at some quality."
        ),
    )


def _eighty_percent_trap() -> Trap:
    small, large = (
        numbers.plan_of(_MODEL, gpu=_CARD, max_model_len=_LENGTH, max_num_batched_tokens=budget)
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


def _figure(learner: Learner) -> None:
    share = st.slider(
        "gpu_memory_utilization",
        0.50,
        0.98,
        0.90,
        0.01,
        key=key("budget_share"),
        help=t("A share of the card's total."),
    )
    plan, model = learner.plan_at(share), learner.model_id
    if plan is None or not plan.will_start:
        if plan is not None:
            st.warning(f"**{words.plain(model)}**: {words.plain(said(plan.reason))}", icon=":material/cancel:")
        st.caption(t("The figure shows {model} in its place.", model=_MODEL))
        plan, model = _at_share(share), _MODEL
    rank = plan.ranks[plan.bounding_rank]
    st.markdown(_pool_words(plan, model, words.gib(rank.kv_pool.best_bytes)))
    figure = charts.budget_waterfall(rank)
    st.plotly_chart(figure, key=key("budget_chart"), config=_QUIET, alt=charts.budget_alt(rank))


def _pool_words(plan: Plan, model_id: str, pool: str) -> str:
    """What the pool of `plan` holds: tokens, or requests where nothing grows with tokens."""
    model, card = words.plain(model_id), words.plain(said(plan.gpu_name))
    if not plan.pool.groups:
        return t(
            "**{model}** on {card}: {pool} are left, but this model keeps no KV cache, so nothing fills them.",
            model=model,
            card=card,
            pool=pool,
        )
    if not plan.pool.kv_bytes_per_token and plan.pool.state_bytes_per_request:
        return t(
            "**{model}** on {card}: {pool} for the pool, the states of {requests} requests.",
            model=model,
            card=card,
            pool=pool,
            requests=f"{plan.pool.max_concurrency:,.0f}",
        )
    return t(
        "**{model}** on {card}: {pool} for the pool, {tokens} tokens.",
        model=model,
        card=card,
        pool=pool,
        tokens=f"{plan.pool.tokens:,}",
    )
