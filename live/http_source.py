"""A running server as a recorder's source: /metrics at each tick; what seldom changes is asked for again after a restart."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from live.engine_snapshot import ServerFacts, read_facts, read_server
from live.http_reader import HttpReader
from live.recorder import changes
from live.samples import EngineSnapshot
from live.scrape_address import ServerAddress, parse_address
from live.watched import SourceError
from planner.facts import PlanError

_FACTS_SECONDS = 60.0
_ASKING_SECONDS = 1.0


@dataclass(slots=True)
class HttpSource:
    """Reads `server` by `reader`; used by one thread."""

    server: ServerAddress
    reader: HttpReader = field(default_factory=HttpReader)
    _facts: ServerFacts | None = None
    _facts_at: float = 0.0
    _last: EngineSnapshot | None = None

    @property
    def address(self) -> str:
        """The server's address; it never holds a password."""
        return self.server.shown

    def read(self) -> EngineSnapshot:
        """The snapshot now; raises `SourceError` in every named state but "ok"."""
        known = self._facts if self.reader.clock() - self._facts_at < _FACTS_SECONDS else None
        try:
            reading = read_server(self.reader, self.server, facts=known)
        except PlanError as error:
            raise SourceError("not_allowed", error.text) from None
        if reading.snapshot is None:
            self._facts = None  # whatever answers next may be another server
            raise SourceError(reading.state, reading.text)
        snapshot = self._with_facts(reading.snapshot, is_fresh=known is None)
        self._last = snapshot
        return snapshot

    def _with_facts(self, snapshot: EngineSnapshot, *, is_fresh: bool) -> EngineSnapshot:
        if not is_fresh and self._last is not None and any(changes(self._last, snapshot)):
            facts = read_facts(self.reader, self.server, seconds=_ASKING_SECONDS)
            snapshot = replace(
                snapshot, vllm_version=facts.vllm_version, models=facts.models, server_info=facts.server_info
            )
            is_fresh = True
        if is_fresh:
            self._facts_at = self.reader.clock()
            self._facts = ServerFacts(
                vllm_version=snapshot.vllm_version, models=snapshot.models, server_info=snapshot.server_info
            )
        return snapshot


def http_source(address: str) -> HttpSource:
    """The source of a typed address; raises `PlanError` where it may not be read."""
    source = HttpSource(parse_address(address))
    source.reader.check(source.server)
    return source
