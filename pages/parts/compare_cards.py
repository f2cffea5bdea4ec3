"""Fewest cards: the smallest split on each chosen card that holds a load, judged by formula and by the simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pandas as pd
import streamlit as st

from pages.parts import compare_demand, compare_state, problems, report_compare, state, words
from pages.parts.compare_request import CompareInput
from pages.parts.compare_state import key
from pages.parts.language import mark, t
from pages.parts.said import said
from planner.demand import Demand
from planner.facts import PlanError
from planner.fewest_cards import Candidate, Search, fewest_cards, splits_up_to
from planner.gpu_catalog import find_gpu, gpu_names
from planner.matrix import Split
from planner.prices import HOURS_A_MONTH, PriceTable, read_currency, read_prices

STATES = {
    "does_not_start": mark("does not start"),
    "too_small": mark("too small, by formula"),
    "preempts": mark("preempts, simulated"),
    "falls_behind": mark("falls behind, simulated"),
    "holds": mark("holds, simulated"),
    "not_simulated": mark("holds by formula, not simulated"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CardAnswer:
    """What was found on one kind of card: all candidates in order, the last of them the one that holds, if any."""

    card: str
    candidates: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate | None:
        """The candidate with the fewest cards that holds, or that by formula may."""
        held = [found for found in self.candidates if found.holds]
        likely = [found for found in self.candidates if found.state == "not_simulated"]
        return next(iter(held or likely), None)


def view(asked: CompareInput) -> None:
    """Draw the form, the answer on each card with its cost, and how it was found."""
    problem, demand = None, None
    try:
        demand = _demand(asked)
    except PlanError as error:
        problem = error
    with st.sidebar:
        st.subheader(t("The load"), anchor=False)
        compare_demand.lengths_form(problem)
        compare_demand.load_form(asked, problem)
        _cards_form(problem)
    answered = state.answer()
    if isinstance(answered, PlanError):
        st.error(words.plain(said(answered.text)), icon=":material/error:")
        return
    st.header(t("The fewest cards that hold the load"), anchor=False)
    st.caption(words.plain(_subject(answered.request.model_id, asked)))
    if demand is None:
        if problem is not None:
            st.error(words.plain(said(problem.text)), icon=":material/error:")
        return
    _answer(asked, answered, demand)


def _demand(asked: CompareInput) -> Demand:
    demand = compare_demand.demand_of(asked)
    if not asked.search_cards:
        raise PlanError("search_cards", (), t("Choose at least one card."))
    splits_up_to(asked.most_cards)
    return demand


def _cards_form(problem: PlanError | None) -> None:
    st.subheader(t("Where to look"), anchor=False)
    st.multiselect(
        t("Cards"), gpu_names(), key=key("search_cards"), placeholder=t("Type to search"), persist_state="session"
    )
    problems.say(problem, "search_cards")
    st.number_input(
        t("Cards at most"),
        key=key("most_cards"),
        step=1,
        help=t("Over tensor parallelism, pipeline stages and copies together."),
        persist_state="session",
    )
    problems.say(problem, "most_cards")


def _subject(model_id: str, asked: CompareInput) -> str:
    load = (
        t("{users} users at once", users=words.count(asked.users))
        if asked.load == "users"
        else t("{rate} requests a second", rate=f"{asked.rate:g}")
    )
    asked_too = [t("at most {percent} % preempted", percent=f"{asked.most_preempted_percent:g}")]
    if asked.prefix_tokens:
        asked_too.append(t("a shared prefix of {tokens} tokens", tokens=words.count(asked.prefix_tokens)))
    subject = t(
        "{model} · {load} · prompts of {prompt} and answers of {output} tokens (p50 / p95 / p99)",
        model=model_id,
        load=load,
        prompt=f"{asked.prompt_p50:,} / {asked.prompt_p95:,} / {asked.prompt_p99:,}",
        output=f"{asked.output_p50:,} / {asked.output_p95:,} / {asked.output_p99:,}",
    )
    return " · ".join([subject, *asked_too])


def _answer(asked: CompareInput, answered: state.Answer, demand: Demand) -> None:
    question = (answered.digest, answered.request, demand, asked.search_cards, asked.most_cards)
    found: tuple[CardAnswer, ...] | None = compare_state.held_run("cards", question)
    if found is None:
        try:
            found = _search(asked, answered, demand)
        except PlanError as error:
            st.error(words.plain(said(error.text)), icon=":material/error:")
            return
        compare_state.hold_run("cards", question, found)
    prices = _prices(asked.search_cards)
    _report(asked, answered.request.model_id, found, prices)
    for place, card in enumerate(sorted(found, key=_order)):
        _card(place, card, prices)
    _how(found)


def _order(found: CardAnswer) -> tuple[int, str]:
    return (found.best.split.num_cards if found.best is not None else 10**6, found.card)


def _search(asked: CompareInput, answered: state.Answer, demand: Demand) -> tuple[CardAnswer, ...]:
    """The answer of each card, with a bar that names what is being tried."""
    bar, total, found = st.empty(), len(asked.search_cards), []
    for place, card in enumerate(asked.search_cards):
        candidates = []
        bar.progress(place / total, text=words.plain(card))
        search = Search(gpu=find_gpu(card), most_cards=asked.most_cards)
        for candidate in fewest_cards(answered.request, answered.model, demand, search):
            candidates.append(candidate)
            bar.progress(place / total, text=words.plain(f"{card}: {split_words(candidate.split)}"))
        found.append(CardAnswer(card=card, candidates=tuple(candidates)))
    bar.empty()
    return tuple(found)


def split_words(split: Split) -> str:
    """A split as vLLM's people write it: "TP 2 · PP 1 · DP 4"."""
    tp, pp, dp = split.tensor_parallel_size, split.pipeline_parallel_size, split.data_parallel_size
    return f"TP {tp} · PP {pp} · DP {dp}"


