"""Which weight format vLLM gives each module of a checkpoint."""

from __future__ import annotations

from planner.inventory import Embedding, Experts, Linear, ModelFacts
from planner.quant_formats import PLAIN, Format


class Quantizer:
    """Decides formats for one model under one resolved method."""

    def __init__(self, model: ModelFacts, method: str | None) -> None:
        self.model = model
        self.method = method

    def format_of(self, module: Linear | Experts | Embedding, prefix: str) -> Format:
        """The format of a module below `prefix`, its layer's or part's name in the checkpoint."""
        return PLAIN
