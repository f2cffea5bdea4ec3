"""One server asked once: /metrics, and /version, /v1/models and /server_info where they are offered. Only GETs that change nothing.

A server that cannot be read is a `ServerReading` with a named state and no snapshot, never an exception.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from live.http_reader import LONGEST_SECONDS, HttpAnswer, HttpReader, ReadState
from live.metrics import MetricsReading, read_metrics
from live.samples import EngineSnapshot, ServedModel
from live.scrape_address import ServerAddress
from live.text_bytes import LARGEST_TEXT_BYTES, decode_text

SnapshotState = ReadState | Literal["not_vllm"]

# Of /server_info only these parts are kept: the rest holds environment variables and may hold secrets.
_KEPT_PARTS = ("cache_config", "parallel_config", "scheduler_config", "offload_config", "speculative_config")
_KEPT_MODEL_KEYS = ("model", "dtype", "quantization", "max_model_len", "served_model_name")
_SECRET = re.compile(r"token|secret|password|api_?key|credential", re.IGNORECASE)
_MOST_MODELS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReading:
    """What came of asking a server: `snapshot` for state `ok`, else `text`, one sentence with the way out."""

    state: SnapshotState
    snapshot: EngineSnapshot | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What seldom changes of a server, asked for once and again after a restart."""

    vllm_version: str | None = None
    models: tuple[ServedModel, ...] = ()
    server_info: str | None = None


def _document(answer: HttpAnswer) -> dict[str, Any]:  # JSON of a foreign server: any value may stand in it
    try:
        document = json.loads(answer.content) if answer.state == "ok" else None
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _text(value: object) -> str | None:
    return value[:300] if isinstance(value, str) and value else None


def _models(document: dict[str, Any]) -> tuple[ServedModel, ...]:
    entries = document.get("data")
    found = []
    for entry in (entries if isinstance(entries, list) else [])[:_MOST_MODELS]:
        if not isinstance(entry, dict) or _text(entry.get("id")) is None:
            continue
        length = entry.get("max_model_len")
        found.append(
            ServedModel(
                model_id=str(_text(entry["id"])),
                root=_text(entry.get("root")),
                parent=_text(entry.get("parent")),
                max_model_len=length if isinstance(length, int) and not isinstance(length, bool) else None,
            )
        )
    return tuple(found)


def _scalars(part: object, names: tuple[str, ...] | None = None) -> dict[str, object]:
    if not isinstance(part, dict):
        return {}
    return {
        str(name): value
        for name, value in part.items()
        if (names is None or name in names)
        and isinstance(value, (str, int, float, bool))
        and not _SECRET.search(str(name))
    }


def _server_info(document: dict[str, Any]) -> str | None:
    """The configuration of /server_info?config_format=json without environment, system and secrets, as JSON text."""
    config = document.get("vllm_config")
    if not isinstance(config, dict):
        return None
    kept = {name: facts for name in _KEPT_PARTS if (facts := _scalars(config.get(name)))}
    model = _scalars(config.get("model_config"), _KEPT_MODEL_KEYS)
    return json.dumps(kept | ({"model_config": model} if model else {}), sort_keys=True)


def read_facts(reader: HttpReader, server: ServerAddress, *, seconds: float = LONGEST_SECONDS) -> ServerFacts:
    """Version, served models and configuration, each None or empty where the server does not offer it."""
    end = reader.clock() + seconds

    def ask(path: str) -> dict[str, Any]:
        left = end - reader.clock()
        return _document(reader.get(server, path, seconds=left)) if left > 0 else {}

    return ServerFacts(
        vllm_version=_text(ask("/version").get("version")),
        models=_models(ask("/v1/models")),
        server_info=_server_info(ask("/server_info?config_format=json")),
    )


def snapshot_of(
    reading: MetricsReading, source: str, time_unix_ns: int, facts: ServerFacts | None = None
) -> EngineSnapshot:
    """The snapshot of one metrics text and what is known of its server."""
    facts = facts or ServerFacts()
    return EngineSnapshot(
        time_unix_ns=time_unix_ns,
        source=source,
        engines=reading.engines,
        findings=reading.findings,
        vllm_version=facts.vllm_version,
        models=facts.models,
        server_info=facts.server_info,
        process_start_unix_seconds=reading.process_start_unix_seconds,
    )


def _status_text(server: ServerAddress, status: int | None) -> str:
    """What an error status of /metrics means, and the way out."""
    if status in {401, 403}:
        return (
            f"{server.shown} answers /metrics with HTTP status {status}: something in front of the engine asks for a key, for "
            "vLLM's own --api-key does not guard /metrics. Give the engine's own address; python -m live snapshot also sends a key "
            "(--token-env)."
        )
    if status == 404:
        return (
            f"{server.shown} answers, but serves no /metrics (HTTP status 404). Give the address of vLLM's API server (port "
            "8000 unless --port says another), with the path that a gateway puts before /metrics, if one does."
        )
    return (
        f"{server.shown} answers /metrics with HTTP status {status}: the engine, or a gateway in front of it, cannot answer "
        "now. The engine's log says why."
    )


def read_server(
    reader: HttpReader,
    server: ServerAddress,
    *,
    facts: ServerFacts | None = None,
    wall_clock_ns: Callable[[], int] = time.time_ns,
) -> ServerReading:
    """One snapshot within two seconds; `facts` known from an earlier call are not asked for again.

    Raises `PlanError` for an address that may not be read.
    """
    end = reader.clock() + LONGEST_SECONDS
    answer = reader.get(server, "/metrics", largest_bytes=LARGEST_TEXT_BYTES)
    if answer.state != "ok":
        text = _status_text(server, answer.status) if answer.state == "http_error" else answer.text
        return ServerReading(state=answer.state, text=text)
    now = wall_clock_ns()
    reading = read_metrics(decode_text(answer.content), now)
    if not reading.engines:
        text = f"{server.shown} answers, but {reading.findings[-1].text[0].lower()}{reading.findings[-1].text[1:]}"
        return ServerReading(state="not_vllm", text=text)
    if facts is None:
        facts = read_facts(reader, server, seconds=max(end - reader.clock(), 0.0))
    return ServerReading(state="ok", snapshot=snapshot_of(reading, server.shown, now, facts))


def read_text(content: bytes, source: str, time_unix_ns: int) -> EngineSnapshot:
    """The snapshot of a saved or pasted /metrics text."""
    return snapshot_of(read_metrics(decode_text(content), time_unix_ns), source, time_unix_ns)
