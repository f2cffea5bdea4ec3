"""One engine of a fleet, read from a Prometheus server: a source as any other, with the past that the server remembers.

Its address holds all that names it: prometheus:http://host:9090#model_name=M&engine=0&replica=instance=10.0.0.3:8000,job=vllm
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, urlencode

from live.engine_snapshot import ServerReading
from live.http_reader import HttpReader
from live.http_source import http_source
from live.prometheus_server import MOST_POINTS, PrometheusServer, Span
from live.recorder import changes
from live.sample_codec import encode, stamped
from live.samples import EngineIdentity, EngineSample, EngineSnapshot
from live.scrape_address import ServerAddress, parse_address
from live.store import Store
from live.watched import Source, SourceError
from planner.facts import PlanError

SCHEME = "prometheus:"
NOT_SCRAPED, SERVER_DOWN = "not_scraped", "server_down"
_NAMES = ("model_name", "engine", "replica")
_HOLE_STEPS = 1.5
_QUIET = ",=:/"  # what an address may show as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetEngine:
    """One engine that a Prometheus server knows."""

    server: ServerAddress
    identity: EngineIdentity

    @property
    def address(self) -> str:
        """The address under which it is recorded; `fleet_engine` reads it."""
        named = {name: getattr(self.identity, name) for name in _NAMES}
        told = {name: text for name, text in named.items() if text is not None}
        return f"{SCHEME}{self.server.shown}#{urlencode(told, quote_via=quote, safe=_QUIET)}"

    @property
    def labels(self) -> dict[str, str]:
        """Labels that narrow a query to it; none where they cannot be told from the text of its place."""
        pairs = [part.partition("=") for part in (self.identity.replica or "").split(",") if part]
        return {name: text for name, sign, text in pairs} if all(sign for _, sign, _ in pairs) else {}


def fleet_engine(address: str) -> FleetEngine:
    """The engine of such an address; raises `PlanError` for any other text."""
    server, _, named = address.removeprefix(SCHEME).partition("#")
    told = dict(parse_qsl(named))
    if not address.startswith(SCHEME) or not told or set(told) - set(_NAMES):
        raise PlanError(
            "address", address, "The address names no engine of a Prometheus server; choose one of its list."
        )
    return FleetEngine(server=parse_address(server), identity=EngineIdentity(**told))


@dataclass(slots=True)
class FleetSource:
    """Reads one engine through `reader`; used by one thread."""

    engine: FleetEngine
    reader: HttpReader = field(default_factory=HttpReader)

    @property
    def address(self) -> str:
        """The engine's address."""
        return self.engine.address

    def _server(self) -> PrometheusServer:
        return PrometheusServer(address=self.engine.server, reader=self.reader, labels=self.engine.labels)

    def read(self) -> EngineSnapshot:
        """The snapshot now; raises `SourceError` in every named state but "ok"."""
        try:
            reading = self._server().snapshot()
        except PlanError as error:
            raise SourceError("not_allowed", error.text) from None
        if reading.snapshot is None and reading.state != "not_vllm":
            raise self._failure(reading)
        engines = () if reading.snapshot is None else reading.snapshot.engines
        own = tuple(each for each in engines if each.identity == self.engine.identity)
        if reading.snapshot is None or not own:
            text = f"{self.engine.server.shown} has no sample of this engine now; it is not scraped, or has ended."
            raise SourceError(NOT_SCRAPED, text)
        return EngineSnapshot(
            time_unix_ns=reading.snapshot.time_unix_ns,
            source=self.address,
            engines=own,
            findings=reading.snapshot.findings,
        )

    def _failure(self, reading: ServerReading) -> SourceError:
        if reading.state != "refused":
            return SourceError(reading.state, reading.text)
        text = f"No Prometheus server answers at {self.engine.server.shown}; the engine itself may be well."
        return SourceError(SERVER_DOWN, text)

    def past(
        self, seconds: float, step_seconds: float, now: Callable[[], float] = time.time
    ) -> Iterator[EngineSnapshot]:
        """Its snapshots of the last `seconds` on a grid of `step_seconds`, oldest first; a moment without a scrape has none.

        Raises `SourceError` where the server cannot be read, `PlanError` where it may not be.
        """
        end = math.floor(now() / step_seconds) * step_seconds
        start = end - math.floor(seconds / step_seconds) * step_seconds
        while start <= end:
            last = min(end, start + (MOST_POINTS - 1) * step_seconds)
            yield from self._part(Span(start_unix_seconds=start, end_unix_seconds=last, step_seconds=step_seconds))
            start = last + step_seconds

    def _part(self, span: Span) -> Iterator[EngineSnapshot]:
        history = self._server().history(span)
        if history.state == "not_vllm":
            return  # nothing was scraped then
        if history.state != "ok":
            raise SourceError(history.state, history.text)
        for samples in history.engines:
            yield from (self._snapshot(each) for each in samples if each.identity == self.engine.identity)

    def _snapshot(self, sample: EngineSample) -> EngineSnapshot:
        return EngineSnapshot(time_unix_ns=sample.time_unix_ns, source=self.address, engines=(sample,))


def write_past(snapshots: Iterable[EngineSnapshot], store: Store, step_seconds: float) -> int:
    """How many of these snapshots now stand in `store`, with what changed between them; moments without one are a gap."""
    before: EngineSnapshot | None = None
    count = 0
    for each in snapshots:
        time_ms = each.time_unix_ns // 1_000_000
        if store.last_ms is not None and time_ms <= store.last_ms:
            continue
        if store.last_ms is not None and time_ms - store.last_ms > _HOLE_STEPS * step_seconds * 1000:
            store.append_gap(store.last_ms + round(step_seconds * 1000), NOT_SCRAPED, "Prometheus has no sample here.")
        now = stamped(each, time_ms)
        encoded = encode(now)
        store.append(time_ms, encoded.numbers, encoded.document)
        for kind, text in changes(before, now) if before is not None else ():
            store.mark(time_ms, kind, text)
        before, count = now, count + 1
    return count


def fleet_source(address: str) -> FleetSource:
    """The source of a fleet engine's address; raises `PlanError` where its server may not be read."""
    source = FleetSource(fleet_engine(address))
    source.reader.check(source.engine.server)
    return source


def any_source(address: str) -> Source:
    """The source of an engine's own address, or of a fleet engine's."""
    return fleet_source(address) if address.startswith(SCHEME) else http_source(address)


def fleet(server: str, labels: str = "", reader: HttpReader | None = None) -> tuple[FleetEngine, ...]:
    """The engines that the Prometheus server at `server` knows now, those with `labels` ("job=vllm, pod=a") only.

    Raises `PlanError` with the server's sentence where there are none to choose from.
    """
    chosen = PrometheusServer(address=parse_address(server), reader=reader or HttpReader(), labels=_labels(labels))
    reading = chosen.snapshot()
    if reading.snapshot is None:
        raise PlanError("server", server, reading.text)
    return tuple(FleetEngine(server=chosen.address, identity=each.identity) for each in reading.snapshot.engines)


def _labels(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if not all(sign for _, sign, _ in pairs):
        raise PlanError("labels", text, "Labels are written like job=vllm, pod=vllm-1.")
    return {name.strip(): value.strip().strip('"') for name, _, value in pairs}
