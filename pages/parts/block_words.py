"""The block map's own words: what its script and its markup say, for the script to look up. Knows no Streamlit."""

from __future__ import annotations

from pages.parts.language import ENGLISH, language, mark
from pages.parts.said import said

TEXTS = (
    mark("Step player"), mark("First step"), mark("First step (Home)"), mark("One step back"), mark("One step back (j)"),
    mark("Play"), mark("Pause"), mark("Play or pause (k)"), mark("One step forward"), mark("One step forward (l)"),
    mark("Last step"), mark("Last step (End)"), mark("Jump to the next event (n)"), mark("Next event"), mark("Speed"),
    mark("Step"), mark("What happened in this step"), mark("Block map"), mark("Zoom out"), mark("Zoom out (−)"),
    mark("Zoom in"), mark("Zoom in (+), or Ctrl and the wheel"), mark("Show the whole pool (0)"), mark("Whole pool"),
    mark("Save this frame as a picture"), mark("Save PNG"), mark("Requests in the engine"),
    mark("Blocks held · tokens computed of all"), mark("{rate} steps a second"), mark("Step {step} of {last}"),
    mark("Nothing new: every running request gains its tokens."),
    mark("{used} of {usable} blocks in use ({share}), {cached} more cached and free · {running} running, {waiting} waiting"),
    mark("Block map at step {step}: {finding}."), mark("no. {number}"), mark("Block {block} · {state}"),
    mark("vLLM keeps it as the stand-in for blocks that left a window."), mark("Last held by {who}; a hit can take it back"),
    mark("Held by {who}"), mark("tokens {first}–{last} ({held} of {size})"), mark("no token of {size} yet"),
    mark("Its logical block {index}: {tokens}"), mark("Content no. {number}: equal hash, equal number"),
    mark("Unchanged for {steps} steps"), mark("Unchanged for 1 step"), mark("Changed in this step"), mark("others"),
    mark("block {block}"), mark("in use"), mark("shared by several"), mark("cached and free: a hit can take it back"),
    mark("free"), mark("null block"), mark("{blocks} blocks · {computed} of {goal}"), mark("1 block · {computed} of {goal}"),
    mark("waiting, holds nothing"), mark("and {count} more"), mark("No request is in the engine."), mark("step {step}"),
    mark("preempted"), mark("shares"), mark("back into use"), mark("cached and free"), mark("shared"), mark("the null block"),
    mark("{title} · step {step}"),
)  # fmt: skip


def block_words() -> dict[str, str]:
    """Every text of the map in the reader's language, by its English; nothing where that is English itself."""
    return {} if language() == ENGLISH else {text: said(text) for text in TEXTS}
