"""Predict start-up rows and compare: what a plan says against what the engine logged, term by term.

A row that cannot be predicted keeps the reason; one whose vLLM release is not stated is tried under each era, and reported apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from planner.answer import Plan
from planner.budget import plan
from planner.facts import PlanError
from planner.inventory import ModelDocuments, ModelFacts
from planner.planning import facts_for
from planner.request import PlanRequest
from planner.truth import TruthRow
from planner.truth_request import documents_for, request_for, with_length
from planner.units import GIB
from planner.versions import Era, era_of, parse_version

Group = Literal["0.17-0.20 on H100", "other, version stated", "version not stated"]

# One release per era to try when a row states none.
_CANDIDATES = {"v0": ("0.7.3", "0.6.6"), "v1": ("0.11.0", "0.14.0", "0.19.0", "0.23.0", "0.27.1", "0.31.0")}
_LARGEST_UNEXPLAINED_SHARE = 0.25
_OTHER_RANK = 1.01  # a printed pool this much above what the tokens fill is another rank's
_TERMS = (  # (name, logged field)
    ("weights", "model_load_gib"),
    ("activation", "activation_peak_gib"),
    ("non_torch", "non_torch_gib"),
    ("graph_estimate", "cudagraph_est_gib"),
    ("kv_pool", "available_kv_gib"),
    ("needed", "error_needed_gib"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One quantity: predicted (with its interval where there is one) and logged. GiB, tokens, blocks or a ratio."""

    name: str
    predicted: float
    logged: float
    low: float | None = None
    high: float | None = None

    @property
    def relative_error(self) -> float | None:
        """`|predicted - logged| / |logged|`, or None for a logged zero."""
        return abs(self.predicted - self.logged) / abs(self.logged) if self.logged else None

    @property
    def is_covered(self) -> bool | None:
        """Whether the logged value (to the rounding of the log) lies in the interval; None without one."""
        if self.low is None or self.high is None:
            return None
        return self.low - 0.005 <= self.logged <= self.high + 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One row's outcome. `reason` says why a row was not predicted; `starts` pairs (predicted, logged)."""

    row_id: str
    model_id: str
    family: str
    version: str
    era: str
    gpu: str
    tensor_parallel_size: int
    pipeline_parallel_size: int
    grade: str
    group: Group
    comparisons: tuple[Comparison, ...] = ()
    total_gib: float = 0.0
    predicted_start: bool | None = None
    logged_start: bool | None = None
    is_pool_given: bool = False
    fitted_class: str = ""  # rows that share the fitted constants of the memory beside weights and activation
    reason: str | None = None
    plan_reason: str = ""
    source: str = ""  # where the row's log is, as the row says
    note: str = ""  # what the row says beside its figures

    @property
    def pool(self) -> Comparison | None:
        """The KV pool's comparison where the planner predicted it; None for a pool that the user fixed."""
        return None if self.is_pool_given else self.find("kv_pool")

    def find(self, name: str) -> Comparison | None:
        """The comparison of that name, if the row logs it."""
        return next((item for item in self.comparisons if item.name == name), None)


def score_rows(rows: Sequence[TruthRow], extra_configs: Path | None = None) -> tuple[Scored, ...]:
    """Each row's outcome, in order."""
    return tuple(score_row(row, extra_configs) for row in rows)


def score_row(row: TruthRow, extra_configs: Path | None = None) -> Scored:
    """One row's outcome; an unstated release is the candidate that fits the pool (or tokens) best."""
    if row.problem is not None:
        return _unpredicted(row, row.problem)
    try:
        documents = documents_for(row, extra_configs)
    except PlanError as error:
        return _unpredicted(row, str(error))
    versions = (row.version,) if row.version is not None else _CANDIDATES.get(row.engine, _CANDIDATES["v1"])
    outcomes = [_try(row, documents, version) for version in versions]
    predicted = [outcome for outcome in outcomes if outcome.reason is None]
    return min(predicted, key=_misfit) if predicted else outcomes[0]


