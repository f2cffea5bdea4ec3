"""Calibrations as one readable JSON text and back: what is stored, exported and imported, validated field by field."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from planner.bounded_files import parse_object, read_bytes, size_text
from planner.calibration import SCHEMA, CalibratedStart, Calibration, Evidence, all_corrections, situation_of_start
from planner.facts import PlanError
from planner.measured_start import TERMS
from planner.units import GIB, MIB
from planner.versions import era_of, parse_version

LARGEST_FILE_BYTES = MIB
MOST_CALIBRATIONS = 200
MOST_STARTS = 200
_HOST = re.compile(r"[A-Za-z0-9._-]{1,63}", re.ASCII)
_LARGEST_BYTES = 2**50
_LONGEST_TEXT = 300
_NOTE = (
    "Measured constants of this project. Each start holds what the general constants said (predicted_bytes and its band) and what its log "
    "printed (measured_bytes); 'learned' is computed from the starts and only here to be read."
)


def to_text(calibrations: Sequence[Calibration]) -> str:
    """The file's text: schema, note, and each calibration with its starts and, to read, what they teach."""
    content = {"schema": SCHEMA, "note": _NOTE, "calibrations": [_record(each) for each in calibrations]}
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _record(calibration: Calibration) -> dict[str, Any]:  # Any: JSON
    record = asdict(calibration)
    return {"identity": calibration.identity, **record, "learned": _learned(calibration)}


def _learned(calibration: Calibration) -> list[dict[str, Any]]:
    """The constants for each situation that a start was in, as another model of that situation meets them."""
    found: dict[tuple[object, ...], dict[str, Any]] = {}
    for start in calibration.starts:
        situation = situation_of_start(start)
        for each in all_corrections(situation, calibration):
            key = (
                each.term,
                situation.tensor_parallel_size,
                situation.pipeline_parallel_size,
                situation.runner,
                situation.stage,
            )
            found[key] = {
                "term": each.term,
                "tensor_parallel_size": situation.tensor_parallel_size,
                "runner": situation.runner,
                "stage": situation.stage,
                "times": round(each.ratio, 4),
                "plus_gib": round(each.difference_bytes / GIB, 3),
                "band_share": round(each.band_share, 3),
                "from": each.note,
            }
    return list(found.values())


# -- reading ------------------------------------------------------------------------------------------------------------


def from_text(content: bytes | str, name: str) -> tuple[Calibration, ...]:
    """The calibrations of a file; raises `PlanError` with one sentence for anything that is not one of ours."""
    if len(content) > LARGEST_FILE_BYTES:
        text = f"{name} is larger than {size_text(LARGEST_FILE_BYTES)}, too large to be a file of calibrations."
        raise PlanError("calibrations", name, text)
    record = parse_object(content, name, "calibrations")
    if record.get("schema") != SCHEMA:
        schema = str(record.get("schema"))[:20]
        raise _wrong(name, f"its schema is {schema}, and this version reads {SCHEMA}")
    listed = _listed(record, "calibrations", name, MOST_CALIBRATIONS)
    return tuple(_calibration(each, name) for each in listed)


def held_in(path: Path, card: str, vllm_version: str) -> Calibration:
    """The calibration of that card and release in the file `path`; raises `PlanError` where it holds none."""
    held = from_text(read_bytes(path, "calibrations", LARGEST_FILE_BYTES), path.name)
    era = era_of(parse_version(vllm_version)).label
    found = next((each for each in held if (each.card, each.era) == (card, era)), None)
    if found is None:
        raise PlanError("calibrations", path.name, f"{path.name} holds no calibration of {card} and vLLM {era}.")
    return found


def _wrong(name: str, why: str) -> PlanError:
    return PlanError("calibrations", name, f"{name} cannot be read as calibrations: {why}.")


def _listed(record: Mapping[str, Any], field: str, name: str, most: int) -> list[Mapping[str, Any]]:
    found = record.get(field)
    if not isinstance(found, list) or len(found) > most or not all(isinstance(each, dict) for each in found):
        raise _wrong(name, f"{field} is not a list of at most {most} objects")
    return found


def _calibration(record: Mapping[str, Any], name: str) -> Calibration:
    host = _text(record, "host", name)
    if _HOST.fullmatch(host) is None:
        raise _wrong(name, "a host's name may hold letters, digits, dots and dashes only")
    starts = tuple(_start(each, name) for each in _listed(record, "starts", name, MOST_STARTS))
    if not starts:
        raise _wrong(name, "a calibration holds no start")
    return Calibration(host=host, card=_text(record, "card", name), era=_text(record, "era", name), starts=starts)


def _start(record: Mapping[str, Any], name: str) -> CalibratedStart:
    total = record.get("total_bytes")
    texts = {
        field: _text(record, field, name)
        for field in (
            "source",
            "read_on",
            "model_id",
            "vllm_version",
            "runner",
            "stage",
            "batch",
            "flags",
            "general_constants",
        )
    }
    return CalibratedStart(
        **texts,
        tensor_parallel_size=_count(record, "tensor_parallel_size", name),
        pipeline_parallel_size=_count(record, "pipeline_parallel_size", name),
        total_bytes=None if total is None else _bytes(record, "total_bytes", name),
        evidence=tuple(_evidence(each, name) for each in _listed(record, "evidence", name, len(TERMS))),
    )


def _evidence(record: Mapping[str, Any], name: str) -> Evidence:
    term = record.get("term")
    known = next((each for each in TERMS if each == term), None)
    if known is None:
        raise _wrong(name, f"{str(term)[:40]!r} is not a term that is learned")
    is_shared = record.get("is_shared", False)
    if not isinstance(is_shared, bool):
        raise _wrong(name, "is_shared is neither true nor false")
    sizes = ("predicted_bytes", "low_bytes", "high_bytes", "measured_bytes", "rounding_bytes")
    values = {field: _bytes(record, field, name) for field in sizes}
    if not values["low_bytes"] <= values["predicted_bytes"] <= values["high_bytes"] or values["rounding_bytes"] < 0:
        raise _wrong(name, f"the band of {known} does not hold its own estimate")
    return Evidence(term=known, is_shared=is_shared, **values)


def _text(record: Mapping[str, Any], field: str, name: str) -> str:
    value = record.get(field)
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT or not value.isprintable():
        raise _wrong(name, f"{field} is not a text of at most {_LONGEST_TEXT} characters")
    return value


def _bytes(record: Mapping[str, Any], field: str, name: str) -> int:
    value = record.get(field)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or value is None or value != int(value) or abs(value) > _LARGEST_BYTES:
        raise _wrong(name, f"{field} is not a whole number of bytes")
    return int(value)


def _count(record: Mapping[str, Any], field: str, name: str) -> int:
    value = _bytes(record, field, name)
    if not 1 <= value <= 4096:
        raise _wrong(name, f"{field} is not a number from 1 to 4096")
    return value
