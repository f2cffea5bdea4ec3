"""A request as the scheduler sees it: what was asked (`SimulatedRequest`) and its changing state (`Sequence`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from planner.block_hashes import HashChain, Piece, PieceContent, TokenContent
from planner.facts import PlanError

MAX_TOKENS = 100_000_000


class Status(Enum):
    """Where a sequence stands."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRequest:
    """One request: token ids where they are known, else lengths and the pieces that others may share."""

    request_id: str
    arrival_step: int = 0
    arrival_seconds: float | None = None  # where steps take time, this decides instead of `arrival_step`
    num_prompt_tokens: int
    num_output_tokens: int
    priority: int = 0  # lower is served first
    n: int = 1  # parallel samples of one prompt
    prompt_token_ids: tuple[int, ...] | None = None
    output_token_ids: tuple[int, ...] | None = None
    shared_pieces: tuple[Piece, ...] = ()  # the prompt's start, by content that other requests may name too
    accepted_drafts: tuple[int, ...] | None = None  # per verifying step; None: drawn from the acceptance rate

    def __post_init__(self) -> None:
        for name in ("num_prompt_tokens", "num_output_tokens"):
            value = getattr(self, name)
            if not 1 <= value <= MAX_TOKENS:
                text = f"Request {self.request_id}: {name} must be from 1 to {MAX_TOKENS:,}, not {value:,}."
                raise PlanError(name, value, text)
        if self.arrival_step < 0 or self.n < 1:
            raise PlanError("n", self.n, f"Request {self.request_id}: n is at least 1 and arrival_step at least 0.")
        if sum(piece.num_tokens for piece in self.shared_pieces) > self.num_prompt_tokens:
            text = f"Request {self.request_id}: its shared prefix is longer than its prompt."
            raise PlanError("prefix_tokens", self.num_prompt_tokens, text)


class Sequence:
    """The changing state of one request (or of one of its n samples) in the scheduler."""

    __slots__ = (
        "admission",
        "arrival",
        "computed",
        "content",
        "draft_cursor",
        "hashes",
        "in_flight",
        "is_prefill_chunk",
        "max_tokens",
        "num_cached_blocks",
        "num_drafts",
        "num_preemptions",
        "num_prompt",
        "num_tokens",
        "ordinal",
        "placeholders",
        "priority",
        "quiet_end",
        "quiet_from",
        "quiet_until",
        "request",
        "request_id",
        "shared_boundary",
        "stale",
        "status",
        "tables",
    )

    def __init__(self, request: SimulatedRequest, *, sample: int, ordinal: int, num_groups: int) -> None:
        self.request = request
        # vLLM names the samples of request q "0_q", "1_q", ...
        self.request_id = request.request_id if request.n == 1 else f"{sample}_{request.request_id}"
        self.ordinal = ordinal
        self.arrival = 0  # order of arrival, set by the scheduler
        self.admission = 0  # order of the last admission: running sequences stand in it
        self.priority = request.priority
        self.num_prompt = request.num_prompt_tokens
        self.max_tokens = request.num_output_tokens
        self.num_tokens = request.num_prompt_tokens
        self.computed = 0
        self.status = Status.WAITING
        self.tables: list[list[int]] = [[] for _ in range(num_groups)]
        self.num_cached_blocks = 0
        self.content = _content(request, sample)
        self.hashes: list[int] = []
        self.shared_boundary = 0
        self.num_drafts = 0
        self.placeholders = 0
        self.in_flight = 0
        self.stale = 0
        self.is_prefill_chunk = False
        self.num_preemptions = 0
        self.draft_cursor = 0
        # steps [quiet_from, quiet_until) each schedule one token and change nothing else; they are not written down
        self.quiet_from = 0
        self.quiet_until = 0
        self.quiet_end = 0  # the computed tokens at which no step is quiet any more

    @property
    def num_output_tokens(self) -> int:
        """The tokens sampled so far."""
        return self.num_tokens - self.num_prompt

    def hash_of_block(self, index: int, block_size: int, lookahead: int, chain: HashChain) -> int:
        """The content number of logical block `index`; its tokens must be known."""
        hashes = self.hashes
        while len(hashes) <= index:
            start = len(hashes) * block_size
            content = self.content.between(start, start + block_size + lookahead)
            hashes.append(chain.unshared() if content is None else chain.number(hashes[-1] if hashes else 0, content))
        return hashes[index]


def _content(request: SimulatedRequest, sample: int) -> TokenContent | PieceContent:
    """Samples of one request share its whole prompt and part at the first sampled token."""
    if request.prompt_token_ids is not None:
        known_output = request.output_token_ids if sample == 0 else None
        return TokenContent(request.prompt_token_ids + (known_output or ()))
    if request.n == 1:
        return PieceContent(request.shared_pieces)
    own = request.num_prompt_tokens - sum(piece.num_tokens for piece in request.shared_pieces)
    if not own:
        return PieceContent(request.shared_pieces)
    return PieceContent((*request.shared_pieces, Piece(key=("prompt of", request.request_id), num_tokens=own)))
