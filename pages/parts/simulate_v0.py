"""The same workload under the V0 engine: swap, recompute and copy-on-write, for comparison. Pure; knows no Streamlit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

from pages.parts.language import t
from pages.parts.simulate_setup import Setup
from pages.parts.simulate_words import count, times
from pages.parts.words import listed_long
from planner.facts import PlanError
from planner.v0_schedule import V0Config, V0Frame, simulate_v0

MOST_REQUESTS, MOST_TOKENS = 400, 400_000
MODES = ("auto", "recompute", "swap")


@dataclass(frozen=True, slots=True, kw_only=True)
class V0Run:
    """A V0 run and what it comes to."""

    config: V0Config
    frames: tuple[V0Frame, ...]
    num_recomputed: int
    num_swapped_out: int
    num_swapped_in: int
    swapped_blocks: int  # in both directions
    num_copies: int


def run_v0(setup: Setup, *, num_cpu_blocks: int, mode: str, has_beams: bool) -> V0Run:
    """The V0 run of a setup's requests; raises `PlanError` where V0 would stop or the run is too long to compare."""
    tokens = sum((request.num_prompt_tokens + request.num_output_tokens) * request.n for request in setup.requests)
    if len(setup.requests) > MOST_REQUESTS or tokens > MOST_TOKENS:
        text = t(
            "The V0 comparison takes at most {requests} requests of {tokens} tokens in all.",
            requests=MOST_REQUESTS,
            tokens=f"{MOST_TOKENS:,}",
        )
        raise PlanError("requests", len(setup.requests), text)
    config = V0Config(
        num_gpu_blocks=setup.config.num_usable_blocks,
        num_cpu_blocks=num_cpu_blocks,
        block_size=setup.config.block_size,
        max_num_seqs=setup.config.max_num_seqs,
        # V0 computes a prompt whole: its default budget is the longest request
        max_num_batched_tokens=max(setup.config.max_num_batched_tokens, setup.config.max_model_len),
        max_model_len=setup.config.max_model_len,
        preemption_mode=None if mode == "auto" else cast("Any", mode),
        beam_search=has_beams,
    )
    requests = [replace(request, arrival_seconds=None) for request in setup.requests]
    frames = simulate_v0(config, requests, seed=setup.options.seed)
    outs = [blocks for frame in frames for _, blocks in frame.swapped_out]
    ins = [blocks for frame in frames for _, blocks in frame.swapped_in]
    return V0Run(
        config=config,
        frames=frames,
        num_recomputed=sum(len(frame.recomputed) for frame in frames),
        num_swapped_out=len(outs),
        num_swapped_in=len(ins),
        swapped_blocks=sum(outs) + sum(ins),
        num_copies=sum(len(frame.copies) for frame in frames),
    )


def v0_finding(run: V0Run, num_steps_v1: int) -> str:
    """What the V0 run comes to beside V1's, in sentences."""
    parts = []
    if run.num_recomputed:
        parts.append(t("a request was thrown out and started over {often}", often=times(run.num_recomputed)))
    if run.num_swapped_out:
        parts.append(
            t(
                "requests went to host memory {out} and came back {back} ({blocks} moved)",
                out=times(run.num_swapped_out),
                back=times(run.num_swapped_in),
                blocks=count(run.swapped_blocks, "block"),
            )
        )
    if run.num_copies:
        parts.append(t("{blocks} were copied on the first write", blocks=count(run.num_copies, "shared block")))
    told = listed_long(parts) if parts else t("nothing was preempted, swapped or copied")
    return t(
        "V0 takes {frames} steps, V1 {v1_steps}: V0 computes prompts in steps of their own. In V0, {told}.",
        frames=f"{len(run.frames):,}",
        v1_steps=f"{num_steps_v1:,}",
        told=told,
    )


def v0_step(run: V0Run, step: int) -> str:
    """Who stands where at one step of V0."""
    if step >= len(run.frames):
        return t("V0 has served all by step {step}.", step=f"{len(run.frames) - 1:,}")
    frame = run.frames[step]
    used = run.config.num_gpu_blocks - frame.free_gpu_blocks
    host = run.config.num_cpu_blocks - frame.free_cpu_blocks
    kind = t("prompts only") if frame.is_prefill else t("one token for each that runs")
    words = [
        t(
            "V0 at step {step} ({kind}): {used} of {num_gpu_blocks} blocks in use, {host} in host memory",
            step=f"{step:,}",
            kind=kind,
            used=f"{used:,}",
            num_gpu_blocks=f"{run.config.num_gpu_blocks:,}",
            host=f"{host:,}",
        ),
        t("running: {running}", running=_names(frame.running)),
        t("waiting: {waiting}", waiting=_names(frame.waiting)),
        t("swapped out: {swapped}", swapped=_names(frame.swapped)),
    ]
    words += [
        t("{name} moves {blocks} to the host", name=name, blocks=count(blocks, "block"))
        for name, blocks in frame.swapped_out
    ]
    words += [
        t("{name} brings {blocks} back", name=name, blocks=count(blocks, "block")) for name, blocks in frame.swapped_in
    ]
    words += [t("{name} loses its blocks and starts over", name=name) for name in frame.recomputed]
    words += [
        t("block {source} is copied to block {target} on the first write", source=source, target=target)
        for source, target in frame.copies[:8]
    ]
    return t("{sentences}.", sentences=listed_long(words))


def _names(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:12])
    return (t("{shown} and {count} more", shown=shown, count=len(names) - 12) if len(names) > 12 else shown) or t(
        "nobody"
    )
