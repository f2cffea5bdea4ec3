"""A rank's weights: parameters, buffers and load-time copies, as tensors and as "Model loading took" counts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from planner import drafts
from planner.allocator import counted_bytes
from planner.answer import RankWeights
from planner.defaults import Resolved
from planner.facts import Basis, Estimate
from planner.families.blocks import ATTENTION_SCALES, MLA_SCALES
from planner.families.rope import FLASHINFER_ROPE
from planner.inventory import Buffer, Embedding, Experts, Layer, Linear, ModelFacts, Module, Part, Stage, Tensor
from planner.lora import lora_tensors
from planner.offload import NOTHING, Offloaded, offloaded
from planner.parallel import layer_ranges
from planner.quant_formats import (
    DTYPE_BYTES,
    PLAIN,
    Format,
    embedding_tensors,
    expert_growth,
    expert_tensors,
    linear_tensors,
)
from planner.quantization import KernelChoice, Quantizer, asks_card, quantizer_for
from planner.sharding import Split, local_buffer_size, local_experts, local_linear, local_rows, local_tensor_size
from planner.towers import EVERY_TOWER
from planner.units import GIB
from planner.weight_question import WeightQuestion, weight_question

Tensors = tuple[int, ...]  # bytes of each
_ENCODER_ROLES = frozenset({"vision", "audio", "projector"})
# Spread of 52 real logs around this count (docs/accuracy.md): 35 within 0.05 %, 45 within 1 %; the rest are repacked formats.
_PLAIN_SPREAD = (2, 5)  # thousandths below and above
_PACKED_SPREAD = (15, 15)


@dataclass(slots=True)
class _Tally:
    """Running sums over a rank; the one mutable object here."""

    parameter_bytes: int = 0
    offloaded: Offloaded = NOTHING
    buffer_bytes: int = 0
    post_load_bytes: int = 0
    counted_bytes: int = 0
    is_packed: bool = False
    unsized_bytes: int = 0  # a drafter's whose shape is not known
    draft_below: int = 0  # how far a drafter's bytes may be below the best value
    draft_above: int = 0
    by_role: Counter[str] = field(default_factory=Counter)
    shared: set[Buffer] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Sum:
    """What one group of modules takes on a rank."""

    parameter_bytes: int
    buffer_bytes: int
    post_load_bytes: int
    counted_bytes: int
    by_role: tuple[tuple[str, int], ...]
    shared: tuple[tuple[Buffer, int], ...]  # bytes of one copy


def rank_weights(model: ModelFacts, resolved: Resolved, pp_rank: int) -> RankWeights:
    """The bytes of pipeline stage `pp_rank`, per tensor-parallel rank; `load.best_bytes` is what the log prints."""
    return _rank_weights(model, weight_question(model, resolved, pp_rank))


def card_key(model: ModelFacts, resolved: Resolved) -> tuple[object, ...]:
    """What this module asks of a card: cards with equal keys take equal weights under the same resolved flags."""
    gpu = resolved.gpu
    is_asked = asks_card(model.quantization) or resolved.flags.speculative_config is not None
    return (gpu.vendor, gpu.capability) if is_asked else (gpu.capability is not None,)


def whole_model_bytes(model: ModelFacts, resolved: Resolved) -> int:
    """The parameter bytes of the undivided model, encoders included: what to hold a checkpoint's size against."""
    question = replace(
        weight_question(model, resolved, 0),
        split=Split(tp=1, moe_tp=1, ep=1),
        pp=1,
        lora=None,
        towers=EVERY_TOWER,
        draft=drafts.NONE,
        offload_bytes=0,
    )
    return _rank_weights(model, question).parameter_bytes


@lru_cache(maxsize=256)
def _rank_weights(model: ModelFacts, question: WeightQuestion) -> RankWeights:
    quantizer = _quantizer(model, question.method, question.kernels)
    span = _span(len(model.layers), question)
    layers = model.layers[span]
    parts = tuple(_parts_here(model.parts, question))
    tally = _Tally()
    for modules, formats, count in _layer_groups(model, span.start, span.stop, quantizer):
        _add(tally, _sum(modules, formats, model, question, quantizer), count)
    if question.offload_bytes:
        tally.offloaded = offloaded(_in_order(layers, parts, question, quantizer), question.offload_bytes)
    _add_parts(tally, parts, model, question, quantizer)
    _add_draft(tally, question)
    if question.index_bytes:
        num_tables = 1 + question.draft.num_index_tables
        tally.post_load_bytes += question.index_bytes * num_tables
        tally.counted_bytes += counted_bytes(question.index_bytes) * num_tables
    tally.post_load_bytes += question.workspace_bytes
    tally.counted_bytes += question.workspace_bytes
    tally.is_packed = model.quantization is not None or question.method is not None
    return RankWeights(
        parameter_bytes=tally.parameter_bytes,
        buffer_bytes=tally.buffer_bytes,
        post_load_bytes=tally.post_load_bytes,
        load=_load(tally, question),
        by_role=tuple(tally.by_role.most_common()),
        offloaded_bytes=tally.offloaded.tensor_bytes,
    )


