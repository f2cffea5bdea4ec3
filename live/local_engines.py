"""The vLLM servers on this machine: ports 8000 to 8010, and every listening port whose /metrics has vLLM's families."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from live.engine_snapshot import ServerFacts, ServerReading, read_server
from live.http_reader import HttpReader
from live.scrape_address import ServerAddress

USUAL_PORTS = tuple(range(8000, 8011))

_LISTENING = "0A"  # TCP_LISTEN in /proc/net/tcp
_MOST_PORTS = 64
_CONNECT_SECONDS = 0.2
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def listening_ports(tables: Iterable[Path] = _TABLES) -> tuple[int, ...]:
    """The TCP ports that listen on this machine by the kernel's tables; none where it has no such tables."""
    ports: set[int] = set()
    for table in tables:
        with suppress(OSError, ValueError, IndexError):
            for line in table.read_text().splitlines()[1:]:
                cells = line.split()
                if cells[3] == _LISTENING:
                    ports.add(int(cells[1].rsplit(":", 1)[1], 16))
    return tuple(sorted(ports))


def _is_open(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=_CONNECT_SECONDS):
        return True
    return False


def find_local_engines(
    *, own_ports: Iterable[int] = (), find_ports: Callable[[], Iterable[int]] = listening_ports
) -> tuple[tuple[ServerAddress, ServerReading], ...]:
    """The servers found with their first reading, by port; `own_ports` (ours) are left out. Takes about two seconds at most."""
    listening = [port for port in find_ports() if port not in USUAL_PORTS]
    tried = [port for port in (*USUAL_PORTS, *listening) if port not in set(own_ports)][:_MOST_PORTS]
    reader = HttpReader(allowed=())

    def look(port: int) -> tuple[ServerAddress, ServerReading] | None:
        if not _is_open(port):
            return None
        server = ServerAddress(scheme="http", host="127.0.0.1", port=port)
        # Strangers' ports get one GET of /metrics each, no more.
        reading = read_server(reader, server, facts=ServerFacts(), wall_clock_ns=time.time_ns)
        return (server, reading) if reading.state == "ok" else None

    with ThreadPoolExecutor(max_workers=_MOST_PORTS, thread_name_prefix="find-engines") as pool:
        return tuple(found for found in pool.map(look, tried) if found is not None)
