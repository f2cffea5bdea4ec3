"""The Trade-offs page's answer: block sizes, concurrency with and without paging, and three switches."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from pages.parts import simulate_weigh, simulate_weigh_charts, simulate_words, words
from pages.parts.language import t
from pages.parts.said import said
from pages.parts.simulate_setup import Setup, pool_words
from pages.parts.simulate_state import key
from pages.parts.simulate_weigh import WeighJob
from planner.block_tradeoffs import ConcurrencyPoint, SwitchPoint
from planner.simulate import SimulationSummary

_QUIET_CHART = {"displayModeBar": False, "scrollZoom": False}
_POLL_SECONDS = 0.7


def title(setup: Setup, job: WeighJob) -> None:
    """What is weighed: the workload and the pool."""
    st.caption(words.plain(f"{said(setup.title)} · {pool_words(setup.config, setup.block_bytes)}"))
    st.header(t("What each choice costs and buys"), anchor=False)
    left_out = (
        t(" The first {requests} of the workload's requests are used.", requests=f"{len(job.requests):,}")
        if job.num_left_out
        else ""
    )
    st.markdown(
        t("Every point below is a simulation of its own on the workload of the form.{left_out}", left_out=left_out)
    )


@st.fragment(run_every=_POLL_SECONDS)
def progress(job: WeighJob) -> None:
    """How far the simulations are, with a button that stops them; the page is drawn anew when they are done."""
    if job.wait(0):
        st.rerun()
    st.progress(job.fraction, text=t("{count} of the simulations are done", count=job.num_done))
    st.button(t("Stop"), key=key("stop_weighing"), icon=":material/stop_circle:", on_click=job.stop)
    points(job)


def points(job: WeighJob) -> None:
    """All sections, as far as their points are there."""
    if job.problem is not None and job.is_done:
        st.warning(words.plain(said(job.problem.text)), icon=":material/warning:")
    concurrency(job)
    block_sizes(job)
    switches(job)


def concurrency(job: WeighJob) -> None:
    """Use of memory against requests at once, and what becomes of the practitioners' claim."""
    found = list(job.concurrencies)
    if not found:
        return
    st.subheader(t("How full memory is kept, by requests at once"), anchor=False)
    claims = simulate_weigh.claims(found)
    figure = simulate_weigh_charts.use_by_concurrency(found)
    st.plotly_chart(figure, key=key("weigh_concurrency"), config=_QUIET_CHART, alt=" ".join(text for _, text in claims))
    st.markdown(
        t("The claim: *over 95 % in use above 32 requests with paging, under 60 % before it.* On these lengths:")
    )
    signs = {
        True: f":green[:material/check_circle:] **{t('Shown.')}**",
        False: f":red[:material/cancel:] **{t('Refuted.')}**",
        None: f":material/help: **{t('Open.')}**",
    }
    for is_shown, text in claims:
        st.markdown(f"- {signs[is_shown]} {words.plain(text)}")
    rows = concurrency_rows(found)
    with st.expander(t("The numbers"), icon=":material/table:", key=key("weigh_concurrency_numbers")):
        st.table(pd.DataFrame(rows), border="horizontal", hide_index=True, alt=t("Use of memory by requests at once"))
        st.caption(
            t(
                "Taken slots that hold a token: of the blocks in use, or of the runs that were reserved. Prefix "
                "sharing is off."
            )
        )


def concurrency_rows(found: Sequence[ConcurrencyPoint]) -> list[dict[str, object]]:
    """One row a limit of requests: how full each allocator keeps what it takes."""
    return [
        {
            "max_num_seqs": point.max_num_seqs,
            t("At once, mean"): f"{point.mean_running:.1f}",
            t("Paging"): f"{point.paged_fraction:.1%}",
        }
        | {said(simulate_words.POLICY_WORDS[policy]): f"{fraction:.1%}" for policy, fraction in point.contiguous}
        for point in found
    ]


def block_sizes(job: WeighJob) -> None:
    """Block size against waste, table size and hits."""
    found = list(job.block_sizes)
    if not found:
        return
    st.subheader(t("Block size"), anchor=False)
    finding = simulate_weigh.block_size_finding(found)
    st.markdown(finding)
    figures = (
        (t("Empty slots of used blocks"), simulate_weigh_charts.empty_slots(found)),
        (t("Block tables"), simulate_weigh_charts.table_bytes(found)),
        (t("Prefix hits"), simulate_weigh_charts.prefix_hits(found)),
    )
    for column, (name, figure) in zip(st.columns(3, gap="medium"), figures, strict=True):
        with column:
            st.markdown(f"**{name}**")
            st.plotly_chart(
                figure,
                key=key(f"weigh_{name}"),
                config=_QUIET_CHART,
                alt=t("{name} by block size. {finding}", name=name, finding=finding),
            )


def switches(job: WeighJob) -> None:
    """Prefix caching, sliding window and hybrid manager, on and off."""
    found = list(job.switches)
    if not found:
        return
    st.subheader(t("On and off"), anchor=False)
    for point in found:
        st.markdown(f"- {simulate_weigh.switch_finding(point)}")
    rows = [row for point in found for row in switch_rows(point)]
    st.table(pd.DataFrame(rows), border="horizontal", hide_index=True, alt=t("Three switches, on and off"))
    if job.window_note:
        st.caption(said(job.window_note))
    st.caption(
        t("Without the hybrid manager every layer keeps all tokens, in fewer, larger blocks of the same memory.")
    )


def switch_rows(point: SwitchPoint) -> list[dict[str, str]]:
    """Two rows: the switch on, and off."""
    name = said(simulate_weigh.SWITCH_WORDS[point.switch])
    return [
        _switch_row(t("{name}: on", name=name), point.on.summary),
        _switch_row(t("{name}: off", name=name), point.off.summary),
    ]


def _switch_row(name: str, summary: SimulationSummary) -> dict[str, str]:
    return {
        t("Switch"): name,
        t("Steps"): words.count(summary.num_steps),
        t("Most at once"): words.count(summary.peak_running),
        t("Peak blocks"): words.count(summary.peak_used_blocks),
        t("Preemptions"): words.count(summary.num_preemptions),
        t("Computed again"): words.count(summary.recomputed_tokens),
        t("Tokens found"): words.count(summary.hit_tokens),
    }