def _in_order(
    layers: tuple[Layer, ...], parts: tuple[Part, ...], question: WeightQuestion, quantizer: Quantizer
) -> Iterator[int]:
    """The bytes of each parameter that may be offloaded, in the order in which vLLM builds them."""
    groups = [(layer.modules, layer.prefix, question) for layer in layers]
    if question.offloads_towers:
        groups[:0] = [(part.modules, part.prefix, _split_of(part, question)) for part in parts if part.modalities]
    for modules, prefix, local in groups:
        for module, form in zip(modules, _formats(quantizer, modules, prefix), strict=True):
            if not isinstance(module, Buffer):
                yield from _tensors(module, form, local) * module.repeat


def _add_parts(
    tally: _Tally, parts: tuple[Part, ...], model: ModelFacts, question: WeightQuestion, quantizer: Quantizer
) -> None:
    for part in parts:
        formats = _formats(quantizer, part.modules, part.prefix)
        _add(tally, _sum(part.modules, formats, model, _split_of(part, question), quantizer), 1)


def _add_draft(tally: _Tally, target: WeightQuestion) -> None:
    """Add the drafter: whole on this stage, in its own formats, without LoRA (only the target's modules are wrapped)."""
    found = target.draft
    before = tally.counted_bytes
    tally.unsized_bytes = found.unsized_bytes(before)
    if found.facts is None:
        return
    question = replace(
        target,
        split=replace(target.split, tp=1, moe_tp=1) if found.is_whole else target.split,
        pp=1,
        pp_rank=0,
        towers=EVERY_TOWER,
        method=target.method if found.is_targets_own else None,
        lora=None,
    )
    facts = found.facts
    quantizer = _quantizer(facts, question.method, question.kernels)
    for modules, formats, count in _groups(facts.layers, quantizer):
        _add(tally, _sum(modules, formats, facts, question, quantizer), count)
    _add_parts(tally, facts.parts, facts, question, quantizer)
    draft_bytes = tally.counted_bytes - before
    tally.draft_below = int(draft_bytes * found.low_share)
    tally.draft_above = int(draft_bytes * found.high_share)


@lru_cache(maxsize=64)
def _quantizer(model: ModelFacts, method: str | None, kernels: KernelChoice) -> Quantizer:
    return quantizer_for(model, method, kernels)


def _load(tally: _Tally, question: WeightQuestion) -> Estimate:
    """What the log prints: blocks as the allocator counts them, less what is offloaded to host memory."""
    best = tally.counted_bytes - tally.offloaded.counted_bytes
    below, above = _PACKED_SPREAD if tally.is_packed else _PLAIN_SPREAD
    formula = (
        f"{tally.parameter_bytes / GIB:.3f} GiB parameters + {tally.buffer_bytes / GIB:.3f} GiB buffers"
        f" + {tally.post_load_bytes / GIB:.3f} GiB copies made while loading"
        + (f" - {tally.offloaded.tensor_bytes / GIB:.3f} GiB offloaded" if question.offload_bytes else "")
        + f", each tensor rounded as the CUDA allocator rounds it = {best / GIB:.3f} GiB"
    )
    return Estimate(
        best_bytes=best,
        low_bytes=best - best * below // 1000 - tally.draft_below,
        high_bytes=best + best * above // 1000 + tally.draft_above + tally.unsized_bytes,
        basis=Basis(kind="derived", note="shapes of vLLM's modules for this config; spread of 52 public start-up logs"),
        formula=formula,
    )


def _span(num_layers: int, question: WeightQuestion) -> slice:
    layers = layer_ranges(num_layers, question.pp)[question.pp_rank]
    return slice(layers.start, layers.stop)


def _parts_here(parts: Iterable[Part], question: WeightQuestion) -> Iterator[Part]:
    here: set[Stage] = {"every"}
    if question.pp_rank == 0:
        here |= {"first", "first_and_last"}
    if question.pp_rank == question.pp - 1:
        here |= {"last", "first_and_last"}
    for part in parts:
        if part.stage in here and not question.towers.leaves_out(part):
            yield part


def _split_of(part: Part, question: WeightQuestion) -> WeightQuestion:
    """The question for this part: a tower whose heads TP does not divide is whole on every rank."""
    heads = part.whole_unless_divides
    if heads is None or heads % question.split.tp == 0:
        return question
    return replace(question, split=replace(question.split, tp=1))


_Group = tuple[tuple[Module, ...], tuple[Format, ...], int]


@lru_cache(maxsize=64)
def _layer_groups(model: ModelFacts, first: int, stop: int, quantizer: Quantizer) -> tuple[_Group, ...]:
    return tuple(_groups(model.layers[first:stop], quantizer))


def _groups(layers: tuple[Layer, ...], quantizer: Quantizer) -> Iterator[_Group]:
    """Layers with the same modules in the same formats, and how many there are."""
    counts: Counter[tuple[int, tuple[Format, ...]]] = Counter()
    modules_of: dict[int, tuple[Module, ...]] = {}
    for layer in layers:
        key = id(layer.modules)
        modules_of[key] = layer.modules
        counts[key, _formats(quantizer, layer.modules, layer.prefix)] += 1
    for (key, formats), count in counts.items():
        yield modules_of[key], formats, count