# -- prices -----------------------------------------------------------------------------------------------------------


def _prices(cards: Sequence[str]) -> PriceTable | None:
    """The user's own prices, from a table that starts empty; None where what stands there cannot be read."""
    with st.expander(t("Prices and power, your own figures"), icon=":material/payments:", key=key("group_prices")):
        currency = st.text_input(t("Currency"), key=key("currency"), max_chars=40, persist_state="session")
        problem = None
        try:
            read_currency(currency or "")
        except PlanError as error:
            problem = error
        problems.say(problem, "currency")
        edited = st.data_editor(
            _price_frame(cards), key=key("price_table"), column_config=_price_columns(), num_rows="fixed"
        ).reset_index()
        st.caption(t("No price is known here but those you give; the power limit is the card's own, in watts."))
        rows: list[Mapping[str, Any]] = [{str(k): v for k, v in row.items()} for row in edited.to_dict("records")]
        compare_state.hold_price_rows(rows)
        try:
            prices = read_prices(currency or "", rows)
        except PlanError as error:
            problems.say(error, "per_hour", "power_limit_watts")
            return None
    return prices


def _price_frame(cards: Sequence[str]) -> pd.DataFrame:
    """What was typed for `cards` before. Each row goes by its card's name: by its place, a price would pass to another card."""
    rows = pd.DataFrame(compare_state.price_rows(cards), columns=["card", "per_hour", "power_limit_watts"])
    return rows.set_index("card").astype("float64")


def _price_columns() -> dict[Any, Any]:
    return {
        "card": st.column_config.TextColumn(t("Card"), width="medium"),
        "per_hour": st.column_config.NumberColumn(t("Price of an hour")),
        "power_limit_watts": st.column_config.NumberColumn(t("Power limit, W")),
    }


def cost_words(prices: PriceTable | None, card: str, num_cards: int) -> str:
    """What the cards cost an hour and a month, or that no price was given."""
    cost = None if prices is None else prices.cost_per_hour(card, num_cards)
    if cost is None or prices is None:
        return t("no price given")
    month = cost * HOURS_A_MONTH
    return t(
        "{hour} {currency} an hour, {month} a month",
        hour=_money(cost),
        currency=prices.currency,
        month=_money(month),
    )


