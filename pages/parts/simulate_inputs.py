"""The Simulate page's form in the sidebar: workload, pool, vLLM's flags, tiers and seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import pandas as pd
import streamlit as st

from pages.parts import problems, simulate_sources, simulate_state, words
from pages.parts.language import mark, t
from pages.parts.said import said
from pages.parts.simulate_request import (
    DRAWN,
    FAILURES,
    FILE,
    LESSON,
    MOST_ROWS,
    PLAN,
    POOLS,
    TABLE,
    WORKLOADS,
)
from pages.parts.simulate_setup import WORKLOAD_TITLES
from pages.parts.simulate_state import key, value
from planner.facts import PlanError
from planner.sequence import MAX_TOKENS
from planner.workload import MAX_REQUESTS

_MOST_TRACE_MIB = 64
_KIND_WORDS = {
    "fixed": mark("Fixed"),
    "uniform": mark("Uniform"),
    "lognormal": mark("Lognormal"),
    "bimodal": mark("Chat and long documents"),
    "percentiles": mark("Through p50, p95, p99"),
}
_ARRIVAL_WORDS = {
    "at_once": mark("All at once"),
    "poisson": mark("Poisson"),
    "bursty": mark("In bursts"),
    "steady": mark("Steady"),
}


def simulation_form(problem: PlanError | None) -> None:
    """Draw the whole form; a mistake is said at its field."""
    st.subheader(t("Workload"), anchor=False)
    st.selectbox(
        t("Workload"),
        WORKLOADS,
        key=key("workload"),
        format_func=lambda workload: said(WORKLOAD_TITLES[workload]),
        on_change=simulate_state.choose_workload,
        label_visibility="collapsed",
        persist_state="session",
    )
    _workload(problem)
    st.subheader(t("Pool"), anchor=False)
    _pool(problem)
    st.subheader(t("vLLM's scheduler"), anchor=False)
    _flags(problem)
    _tiers(problem)
    _whole("seed", t("Seed"), 0, 10**9, t("The same seed draws the same requests: the link holds it."))


def _workload(problem: PlanError | None) -> None:
    workload = value("workload")
    if workload == DRAWN:
        _drawn(problem)
    elif workload == TABLE:
        _table(problem)
    elif workload == FILE:
        _file(problem)
    elif workload == LESSON:
        st.caption(t("Six small requests in 20 blocks of 4 tokens. Play it, or go from stop to stop."))
    elif workload in FAILURES:
        st.caption(
            t("A workload that breaks the pool. What saves it stands below the map, each change simulated anew.")
        )
    problems.say(problem, "requests", "request_id", "arrival_seconds", "n", "max_steps")


def _drawn(problem: PlanError | None) -> None:
    _whole("num_requests", t("Requests"), 1, MAX_REQUESTS, t("How many requests arrive in all."))
    _lengths("prompt", t("Prompts"))
    _lengths("output", t("Answers"))
    problems.say(problem, "low", "p50_tokens", "mean_tokens", "long_fraction", "num_requests")
    with st.expander(t("Arrivals"), icon=":material/schedule:", key=key("group_arrivals")):
        _choice("arrivals", t("When they come"), tuple(_ARRIVAL_WORDS), _ARRIVAL_WORDS)
        _choice(
            "arrivals_in", t("By"), ("steps", "seconds"), {"steps": t("steps of the engine"), "seconds": t("the clock")}
        )
        if value("arrivals") != "at_once":
            _real(
                "rate",
                t("Requests a second") if value("arrivals_in") == "seconds" else t("Requests a step"),
                0.001,
                1000.0,
                t("On average. A step is one pass through the model."),
            )
        if value("arrivals_in") == "seconds":
            _step_time(problem)
        if value("arrivals") == "bursty":
            _real("burst_size", t("Requests in a burst"), 1.0, 10_000.0, t("On average."))
        problems.say(problem, "rate")
    with st.expander(t("Shared system prompts"), icon=":material/content_copy:", key=key("group_prefixes")):
        _whole("num_prefixes", t("Different system prompts"), 0, 10_000, t("0: nothing is shared."))
        _whole("prefix_tokens", t("Tokens of each"), 0, MAX_TOKENS, t("They stand in front of the drawn prompt."))
        _real("shared_fraction", t("Fraction that begins with one"), 0.0, 1.0, t("From 0 to 1."))
        _whole("n", t("Samples of each request (n)"), 1, 64, t("Parallel samples share the prompt's blocks."))
        problems.say(problem, "num_prefixes", "prefix_tokens")


def _step_time(problem: PlanError | None) -> None:
    _choice(
        "step_time", t("Time of a step"), ("fixed", "card"), {"fixed": t("Fixed"), "card": t("From the plan's card")}
    )
    if value("step_time") == "fixed":
        _real("step_seconds", t("Seconds a step"), 0.0001, 3600.0, t("The same for every step."))
    else:
        st.caption(t("The longer of reading weights and cache, and of computing, by the card's bandwidth and FLOP/s."))
    problems.say(problem, "step_seconds", "bytes_per_second")


def _lengths(side: str, title: str) -> None:
    with st.expander(title, icon=":material/straighten:", key=key(f"group_{side}")):
        _choice(f"{side}_kind", t("{title}: lengths", title=title), tuple(_KIND_WORDS), _KIND_WORDS)
        kind = value(f"{side}_kind")
        if kind in {"fixed", "lognormal", "bimodal"}:
            _real(
                f"{side}_mean",
                t("Mean, tokens"),
                1.0,
                1e6,
                t("Of the chats, where there are long documents too."),
            )
        if kind in {"lognormal", "bimodal"}:
            _real(f"{side}_spread", t("Spread"), 0.0, 5.0, t("Standard deviation of the logarithm."))
        if kind == "bimodal":
            _real(f"{side}_long_mean", t("Mean of the long ones, tokens"), 1.0, 1e6, "")
            _real(f"{side}_long_fraction", t("Fraction of long ones"), 0.0, 1.0, t("From 0 to 1."))
        if kind == "percentiles":
            for name in ("p50", "p95", "p99"):
                _real(f"{side}_{name}", t("{name}, tokens", name=name), 1.0, 1e6, "")
        _whole(f"{side}_low", t("Shortest, tokens"), 1, MAX_TOKENS, t("Drawn lengths are cut to this."))
        _whole(f"{side}_high", t("Longest, tokens"), 1, MAX_TOKENS, t("Drawn lengths are cut to this."))


def _table(problem: PlanError | None) -> None:
    st.caption(
        t(
            "At most {count} rows. Rows with the same prefix number begin with the same tokens; 0 shares nothing.",
            count=MOST_ROWS,
        )
    )
    frame = pd.DataFrame([asdict(row) for row in simulate_state.table_start()])
    st.data_editor(
        frame,
        key=key(f"editor_{value('table_turn')}"),
        num_rows="dynamic",
        column_config={
            name: st.column_config.NumberColumn(said(title), min_value=0, max_value=MAX_TOKENS, step=1)
            for name, title in simulate_sources.COLUMNS.items()
        },
    )
    problems.say(problem, "rows")


def _file(problem: PlanError | None) -> None:
    st.file_uploader(
        t("Trace: CSV, JSON or JSONL"),
        type=["csv", "json", "jsonl"],
        key=key("upload"),
        max_upload_size=_MOST_TRACE_MIB,
        help=t(
            "A row a request: num_prompt_tokens, num_output_tokens, and arrival_step or arrival_seconds; prefix_id and "
            "prefix_tokens if prompts share a start. The public Mooncake and Azure traces are understood as they are."
        ),
    )
    st.caption(
        t(
            "At most {size} MiB and {count} requests. The file stays here: a link does not hold it.",
            size=_MOST_TRACE_MIB,
            count=f"{MAX_REQUESTS:,}",
        )
    )
    st.caption(t("For traces that arrive by the clock:"))
    _step_time(problem)
    problems.say(problem, "requests", *_TRACE_FIELDS)


_TRACE_FIELDS = (
    "trace", "request_id", "arrival_step", "arrival_seconds", "num_prompt_tokens", "num_output_tokens", "prefix_tokens",
    "prompt_token_ids", "output_token_ids", "accepted_drafts", "hash_ids", "priority",
)  # fmt: skip


def _pool(problem: PlanError | None) -> None:
    st.segmented_control(
        t("Pool"),
        POOLS,
        key=key("pool"),
        required=True,
        format_func={"toy": t("Set by hand"), PLAN: t("From the plan")}.__getitem__,
        on_change=simulate_state.choose_pool,
        help=t("From the plan: the blocks, block size, KV groups and flags of the Plan page."),
        label_visibility="collapsed",
        persist_state="session",
    )
    problems.say(problem, "pool")
    if value("pool") == PLAN:
        plan = simulate_state.plan_now()
        if plan is not None:
            st.caption(
                words.plain(
                    t(
                        "{plan}: {num_blocks} blocks of {block_size}.",
                        plan=words.subject(plan),
                        num_blocks=f"{plan.pool.num_blocks:,}",
                        block_size=plan.pool.block_size,
                    )
                )
            )
        return
    _whole(
        "num_gpu_blocks", "--num-gpu-blocks-override", 2, 10_000_000, t("Blocks of the pool, with vLLM's null block.")
    )
    problems.say(problem, "num_gpu_blocks")
    _whole("block_size", "--block-size", 1, 65_536, t("Tokens in a block."))
    problems.say(problem, "block_size")
    _whole(
        "sliding_window",
        t("Sliding window, tokens"),
        0,
        MAX_TOKENS,
        t("Adds a second KV group whose layers see only so many tokens back. 0: full attention alone."),
    )
    problems.say(problem, "sliding_window", "groups")


def _flags(problem: PlanError | None) -> None:
    _whole("max_num_seqs", "--max-num-seqs", 1, 1_000_000, t("The most requests that run at once."))
    _whole("max_num_batched_tokens", "--max-num-batched-tokens", 1, 100_000_000, t("Tokens that one step may compute."))
    _whole("max_model_len", "--max-model-len", 2, 100_000_000, t("The longest request, prompt and answer together."))
    problems.say(problem, "max_num_seqs", "max_num_batched_tokens", "max_model_len")
    _switch("enable_prefix_caching", "--enable-prefix-caching", t("Full blocks stay findable for equal prefixes."))
    with st.expander(t("More flags"), icon=":material/tune:", key=key("group_flags")):
        _choice(
            "scheduling_policy", "--scheduling-policy", ("fcfs", "priority"), {"fcfs": "fcfs", "priority": "priority"}
        )
        _switch("async_scheduling", "--async-scheduling", t("The next step is scheduled while one is computed."))
        _switch("enable_chunked_prefill", "--enable-chunked-prefill", t("A long prompt may be spread over steps."))
        _whole(
            "long_prefill_token_threshold",
            "--long-prefill-token-threshold",
            0,
            100_000_000,
            t("The most prompt tokens of one request in a step. 0: no limit."),
        )
        _real("watermark", "--watermark", 0.0, 0.99, t("The fraction of the pool that admission leaves free."))
        _whole(
            "num_speculative_tokens",
            "num_speculative_tokens",
            0,
            1000,
            t("Draft tokens a step; their slots are reserved."),
        )
        if value("num_speculative_tokens"):
            _real("draft_acceptance", t("Chance that a draft is right"), 0.0, 1.0, "")
        problems.say(
            problem, "scheduling_policy", "watermark", "long_prefill_token_threshold", "num_speculative_tokens"
        )


def _tiers(problem: PlanError | None) -> None:
    with st.expander(t("Host memory and disk"), icon=":material/stacks:", key=key("group_tiers")):
        st.caption(t("KV offload: evicted blocks go down and come back on a prefix hit."))
        _whole("host_blocks", t("Host memory, blocks"), 0, 10_000_000, t("0: none."))
        _whole("disk_blocks", t("Disk, blocks"), 0, 100_000_000, t("0: none."))
        if value("host_blocks") or value("disk_blocks"):
            _real("host_gb_per_second", t("Host to card, GB/s"), 0.1, 10_000.0, t("PCIe 5 ×16 reaches about 50."))
            _real("disk_gb_per_second", t("Disk to card, GB/s"), 0.01, 10_000.0, t("One NVMe drive reaches about 5."))
            _choice("tier_policy", t("What a full tier drops"), ("lru", "arc"), {"lru": "LRU", "arc": "ARC"})
            load_words = {"always": t("Always"), "when_faster": t("When faster than computing again")}
            _choice("load_rule", t("Load on a hit"), tuple(load_words), load_words)
        problems.say(problem, "capacity_bytes", "block_bytes")
    problems.say(problem if value("host_blocks") or value("disk_blocks") else None, "groups")


def _whole(field: str, label: str, least: int, most: int, meaning: str) -> None:
    st.number_input(
        label, min_value=least, max_value=most, step=1, key=key(field), help=meaning or None, persist_state="session"
    )


def _real(field: str, label: str, least: float, most: float, meaning: str) -> None:
    st.number_input(
        label,
        min_value=least,
        max_value=most,
        key=key(field),
        help=meaning or None,
        format="%g",
        persist_state="session",
    )


def _choice(field: str, label: str, options: Sequence[str], option_words: dict[str, str]) -> None:
    st.selectbox(
        label, options, key=key(field), format_func=lambda option: said(option_words[option]), persist_state="session"
    )


def _switch(field: str, label: str, meaning: str) -> None:
    st.toggle(label, key=key(field), help=meaning, persist_state="session")
