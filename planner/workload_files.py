"""Files of requests, read and written: our own JSONL and CSV, and the public Mooncake and Azure traces.

A file is taken whole or not at all: the first bad row is refused with its number.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Items
from datetime import datetime
from pathlib import Path
from typing import TextIO

from planner.block_hashes import Piece
from planner.facts import PlanError
from planner.sequence import MAX_TOKENS, SimulatedRequest
from planner.workload import MAX_REQUESTS

MAX_FILE_BYTES = 512 * 2**20
MAX_ROW_CHARACTERS = 16 * 2**20
MOONCAKE_HASH_TOKENS = 512  # one entry of hash_ids stands for so many prompt tokens
# the columns we understand, by the name of the field they fill; the first name is ours
_NAMES = {
    "request_id": ("request_id", "id", "requestid"),
    "arrival_step": ("arrival_step",),
    "arrival": ("arrival_seconds", "arrival", "arrived_at", "arrival_time", "timestamp"),
    "num_prompt_tokens": ("num_prompt_tokens", "prompt_tokens", "contexttokens", "input_length", "input_tokens"),
    "num_output_tokens": ("num_output_tokens", "output_tokens", "generatedtokens", "output_length", "max_tokens"),
    "prompt_token_ids": ("prompt_token_ids",),
    "output_token_ids": ("output_token_ids",),
    "prefix_id": ("prefix_id",),
    "prefix_tokens": ("prefix_tokens", "prefix_length"),
    "priority": ("priority",),
    "n": ("n",),
    "hash_ids": ("hash_ids",),
    "accepted_drafts": ("accepted_drafts",),
}
_FIELD_OF = {name: field for field, names in _NAMES.items() for name in names}

Row = Mapping[str, object]


def read_workload(path: Path) -> tuple[SimulatedRequest, ...]:
    """The requests of a CSV, JSON or JSONL file, in the file's order."""
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            text = f"{path.name} has {size:,} bytes; a trace may have {MAX_FILE_BYTES:,}."
            raise PlanError("requests", path.name, text)
        with path.open(encoding="utf-8-sig", newline="") as stream:
            return read_requests(stream, name=path.name)
    except OSError as error:
        text = f"{path.name} cannot be read: {error.strerror or error}."
        raise PlanError("requests", path.name, text) from error
    except UnicodeDecodeError as error:
        text = f"{path.name} is not a text file in UTF-8."
        raise PlanError("requests", path.name, text) from error


def read_requests(stream: TextIO, *, name: str = "the file") -> tuple[SimulatedRequest, ...]:
    """The requests of an open text stream: JSON objects a line, a JSON list, or CSV with a header row."""
    first = _first_character(stream)
    if first == "":
        raise PlanError("requests", name, f"{name} is empty.")
    rows = _json_rows(stream, name) if first in "{[" else _csv_rows(stream, name)
    requests: list[SimulatedRequest] = []
    seen: set[str] = set()
    reader = _RowReader()
    for number, row in rows:
        if len(requests) >= MAX_REQUESTS:
            text = f"Row {number}: a trace may have {MAX_REQUESTS:,} requests; take a part of it."
            raise PlanError("requests", number, text)
        request = reader.read(number, row, len(requests))
        if request.request_id in seen:
            raise PlanError(
                "request_id", request.request_id, f"Row {number}: request id {request.request_id} came before."
            )
        seen.add(request.request_id)
        requests.append(request)
    if not requests:
        raise PlanError("requests", name, f"{name} holds no request.")
    return tuple(requests)


def write_requests(requests: Iterable[SimulatedRequest], stream: TextIO) -> None:
    """Write one JSON object a line, in the form that `read_requests` takes."""
    stream.writelines(json.dumps(to_row(request)) + "\n" for request in requests)


def to_row(request: SimulatedRequest) -> dict[str, object]:
    """The request as one row of a file."""
    row: dict[str, object] = {"request_id": request.request_id}
    if request.arrival_seconds is None:
        row["arrival_step"] = request.arrival_step
    else:
        row["arrival_seconds"] = round(request.arrival_seconds, 6)
    row["num_prompt_tokens"] = request.num_prompt_tokens
    row["num_output_tokens"] = request.num_output_tokens
    if request.prompt_token_ids is not None:
        row["prompt_token_ids"] = list(request.prompt_token_ids)
    if request.output_token_ids is not None:
        row["output_token_ids"] = list(request.output_token_ids)
    if len(request.shared_pieces) == 1:
        row["prefix_id"] = str(request.shared_pieces[0].key)
        row["prefix_tokens"] = request.shared_pieces[0].num_tokens
    if request.priority:
        row["priority"] = request.priority
    if request.n != 1:
        row["n"] = request.n
    return row


