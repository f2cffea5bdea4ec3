"""Files and JSON from outside, read within limits: a hostile or broken file becomes one sentence, never a crash."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from planner.facts import PlanError
from planner.units import MIB

LARGEST_CONFIG_BYTES = 10 * MIB  # the largest real config.json (per-layer quantisation lists) stays under 1 MiB
LARGEST_INDEX_BYTES = 100 * MIB  # an index or a header lists every tensor; the largest real ones are near 20 MiB


def size_text(num_bytes: int) -> str:
    """`num_bytes` in MiB with one decimal, for a sentence."""
    return f"{num_bytes / MIB:.1f} MiB"


def _open_regular(path: Path, field: str, limit_bytes: int) -> bytes:
    with path.open("rb") as file:
        content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise PlanError(
            field,
            str(path),
            f"{path.name} is larger than {size_text(limit_bytes)}, too large to be what its name says.",
        )
    return content


def read_bytes(path: Path, field: str, limit_bytes: int) -> bytes:
    """The content of the regular file `path`; anything else, or more than `limit_bytes`, is a `PlanError` on `field`."""
    try:
        mode = path.stat().st_mode  # follows links: a loop of links is an OSError here
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
            raise PlanError(field, str(path), f"{path} is {kind}; give a file.")
        return _open_regular(path, field, limit_bytes)
    except FileNotFoundError:
        raise PlanError(
            field, str(path), f"{path} does not exist; check the spelling of --{field.replace('_', '-')}."
        ) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the name
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, PlanError):
            raise
        raise PlanError(
            field, str(path), f"{path} cannot be read ({reason}); check its permissions and links."
        ) from None


def refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of `pairs`; a key twice is a ValueError, as readers would disagree on which of the two counts."""
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:60]!r} stands twice in one object")
    return values


def parse_object(text: str | bytes, name: str, field: str) -> dict[str, Any]:
    """The JSON object that `text` is; broken, ambiguous or too deep JSON is a `PlanError` that says where."""
    try:
        decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text.removeprefix("\ufeff")
        parsed = json.loads(decoded, object_pairs_hook=refuse_duplicates)
    except UnicodeDecodeError:
        raise PlanError(
            field, name, f"{name} is not UTF-8 text, so it is no JSON file; give the model's config.json."
        ) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise PlanError(
            field, name, f"{name} is not valid JSON ({error.msg} at {where}); repair or download it again."
        ) from None
    except RecursionError:
        raise PlanError(
            field, name, f"{name} nests its objects too deeply to be a model's file; give the model's own file."
        ) from None
    except ValueError as error:  # a key twice, or a number of thousands of digits
        reason = "a number has thousands of digits" if "digits" in str(error) else str(error)
        raise PlanError(field, name, f"{name} cannot be used: {reason}; repair or download it again.") from None
    if not isinstance(parsed, dict):
        raise PlanError(field, name, f"{name} holds no JSON object at its top; give the model's own file.")
    return parsed


def read_object(path: Path, field: str, limit_bytes: int = LARGEST_CONFIG_BYTES) -> tuple[str, dict[str, Any]]:
    """The text of the JSON file `path` and the object it holds."""
    content = read_bytes(path, field, limit_bytes)
    parsed = parse_object(content, path.name, field)
    return content.decode("utf-8-sig"), parsed
