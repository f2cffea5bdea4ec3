"""What is seen of the engine: state, verdict, numbers beside the plan, charts. Fragments only read and draw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from live.downsample import drawn
from live.plan_comparison import EngineFacts, PlanComparison, compare_with_plan
from live.recording import Window
from live.recording_schema import RecordingError
from live.samples import EngineSample
from live.watched import OK, PAUSED, Watched, WatchStatus
from pages.parts import (
    state,
    watch_blocks,
    watch_charts,
    watch_prediction,
    watch_sources,
    watch_state,
    watch_words,
    words,
)
from pages.parts.watch_evidence import EVIDENCE_SECONDS, Evidence, Verdict, evidence, verdict, watched_names
from pages.parts.watch_prediction import ExpectedUse, HeldTokens
from pages.parts.watch_state import key
from planner import planning
from planner.answer import Plan
from planner.facts import PlanError
from planner.request import PlanRequest

SPANS = {5: "5 min", 15: "15 min", 60: "1 h", 360: "6 h", 1440: "24 h"}
NOW_SECONDS, CHARTS_SECONDS, BLOCKS_SECONDS, PLAN_SECONDS = 1.0, 2.0, 2.0, 5.0
_MOST_POINTS = 900
_QUIET_CHART = {"displayModeBar": False, "scrollZoom": False}
_VERDICTS = {
    "little": ("gray", "hourglass_top"),
    "idle": ("gray", "bedtime"),
    "thrashing": ("red", "sync_problem"),
    "full": ("red", "inventory_2"),
    "filling": ("orange", "trending_up"),
    "compute": ("orange", "speed"),
    "healthy": ("green", "check_circle"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One engine at this moment: its sample, the last minutes, and the plan of its model where there is one."""

    status: WatchStatus
    sample: EngineSample
    evidence: Evidence
    plan: Plan | None
    held: HeldTokens | None

    @property
    def expected(self) -> ExpectedUse | None:
        """What the plan expects of the load now."""
        if self.plan is None:
            return None
        return watch_prediction.expected_use(self.sample.num_requests_running, self.held, self.plan)


def draw(watched: Watched, interval_ms: int) -> None:
    """The whole view of what is watched, kept up to date until the reader holds it still."""
    is_still = bool(watch_state.value("is_paused"))
    _repeat(lambda: _now(watched), "now", None if is_still else NOW_SECONDS)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.selectbox("Time shown", tuple(SPANS), key=key("minutes"), format_func=SPANS.__getitem__, width=120)
        st.toggle("Hold still", key=key("is_paused"), help="Stops redrawing. The recording goes on.")
    _repeat(lambda: _charts(watched, interval_ms), "charts", None if is_still else CHARTS_SECONDS)
    _repeat(lambda: _blocks(watched), "blocks", None if is_still else BLOCKS_SECONDS)
    _repeat(lambda: _beside_plan(watched), "plan", None if is_still else PLAN_SECONDS)


def _repeat(show: Callable[[], None], name: str, seconds: float | None) -> None:
    def guarded() -> None:
        try:
            show()
        except RecordingError as error:
            st.warning(words.plain(error.text), icon=":material/warning:")

    st.fragment(guarded, run_every=seconds, key=key(f"part_{name}"))()


def _sample(status: WatchStatus) -> EngineSample | None:
    """The engine that is looked at, of those that one server has."""
    if status.snapshot is None or not status.snapshot.engines:
        return None
    return status.snapshot.engines[min(watch_state.value("engine") or 0, len(status.snapshot.engines) - 1)]


def _seen(watched: Watched, status: WatchStatus) -> Seen | None:
    sample = _sample(status)
    if sample is None or status.snapshot is None:
        return None
    seen = evidence(watched.window(watched_names(sample.identity), EVIDENCE_SECONDS), sample.identity)
    answered = watch_state.plan_answer()
    names = [each.root or "" for each in status.snapshot.models]
    is_same = not isinstance(answered, PlanError) and watch_words.serves(sample, names, answered.plan)
    return Seen(
        status=status,
        sample=sample,
        evidence=seen,
        plan=answered.plan if is_same and not isinstance(answered, PlanError) else None,
        held=watch_prediction.held_tokens(sample, seen.hit_fraction),
    )


# -- now --------------------------------------------------------------------------------------------------------------


def _now(watched: Watched) -> None:
    status = watched.status()
    said = watch_words.state_words(status)
    st.markdown(
        f":{said.colour}[{said.icon} **{said.title}**] · {watch_words.inline_code(status.address)} · {_as_of(status)}"
    )
    if said.text:
        st.info(watch_words.sentence(said.text), icon=":material/info:")
    if status.storage_text:
        st.error(words.plain(status.storage_text), icon=":material/save:")
    if status.snapshot is not None:
        watch_sources.engine_choice([watch_words.engine_name(each.identity) for each in status.snapshot.engines])
    seen = _seen(watched, status)
    if seen is None:
        return
    if status.state in {OK, PAUSED}:
        _verdict(verdict(seen.evidence))
    _metrics(seen)


