"""Images that a model reads as a whole and in tiles: how many tokens the largest of them has."""

from __future__ import annotations

from dataclasses import replace

from planner.config_view import ConfigView
from planner.families import FamilyInput
from planner.inventory import EncoderFacts


def tiled_facts(given: FamilyInput, vision: ConfigView, whole: EncoderFacts) -> EncoderFacts:
    """`whole`, the facts of an untiled image, or for Llava-NeXT those of its largest: the grid of most tokens.

    As vLLM's models/llava_next.py takes it, with the image as a whole before its tiles.
    """
    grids = given.root.values.get("image_grid_pinpoints")
    if given.architecture != "LlavaNextForConditionalGeneration" or not isinstance(grids, list):
        return whole
    side, tile = vision.integer("image_size"), vision.integer("image_size") // vision.integer("patch_size")
    sizes = [(size[0] // side, size[1] // side) for size in grids if _is_grid(size)]
    rows, columns = max(sizes, key=lambda size: _grid_tokens(size[0], size[1], tile), default=(0, 0))
    return replace(
        whole,
        patch_tokens_per_item=whole.patch_tokens_per_item * (1 + rows * columns),
        output_tokens_per_item=whole.output_tokens_per_item + _grid_tokens(rows, columns, tile),
    )


def _is_grid(size: object) -> bool:
    return isinstance(size, list) and len(size) == 2 and all(type(side) is int and side > 0 for side in size)


def _grid_tokens(rows: int, columns: int, tile: int) -> int:
    """The tokens of a grid of tiles, and one more a line of them."""
    return rows * tile * (columns * tile + 1)