def _first_character(stream: TextIO) -> str:
    start = stream.tell()
    while True:
        text = stream.read(4096)
        if not text or text.strip():
            stream.seek(start)
            return text.strip()[:1]


def _json_rows(stream: TextIO, name: str) -> Iterator[tuple[int, Row]]:
    if _is_one_document(stream):
        yield from _document_rows(stream, name)
        return
    number = 0
    for line in stream:
        number += 1
        if not line.strip():
            continue
        yield number, _as_object(_parse(line, number), number)


def _is_one_document(stream: TextIO) -> bool:
    """Whether the file is a list or an object over many lines rather than an object a line."""
    start = stream.tell()
    line = next((line for line in stream if line.strip()), "")
    stream.seek(start)
    if line.lstrip().startswith("["):
        return True
    try:
        value = json.loads(line)
    except ValueError:
        return len(line.strip()) <= 1  # "{" alone: pretty-printed
    return isinstance(value, dict) and isinstance(value.get("requests"), list)


def _document_rows(stream: TextIO, name: str) -> Iterator[tuple[int, Row]]:
    try:
        document = json.load(stream)
    except (ValueError, RecursionError) as error:
        raise PlanError("requests", name, f"{name} is not JSON: {error}.") from error
    rows = document.get("requests") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        text = f"{name} must be a list of requests, or an object a line."
        raise PlanError("requests", name, text)
    for number, row in enumerate(rows, 1):
        yield number, _as_object(row, number)


def _csv_rows(stream: TextIO, name: str) -> Iterator[tuple[int, Row]]:
    reader = csv.DictReader(stream)
    try:
        names = reader.fieldnames or []
        if not any(field.strip().lower() in _FIELD_OF for field in names):
            known = "num_prompt_tokens, num_output_tokens and arrival_seconds"
            raise PlanError("requests", name, f"{name} has none of the columns we know, such as {known}.")
        for number, row in enumerate(reader, 1):
            if None in row or any(value is None for value in row.values()):
                text = f"Row {number}: it does not have the {len(names)} columns of the header."
                raise PlanError("requests", number, text)
            yield number, row
    except csv.Error as error:
        raise PlanError("requests", name, f"{name} is not CSV at line {reader.line_num}: {error}.") from error


def _parse(line: str, number: int) -> object:
    if len(line) > MAX_ROW_CHARACTERS:
        text = f"Row {number}: it has {len(line):,} characters; a row may have {MAX_ROW_CHARACTERS:,}."
        raise PlanError("requests", number, text)
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise PlanError("requests", number, f"Row {number}: it is not a JSON object.") from error


def _as_object(value: object, number: int) -> Row:
    if not isinstance(value, dict):
        raise PlanError("requests", number, f"Row {number}: it is not a JSON object.")
    return value


class _RowReader:
    """Turns rows into requests; the first row's time is where the trace starts."""

    def __init__(self) -> None:
        self._start: float | None = None

    def read(self, number: int, row: Row, index: int) -> SimulatedRequest:
        """The request of row `number`."""
        fields = _known_fields(row)
        prompt = _token_ids(number, "prompt_token_ids", fields.get("prompt_token_ids"))
        output = _token_ids(number, "output_token_ids", fields.get("output_token_ids"))
        num_prompt = _length(number, "num_prompt_tokens", fields, prompt)
        seconds = self._seconds(number, row, fields)
        return SimulatedRequest(
            request_id=str(fields.get("request_id", f"r{index}")),
            arrival_step=_integer(number, "arrival_step", fields.get("arrival_step", 0), 0, 10**9),
            arrival_seconds=seconds,
            num_prompt_tokens=num_prompt,
            num_output_tokens=_length(number, "num_output_tokens", fields, output),
            priority=_integer(number, "priority", fields.get("priority", 0), -(10**9), 10**9),
            n=_integer(number, "n", fields.get("n", 1), 1, 1000),
            prompt_token_ids=prompt,
            output_token_ids=output,
            shared_pieces=_pieces(number, fields, num_prompt),
            accepted_drafts=_token_ids(number, "accepted_drafts", fields.get("accepted_drafts")),
        )

    def _seconds(self, number: int, row: Row, fields: Mapping[str, object]) -> float | None:
        if "arrival" not in fields:
            return None
        value = _time(number, fields["arrival"])
        names = {name.strip().lower() for name in row}
        if "timestamp" in names and "hash_ids" in names:
            value /= 1000.0  # Mooncake's timestamps are milliseconds
        if self._start is None:
            self._start = value if "timestamp" in names else 0.0
        if value < self._start:
            text = f"Row {number}: it arrives before the trace starts; sort the rows by time."
            raise PlanError("arrival_seconds", value, text)
        return value - self._start