def _as_of(status: WatchStatus) -> str:
    moment = words.plain(watch_words.clock(status.time_ms))
    if status.snapshot is None:
        return moment
    version = words.plain(watch_words.version_words(status.snapshot))
    age = status.snapshot_age_seconds or 0.0
    stale = f" · numbers are {age:,.0f} s old" if status.state not in {OK, PAUSED} else ""
    return f"{version} · {moment}{stale}"


def _verdict(found: Verdict) -> None:
    colour, icon = _VERDICTS[found.kind]
    st.header(f":{colour}[:material/{icon}:] {words.plain(found.title)}", anchor=False)
    st.markdown(words.plain(found.numbers))
    if found.advice:
        st.caption(words.plain(found.advice))


def _metrics(seen: Seen) -> None:
    sample, facts = seen.sample, seen.evidence
    with st.container(horizontal=True, gap="small"):
        _metric("KV usage", watch_words.percent(sample.kv_usage_fraction), _expected_words(seen))
        _metric("Running", watch_words.number(sample.num_requests_running), _concurrency_words(seen))
        _metric("Waiting", watch_words.number(sample.num_requests_waiting), "in the queue")
        added = None if facts.preemptions is None else f"{facts.preemptions:,.0f} in the last 5 min"
        _metric("Preemptions", watch_words.number(sample.num_preemptions), added or "in all")
        _metric("Prefix hits, last 5 min", _hits(seen), "of what was looked up")
    with st.container(horizontal=True, gap="small"):
        _metric("Stored to host", _rate(sample.offload_store_bytes, facts.store_bytes_per_second), _tier_words(seen))
        _metric("Loaded from host", _rate(sample.offload_load_bytes, facts.load_bytes_per_second), _tier_words(seen))
        _metric("Swapped requests", watch_words.number(sample.num_requests_swapped), "V0's swap space")
        _metric("External cache hits", _external_hits(seen), "of prompt tokens asked for")


def _metric(label: str, shown: str, beside: str) -> None:
    is_absent = shown == watch_words.NOT_EXPORTED
    st.metric(
        label,
        "–" if is_absent else shown,
        shown if is_absent else beside or None,
        delta_color="off",
        delta_arrow="off",
        border=True,
        width="stretch",
    )


def _expected_words(seen: Seen) -> str:
    expected = seen.expected
    if expected is None:
        return "no plan for this model" if seen.plan is None else "plan: no finished request yet"
    span = watch_words.span(expected.low_fraction, expected.high_fraction)
    error = watch_words.signed_error(expected.error(seen.sample.kv_usage_fraction))
    return f"plan expects {span} (error {error})"


def _concurrency_words(seen: Seen) -> str:
    if seen.plan is None:
        return "requests"
    return f"plan: {words.concurrency(seen.plan.pool.max_concurrency)} of the longest length fit"


def _tier_words(seen: Seen) -> str:
    size_gib = None if seen.sample.cache_config is None else seen.sample.cache_config.kv_offloading_size_gib
    return "no tier size told" if size_gib is None else f"tier of {size_gib:g} GiB"


def _hits(seen: Seen) -> str:
    sample = seen.sample
    is_exported = sample.prefix_cache_queries_tokens is not None or sample.prefix_cache_queries_blocks is not None
    if not is_exported:
        return watch_words.percent(sample.gpu_prefix_cache_hit_fraction)
    fraction = seen.evidence.hit_fraction
    return "none yet" if fraction is None else watch_words.percent(fraction)


def _external_hits(seen: Seen) -> str:
    if seen.sample.external_prefix_cache_queries_tokens is None:
        return watch_words.NOT_EXPORTED
    fraction = seen.evidence.external_hit_fraction
    return "none yet" if fraction is None else watch_words.percent(fraction)


def _rate(exported: float | None, rate: float | None) -> str:
    if exported is None:
        return watch_words.NOT_EXPORTED
    return "–" if rate is None else f"{words.small_bytes(rate)}/s"


# -- over time --------------------------------------------------------------------------------------------------------


