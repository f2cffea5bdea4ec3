"""A learner's progress as a file, and back. Pure; knows no Streamlit."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from math import isfinite

from pages.parts.language import t
from pages.parts.learn_lesson import Attempt
from planner.facts import PlanError

_LARGEST_FILE = 64 * 1024  # bytes
_MOST_TRIES = 100_000
_FLAGS = ("is_solved", "used_hint", "saw_answer")


def to_json(attempts: Mapping[str, Attempt]) -> str:
    """Each lesson with tries, whether it was solved, what was answered last and what help was used."""
    rows = [{"lesson": slug, **asdict(attempt)} for slug, attempt in attempts.items()]
    solved = sum(attempt.is_solved for attempt in attempts.values())
    return json.dumps({"lessons": rows, "num_solved": solved, "num_lessons": len(attempts)}, indent=1)


def from_json(text: bytes, slugs: Collection[str]) -> dict[str, Attempt]:
    """The attempts that `to_json` wrote, by lesson; raises `PlanError` for any other file."""
    if len(text) > _LARGEST_FILE:
        raise _no_progress(len(text))
    try:
        record = json.loads(text)
        rows = record["lessons"]
        return {row["lesson"]: _attempt(row) for row in rows if row["lesson"] in slugs}
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise _no_progress(str(error)) from error


def _attempt(row: Mapping[str, object]) -> Attempt:
    tries, given = row["num_tries"], row.get("last_given")
    if not isinstance(tries, int) or isinstance(tries, bool) or not 0 <= tries <= _MOST_TRIES:
        raise ValueError(tries)
    flags = {name: row[name] for name in _FLAGS}
    if not all(isinstance(flag, bool) for flag in flags.values()):
        raise TypeError(flags)
    if given is not None and (isinstance(given, bool) or not isinstance(given, int | float) or not isfinite(given)):
        raise TypeError(given)
    return Attempt(
        num_tries=tries,
        last_given=None if given is None else float(given),
        is_solved=row["is_solved"] is True,
        used_hint=row["used_hint"] is True,
        saw_answer=row["saw_answer"] is True,
    )


def _no_progress(why: object) -> PlanError:
    return PlanError("progress", why, t("This is no progress file of KVScope; take the one that its button saved."))
