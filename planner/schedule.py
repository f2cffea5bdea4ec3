"""One step's rules: who runs, how many tokens each gets, who is preempted and who is admitted.

The rules are those of vLLM 0.33's V1 scheduler (`v1/core/sched/scheduler.py`, `async_scheduler.py`). A running
sequence that will only gain one token a step for a while, with nothing else to decide, is *quiet*: it is passed over
at the cost of one comparison and settled when something happens to it.
"""

from __future__ import annotations

from planner.block_tables import BlockTables
from planner.blocked_head import BlockedHead
from planner.prefix_lookup import NO_HIT, PrefixHit
from planner.quiet_runs import QuietRuns
from planner.schedule_journal import ScheduleJournal
from planner.sequence import Sequence, SimulatedRequest, Status
from planner.simulator_config import SimulatorConfig
from planner.step_outputs import AcceptDrafts, Scheduled, StepOutputs, accept_none
from planner.tiers import LowerTiers
from planner.waiting_queue import make_queue


class Scheduler:
    """The queues and the batches in flight; `schedule` and `apply_outputs` are a step."""

    def __init__(
        self,
        config: SimulatorConfig,
        journal: ScheduleJournal | None = None,
        *,
        tiers: LowerTiers | None = None,
        accept_drafts: AcceptDrafts = accept_none,
        skip_quiet_steps: bool = True,
    ) -> None:
        self.config = config
        self.journal = journal
        self.tables = BlockTables(config, journal)
        self.pool = self.tables.pool
        self.tiers = tiers
        if tiers is not None:
            tiers.attach(self.tables)
        self.running: list[Sequence] = []
        self.waiting = make_queue(config.scheduling_policy)
        self.step = -1
        self.batch: list[Scheduled] = []  # what this step scheduled, quiet sequences left out
        self.preempted: list[Sequence] = []  # in this step
        self.hit_tokens = 0  # found in the prefix cache at first admissions
        self.queried_tokens = 0
        self._in_flight: list[list[Scheduled]] = []
        self._outputs = StepOutputs(config, self.tables, accept_drafts)
        self._arrivals = 0
        self._last_request: SimulatedRequest | None = None
        self._admissions = 0
        self._budget = 0
        self._input_budget = 0
        self._prefill_scheduled = False
        self._num_running_scheduled = 0
        # since 0.33 the sequences behind one that preempted itself still get their turn
        self._scans_past_own_preemption = config.scheduling_policy == "priority" and config.release >= (0, 33)
        self._quiet = QuietRuns(config, self.tables)
        self._skip_quiet = skip_quiet_steps and config.has_quiet_steps
        self._blocked = BlockedHead(self.tables)

    # -- arrival ------------------------------------------------------------------------------------------

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence that arrives now."""
        if self._last_request is not sequence.request:  # samples of one request arrive as one
            self._arrivals += 1
            self._last_request = sequence.request
        sequence.arrival = self._arrivals
        self.waiting.add(sequence)
        if self.journal is not None:
            self.journal.queued(self.step + 1, sequence)

    @property
    def num_scheduled_tokens(self) -> int:
        """The tokens given out in this step."""
        return self.config.max_num_batched_tokens - self._budget

    def has_unfinished(self) -> bool:
        """Whether any sequence runs, waits or has output under way."""
        return bool(self.running or len(self.waiting) or any(self._in_flight))

    # -- schedule -----------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Start the next step: give tokens to running sequences, then admit waiting ones."""
        self.step += 1
        self.batch = []
        self.preempted = []
        self._budget = self._input_budget = self.config.max_num_batched_tokens
        self._prefill_scheduled = False
        threshold = self.config.long_prefill_token_threshold
        if threshold and len(self.running) + len(self.waiting) <= 1:
            threshold = 0
        self._schedule_running(threshold)
        if not self.preempted and len(self.waiting):
            self._schedule_waiting(threshold)
        self._advance()

    def _schedule_running(self, threshold: int) -> None:
        running, quiet = self.running, self._quiet
        start = 0
        due = quiet.due(self.step)
        if quiet.num_quiet == len(running) <= self._budget:
            start = self._prolong(due)
        self._budget -= start
        self._input_budget -= start
        if start < len(running):
            self._scan_running(start, threshold)
        self._num_running_scheduled = len(self.batch)

    def _prolong(self, due: list[Sequence]) -> int:
        """With all running sequences quiet: how many of them stay so, from the first on."""
        refused = self._quiet.prolong_due(due, self.step)
        if refused is None:
            return len(self.running)
        place = self.running.index(refused)
        self._unquiet(refused)
        return place

    def _scan_running(self, index: int, threshold: int) -> None:
        running, step = self.running, self.step
        draft_slots = self.config.num_draft_slots
        while index < len(running) and self._budget > 0:
            start, end = index, min(len(running), index + self._budget)
            while index < end and step < running[index].quiet_until:
                index += 1
            self._budget -= index - start
            self._input_budget -= index - start
            if index == end:
                continue
            sequence = running[index]
            if self._stays_quiet(sequence):
                self._budget -= 1
                self._input_budget -= 1
                index += 1
                continue
            if self._input_budget <= draft_slots:
                break
            moved = self._schedule_one(sequence, index, threshold)
            if moved is None:
                break
            index = moved
        for sequence in running[index:]:
            self._unquiet(sequence)

    def _stays_quiet(self, sequence: Sequence) -> bool:
        """Whether this step is a quiet one for the sequence; if not, it is settled and unscheduled."""
        if not self._skip_quiet:
            return False
        quiet = self._quiet
        was_quiet = sequence.quiet_until > 0
        if not was_quiet and (sequence.is_prefill_chunk or not quiet.can_start(sequence)):
            return False
        if not quiet.prolong(sequence, self.step):
            self._unquiet(sequence, was_quiet=was_quiet)
            return False
        if not was_quiet:
            if self.config.async_scheduling:
                self._forget_last(sequence)
            if self.journal is not None:
                self.journal.became_quiet(sequence)
        return True

    def _schedule_one(self, sequence: Sequence, index: int, threshold: int) -> int | None:
        """The index of the next running sequence; None when the scan of the running ones ends here."""
        config = self.config
        waiting_tokens = sequence.placeholders
        if waiting_tokens > 0 and sequence.computed + 2 - waiting_tokens >= sequence.num_prompt + sequence.max_tokens:
            return index + 1
        wanted = sequence.num_tokens + sequence.num_drafts + waiting_tokens - sequence.computed
        if 0 < threshold < wanted:
            wanted = threshold
        wanted = min(wanted, self._budget, self._input_budget - config.num_draft_slots)
        wanted = min(wanted, config.max_model_len - sequence.computed - 1)
        wanted = self._reserve_lookahead(sequence, sequence.computed, wanted)
        if wanted <= 0:
            return index + 1
        while not self.tables.extend(sequence, wanted):
            index = self._preempt_for(index)
            if sequence.status is Status.PREEMPTED:
                return index if self._scans_past_own_preemption else None
        self._prefill_scheduled |= sequence.is_prefill_chunk
        num_drafts = 0
        if sequence.num_drafts:
            spare = wanted + sequence.computed - sequence.num_tokens - waiting_tokens
            num_drafts = min(max(spare, 0), sequence.num_drafts)
            sequence.num_drafts = 0
        self.batch.append(Scheduled(sequence, wanted, num_drafts))
        self._budget -= wanted
        self._input_budget -= wanted + config.num_draft_slots
        return index + 1

    def _preempt_for(self, index: int) -> int:
        """The new index of the sequence at `index` after the least important running sequence lost its place."""
        running = self.running
        if self.config.scheduling_policy == "priority":
            victim = max(running, key=lambda other: (other.priority, other.arrival))
            place = running.index(victim)
            del running[place]
            if place < index:
                index -= 1
                self._give_back(victim)
        else:
            victim = running.pop()
        self._preempt(victim)
        return index

    def _give_back(self, victim: Sequence) -> None:
        """Return the tokens that a victim was already given in this step."""
        if self.step < victim.quiet_until:
            self._budget += 1
            self._input_budget += 1
            return
        for place, scheduled in enumerate(self.batch):
            if scheduled.sequence is victim:
                self._budget += scheduled.num_tokens
                self._input_budget += scheduled.num_tokens + self.config.num_draft_slots
                del self.batch[place]
                return

    def _preempt(self, victim: Sequence) -> None:
        """Take all blocks from a running sequence and queue it to start again."""
        self._unquiet(victim)
        freed, kept = self._held(victim) if self.journal is not None else (0, 0)
        self.tables.release(victim)
        victim.status = Status.PREEMPTED
        victim.computed = 0
        victim.num_drafts = 0
        victim.stale = victim.in_flight
        victim.placeholders = 0
        victim.num_preemptions += 1
        self.waiting.add_front(victim)
        self.preempted.append(victim)
        if self.journal is not None:
            self.journal.preempted(self.step, victim, freed, kept)

    def _schedule_waiting(self, threshold: int) -> None:
        skipped: list[Sequence] = []
        while self._budget > 0 and len(self.waiting) and self._input_budget > self.config.num_draft_slots:
            if len(self.running) >= self.config.max_num_seqs:
                break
            sequence = self.waiting.first()
            if sequence.stale:
                skipped.append(self.waiting.pop())
                continue
            if self.tiers is None and self.running and self._blocked.is_still(sequence):
                break
            hit = self.tables.find_hit(sequence) if self.config.enable_prefix_caching else NO_HIT
            if self.tiers is not None:
                hit = self.tiers.lengthen(sequence, hit)
            sequence.shared_boundary = hit.shared_boundary
            wanted, num_drafts = self._first_chunk(sequence, hit, threshold)
            if wanted < 0:
                break
            if wanted == 0:
                skipped.append(self.waiting.pop())
                continue
            if not self.tables.admit(sequence, hit, wanted, is_alone=not self.running):
                self._blocked.note(sequence, is_alone=not self.running)
                break
            self._admit(sequence, hit, wanted, num_drafts)
        for sequence in reversed(skipped):
            self.waiting.add_front(sequence)

    def _first_chunk(self, sequence: Sequence, hit: PrefixHit, threshold: int) -> tuple[int, int]:
        """The tokens and drafts of a first chunk; 0: pass this sequence over, -1: end the scan."""
        config = self.config
        budget = min(self._budget, self._input_budget - config.num_draft_slots)
        wanted, num_drafts = sequence.num_tokens - hit.computed_tokens, 0
        is_beside_others = self._num_running_scheduled > 0 or hit.computed_tokens > 0
        if config.num_speculative_tokens and wanted == 1 and not self._prefill_scheduled and is_beside_others:
            padded = 1 + config.num_speculative_tokens
            if hit.computed_tokens + padded + 1 <= config.max_model_len:
                if padded > budget:
                    return -1, 0
                wanted, num_drafts = padded, config.num_speculative_tokens
        if 0 < threshold < wanted:
            wanted = threshold
        if not config.enable_chunked_prefill and wanted > budget:
            return -1, 0
        wanted = self._reserve_lookahead(sequence, hit.computed_tokens, min(wanted, budget))
        return wanted, num_drafts

    def _admit(self, sequence: Sequence, hit: PrefixHit, wanted: int, num_drafts: int) -> None:
        self.waiting.pop()
        self.running.append(sequence)
        self._admissions += 1
        sequence.admission = self._admissions
        sequence.status = Status.RUNNING
        sequence.computed = hit.computed_tokens
        if self.tiers is not None:
            self.tiers.load(sequence, hit)
        if not sequence.num_preemptions:
            self.queried_tokens += sequence.num_tokens
            self.hit_tokens += hit.num_tokens
        self.batch.append(Scheduled(sequence, wanted, num_drafts))
        self._budget -= wanted
        self._input_budget -= wanted + self.config.num_draft_slots
        if self.journal is not None:
            self.journal.admitted(self.step, sequence, hit)

    def _reserve_lookahead(self, sequence: Sequence, computed: int, wanted: int) -> int:
        """Leave a multi-module drafter either all or enough of the prompt's end."""
        lookahead = self.config.num_prefill_lookahead_tokens
        remaining = sequence.num_tokens - computed - wanted
        if 0 < remaining < lookahead:
            wanted -= lookahead - remaining
        return max(wanted, 0)

    def _advance(self) -> None:
        """Count this step's tokens as computed; outputs may correct that."""
        is_async, journal = self.config.async_scheduling, self.journal
        for scheduled in self.batch:
            sequence = scheduled.sequence
            sequence.computed += scheduled.num_tokens
            sequence.in_flight += scheduled.num_tokens
            sequence.is_prefill_chunk = sequence.computed < sequence.num_tokens + sequence.placeholders
            if not sequence.is_prefill_chunk:
                scheduled.samples = True
                if is_async:
                    sequence.placeholders += 1 + scheduled.num_drafts
                    sequence.num_drafts = self.config.num_speculative_tokens
            if journal is not None:
                journal.progressed(self.step, sequence, scheduled.num_tokens)
        self._in_flight.append(self.batch)

    # -- outputs ------------------------------------------------------------------------------------------

    def apply_outputs(self) -> list[Sequence]:
        """The sequences that finished, after the oldest batch in flight returned its tokens."""
        if not self._in_flight:
            return []
        batch = self._in_flight.pop(0)
        finished: list[Sequence] = []
        for scheduled in batch:
            if self._outputs.apply(scheduled):
                self._finish(scheduled.sequence)
                finished.append(scheduled.sequence)
            elif scheduled.num_drafts and self.journal is not None:  # wrong drafts took computed tokens back
                self.journal.settled(self.step + 1, scheduled.sequence)
        if self.config.num_speculative_tokens and not self.config.async_scheduling:
            for scheduled in batch:
                sequence = scheduled.sequence
                if sequence.status is not Status.FINISHED:
                    sequence.num_drafts = 0 if sequence.is_prefill_chunk else self.config.num_speculative_tokens
        return finished

    def batches_in_flight(self) -> int:
        """How many scheduled batches have not returned yet."""
        return len(self._in_flight)

    def _finish(self, sequence: Sequence) -> None:
        if sequence.status is Status.RUNNING:
            self.running.remove(sequence)
        else:
            self.waiting.remove(sequence)
        sequence.status = Status.FINISHED
        freed, kept = self._held(sequence) if self.journal is not None else (0, 0)
        self.tables.release(sequence)
        if self.journal is not None:
            self.journal.finished(self.step, sequence, freed, kept)

    def _held(self, sequence: Sequence) -> tuple[int, int]:
        """How many blocks the sequence holds, and how many of them are findable."""
        held = [block for table in sequence.tables for block in table if block]
        return len(held), sum(1 for block in held if self.pool.hash_ids[block])

    # -- quiet sequences ----------------------------------------------------------------------------------

    def computed_after_schedule(self, sequence: Sequence) -> int:
        """The sequence's computed tokens right after this step was scheduled."""
        if self.step < sequence.quiet_until:
            return sequence.computed + self.step - sequence.quiet_from + 1
        return sequence.computed

    def held_tokens(self) -> int:
        """The computed tokens of all running sequences right after this step was scheduled."""
        return self._quiet.held_tokens(self.running, self.step)

    def _unquiet(self, sequence: Sequence, *, was_quiet: bool = True) -> None:
        """Bring a sequence that was quiet up to the state before this step."""
        if sequence.quiet_until == 0:
            return
        self._quiet.end(sequence, self.step)
        if not was_quiet:
            return
        if self.config.async_scheduling:
            self._in_flight[-1].append(Scheduled(sequence, 1, 0, samples=True))
        if self.journal is not None:
            self.journal.settled(self.step, sequence)

    def _forget_last(self, sequence: Sequence) -> None:
        """Take the output under way for a sequence that turns quiet out of the last batch: it is implied now."""
        batch = self._in_flight[-1]
        for place, scheduled in enumerate(batch):
            if scheduled.sequence is sequence:
                del batch[place]
                return