def _charts(watched: Watched, interval_ms: int) -> None:
    status = watched.status()
    seen = _seen(watched, status)
    if seen is None:
        return
    seconds = 60.0 * float(watch_state.value("minutes"))
    window = watched.window(watched_names(seen.sample.identity), seconds)
    stage = watch_charts.Stage(
        drawn=drawn(window, interval_ms, _MOST_POINTS),
        identity=seen.sample.identity,
        start_ms=_start_ms(window, status, seconds),
        end_ms=status.time_ms,
        marks=watched.marks(seconds),
    )
    _chart("KV usage", watch_charts.usage(stage, seen.plan, seen.held), "usage")
    left, right = st.columns(2)
    with left:
        _chart("Requests", watch_charts.requests(stage), "requests")
    with right:
        _chart("Preemptions", watch_charts.preemptions(stage), "preemptions")
    with left:
        _chart("Prefix hits", watch_charts.hits(stage), "hits")
    with right:
        _offload(stage)
    _events(stage)


def _start_ms(window: Window, status: WatchStatus, seconds: float) -> int:
    first = int(window.time_ms[0]) if len(window.time_ms) else status.time_ms
    return max(status.time_ms - int(seconds * 1000), min(first, status.time_ms - 60_000))


def _chart(title: str, figure: object, name: str) -> None:
    st.markdown(f"**{title}**")
    st.plotly_chart(figure, key=key(f"chart_{name}"), config=_QUIET_CHART, alt=f"{title} over time")


def _offload(stage: watch_charts.Stage) -> None:
    if stage.has("offload_store_bytes", "offload_load_bytes"):
        _chart("Offload to the host", watch_charts.offload(stage), "offload")
    else:
        st.markdown("**Offload to the host**")
        st.caption("Not exported by this version, or no KV offloading is configured.")


def _events(stage: watch_charts.Stage) -> None:
    lines = [(mark.time_ms, f"{mark.kind.replace('_', ' ')}: {mark.text}") for mark in stage.marks]
    lines += [(gap.start_ms, f"gap, {gap.state.replace('_', ' ')}: {gap.text}") for gap in stage.drawn.gaps]
    if not lines:
        return
    with st.expander(f"Marks and gaps ({len(lines)})", key=key("events")):
        for time_ms, text in sorted(lines, reverse=True)[:50]:
            st.markdown(watch_words.sentence(f"{watch_words.clock(time_ms)} · {text}"))


# -- blocks -----------------------------------------------------------------------------------------------------------


def _blocks(watched: Watched) -> None:
    status = watched.status()
    sample = _sample(status)
    if sample is not None:
        watch_blocks.blocks(getattr(watched, "recording", None), status, sample)


# -- beside the plan --------------------------------------------------------------------------------------------------


def _beside_plan(watched: Watched) -> None:
    status = watched.status()
    seen = _seen(watched, status)
    if seen is None or status.snapshot is None:
        return
    st.subheader("Beside the plan", anchor=False)
    if seen.plan is None:
        _offer_plan(seen, status)
        return
    st.caption(words.plain(words.subject(seen.plan)))
    comparison = _compared(seen, status)
    st.dataframe(pd.DataFrame(watch_words.comparison_rows(comparison)), hide_index=True, key=key("comparison"))
    for cause in comparison.causes:
        st.markdown(f":material/help: {words.plain(cause.text)}")
    if seen.held is not None:
        st.caption(
            f"The expected usage is running requests × tokens that one holds, over the plan's tokens. {seen.held.num_requests:,} "
            f"finished requests say that one holds {seen.held.low_tokens:,.0f} to {seen.held.high_tokens:,.0f} tokens: its prompt "
            "(shared prefixes left out at the low end) and half of its output."
        )


def _compared(seen: Seen, status: WatchStatus) -> PlanComparison:
    answered = watch_state.plan_answer()
    if status.snapshot is None or seen.plan is None or isinstance(answered, PlanError):
        raise ValueError
    facts = EngineFacts(
        vllm_version=status.snapshot.vllm_version,
        models=status.snapshot.models,
        num_engines=len(status.snapshot.engines),
    )
    return compare_with_plan(seen.sample, seen.plan, facts, _replanner(answered))


def _replanner(answered: state.Answer) -> Callable[[PlanRequest], Plan]:
    def replan(request: PlanRequest) -> Plan:
        return planning.answer(request, answered.documents)[0]

    return replan


def _offer_plan(seen: Seen, status: WatchStatus) -> None:
    served = seen.sample.identity.model_name or "its model"
    st.markdown(words.plain(f"The Plan page has no plan for {served}, so no number has a prediction."))
    names = [served, *(each.root or "" for each in (status.snapshot.models if status.snapshot else ()))]
    known = watch_state.catalogue_id(names)
    if known is None:
        st.caption("Choose the model, card and flags on the Plan page; this page then compares.")
        return
    st.button(
        words.plain(f"Plan {known}"),
        key=key("plan_for"),
        icon=":material/memory:",
        on_click=watch_state.plan_for,
        args=(known,),
        help="Puts this model into the Plan page's form; card and flags there stay as they are.",
    )