def _money(amount: Decimal) -> str:
    return f"{amount:,.2f}"


def power_words(prices: PriceTable | None, card: str, num_cards: int) -> str:
    """The most that the cards draw, or that it is not known."""
    watts = None if prices is None else prices.watts(card, num_cards)
    return t("power not known") if watts is None else f"{watts:,} W"


# -- drawing ----------------------------------------------------------------------------------------------------------


def _card(place: int, found: CardAnswer, prices: PriceTable | None) -> None:
    best = found.best
    with st.container(border=True):
        if best is None:
            last = found.candidates[-1] if found.candidates else None
            st.markdown(
                f":red[:material/cancel:] **{words.plain(found.card)}** · {t('nothing up to that many cards holds')}"
            )
            if last is not None:
                st.caption(words.plain(said(last.reason)))
            return
        number = best.split.num_cards
        sign = ":green[:material/check_circle:]" if best.holds else ":orange[:material/help:]"
        head = t("{number} × {card}", number=number, card=found.card)
        left, right = st.columns([3, 2], vertical_alignment="center")
        with left:
            st.markdown(f"{sign} **{words.plain(head)}** · {split_words(best.split)}")
            st.caption(words.plain(said(best.reason)))
        with right:
            st.markdown(
                words.plain(f"{cost_words(prices, found.card, number)} · {power_words(prices, found.card, number)}")
            )
            st.button(
                t("Open in Plan"),
                key=key(f"open_card_{place}"),
                icon=":material/open_in_new:",
                on_click=compare_state.open_in_plan,
                args=(best.request,),
            )


def candidate_rows(found: Sequence[CardAnswer]) -> pd.DataFrame:
    """Every candidate that was judged, in order."""
    return pd.DataFrame(
        [
            {
                t("Card"): words.plain(answer.card),
                t("Cards"): candidate.split.num_cards,
                t("Split"): split_words(candidate.split),
                t("Verdict"): said(STATES[candidate.state]),
                t("At once, each copy"): f"{candidate.users_per_copy:,.0f}",
                t("Blocks needed"): words.count(candidate.needed_blocks),
                t("Blocks there"): words.count(candidate.num_blocks),
                t("Why"): words.plain(said(candidate.reason)),
            }
            for answer in found
            for candidate in answer.candidates
        ]
    )


def _report(asked: CompareInput, model_id: str, found: Sequence[CardAnswer], prices: PriceTable | None) -> None:
    rows = [_report_row(answer, prices) for answer in sorted(found, key=_order)]
    report_compare.cards(_subject(model_id, asked), rows, candidate_rows(found).to_dict("records"))


def _report_row(found: CardAnswer, prices: PriceTable | None) -> dict[str, str]:
    best = found.best
    last = best or (found.candidates[-1] if found.candidates else None)
    number = 0 if best is None else best.split.num_cards
    return {
        t("Card"): found.card,
        t("Cards"): t("nothing up to that many cards holds") if best is None else words.count(number),
        t("Split"): "–" if best is None else split_words(best.split),
        t("Cost"): "–" if best is None else cost_words(prices, found.card, number),
        t("Power"): "–" if best is None else power_words(prices, found.card, number),
        t("Why"): "" if last is None else said(last.reason),
    }


def _how(found: Sequence[CardAnswer]) -> None:
    with st.expander(t("How it was found"), icon=":material/table:", key=key("how_cards")):
        st.markdown(
            t(
                "Splits are tried with the fewest cards first. The formula rules out what cannot hold the mean load; what is "
                "left is simulated step by step, with the time of a step from the card's bandwidth and speed (a roofline, "
                "not a measurement)."
            )
        )
        rows = candidate_rows(found)
        st.dataframe(rows, hide_index=True, alt=t("Every split that was judged, in order"))
