"""What a table of plans computes once: flags, charges and cache layout of a model for each split, KV dtype and card class.

A card's memory is not in it: `matrix` puts that in for all cards of a class at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from planner import activation, cuda_graphs, kv_cache, kv_specs, non_torch, weights
from planner.card_class import CardClass
from planner.defaults import Resolved, resolve
from planner.facts import Estimate, Finding, PlanError
from planner.flag_checks import check_flags
from planner.gpu_catalog import GpuFacts
from planner.inventory import ModelFacts
from planner.kv_cache import KvLayout
from planner.request import EngineFlags, PlanRequest
from planner.state_blocks import least_blocks
from planner.versions import parse_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How a model is spread: cards that share each layer, stages of layers, whole copies."""

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1

    @property
    def num_cards(self) -> int:
        """The cards that it takes."""
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.data_parallel_size

    @property
    def num_ranks(self) -> int:
        """The cards of one copy."""
        return self.tensor_parallel_size * self.pipeline_parallel_size


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Term:
    """What holds for every card of a class; tuples have one entry a pipeline stage."""

    card_name: str  # of the class's card that texts were made with
    refusal: str | None = None  # before anything is loaded
    refusal_field: str | None = None  # the flag or setting that a refusal, of either kind, speaks of
    cache_refusal: str | None = None  # once caches are laid out
    charged_bytes: tuple[int, ...] = ()  # weights, activation, non-torch and graphs
    load_bytes: tuple[int, ...] = ()
    non_torch_bytes: tuple[int, ...] = ()
    layout: KvLayout | None = None
    least_blocks: int = 0  # that its graphs ask for
    max_model_len: int = 1
    max_num_seqs: int = 1
    max_num_batched_tokens: int = 1
    gpu_memory_utilization: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixQuestion:
    """What to plan: the release and flags of `request`, whose model, card, split and KV dtype are replaced."""

    request: PlanRequest
    gpus: tuple[GpuFacts, ...]
    splits: tuple[Split, ...]
    kv_dtypes: tuple[str, ...] = ("auto",)
    num_requests: int = 1  # that `longest_tokens` must hold at once


_Question = tuple[Split, str, CardClass]
_Key = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Base:
    """Flags as resolved for a class of cards, TP apart. Cards of one `likeness` load alike under the same split."""

    resolved: Resolved
    likeness: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Loaded:
    """All of a term but what the link between cards decides; `parts` has weights, activation and graphs of each stage."""

    resolved: Resolved
    layout: KvLayout
    parts: tuple[tuple[int, int, int], ...]


