"""Which addresses may be read: http or https on this machine, and the hosts of one setting, `KVSCOPE_ALLOW_SCRAPE`.

The setting is a list with commas: `gpu1`, `gpu1:8000`, `*.lab.example`, `10.0.0.7` or `10.0.0.0/24`. A host is resolved once;
the connection goes to the very address that was checked.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from planner.facts import PlanError

ALLOW_SETTING = "KVSCOPE_ALLOW_SCRAPE"

_DEFAULT_PORTS = {"http": 80, "https": 443}
# What people paste from a browser or a command; the server's root is meant.
_KNOWN_PATHS = re.compile(r"/(?:metrics|version|health|graph|query|targets|v1(?:/.*)?)?/?$")
_EVERY_INTERFACE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what vLLM's log prints is no address to connect to

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """A server's root: `path` is a gateway's prefix without its last slash."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def shown(self) -> str:
        """The address as it may be printed and stored."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"


def _refuse(text: str, shown: str = "") -> PlanError:
    return PlanError("url", shown, text)


def parse_address(text: str) -> ServerAddress:
    """The server that a typed or pasted address names; raises `PlanError`, which never repeats a password."""
    typed = text.strip()
    if "://" not in typed:
        typed = f"http://{typed}"
    try:
        parts = urlsplit(typed)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _refuse("The address cannot be read; write one like http://localhost:8000.") from None
    if parts.scheme not in _DEFAULT_PORTS:
        raise _refuse(f"{parts.scheme}:// is not read; an engine's address begins with http:// or https://.")
    if not host or len(host) > 253 or port == 0 or re.search(r"[\s\x00-\x1f\\%]", host):
        raise _refuse("The address names no host; write one like http://localhost:8000.")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment or ";" in parts.path:
        raise _refuse("The address holds a password or parameters, which are not kept; give the plain address.")
    host = _EVERY_INTERFACE.get(host, host)
    path = _KNOWN_PATHS.sub("", parts.path)
    if re.search(r"[\s\x00-\x1f]", path):
        raise _refuse("The address holds a blank; write one like http://localhost:8000.")
    return ServerAddress(
        scheme=parts.scheme, host=host, port=port or _DEFAULT_PORTS[parts.scheme], path=path.rstrip("/")
    )


def resolve(host: str, port: int) -> Sequence[str]:
    """The IP addresses of a host name, IPv4 first; raises `OSError` where it has none."""
    found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    return sorted(found, key=lambda address: (":" in address, address))


def resolve_in_time(host: str, port: int, seconds: float, resolver: Resolver = resolve) -> Sequence[str]:
    """As `resolver`, but raises `TimeoutError` after `seconds`: the C library's look-up has no limit of its own."""
    answer: list[Sequence[str] | OSError] = []

    def ask() -> None:
        try:
            answer.append(resolver(host, port))
        except (OSError, UnicodeError) as error:
            answer.append(error if isinstance(error, OSError) else OSError(str(error)))

    thread = threading.Thread(target=ask, daemon=True, name="resolve")
    thread.start()
    thread.join(seconds)
    if not answer:
        raise TimeoutError
    if isinstance(answer[0], OSError):
        raise answer[0]
    return answer[0]


def allowed_hosts(setting: str | None = None) -> tuple[str, ...]:
    """The entries of the allow-list; by default those of the environment."""
    text = os.environ.get(ALLOW_SETTING, "") if setting is None else setting
    return tuple(entry for part in text.split(",") if (entry := part.strip().lower()))


def _as_ip(text: str) -> IpAddress | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _entry_allows(entry: str, server: ServerAddress, address: IpAddress) -> bool:
    host, colon, port = entry.rpartition(":")
    if colon and port.isdecimal() and (host.count(":") == 0 or host.endswith("]")):
        if int(port) != server.port:
            return False
        entry = host.strip("[]")
    entry = entry.strip("[]")
    if fnmatchcase(server.host.lower(), entry):
        return not (address.is_link_local or address.is_multicast) or _as_ip(entry) == address
    try:
        return address in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False


def _is_named(server: ServerAddress, allowed: Sequence[str]) -> bool:
    """Whether an entry can mean this host, of which no address is known."""
    own = server.host in {"localhost", "::1"} or server.host.startswith("127.")
    names = (entry if ":" not in entry else entry.rpartition(":")[0] for entry in allowed)
    return own or any(fnmatchcase(server.host.lower(), name.strip("[]")) for name in names)


def checked_addresses(server: ServerAddress, addresses: Sequence[str], allowed: Sequence[str]) -> tuple[str, ...]:
    """The addresses that may be connected to; raises `PlanError` that names the setting where none may."""
    kept = []
    for text in addresses:
        address = _as_ip(text.split("%", maxsplit=1)[0])
        if address is None:
            continue
        if address.is_loopback or any(_entry_allows(entry, server, address) for entry in allowed):
            kept.append(text)
    if not kept and (addresses or not _is_named(server, allowed)):
        raise _refuse(
            f"{server.host} is not this machine. To read it, start KVScope with {ALLOW_SETTING}={server.host} in its "
            "environment (a list with commas of hosts, host:port, *.domain or networks such as 10.0.0.0/24).",
            server.shown,
        )
    return tuple(kept)
