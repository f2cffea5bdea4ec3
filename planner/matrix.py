"""Tables of plans: one model over many cards, splits and KV dtypes, as arrays; every cell equals `budget.plan`.

What does not depend on a card's memory comes from `matrix_terms`; `matrix_pools` puts memory in for all cells at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.card_class import card_class
from planner.inventory import ModelFacts
from planner.matrix_pools import STOPS, Cells, Stop, pools_of, stops_of
from planner.matrix_terms import MatrixQuestion, Split, Term, model_terms
from planner.page_steps import Integers
from planner.request import PlanRequest
from planner.versions import parse_version

__all__ = ["STOPS", "MatrixQuestion", "Sheet", "Split", "Stop", "sheet"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sheet:
    """The cells of one model, arrays indexed `[split, kv dtype, card]`."""

    question: MatrixQuestion
    model_id: str
    stops: NDArray[np.int8]  # indices into STOPS
    num_blocks: Integers
    tokens: Integers
    max_model_len: Integers  # tokens; what "auto" became
    max_concurrency: NDArray[np.float64]  # requests of max_model_len, 0 where the model keeps no cache
    longest_tokens: Integers  # at `num_requests` at once, up to the model's own limit
    max_num_seqs: Integers
    pool_bytes: Integers  # on the stage with the fewest blocks
    load_bytes: Integers  # weights of the fullest stage
    free_bytes: Integers  # before vLLM starts
    terms: tuple[Term, ...]
    term_of: Integers  # into `terms`

    def stop(self, cell: tuple[int, int, int]) -> Stop:
        """Whether the cell's engine starts, else the first check that fails."""
        return STOPS[int(self.stops[cell])]

    def refusal(self, cell: tuple[int, int, int]) -> str | None:
        """Why vLLM refuses the cell's flags, card or cache; None where it does not."""
        term = self.terms[int(self.term_of[cell])]
        text = term.refusal or term.cache_refusal
        return None if text is None else text.replace(term.card_name, self.question.gpus[cell[2]].name)

    def refusal_field(self, cell: tuple[int, int, int]) -> str | None:
        """The flag or setting that the refusal speaks of, where it speaks of one."""
        return self.terms[int(self.term_of[cell])].refusal_field

    def request(self, cell: tuple[int, int, int]) -> PlanRequest:
        """The request whose plan the cell is."""
        question = self.question
        split = question.splits[cell[0]]
        flags = replace(
            question.request.flags,
            tensor_parallel_size=split.tensor_parallel_size,
            pipeline_parallel_size=split.pipeline_parallel_size,
            data_parallel_size=split.data_parallel_size,
            kv_cache_dtype=question.kv_dtypes[cell[1]],
        )
        gpu = question.gpus[cell[2]].name
        return replace(question.request, model_id=self.model_id, gpu=gpu, gpu_memory_bytes=None, flags=flags)


def sheet(question: MatrixQuestion, model: ModelFacts) -> Sheet:
    """The cells of `model` under `question`; where vLLM would not read the flags, all numbers are 0."""
    terms, term_of = _terms(question, model)
    cells = Cells(question, terms, term_of)

    def shaped(values: NDArray[Any]) -> NDArray[Any]:
        return np.where(cells.is_planned, values, values.dtype.type(0)).reshape(term_of.shape)

    pools = pools_of(cells)
    return Sheet(
        question=question,
        model_id=model.model_id,
        stops=stops_of(cells, pools).reshape(term_of.shape),
        num_blocks=shaped(pools.num_blocks),
        tokens=shaped(pools.tokens),
        max_model_len=shaped(pools.max_model_len),
        max_concurrency=shaped(pools.max_concurrency),
        longest_tokens=shaped(pools.longest_tokens),
        max_num_seqs=shaped(cells.of_term("max_num_seqs")),
        pool_bytes=shaped(pools.pool_bytes),
        load_bytes=shaped(cells.loads.max(axis=1)),
        free_bytes=shaped(cells.free_bytes),
        terms=terms,
        term_of=term_of,
    )


def _terms(question: MatrixQuestion, model: ModelFacts) -> tuple[tuple[Term, ...], Integers]:
    """The terms of all classes of cards, and each cell's place among them."""
    flags = replace(question.request.flags, tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=1)
    bare = replace(question.request, model_id="", gpu=None, gpu_memory_bytes=None, flags=flags)
    kept = model_terms(model, bare)
    version = parse_version(question.request.vllm_version)
    classes = [card_class(gpu, version, question.request.usage_context) for gpu in question.gpus]
    places: dict[Term, int] = {}
    term_of = np.zeros((len(question.splits), len(question.kv_dtypes), len(question.gpus)), dtype=np.int64)
    for row, split in enumerate(question.splits):
        for column, dtype in enumerate(question.kv_dtypes):
            for card, (of_class, gpu) in enumerate(zip(classes, question.gpus, strict=True)):
                term = kept.term(split, dtype, of_class, gpu)
                term_of[row, column, card] = places.setdefault(term, len(places))
    return tuple(places), term_of