@dataclass(slots=True)
class ModelTerms:
    """The terms of one model under one request, each computed when first asked for and then kept."""

    request: PlanRequest
    model: ModelFacts
    terms: dict[_Question, Term] = field(default_factory=dict)
    linked: dict[_Key, Term] = field(default_factory=dict)
    loaded: dict[tuple[Split, str, int], _Loaded | PlanError] = field(default_factory=dict)
    bases: dict[_Key, _Base | PlanError] = field(default_factory=dict)
    likenesses: dict[_Key, int] = field(default_factory=dict)
    flags: dict[tuple[Split, str], EngineFlags | PlanError] = field(default_factory=dict)
    parts: dict[_Key, int] = field(default_factory=dict)  # bytes of one part of the memory

    def term(self, split: Split, kv_cache_dtype: str, of_class: CardClass, gpu: GpuFacts) -> Term:
        """The term of the class that `gpu` is one of."""
        question = (split, kv_cache_dtype, of_class)
        found = self.terms.get(question)
        if found is None:
            try:
                found = self._make(split, kv_cache_dtype, of_class, gpu)
            except PlanError as error:
                found = Term(card_name=gpu.name, refusal=error.text, refusal_field=error.field)
            self.terms[question] = found
        return found

    def _make(self, split: Split, kv_cache_dtype: str, of_class: CardClass, gpu: GpuFacts) -> Term:
        flags = self._checked_flags(split, kv_cache_dtype)
        base = self._base(flags, of_class, gpu)
        link = non_torch.card_key(gpu, tensor_parallel_size=split.tensor_parallel_size)
        key = (split, kv_cache_dtype, base.likeness, link)
        found = self.linked.get(key)
        if found is None:
            found = self.linked[key] = self._with_link(self._load(split, flags, base), gpu)
        return found

    def _load(self, split: Split, flags: EngineFlags, base: _Base) -> _Loaded:
        key = (split, flags.kv_cache_dtype, base.likeness)
        found = self.loaded.get(key)
        if found is None:
            try:
                found = self._load_anew(split, flags, base.resolved)
            except PlanError as error:
                found = error
            self.loaded[key] = found
        if isinstance(found, PlanError):
            raise found
        return found

    def _load_anew(self, split: Split, flags: EngineFlags, base: Resolved) -> _Loaded:
        """As `budget.plan` loads; tensor parallelism decides of the flags only what is set here."""
        ep = split.tensor_parallel_size * split.data_parallel_size if flags.enable_expert_parallel else 1
        resolved = replace(base, flags=flags, tp=split.tensor_parallel_size, ep=ep)
        stages = tuple(self._stage(resolved, stage) for stage in range(resolved.pp))
        return _Loaded(resolved=resolved, layout=kv_cache.layout(self.model, resolved), parts=stages)

    def _with_link(self, loaded: _Loaded, gpu: GpuFacts) -> Term:
        """The term of a class whose cards are linked as `gpu` is."""
        resolved, layout = loaded.resolved, loaded.layout
        grown = tuple(self._non_torch(resolved, gpu, stage) for stage in range(resolved.pp))
        refused, cache_refused = _refusal(resolved.findings), _refusal(layout.findings)
        return Term(
            card_name=resolved.gpu.name,
            refusal=None if refused is None else refused.text,
            refusal_field=next((found.field for found in (refused, cache_refused) if found is not None), None),
            cache_refusal=None if cache_refused is None else cache_refused.text,
            charged_bytes=tuple(sum(parts) + growth for parts, growth in zip(loaded.parts, grown, strict=True)),
            load_bytes=tuple(parts[0] for parts in loaded.parts),
            non_torch_bytes=grown,
            layout=layout,
            least_blocks=least_blocks(layout.shown_groups, resolved),
            max_model_len=resolved.max_model_len,
            max_num_seqs=resolved.max_num_seqs,
            max_num_batched_tokens=resolved.max_num_batched_tokens,
            gpu_memory_utilization=resolved.gpu_memory_utilization,
        )

    def _base(self, flags: EngineFlags, of_class: CardClass, gpu: GpuFacts) -> _Base:
        """As `defaults.resolve` under any TP; how cards are linked is no question of flags."""
        key = (
            *(flags.pipeline_parallel_size, flags.data_parallel_size, flags.kv_cache_dtype),
            of_class.for_flags(),
        )
        found = self.bases.get(key)
        if found is None:
            try:
                resolved = resolve(replace(self.request, gpu=gpu.name, flags=flags), self.model, gpu)
                found = _Base(resolved=resolved, likeness=self._likeness(resolved))
            except PlanError as error:
                found = error
            self.bases[key] = found
        if isinstance(found, PlanError):
            raise found
        return found

    def _likeness(self, resolved: Resolved) -> int:
        refused = _refusal(resolved.findings)
        key = (
            *_resolved_key(resolved)[1:],  # all but TP
            *(resolved.kv_cache_dtype, resolved.is_hybrid_manager_enabled, None if refused is None else refused.text),
            *(weights.card_key(self.model, resolved), activation.card_key(resolved), resolved.gpu.vendor),
            *(kv_specs.card_key(self.model, resolved), kv_specs.cache_refusal(self.model, resolved)),
        )
        return self.likenesses.setdefault(key, len(self.likenesses))

    def _checked_flags(self, split: Split, kv_cache_dtype: str) -> EngineFlags:
        found = self.flags.get((split, kv_cache_dtype))
        if found is None:
            flags = _flags(self.request.flags, split, kv_cache_dtype)
            try:
                check_flags(flags, self.model, parse_version(self.request.vllm_version))
                found = flags
            except PlanError as error:
                found = error
            self.flags[split, kv_cache_dtype] = found
        if isinstance(found, PlanError):
            raise found
        return found

    def _stage(self, resolved: Resolved, stage: int) -> tuple[int, int, int]:
        """Bytes of one card of a stage: weights, activation peak, graphs."""
        model, flags = self.model, _resolved_key(resolved)
        return (
            self._part(
                ("weights", stage, weights.card_key(model, resolved), flags),
                lambda: weights.rank_weights(model, resolved, stage).load,
            ),
            self._part(
                ("activation", stage, activation.card_key(resolved), flags),
                lambda: activation.activation_peak(model, resolved, stage),
            ),
            self._part(
                ("graphs", stage, resolved.gpu.vendor, flags), lambda: cuda_graphs.charged(model, resolved, stage)
            ),
        )

    def _non_torch(self, resolved: Resolved, gpu: GpuFacts, stage: int) -> int:
        key = non_torch.card_key(gpu, tensor_parallel_size=resolved.tp)
        return self._part(
            ("non_torch", stage, key, _resolved_key(resolved)),
            lambda: non_torch.non_torch_growth(self.model, replace(resolved, gpu=gpu), stage),
        )

    def _part(self, key: _Key, make: Callable[[], Estimate]) -> int:
        found = self.parts.get(key)
        if found is None:
            found = self.parts[key] = make().best_bytes
        return found


@lru_cache(maxsize=1024)
def model_terms(model: ModelFacts, request: PlanRequest) -> ModelTerms:
    """The kept terms of `model` under `request`, whose card, split and KV dtype do not count."""
    return ModelTerms(request, model)


def _flags(flags: EngineFlags, split: Split, kv_cache_dtype: str) -> EngineFlags:
    return replace(
        flags,
        tensor_parallel_size=split.tensor_parallel_size,
        pipeline_parallel_size=split.pipeline_parallel_size,
        data_parallel_size=split.data_parallel_size,
        kv_cache_dtype=kv_cache_dtype,
    )


def _resolved_key(resolved: Resolved) -> _Key:
    """What the parts of the memory ask of resolved flags that differ within one table."""
    return (
        *(resolved.tp, resolved.pp, resolved.dp, resolved.runner, resolved.dtype, resolved.quantization),
        *(resolved.max_model_len, resolved.max_num_seqs, resolved.max_num_batched_tokens, resolved.cudagraph_mode),
        *(resolved.capture_sizes, resolved.max_in_flight_tokens, resolved.mamba_cache_mode),
    )


def _refusal(findings: tuple[Finding, ...]) -> Finding | None:
    return next((finding for finding in findings if finding.severity == "refusal"), None)
