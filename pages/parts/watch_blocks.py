"""The blocks of the engine that is watched: the map of its real tables, else its cached blocks, else how full the pool is."""

from __future__ import annotations

from functools import partial

import pandas as pd
import streamlit as st

from live.block_sight import BlockSight
from live.cache_summary import CachedPlace, CacheSummary, PrefixTree
from live.recording import Recording
from live.samples import EngineSample
from live.watched import WatchStatus
from pages.parts import block_map, watch_blocks_state, watch_words, words
from pages.parts.block_moment import MomentView, encode_moment
from pages.parts.language import t
from pages.parts.said import said
from pages.parts.watch_state import key

_PROBE_COMMAND = "vllm serve MODEL --scheduler-cls live.engine.probe.ProbeScheduler"
_EVENTS_FLAG = (
    """--kv-events-config '{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://*:5557"}'"""
)


def blocks(recording: Recording | None, status: WatchStatus, sample: EngineSample) -> None:
    """The section of the page. `recording` is None for a source that keeps no tables."""
    st.subheader(t("Blocks"), anchor=False)
    sight = BlockSight(kind="none")
    if recording is not None:
        sight = watch_blocks_state.watcher(recording, sample).look(status.time_ms, sample)
    if sight.text:
        st.warning(words.plain(said(sight.text)), icon=":material/warning:")
    if sight.kind == "tables":
        _tables(sight, sample)
    else:
        _occupancy(sample)
    if sight.summary is not None:
        _cached(sight.summary)
    if sight.kind != "tables":
        _how_to_see(sight)


# -- tables -----------------------------------------------------------------------------------------------------------


def _tables(sight: BlockSight, sample: EngineSample) -> None:
    moment = sight.moment
    if moment is None:
        return
    st.segmented_control(
        t("Colour by"),
        watch_blocks_state.COLOURS,
        key=key("colour_by"),
        default="request",
        required=True,
        format_func={"request": t("Request"), "state": t("State"), "group": t("KV group")}.__getitem__,
        persist_state="session",
    )
    view = MomentView(
        source=watch_words.engine_name(sample.identity),
        title=watch_words.engine_name(sample.identity),
        moment=moment,
        events=sight.events,
        colour_by=watch_blocks_state.colour_by(),
        selected=watch_blocks_state.selected(),
    )
    block_map.block_map(
        encode_moment(view),
        key=watch_blocks_state.MAP,
        on_step=_nothing,
        on_pick=partial(watch_blocks_state.picked_block, moment),
        on_choose=partial(watch_blocks_state.chosen_request, moment),
    )
    st.caption(_about_tables(sight))


def _nothing() -> None:
    """A moment has no other step to go to."""


def _about_tables(sight: BlockSight) -> str:
    """Where the map comes from, and what it leaves out."""
    moment, frame = sight.moment, sight.frame
    if moment is None or frame is None:
        return ""
    said = [
        t(
            "Block tables of the engine itself, by KVScope's probe, right after step {step}: {used} of {usable} blocks in "
            "use, so far {preemptions} preemptions. The list shows prompt and output so far, not the length that was asked for.",
            step=f"{moment.step:,}",
            used=f"{moment.num_used_blocks:,}",
            usable=f"{len(moment.codes) - 1:,}",
            preemptions=f"{frame.num_preemptions:,}",
        )
    ]
    if moment.num_requests_left_out:
        said.append(t("{count} requests are beyond what one frame holds.", count=f"{moment.num_requests_left_out:,}"))
    if moment.listed_at_step is None:
        said.append(t("The probe has not listed the cached blocks: those are drawn as free."))
    elif moment.listed_at_step < moment.step:
        said.append(t("Cached blocks are as of step {step}.", step=f"{moment.listed_at_step:,}"))
    return " ".join(said)


# -- occupancy --------------------------------------------------------------------------------------------------------