def _predict(row: TruthRow, documents: ModelDocuments, version: str) -> tuple[PlanRequest, ModelFacts, Plan]:
    request = request_for(row, documents, version)
    model = facts_for(request, documents)
    return request, model, plan(request, model)


def _predict_as_run(row: TruthRow, documents: ModelDocuments, version: str) -> tuple[PlanRequest, ModelFacts, Plan]:
    """The prediction; where the engine ran beyond the config's longest length, with that limit lifted as it was there."""
    try:
        return _predict(row, documents, version)
    except PlanError as error:
        length = row.integer("max_model_len")
        if error.field != "max_model_len" or length is None:
            raise
        return _predict(row, with_length(documents, length), version)


def _unexplained(row: TruthRow, answer: Plan) -> str | None:
    """Why a row without a stated utilisation cannot have run at the default one: too much of the card is missing, or too little."""
    logged, rank = row.number("available_kv_gib"), answer.ranks[0]
    is_given = answer.request.flags.kv_cache_memory_bytes is not None
    if row.number("gpu_memory_utilization") is not None or logged is None or is_given:
        return None
    missing = rank.kv_pool.best_bytes / GIB - logged
    if missing / (answer.gpu_total.best_bytes / GIB) >= _LARGEST_UNEXPLAINED_SHARE:
        return f"utilisation is not on record, and the default would leave {missing:.1f} GiB of the card unexplained"
    beside_weights = (rank.kv_pool, rank.activation, rank.non_torch, rank.cuda_graphs)
    over = logged - sum(part.best_bytes for part in beside_weights) / GIB
    return (
        f"utilisation is not on record, and the default is {over:.1f} GiB less than pool and weights"
        if over > 0
        else None
    )


def _try(row: TruthRow, documents: ModelDocuments, version: str) -> Scored:
    try:
        request, model, answer = _predict_as_run(row, documents, version)
    except PlanError as error:
        return _unpredicted(row, str(error))
    base = _unpredicted(row, _unexplained(row, answer))
    return replace(
        base,
        family=model.architecture,
        version=version,
        era=answer.era,
        gpu=answer.gpu_name,
        group=_group(row, answer.gpu_name),
        comparisons=_comparisons(row, answer),
        total_gib=answer.gpu_total.best_bytes / GIB,
        predicted_start=answer.will_start,
        logged_start=_logged_start(row),
        is_pool_given=request.flags.kv_cache_memory_bytes is not None,
        fitted_class=answer.ranks[0].non_torch.basis.note,
        plan_reason=answer.reason,
    )


def _logged_start(row: TruthRow) -> bool | None:
    """Whether the engine started; None for another failure, or where a start's length is not on record."""
    if row.is_other_failure or (row.integer("max_model_len") is None and not row.is_memory_failure):
        return None
    return not row.is_memory_failure


def _unpredicted(row: TruthRow, reason: str | None) -> Scored:
    return Scored(
        row_id=row.row_id,
        model_id=row.model_id or "not named",
        family="",
        version=row.version or "not stated",
        era="",
        gpu=str(row.values.get("gpu_name") or "not named"),
        tensor_parallel_size=row.integer("tp") or 1,
        pipeline_parallel_size=row.integer("pp") or 1,
        grade=row.grade,
        group=_group(row, str(row.values.get("gpu_name") or "")),
        reason=reason,
        source=str(row.values.get("source_url") or "not named"),
        note=str(row.values.get("notes") or ""),
    )


def _group(row: TruthRow, gpu_name: str) -> Group:
    try:
        version = parse_version(row.version or "")
    except PlanError:
        return "version not stated"
    is_first = era_of(version) is Era.V017_020 and "H100" in gpu_name
    return "0.17-0.20 on H100" if is_first else "other, version stated"


def _misfit(outcome: Scored) -> float:
    errors = [outcome.find(name) for name in ("kv_pool", "activation", "tokens", "needed")]
    known = [item.relative_error or 0.0 for item in errors if item is not None]
    wrong_verdict = outcome.logged_start is not None and outcome.predicted_start != outcome.logged_start
    return (sum(known) / len(known) if known else 1.0) + (0.5 if wrong_verdict else 0.0)


