"""How many parameters one token is multiplied with: what decides the time of a step that is bound by arithmetic."""

from __future__ import annotations

from collections.abc import Iterable

from planner.inventory import Embedding, Experts, Linear, ModelFacts
from planner.parallel import layer_ranges


def active_parameters(model: ModelFacts) -> int:
    """The parameters of linear modules, of the experts that a token is sent to, and of the output head."""
    return sum(active_parameters_by_stage(model, 1))


def active_parameters_by_stage(model: ModelFacts, pipeline_parallel_size: int) -> tuple[int, ...]:
    """`active_parameters` of each pipeline stage; the last carries the head."""
    stages = [
        sum(_active(model.layers[index].modules) for index in layers)
        for layers in layer_ranges(len(model.layers), pipeline_parallel_size)
    ]
    stages[-1] += _active_heads([module for part in model.parts for module in part.modules])
    return tuple(stages)


def _active(modules: Iterable[object]) -> int:
    total = 0
    for module in modules:
        if isinstance(module, Linear):
            total += module.repeat * module.in_features * sum(module.out_features)
        elif isinstance(module, Experts):
            matrices = 3 if module.is_gated else 2
            total += module.repeat * module.top_k * matrices * module.hidden_size * module.intermediate_size
    return total


def _active_heads(modules: Iterable[object]) -> int:
    """An embedding is looked up, not multiplied; a head is multiplied. Tied ones are one table that is both."""
    tables = [module for module in modules if isinstance(module, Embedding)]
    heads = [table for table in tables if table.role == "head"] or [
        table for table in tables if table.role == "embedding"
    ]
    return sum(table.repeat * table.num_rows * table.dim for table in heads)


def expert_fraction(model: ModelFacts) -> float:
    """The experts that one token is sent to, of all: the largest of any layer; 1 without experts."""
    fractions = [
        module.top_k / module.num_experts
        for layer in model.layers
        for module in layer.modules
        if isinstance(module, Experts)
    ]
    return min(1.0, max(fractions, default=1.0))