def _occupancy(sample: EngineSample) -> None:
    """How much of the pool is in use; whose blocks they are is not said."""
    config, usage = sample.cache_config, sample.kv_usage_fraction
    num_blocks = None if config is None else config.num_gpu_blocks
    if usage is None:
        st.caption(t("This engine does not export how full its pool is."))
        return
    if num_blocks is None:
        text = t(
            "{share} of the pool is in use; the number of its blocks is not exported", share=watch_words.percent(usage)
        )
    else:
        text = t(
            "About {used} of {usable} blocks are in use ({share})",
            used=f"{round(usage * (num_blocks - 1)):,}",
            usable=f"{num_blocks - 1:,}",
            share=watch_words.percent(usage),
        )
    st.progress(min(1.0, max(0.0, usage)), text=text)


def _how_to_see(sight: BlockSight) -> None:
    st.markdown(t("Which block belongs to whom is not exported by vLLM's metrics or events."))
    with st.expander(t("See the block tables"), icon=":material/grid_view:", key=key("how_to_probe")):
        st.markdown(
            t(
                "Start vLLM {release} with the probe, from KVScope's folder or with that folder on {variable}. It publishes on "
                "this machine only, a few times a second, and changes no decision of the scheduler.",
                release="0.32",
                variable="`PYTHONPATH`",
            )
        )
        st.code(_PROBE_COMMAND, language=None, wrap_lines=True)
        if sight.kind != "events":
            st.markdown(t("Or let vLLM say which blocks are cached, without the tables:"))
            st.code(_EVENTS_FLAG, language=None, wrap_lines=True)


# -- cached blocks ----------------------------------------------------------------------------------------------------


def _cached(summary: CacheSummary) -> None:
    """The prefix cache as KV events tell it."""
    st.markdown(f"**{t('Cached blocks by KV events, in use or not')}**")
    if not summary.is_complete:
        st.caption(t("Events were missed, so that the counts are at least so much."))
    st.dataframe(pd.DataFrame([_place_row(each) for each in summary.places]), hide_index=True, key=key("cached"))
    for place in summary.places:
        if place.tree is not None and place.num_blocks:
            st.caption(_tree_words(place, place.tree))


def _place_row(place: CachedPlace) -> dict[str, str]:
    ages = place.ages
    return {
        t("KV group"): f"{place.group}" + (f" · {place.spec_kind}" if place.spec_kind else ""),
        t("Where"): place.medium,
        t("Blocks"): f"{place.num_copies:,}",
        t("Different contents"): f"{place.num_blocks:,}",
        t("Tokens"): f"{place.num_tokens:,}",
        t("Evicted after (median)"): "–" if ages is None else words_seconds(ages.median_seconds),
        t("Shortest to longest"): "–"
        if ages is None
        else f"{words_seconds(ages.shortest_seconds)} – {words_seconds(ages.longest_seconds)}",
    }


def words_seconds(seconds: float) -> str:
    """A span of time: "0.4 s", "75 s", "12 min"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:,.0f} s" if seconds < 600 else f"{seconds / 60:,.0f} min"


def _tree_words(place: CachedPlace, tree: PrefixTree) -> str:
    widest = max(tree.runs, key=lambda run: run.num_branches, default=None)
    said = [
        t(
            "Prefix tree of group {group} on {medium}: {prefixes} different beginnings in {runs} runs, the longest of {deepest} tokens.",
            group=place.group,
            medium=words.plain(place.medium),
            prefixes=f"{tree.num_prefixes:,}",
            runs=f"{tree.num_runs:,}",
            deepest=f"{tree.deepest_tokens:,}",
        )
    ]
    if widest is not None and widest.num_branches > 1:
        said.append(
            t(
                "The most shared run has {tokens} tokens, and {branches} continuations.",
                tokens=f"{widest.num_tokens:,}",
                branches=f"{widest.num_branches:,}",
            )
        )
    if tree.num_detached:
        said.append(
            t("{count} runs can no longer be reached: their beginning was evicted.", count=f"{tree.num_detached:,}")
        )
    return " ".join(said)