# -- comparisons --------------------------------------------------------------------------------------------------------


def _comparisons(row: TruthRow, answer: Plan) -> tuple[Comparison, ...]:
    found = [_term(row, answer, name, field) for name, field in _TERMS]
    found += [_tokens(row, answer), _blocks(row, answer), _concurrency(row, answer), _estimated_length(row, answer)]
    return tuple(item for item in found if item is not None)


def _term(row: TruthRow, answer: Plan, name: str, field: str) -> Comparison | None:
    logged = row.number(field)
    if logged is None:
        return None
    if name == "kv_pool":
        logged = _bounding_pool_gib(row, answer, logged)
    rank = answer.ranks[_printed_stage(row, answer)]
    if name == "needed":
        return Comparison(name=name, predicted=answer.pool.needed_bytes / GIB, logged=logged)
    estimates = {
        "weights": rank.weights.load,
        "activation": rank.activation,
        "non_torch": rank.non_torch,
        "graph_estimate": rank.cuda_graphs,
        "kv_pool": rank.kv_pool,
    }
    estimate = estimates[name]
    return Comparison(
        name=name,
        predicted=estimate.best_bytes / GIB,
        logged=logged,
        low=estimate.low_bytes / GIB,
        high=estimate.high_bytes / GIB,
    )


def _bounding_pool_gib(row: TruthRow, answer: Plan, printed_gib: float) -> float:
    """The pool that the logged tokens fill, where a tensor-parallel row prints a larger one: another rank's.

    vLLM prints a pool for every rank, and the smallest one gives the tokens (V0's driver samples, its workers do not). A failed
    V0 start states them as the length that would fit.
    """
    tokens = row.number("kv_cache_tokens")
    if tokens is None and row.engine == "v0":
        tokens = row.number("error_estimated_max_len")
    if tokens is None or answer.request.flags.tensor_parallel_size == 1 or len(answer.pool.groups) != 1:
        return printed_gib
    filled_gib = tokens * answer.pool.kv_bytes_per_token / GIB
    return filled_gib if printed_gib > filled_gib * _OTHER_RANK else printed_gib


def _printed_stage(row: TruthRow, answer: Plan) -> int:
    """The pipeline stage that a row's figures are of: the bounding one where printed pool and tokens agree, else the first."""
    pool, tokens = row.number("available_kv_gib"), row.number("kv_cache_tokens")
    if len(answer.ranks) == 1 or pool is None or tokens is None:
        return 0
    used_gib = tokens * answer.pool.kv_bytes_per_token / GIB
    return answer.bounding_rank if abs(pool - used_gib) <= 0.01 * pool else 0


def _tokens(row: TruthRow, answer: Plan) -> Comparison | None:
    logged = row.number("kv_cache_tokens")
    if logged is None:
        return None
    low, high = answer.pool_low.tokens, answer.pool_high.tokens
    return Comparison(name="tokens", predicted=answer.pool.tokens, logged=logged, low=low, high=high)


def _blocks(row: TruthRow, answer: Plan) -> Comparison | None:
    logged = row.number("num_gpu_blocks")
    return None if logged is None else Comparison(name="blocks", predicted=answer.pool.num_blocks, logged=logged)


def _concurrency(row: TruthRow, answer: Plan) -> Comparison | None:
    logged, length = row.number("max_concurrency"), row.integer("max_concurrency_at_len")
    if logged is None or (length is not None and length != answer.pool.max_model_len):
        return None
    return Comparison(
        name="concurrency",
        predicted=answer.pool.max_concurrency,
        logged=logged,
        low=answer.pool_low.max_concurrency,
        high=answer.pool_high.max_concurrency,
    )


def _estimated_length(row: TruthRow, answer: Plan) -> Comparison | None:
    logged = row.number("error_estimated_max_len")
    if logged is None:
        return None
    return Comparison(name="estimated_length", predicted=answer.pool.estimated_max_model_len, logged=logged)
