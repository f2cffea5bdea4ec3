"""The practitioners' table of a 24 GB card ("so long, so many requests"), each row beside what vLLM makes of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

from planner.gpu_catalog import find_gpu
from planner.inventory import ModelDocuments
from planner.matrix import MatrixQuestion, Split, sheet
from planner.model_catalog import catalogue_documents, config_documents
from planner.planning import facts_for
from planner.request import EngineFlags, PlanRequest

CARD = "GeForce RTX 4090"
# What AutoAWQ writes into a 4-bit checkpoint's config.json.
_AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One row of the table as it goes round: read in practitioners' articles of 2026."""

    title: str
    model_id: str  # of the catalogue
    is_awq: bool = False
    length_tokens: int
    num_requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRow:
    """A claim with the exact values: requests of that length, and the longest for as many."""

    claim: Claim
    max_concurrency: float
    longest_tokens: int
    pool_bytes: int
    kv_bytes_per_token: int  # while it lies in the window, for models that have one
    finding: str


CLAIMS = (
    Claim(title="Llama-2-7B", model_id="meta-llama/Llama-2-7b-hf", length_tokens=2048, num_requests=4),
    Claim(title="Llama-2-7B AWQ", model_id="meta-llama/Llama-2-7b-hf", is_awq=True, length_tokens=4096, num_requests=8),
    Claim(title="Mistral-7B", model_id="mistralai/Mistral-7B-v0.1", length_tokens=4096, num_requests=6),
    Claim(title="Phi-3 mini", model_id="microsoft/Phi-3-mini-128k-instruct", length_tokens=8192, num_requests=12),
)


@lru_cache(maxsize=16)
def rows(vllm_version: str) -> tuple[FieldRow, ...]:
    """All claims beside the exact values under a release, one card, its defaults."""
    return tuple(_row(claim, vllm_version) for claim in CLAIMS)


def claim_documents(claim: Claim) -> ModelDocuments:
    """The model of a claim: the catalogue's, or its config with AWQ's section."""
    documents = catalogue_documents(claim.model_id)
    if not claim.is_awq:
        return documents
    config = json.loads(documents.config_json) | {"quantization_config": _AWQ}
    return config_documents(json.dumps(config), f"{claim.model_id}-AWQ")


def _row(claim: Claim, vllm_version: str) -> FieldRow:
    request = PlanRequest(
        model_id=claim.model_id, vllm_version=vllm_version, flags=EngineFlags(max_model_len=claim.length_tokens)
    )
    model = facts_for(request, claim_documents(claim))
    question = MatrixQuestion(
        request=request, gpus=(find_gpu(CARD),), splits=(Split(),), num_requests=claim.num_requests
    )
    cells, cell = sheet(question, model), (0, 0, 0)
    layout = cells.terms[int(cells.term_of[cell])].layout
    concurrency, longest = float(cells.max_concurrency[cell]), int(cells.longest_tokens[cell])
    return FieldRow(
        claim=claim,
        max_concurrency=concurrency,
        longest_tokens=longest,
        pool_bytes=int(cells.pool_bytes[cell]),
        kv_bytes_per_token=0 if layout is None else layout.bytes_per_block[0] // layout.block_size,
        finding=_finding(claim, concurrency, longest),
    )


def _finding(claim: Claim, concurrency: float, longest_tokens: int) -> str:
    if concurrency >= 1.25 * claim.num_requests:
        return f"Too careful: the pool holds {concurrency:.1f} requests of that length."
    if concurrency >= claim.num_requests:
        return "It holds, and little more."
    return f"It does not hold: {claim.num_requests} requests fit only up to {longest_tokens:,} tokens."
