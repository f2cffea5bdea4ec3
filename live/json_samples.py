"""The metrics in a JSON document, as lines: answers of Prometheus' API, prom2json, VictoriaMetrics' export, or texts in it."""

from __future__ import annotations

import json
from collections.abc import Iterator

_LARGEST_JSON_BYTES = 5_000_000
_MOST_STRINGS = 100_000


def from_json(text: str) -> str:
    """The samples and the strings of a JSON document, line by line; the text itself where it is none."""
    if len(text) > _LARGEST_JSON_BYTES:
        return text
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return text
    found = []
    for line in _lines(document):
        found.append(line)
        if len(found) > _MOST_STRINGS:
            break
    return _sound("\n".join(found) + "\n")


def _sound(text: str) -> str:
    """`text` with a question mark for each half of a sign, which can be neither kept nor sent."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _lines(document: object) -> Iterator[str]:
    """All samples and strings of a JSON document, in its order; not by recursion, for it may be deep."""
    waiting = [document]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, list):
            waiting.extend(reversed(one))
        elif isinstance(one, dict):
            samples = list(_samples(one))
            if samples:
                yield from samples
            else:
                waiting.extend(reversed(one.values()))


def _samples(one: dict[object, object]) -> Iterator[str]:
    """The samples that one object is: a query's row (the last of its points), or a family of prom2json."""
    labels, family = one.get("metric"), one.get("metrics")
    if isinstance(labels, dict) and isinstance(labels.get("__name__"), str):
        value = _last_value(one)
        if value is not None:
            rest = {name: text for name, text in labels.items() if name != "__name__"}
            yield _line(labels["__name__"], rest, value)
    elif isinstance(one.get("name"), str) and isinstance(family, list):
        for row in family:
            if isinstance(row, dict) and (value := _text(row.get("value"))) is not None:
                labels = row.get("labels")
                yield _line(str(one["name"]), labels if isinstance(labels, dict) else {}, value)


def _last_value(row: dict[object, object]) -> str | None:
    """The value of an instant row, or that of the last point of a range."""
    point = row.get("value")
    points = row.get("values")
    if isinstance(points, list) and points:
        point = points[-1]
    if isinstance(point, list):
        return _text(point[1]) if len(point) == 2 else None
    return _text(point)


def _text(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    return value if isinstance(value, str) else repr(value)


def _line(name: str, labels: dict[object, object], value: str) -> str:
    pairs = ",".join(f'{label}="{_escaped(str(text))}"' for label, text in labels.items())
    return f"{name}{{{pairs}}} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