@lru_cache(maxsize=16384)
def _formats(quantizer: Quantizer, modules: tuple[Module, ...], prefix: str) -> tuple[Format, ...]:
    if quantizer.leaves_all:
        return (PLAIN,) * len(modules)
    return tuple(_format(quantizer, module, prefix) for module in modules)


def _format(quantizer: Quantizer, module: Module, prefix: str) -> Format:
    if isinstance(module, Embedding) or (isinstance(module, Linear | Experts) and module.quantizable):
        return quantizer.format_of(module, prefix)
    return PLAIN


def _add(tally: _Tally, part: _Sum, count: int) -> None:
    tally.parameter_bytes += part.parameter_bytes * count
    tally.buffer_bytes += part.buffer_bytes * count
    tally.post_load_bytes += part.post_load_bytes * count
    tally.counted_bytes += part.counted_bytes * count
    for role, num_bytes in part.by_role:
        tally.by_role[role] += num_bytes * count
    for buffer, num_bytes in part.shared:
        if buffer not in tally.shared:
            tally.shared.add(buffer)
            tally.buffer_bytes += num_bytes * buffer.repeat
            tally.counted_bytes += counted_bytes(num_bytes) * buffer.repeat


def _sum(
    modules: tuple[Module, ...],
    formats: tuple[Format, ...],
    model: ModelFacts,
    question: WeightQuestion,
    quantizer: Quantizer,
) -> _Sum:
    parameter_bytes = buffer_bytes = post_load_bytes = counted = 0
    roles: Counter[str] = Counter()
    shared = []
    for module, form in zip(modules, formats, strict=True):
        tensors = _tensors(module, form, question)
        num_bytes = sum(tensors) * module.repeat
        if isinstance(module, Buffer):
            if module.is_per_batched_token:
                post_load_bytes += num_bytes * question.batched_tokens
                counted += counted_bytes(num_bytes * question.batched_tokens)
                continue
            if module.is_shared:
                shared.append((module, sum(tensors)))
                continue
            buffer_bytes += num_bytes
            scales = _cache_scales(module, quantizer)
            parameter_bytes += sum(scales)
            counted += sum(map(counted_bytes, scales))
        else:
            parameter_bytes += num_bytes
            roles[module.role] += num_bytes
            added = _added_while_loading(module, form, model, question)
            post_load_bytes += sum(added) * module.repeat
            counted += sum(map(counted_bytes, added)) * module.repeat
        counted += sum(map(counted_bytes, tensors)) * module.repeat
    return _Sum(parameter_bytes, buffer_bytes, post_load_bytes, counted, tuple(roles.items()), tuple(shared))


def _cache_scales(module: Buffer, quantizer: Quantizer) -> Tensors:
    """The scale parameters of the attention layers that this buffer stands for (it holds four scalars of each)."""
    if module.name not in {ATTENTION_SCALES, MLA_SCALES}:
        return ()
    return quantizer.cache_tensors(is_mla=module.name == MLA_SCALES) * (module.repeat // 4)


def _added_while_loading(module: Module, form: Format, model: ModelFacts, question: WeightQuestion) -> Tensors:
    """MLA's absorbed copy of a quantised kv_b_proj (an unquantised one is viewed), kernels' padding, LoRA's buffers."""
    added: Tensors = ()
    if isinstance(module, Linear) and form.bits and model.is_mla and module.name.endswith("kv_b_proj"):
        added += (
            sum(local_linear(module, question.split.tp).out_features) * module.in_features * _width(question.dtype),
        )
    if isinstance(module, Experts) and (grown := expert_growth(form, local_experts(module, question.split))):
        added += (grown,)
    is_tower = module.role in _ENCODER_ROLES if not isinstance(module, Buffer) else True
    if question.lora is not None and isinstance(module, Linear | Experts | Embedding) and not is_tower:
        added += lora_tensors(module, question.lora, question.split, _width(question.dtype))
    return added


def _width(dtype: str) -> int:
    return DTYPE_BYTES[dtype]


def _tensors(module: Module, form: Format, question: WeightQuestion) -> Tensors:
    split = question.split
    width = _width((None if isinstance(module, Experts) else module.dtype) or question.dtype)
    match module:
        case Linear():
            return linear_tensors(form, local_linear(module, split.tp_of(module)), width)
        case Experts():
            return expert_tensors(form, local_experts(module, split), width)
        case Embedding():
            rows = local_rows(module, split.tp)
            return embedding_tensors(form, rows, module.dim, rows if module.has_bias else 0, width)
        case Tensor():
            return (local_tensor_size(module, split.tp) * width,)
        case Buffer():
            if module.name.startswith(FLASHINFER_ROPE) and question.has_custom_ops:
                width = DTYPE_BYTES["float32"]
            return (local_buffer_size(module, split.tp) * width,)
