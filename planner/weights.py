"""A rank's weights: parameters, buffers and load-time copies, as tensors and as "Model loading took" counts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from planner.allocator import counted_bytes
from planner.answer import RankWeights
from planner.defaults import Resolved
from planner.facts import Basis, Estimate
from planner.inventory import Buffer, Embedding, Experts, Layer, Linear, ModelFacts, Module, Part, Role, Stage, Tensor
from planner.parallel import layer_ranges
from planner.quant_formats import DTYPE_BYTES, PLAIN, Format, expert_tensors, linear_tensors
from planner.quantization import Quantizer
from planner.sharding import (
    Split,
    local_buffer_size,
    local_experts,
    local_linear,
    local_rows,
    local_tensor_size,
)
from planner.units import GIB

Tensors = tuple[int, ...]  # bytes of each


@dataclass(slots=True)
class _Tally:
    """Running sums over a rank; the one mutable object here."""

    parameter_bytes: int = 0
    buffer_bytes: int = 0
    counted: int = 0
    by_role: Counter[str] = None  # type: ignore[assignment]  # set in __post_init__

    def __post_init__(self) -> None:
        self.by_role = Counter()


@dataclass(frozen=True, slots=True)
class _Sum:
    """What one group of modules takes on a rank."""

    parameter_bytes: int
    buffer_bytes: int
    counted_bytes: int
    by_role: tuple[tuple[str, int], ...]
    shared: tuple[tuple[Buffer, int], ...]  # bytes of one copy


def rank_weights(model: ModelFacts, resolved: Resolved, pp_rank: int) -> RankWeights:
    """The bytes of pipeline stage `pp_rank`, per tensor-parallel rank."""
    return _rank_weights(model, _Split.of(resolved), resolved.dtype, resolved.quantization, pp_rank)


@dataclass(frozen=True, slots=True)
class _Split:
    tp: int
    pp: int
    moe_tp: int
    ep: int

    @classmethod
    def of(cls, resolved: Resolved) -> _Split:
        """Without expert parallelism the data-parallel ranks share each expert's width (FusedMoEParallelConfig)."""
        return cls(resolved.tp, resolved.pp, resolved.tp * resolved.dp, resolved.ep)


@lru_cache(maxsize=256)
def _rank_weights(model: ModelFacts, split: _Split, dtype: str, method: str | None, pp_rank: int) -> RankWeights:
    tally = _Tally()
    seen: set[Buffer] = set()
    layers = _layers_of(model, split.pp, pp_rank)
    quantizer = Quantizer(model, method)
    for modules, formats, count in _groups(layers, quantizer):
        _add(tally, _sum(modules, formats, split, dtype), count, seen)
    for part in _parts_of(model.parts, split.pp, pp_rank):
        formats = tuple(_format(quantizer, module, part.prefix) for module in part.modules)
        _add(tally, _sum(part.modules, formats, split, dtype), 1, seen)
    return RankWeights(
        parameter_bytes=tally.parameter_bytes,
        buffer_bytes=tally.buffer_bytes,
        post_load_bytes=0,
        load=_load(tally),
        by_role=tuple(tally.by_role.most_common()),
    )


def _load(tally: _Tally) -> Estimate:
    best = tally.counted
    basis = Basis(kind="derived", note="shapes of vLLM's modules for this config, as the CUDA allocator counts them")
    formula = (
        f"{tally.parameter_bytes / GIB:.3f} GiB parameters + {tally.buffer_bytes / GIB:.3f} GiB buffers, "
        f"each tensor rounded as the CUDA allocator rounds it = {best / GIB:.3f} GiB"
    )
    low = tally.parameter_bytes + tally.buffer_bytes
    return Estimate(best_bytes=best, low_bytes=low, high_bytes=best + best // 100, basis=basis, formula=formula)


def _layers_of(model: ModelFacts, pp: int, pp_rank: int) -> tuple[Layer, ...]:
    span = layer_ranges(len(model.layers), pp)[pp_rank]
    return model.layers[span.start : span.stop]


def _parts_of(parts: Iterable[Part], pp: int, pp_rank: int) -> Iterator[Part]:
    here: set[Stage] = {"every"}
    if pp_rank == 0:
        here |= {"first", "first_and_last"}
    if pp_rank == pp - 1:
        here |= {"last", "first_and_last"}
    return (part for part in parts if part.stage in here)


def _groups(
    layers: tuple[Layer, ...], quantizer: Quantizer
) -> Iterator[tuple[tuple[Module, ...], tuple[Format, ...], int]]:
    """Layers with the same modules in the same formats, and how many there are."""
    counts: Counter[tuple[int, tuple[Format, ...]]] = Counter()
    modules_of: dict[int, tuple[Module, ...]] = {}
    for layer in layers:
        formats = tuple(_format(quantizer, module, layer.prefix) for module in layer.modules)
        modules_of[id(layer.modules)] = layer.modules
        counts[id(layer.modules), formats] += 1
    for (key, formats), count in counts.items():
        yield modules_of[key], formats, count


def _format(quantizer: Quantizer, module: Module, prefix: str) -> Format:
    if isinstance(module, Linear | Experts | Embedding) and module.quantizable:
        return quantizer.format_of(module, prefix)
    return PLAIN


def _add(tally: _Tally, part: _Sum, count: int, seen: set[Buffer]) -> None:
    tally.parameter_bytes += part.parameter_bytes * count
    tally.buffer_bytes += part.buffer_bytes * count
    tally.counted += part.counted_bytes * count
    for role, num_bytes in part.by_role:
        tally.by_role[role] += num_bytes * count
    for buffer, num_bytes in part.shared:
        if buffer not in seen:
            seen.add(buffer)
            tally.buffer_bytes += num_bytes * buffer.repeat
            tally.counted += counted_bytes(num_bytes) * buffer.repeat


def _sum(modules: tuple[Module, ...], formats: tuple[Format, ...], split: _Split, dtype: str) -> _Sum:
    parameter_bytes = buffer_bytes = counted = 0
    roles: Counter[str] = Counter()
    shared = []
    for module, form in zip(modules, formats, strict=True):
        tensors = _tensors(module, form, split, dtype)
        num_bytes = sum(tensors) * module.repeat
        if isinstance(module, Buffer):
            if module.is_shared:
                shared.append((module, sum(tensors)))
                continue
            buffer_bytes += num_bytes
        else:
            parameter_bytes += num_bytes
            roles[module.role] += num_bytes
        counted += sum(map(counted_bytes, tensors)) * module.repeat
    return _Sum(parameter_bytes, buffer_bytes, counted, tuple(roles.items()), tuple(shared))


def _tensors(module: Module, form: Format, split: _Split, dtype: str) -> Tensors:
    width = DTYPE_BYTES[(None if isinstance(module, Experts) else module.dtype) or dtype]
    match module:
        case Linear():
            return linear_tensors(form, local_linear(module, split.tp), width)
        case Experts():
            shape = local_experts(module, Split(tp=split.tp, moe_tp=split.moe_tp, ep=split.ep))
            return expert_tensors(form, shape, width)
        case Embedding():
            rows = local_rows(module, split.tp)
            return (rows * module.dim * width, *((rows * width,) if module.has_bias else ()))
        case Tensor():
            return (local_tensor_size(module, split.tp) * width,)
        case Buffer():
            return (local_buffer_size(module, split.tp) * width,)


def role_bytes(weights: RankWeights, role: Role) -> int:
    """The parameter bytes of one role on the rank."""
    return dict(weights.by_role).get(role, 0)