def _known_fields(row: Row) -> dict[str, object]:
    return {
        field: value
        for name, value in row.items()
        if (field := _FIELD_OF.get(name.strip().lower())) and value is not None and value != ""
    }


def _length(number: int, name: str, fields: Mapping[str, object], tokens: tuple[int, ...] | None) -> int:
    if name not in fields:
        if tokens is None:
            text = f"Row {number}: there is no {name} (also read: {', '.join(_NAMES[name][1:])})."
            raise PlanError(name, None, text)
        return _integer(number, name, len(tokens), 1, MAX_TOKENS)
    value = _integer(number, name, fields[name], 1, MAX_TOKENS)
    if tokens is not None and len(tokens) != value:
        text = f"Row {number}: {name} is {value:,}, and {len(tokens):,} token ids are given."
        raise PlanError(name, value, text)
    return value


def _integer(number: int, name: str, value: object, low: int, high: int) -> int:
    found = _whole(value)
    if found is None:
        text = f"Row {number}: {name} must be a whole number, not {str(value)[:40]}."
        raise PlanError(name, value, text)
    if not low <= found <= high:
        raise PlanError(name, found, f"Row {number}: {name} must be from {low:,} to {high:,}, not {found:,}.")
    return found


def _whole(value: object) -> int | None:
    """The whole number that `value` is or spells; None: none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = int(value)
    except (ValueError, OverflowError):
        return None
    return None if isinstance(value, float) and value != found else found


def _time(number: int, value: object) -> float:
    found = math.nan
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            found = float(value)
        except (ValueError, OverflowError):
            found = _date_seconds(value)
    if not math.isfinite(found) or abs(found) > 1e13:
        raise PlanError("arrival_seconds", value, f"Row {number}: {str(value)[:40]} is not a time we can read.")
    return found


def _date_seconds(value: object) -> float:
    """Seconds of a date such as `2023-11-16 18:15:46.6805900`; not finite when it is none."""
    whole, _, fraction = str(value).strip().partition(".")
    digits = "".join(character for character in fraction if character.isdigit())
    try:
        moment = datetime.fromisoformat(whole)
    except ValueError:
        return math.nan
    return (moment - datetime(1970, 1, 1, tzinfo=moment.tzinfo)).total_seconds() + float(f"0.{digits or 0}")


def _token_ids(number: int, name: str, value: object) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        raise PlanError(name, None, f"Row {number}: {name} must be a list of whole numbers.")
    return tuple(value)


def _pieces(number: int, fields: Mapping[str, object], num_prompt: int) -> tuple[Piece, ...]:
    """What the prompt shares by name: a prefix of `prefix_tokens`, or Mooncake's pieces of 512 tokens."""
    hashes = fields.get("hash_ids")
    if isinstance(hashes, list):
        pieces, left = [], num_prompt
        for item in hashes:
            if left <= 0 or type(item) is not int:
                text = f"Row {number}: hash_ids must be whole numbers, one for each 512 prompt tokens."
                raise PlanError("hash_ids", None, text)
            pieces.append(Piece(key=("hash", item), num_tokens=min(MOONCAKE_HASH_TOKENS, left)))
            left -= MOONCAKE_HASH_TOKENS
        return tuple(pieces)
    if "prefix_id" not in fields:
        return ()
    length = _integer(number, "prefix_tokens", fields.get("prefix_tokens", num_prompt), 0, num_prompt)
    return (Piece(key=str(fields["prefix_id"]), num_tokens=length),) if length else ()


def has_times(requests: Items[SimulatedRequest]) -> bool:
    """Whether the requests arrive at times rather than at steps."""
    return any(request.arrival_seconds is not None for request in requests)
