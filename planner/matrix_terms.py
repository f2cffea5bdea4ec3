"""What a table of plans computes once: flags, charges and cache layout of a model for each split, KV dtype and card class.

A card's memory is not in it: `matrix` puts that in for all cards of a class at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

from planner import cuda_graphs, kv_cache, non_torch, weights
from planner.activation import activation_peak
from planner.card_class import CardClass
from planner.defaults import Resolved, resolve
from planner.facts import Finding, PlanError
from planner.flag_checks import check_flags
from planner.gpu_catalog import GpuFacts
from planner.inventory import ModelFacts
from planner.kv_cache import KvLayout
from planner.request import EngineFlags, PlanRequest
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
    cache_refusal: str | None = None  # once caches are laid out
    charged_bytes: tuple[int, ...] = ()  # weights, activation, non-torch and graphs
    load_bytes: tuple[int, ...] = ()
    non_torch_bytes: tuple[int, ...] = ()
    layout: KvLayout | None = None
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


@dataclass(slots=True)
class ModelTerms:
    """The terms of one model under one request, each computed when first asked for and then kept."""

    request: PlanRequest
    model: ModelFacts
    terms: dict[_Question, Term] = field(default_factory=dict)
    resolved: dict[tuple[int, int, str, CardClass], Resolved | PlanError] = field(default_factory=dict)
    charges: dict[tuple[int, tuple[object, ...]], tuple[int, int]] = field(default_factory=dict)
    non_torch: dict[tuple[int, str | None, tuple[object, ...]], int] = field(default_factory=dict)

    def term(self, split: Split, kv_cache_dtype: str, of_class: CardClass, gpu: GpuFacts) -> Term:
        """The term of the class that `gpu` is one of."""
        question = (split, kv_cache_dtype, of_class)
        found = self.terms.get(question)
        if found is None:
            found = self.terms[question] = self._make(split, kv_cache_dtype, of_class, gpu)
        return found

    def _make(self, split: Split, kv_cache_dtype: str, of_class: CardClass, gpu: GpuFacts) -> Term:
        try:
            resolved = self._resolve(split, kv_cache_dtype, of_class, gpu)
            key = _overhead_key(resolved, of_class)
            charges = [self._charge(resolved, stage, key) for stage in range(resolved.pp)]
            growth = tuple(self._non_torch(resolved, stage, key) for stage in range(resolved.pp))
            layout = kv_cache.layout(self.model, resolved)
        except PlanError as error:
            return Term(card_name=gpu.name, refusal=error.text)
        return Term(
            card_name=gpu.name,
            refusal=_refusal(resolved.findings),
            cache_refusal=_refusal(layout.findings),
            charged_bytes=tuple(load + others + grown for (load, others), grown in zip(charges, growth, strict=True)),
            load_bytes=tuple(load for load, _ in charges),
            non_torch_bytes=growth,
            layout=layout,
            max_model_len=resolved.max_model_len,
            max_num_seqs=resolved.max_num_seqs,
            max_num_batched_tokens=resolved.max_num_batched_tokens,
            gpu_memory_utilization=resolved.gpu_memory_utilization,
        )

    def _resolve(self, split: Split, kv_cache_dtype: str, of_class: CardClass, gpu: GpuFacts) -> Resolved:
        """As `defaults.resolve`; tensor parallelism decides there only what is set here."""
        flags = _flags(self.request.flags, split, kv_cache_dtype)
        check_flags(flags, self.model, parse_version(self.request.vllm_version))
        # The link between cards is no question of flags.
        question = (split.pipeline_parallel_size, split.data_parallel_size, kv_cache_dtype, of_class.for_flags())
        found = self.resolved.get(question)
        if found is None:
            found = self.resolved[question] = self._resolve_anew(flags, gpu)
        if isinstance(found, PlanError):
            raise found
        ep = split.tensor_parallel_size * split.data_parallel_size if flags.enable_expert_parallel else 1
        return replace(found, gpu=gpu, flags=flags, tp=split.tensor_parallel_size, ep=ep)

    def _resolve_anew(self, flags: EngineFlags, gpu: GpuFacts) -> Resolved | PlanError:
        try:
            return resolve(replace(self.request, gpu=gpu.name, flags=flags), self.model, gpu)
        except PlanError as error:
            return error

    def _charge(self, resolved: Resolved, stage: int, key: tuple[object, ...]) -> tuple[int, int]:
        """Bytes of the weights, and of activation peak and graphs together."""
        found = self.charges.get((stage, key))
        if found is None:
            found = self.charges[stage, key] = (
                weights.rank_weights(self.model, resolved, stage).load.best_bytes,
                activation_peak(self.model, resolved, stage).best_bytes
                + cuda_graphs.charged(self.model, resolved, stage).best_bytes,
            )
        return found

    def _non_torch(self, resolved: Resolved, stage: int, key: tuple[object, ...]) -> int:
        link = resolved.gpu.link if resolved.tp > 1 else None
        found = self.non_torch.get((stage, link, key))
        if found is None:
            growth = non_torch.non_torch_growth(self.model, resolved, stage)
            found = self.non_torch[stage, link, key] = growth.best_bytes
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


def _overhead_key(resolved: Resolved, of_class: CardClass) -> tuple[object, ...]:
    """All that weights, activation, graphs and non-torch memory ask of card and flags that differ within one table."""
    return (
        *(resolved.tp, resolved.pp, resolved.dp, resolved.runner, resolved.dtype, resolved.quantization),
        *(resolved.max_model_len, resolved.max_num_seqs, resolved.max_num_batched_tokens, resolved.cudagraph_mode),
        *(resolved.capture_sizes, resolved.max_in_flight_tokens, resolved.mamba_cache_mode, of_class.for_memory()),
    )


def _refusal(findings: tuple[Finding, ...]) -> str | None:
    return next((finding.text for finding in findings if finding.severity == "refusal"), None)
