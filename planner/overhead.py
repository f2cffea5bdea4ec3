"""What vLLM reserves beside weights and KV cache: activation peak, non-torch memory and CUDA graphs, per stage.

How they enter the budget differs by era: to 0.20 `util*total - weights - activation -
non_torch`; from 0.20 the graph estimate comes off too; from 0.27 non-torch is measured as a drop of free memory.
"""

from __future__ import annotations

from planner import cuda_graphs as graphs
from planner.activation import activation_peak
from planner.defaults import Resolved
from planner.facts import Estimate
from planner.inventory import ModelFacts
from planner.non_torch import non_torch_growth

__all__ = ["activation", "cuda_graphs", "cuda_graphs_actual", "non_torch"]


def activation(model: ModelFacts, resolved: Resolved, pp_rank: int) -> Estimate:
    """The activation peak of the profile run on one card of stage `pp_rank`."""
    return activation_peak(model, resolved, pp_rank)


def non_torch(model: ModelFacts, resolved: Resolved, pp_rank: int) -> Estimate:
    """The growth that is neither weights nor activations on one card of stage `pp_rank`."""
    return non_torch_growth(model, resolved, pp_rank)


def cuda_graphs(model: ModelFacts, resolved: Resolved, pp_rank: int) -> Estimate:
    """What the budget pays for CUDA graphs: vLLM's estimate from 0.20 on, zero before."""
    return graphs.charged(model, resolved, pp_rank)


def cuda_graphs_actual(model: ModelFacts, resolved: Resolved, pp_rank: int) -> Estimate:
    """What capturing the CUDA graphs really takes from the card."""
    return graphs.captured(model, resolved, pp_rank)
