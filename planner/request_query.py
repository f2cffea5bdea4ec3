"""A request as a link's parameters. What comes from a link is untrusted: sizes are bounded and every value is read anew."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping

from planner.facts import PlanError
from planner.request import PlanRequest
from planner.request_mapping import LARGEST_CONFIG_CHARACTERS, request_from_mapping, request_to_mapping
from planner.units import GIB

_LONGEST_PACKED = 16_000  # characters; browsers and proxies take links of some 32,000
_LONGEST_VALUE = 4_000
_CONFIG = "config"  # the packed config.json
# Fields that a link spells for people: bytes as GiB.
_GIB_FIELDS = {"gpu_memory_bytes": "gpu_memory_gib", "other_processes_bytes": "other_processes_gib"}


def request_to_query(request: PlanRequest) -> dict[str, str]:
    """The parameters of a link; raises `PlanError` when an uploaded config.json is too large for one."""
    record = request_to_mapping(request)
    query = {"model": str(record.pop("model_id"))}
    config = record.pop("config_json", None)
    for name, value in record.items():
        if name in _GIB_FIELDS and isinstance(value, int):
            query[_GIB_FIELDS[name]] = f"{value / GIB!r}".removesuffix(".0")
        else:
            query[name] = _text(value)
    if config is not None:
        query[_CONFIG] = _pack(str(config))
    return query


def request_from_query(query: Mapping[str, str]) -> PlanRequest:
    """The request that a link's parameters hold."""
    record: dict[str, object] = {}
    for name, text in query.items():
        longest = _LONGEST_PACKED if name == _CONFIG else _LONGEST_VALUE
        if len(text) > longest:
            raise PlanError(name[:80], None, f"The link's {name[:80]} is longer than {longest} characters.")
        if name == _CONFIG:
            record["config_json"] = _unpack(text)
        elif name == "config_json":
            raise PlanError(name, None, "A link holds config.json packed, under the name config.")
        else:
            record[name] = text
    return request_from_mapping(record)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    if isinstance(value, list):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return json.dumps(value, separators=(",", ":"))
    return str(value)


def _pack(text: str) -> str:
    packed = base64.urlsafe_b64encode(zlib.compress(text.encode("utf-8", "surrogatepass"), 9)).decode().rstrip("=")
    if len(packed) > _LONGEST_PACKED:
        raise PlanError(
            "config_json",
            None,
            f"The uploaded config.json is too large for a link ({len(packed)} characters packed, {_LONGEST_PACKED} fit); "
            "share the file beside the link.",
        )
    return packed


def _unpack(text: str) -> str:
    damaged = PlanError("config", None, "The link's config is damaged; copy the whole link again.")
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        unpacker = zlib.decompressobj()
        plain = unpacker.decompress(packed, LARGEST_CONFIG_CHARACTERS + 1)
        config = plain.decode("utf-8", "surrogatepass")
    except (binascii.Error, zlib.error, ValueError):
        raise damaged from None
    if len(plain) > LARGEST_CONFIG_CHARACTERS:
        raise PlanError("config", None, "The link's config unpacks to more than 1 MiB.")
    if not unpacker.eof:
        raise damaged
    return config
