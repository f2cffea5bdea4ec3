"""What a comparison was asked, as a report's table. Pure; knows no Streamlit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from pages.parts import words
from pages.parts.compare_request import KEPT_FLAGS, LONGEST, PUBLISHED, USERS, CompareInput
from pages.parts.language import t
from pages.parts.report_sections import Table
from planner.request import EngineFlags, PlanRequest

_SEARCHED = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
_Row = tuple[str, str]


def fit_inputs(asked: CompareInput, request: PlanRequest) -> Table:
    """What the table of what fits was asked, under the release and flags of `request`."""
    weights = [t("As published") if name == PUBLISHED else f"--quantization {name}" for name in asked.weights]
    rows: list[_Row] = [
        (t("Measure"), t("Longest length") if asked.measure == LONGEST else t("Requests at once")),
        (t("Requests at once"), words.count(asked.num_requests))
        if asked.measure == LONGEST
        else (t("Tokens of each request"), words.count(asked.length_tokens)),
        (t("Cards"), ", ".join(asked.cards)),
        (t("Cards that share a model (TP)"), ", ".join(map(str, asked.counts))),
        (t("Weights"), ", ".join(weights)),
        (t("Keys and values"), ", ".join(asked.kv_dtypes)),
    ]
    return _table(rows, request, KEPT_FLAGS)


def cards_inputs(asked: CompareInput, request: PlanRequest) -> Table:
    """What the search for the fewest cards was asked."""
    searched = (
        (t("Cards"), ", ".join(asked.search_cards)),
        (t("Cards at most"), words.count(asked.most_cards)),
    )
    rows = [(t("Model"), request.model_id), *_load(asked, has_arrivals=True), *searched]
    names = tuple(field.name for field in fields(EngineFlags) if field.name not in _SEARCHED)
    return _table(rows, request, names)


def load_inputs(asked: CompareInput) -> Table:
    """The lengths and the users of a dry run."""
    rows = (*_load(asked, has_arrivals=False), (t("Users at most"), words.count(asked.most_users)))
    return Table(title=t("The load"), columns=(t("Input"), t("Value")), rows=rows)


def _load(asked: CompareInput, *, has_arrivals: bool) -> Iterator[_Row]:
    prompts = (asked.prompt_p50, asked.prompt_p95, asked.prompt_p99)
    answers = (asked.output_p50, asked.output_p95, asked.output_p99)
    yield t("Prompt, tokens"), _percentiles(prompts)
    yield t("Output, tokens"), _percentiles(answers)
    yield t("Shared prefix, tokens"), words.count(asked.prefix_tokens)
    if has_arrivals and asked.load == USERS:
        yield t("Users at once"), words.count(asked.users)
    elif has_arrivals:
        yield t("Requests a second"), f"{asked.rate:g}"
    yield t("Preempted at most, %"), f"{asked.most_preempted_percent:g}"


def _percentiles(values: tuple[int, int, int]) -> str:
    return " · ".join(f"{name} {words.count(value)}" for name, value in zip(("p50", "p95", "p99"), values, strict=True))


def _table(rows: list[_Row], request: PlanRequest, names: tuple[str, ...]) -> Table:
    """`rows`, then the release and those of the flags called `names` that differ from vLLM's own."""
    first = EngineFlags()
    given = [name for name in names if getattr(request.flags, name) != getattr(first, name)]
    flags = [(words.flag_name(name), words.shown_value(getattr(request.flags, name))) for name in given]
    return Table(
        title=t("Inputs"),
        columns=(t("Input"), t("Value")),
        rows=(*rows, ("vLLM", request.vllm_version), *flags),
    )
