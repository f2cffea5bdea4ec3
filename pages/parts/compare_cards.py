"""Fewest cards: the smallest split on each chosen card that holds a load, judged by formula and by the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd
import streamlit as st

from pages.parts import (
    compare_charts,
    compare_demand,
    compare_prices,
    compare_progress,
    compare_state,
    problems,
    report_compare,
    state,
    words,
)
from pages.parts.compare_dry import latency_words
from pages.parts.compare_job import CompareJob
from pages.parts.compare_prices import Bill
from pages.parts.compare_request import CompareInput
from pages.parts.compare_state import key
from pages.parts.language import mark, t
from pages.parts.said import said
from planner.demand import Demand
from planner.facts import PlanError
from planner.fewest_cards import Candidate, Search, fewest_cards, splits_up_to
from planner.gpu_catalog import find_gpu, gpu_names
from planner.matrix import Split

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
    is_whole: bool = True  # False: stopped before all was tried

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
    work = partial(_search, answered, demand, asked.search_cards, asked.most_cards)
    job = compare_state.job_of("cards", question, work)
    found: tuple[CardAnswer, ...] | None = compare_progress.result_of("cards", job, _so_far)
    if found is None:
        return
    bill = compare_prices.form(asked.search_cards)
    _report(asked, answered.request.model_id, found, bill)
    for place, card in enumerate(sorted(found, key=_order)):
        _card(place, card, bill)
    _how(found)


def _order(found: CardAnswer) -> tuple[int, str]:
    return (found.best.split.num_cards if found.best is not None else 10**6, found.card)


def _search(
    answered: state.Answer,
    demand: Demand,
    cards: Sequence[str],
    most_cards: int,
    job: CompareJob[tuple[CardAnswer, ...]],
) -> tuple[CardAnswer, ...]:
    """The answer of each card in turn; those that were reached when it is stopped."""
    found: list[CardAnswer] = []
    num_splits = len(splits_up_to(most_cards))
    for place, card in enumerate(cards):
        candidates: list[Candidate] = []
        search = Search(gpu=find_gpu(card), most_cards=most_cards, should_stop=job.should_stop)
        job.note(place / len(cards), card, tuple(found))
        for candidate in fewest_cards(answered.request, answered.model, demand, search):
            candidates.append(candidate)
            done = (place + min(len(candidates) / num_splits, 1.0)) / len(cards)
            job.note(done, f"{card}: {split_words(candidate.split)}", tuple(found))
        found.append(CardAnswer(card=card, candidates=tuple(candidates), is_whole=not job.should_stop()))
        if job.should_stop():
            break
    return tuple(found)


def _so_far(found: tuple[CardAnswer, ...]) -> None:
    """The cards that are done, while others are tried."""
    for answer in found:
        best = answer.best
        sign = ":red[:material/cancel:]" if best is None else ":green[:material/check_circle:]"
        told = t("nothing up to that many cards holds") if best is None else split_words(best.split)
        st.markdown(f"{sign} **{words.plain(answer.card)}** · {told}")


def split_words(split: Split) -> str:
    """A split as vLLM's people write it: "TP 2 · PP 1 · DP 4"."""
    tp, pp, dp = split.tensor_parallel_size, split.pipeline_parallel_size, split.data_parallel_size
    return f"TP {tp} · PP {pp} · DP {dp}"


# -- drawing ----------------------------------------------------------------------------------------------------------


def _card(place: int, found: CardAnswer, bill: Bill) -> None:
    best = found.best
    with st.container(border=True):
        if best is None:
            last = found.candidates[-1] if found.candidates else None
            st.markdown(f":red[:material/cancel:] **{words.plain(found.card)}** · {_nothing(found)}")
            if last is not None:
                st.caption(words.plain(said(last.reason)))
            return
        number = best.split.num_cards
        sign = ":green[:material/check_circle:]" if best.holds else ":orange[:material/help:]"
        head = t("{number} × {card}", number=number, card=found.card)
        left, right = st.columns([3, 2], vertical_alignment="center")
        with left:
            st.markdown(f"{sign} **{words.plain(head)}** · {split_words(best.split)}")
            st.caption(words.plain(" ".join(part for part in (said(best.reason), _waits(best)) if part)))
        with right:
            st.markdown(words.plain(f"{bill.cost(found.card, number)} · {bill.power(found.card, number)}"))
            st.caption(words.plain(bill.power_note(found.card)))
            st.button(
                t("Open in Plan"),
                key=key(f"open_card_{place}"),
                icon=":material/open_in_new:",
                on_click=compare_state.open_in_plan,
                args=(best.request,),
            )


def _waits(best: Candidate) -> str:
    """The longest usual waits of the load that was simulated; empty where none was."""
    if best.load is None or not best.load.latency.first_token.num_samples:
        return ""
    waits = best.load.latency
    return t(
        "99 of 100 requests have their first token within {first}, 99 of 100 tokens come within {between} of the last one.",
        first=compare_charts.wait_words(waits.first_token.p99_seconds),
        between=compare_charts.wait_words(waits.between_tokens.p99_seconds),
    )


def _nothing(found: CardAnswer) -> str:
    return t("nothing up to that many cards holds") if found.is_whole else t("stopped before it was tried to the end")


def _full_power(bill: Bill, card: str, number: int) -> str:
    """The power in words, who says so and where that was read."""
    return " – ".join(
        part for part in (bill.power(card, number), bill.power_note(card), bill.power_source(card)) if part
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
                t("First token, p50 / p99"): latency_words(candidate.load, "first_token"),
                t("Between tokens, p50 / p99"): latency_words(candidate.load, "between_tokens"),
                t("Why"): words.plain(said(candidate.reason)),
            }
            for answer in found
            for candidate in answer.candidates
        ]
    )


def _report(asked: CompareInput, model_id: str, found: Sequence[CardAnswer], bill: Bill) -> None:
    rows = [_report_row(answer, bill) for answer in sorted(found, key=_order)]
    report_compare.cards(_subject(model_id, asked), rows, candidate_rows(found).to_dict("records"))


def _report_row(found: CardAnswer, bill: Bill) -> dict[str, str]:
    best = found.best
    last = best or (found.candidates[-1] if found.candidates else None)
    number = 0 if best is None else best.split.num_cards
    return {
        t("Card"): found.card,
        t("Cards"): _nothing(found) if best is None else words.count(number),
        t("Split"): "–" if best is None else split_words(best.split),
        t("Cost"): "–" if best is None else bill.cost(found.card, number),
        t("Power"): "–" if best is None else _full_power(bill, found.card, number),
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
