"""The real texts as people paste them: through terminals, logs, pages, source files and JSON. The reading stays, or is null."""

from __future__ import annotations

import gzip
import html
import json
import os
import re
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from live.engine_snapshot import read_text
from live.snapshot_json import engine_to_json

TEXTS = Path(__file__).parents[2].parent / "shared" / "groundtruth" / "metrics"
Decorate = Callable[[str], str | bytes]


def texts() -> list[Path]:
    return sorted(TEXTS.glob("*.txt"))


def lines(decorate: Callable[[int, str], str]) -> Decorate:
    return lambda text: "\n".join(decorate(number, line) for number, line in enumerate(text.split("\n"), start=1))


def before(prefix: str) -> Decorate:
    return lines(lambda _, line: prefix + line)


def behind(suffix: str) -> Decorate:
    return lines(lambda _, line: line + suffix)


def wrapped(width: int) -> Decorate:
    return lines(lambda _, line: "\n".join(line[at : at + width] for at in range(0, len(line), width)))


def in_labels(pattern: str) -> Decorate:
    return lambda text: re.sub(r'"([^"]*)"', pattern, text)


SAME: dict[str, Decorate] = {
    "docker compose": before("vllm-1  | "),
    "kubernetes": before("[pod/vllm-0/vllm] "),
    "log with time": before("2026-01-01T00:00:00.123456789Z "),
    "log line": before("INFO 01-01 12:00:00 [loggers.py:123] "),
    "journal": before("Jan 01 12:00:00 gpu01 vllm[1234]: "),
    "quoted mail": before("> "),
    "diff": before("+"),
    "bullets": before("- "),
    "indented": before("    "),
    "cat -n": lines(lambda number, line: f"{number:6d}\t{line}"),
    "grep -rn": lines(lambda number, line: f"metrics.txt:{number}:{line}"),
    "inline code": lines(lambda _, line: f"`{line}`" if line else line),
    "table": lines(lambda _, line: f"| {line} |"),
    "semicolons": behind(";"),
    "commas": behind(","),
    "terminal colours": lines(lambda _, line: f"\x1b[32m{line}\x1b[0m"),
    "grep's colours": lambda text: text.replace("vllm", "\x1b[01;31m\x1b[Kvllm\x1b[m\x1b[K"),
    "colours as caret text": lambda text: text.replace("vllm", "^[[35mvllm^[[0m"),
    "prompt": lambda text: f"root@gpu01:~# curl -s localhost:8000/metrics | grep vllm\n{text}\nroot@gpu01:~# ",
    "dollar": lambda text: f"$ curl http://localhost:8000/metrics\n{text}\n$ ",
    "http head": lambda text: f"HTTP/1.1 200 OK\r\nserver: uvicorn\r\n\r\n{text}",
    "fence": lambda text: f"Here:\n```prometheus\n{text}\n```\nthanks",
    "fence in a list": lambda text: f"1. see\n   ```\n{textwrap.indent(text, '   ')}\n   ```",
    "yaml": lambda text: f"metrics: |\n{textwrap.indent(text, '  ')}",
    "pre": lambda text: f"<html><body><pre>{html.escape(text)}</pre></body></html>",
    "escaped twice": lambda text: html.escape(html.escape(text)),
    "spans": lines(lambda _, line: f'<span class="l">{html.escape(line)}</span>'),
    "br": lambda text: text.replace("\n", "<br/>"),
    "JSON string": json.dumps,
    "JSON answer": lambda text: json.dumps({"status": 200, "body": text}, indent=2),
    "JSON lines": lines(lambda _, line: json.dumps({"log": line + "\n", "stream": "stdout"})),
    "JSON list": lambda text: json.dumps(text.splitlines()),
    "Python string": repr,
    "Python bytes": lambda text: repr(text.encode()),
    "Python list": lambda text: repr(text.splitlines(keepends=True)),
    "Python list of stripped lines": lambda text: repr(text.splitlines()),
    "CSV": lines(lambda _, line: '"' + line.replace('"', '""') + '"'),
    "typographic quotes": in_labels(r"“\1”"),
    "guillemets": in_labels(r"«\1»"),
    "single quotes": in_labels(r"'\1'"),
    "escaped quotes": lambda text: text.replace('"', '\\"'),
    "Markdown escapes": lambda text: text.replace("_", "\\_"),
    "bold names": lambda text: re.sub(r"(vllm:[a-z_]+)", r"**\1**", text),
    "zero-width signs": lambda text: text.replace("_", "_\u200b"),
    "CR": lambda text: text.replace("\n", "\r"),
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "line separators": lambda text: text.replace("\n", "\u2028"),
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-16 without mark": lambda text: text.encode("utf-16-le"),
    "UTF-16 big-endian without mark": lambda text: text.encode("utf-16-be"),
    "UTF-32": lambda text: text.encode("utf-32"),
    "gzip": lambda text: gzip.compress(text.encode()),
    "blank lines between": lambda text: text.replace("\n", "\n\n"),
    "one line": lambda text: text.replace("\n", " "),
    "pasted twice": lambda text: f"{text}\n{text}",
    "sorted": lambda text: "\n".join(sorted(text.split("\n"))),
    "spaces after commas": lambda text: re.sub(r',(?=[a-z_]+=")', ", ", text),
    "equals": lambda text: text.replace("} ", "} = "),
    "PromQL": lambda text: text.replace("} ", "} => "),
    "Ray": lambda text: text.replace("vllm:", "ray_vllm:"),
    "no _total": lambda text: re.sub(r"_total(?=[{ ])", "", text),
    "values on their own lines": lambda text: text.replace("} ", "}\n"),
    "wrapped at 120": wrapped(120),
    "wrapped at 72 behind a log's prefix": lambda text: str(wrapped(72)(str(before("vllm-1 | ")(text)))),
}  # fmt: skip
# What is not whole: numbers may be absent, never others.
PARTS: dict[str, Decorate] = {
    "cut at 100 columns": lines(lambda _, line: line[:100]),
    "cut at 100 columns with dots": lines(lambda _, line: line[:100] + "…" if len(line) > 100 else line),
    "cut at 100 columns with less's sign": lines(lambda _, line: line[:99] + ">" if len(line) > 100 else line),
    "cut gzip": lambda text: gzip.compress(text.encode())[:-20],
    "wrapped at 80": wrapped(80),
    "wrapped at words": lambda text: "\n".join(
        part for line in text.split("\n") for part in textwrap.wrap(line, 80, break_long_words=False)
    ),
    "percent-encoded": lambda text: text.replace('"', "%22"),
    "last digits lost": lambda text: text.rstrip("\n")[:-2],
}  # fmt: skip


def readings(content: str | bytes) -> dict[tuple[object, object], dict[str, object]]:
    content = content if isinstance(content, bytes) else content.encode()
    records = [engine_to_json(engine) for engine in read_text(content, "pasted", 0).engines]
    return {(record["model_name"], record["engine"]): record for record in records}


def test_the_texts_are_there() -> None:
    if not texts() and os.environ.get("CI") != "true":
        pytest.skip("the checkout has no shared folder beside it")

    assert texts()


@pytest.mark.parametrize("path", texts(), ids=lambda path: path.stem)
@pytest.mark.parametrize("name", SAME)
def test_a_decoration_changes_no_reading(name: str, path: Path) -> None:
    text = path.read_text(encoding="utf-8").rstrip("\n") + "\n"

    assert readings(SAME[name](text)) == readings(text)


@pytest.mark.parametrize("path", texts(), ids=lambda path: path.stem)
@pytest.mark.parametrize("name", PARTS)
def test_a_part_gives_the_right_number_or_none(name: str, path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    whole = readings(text)

    for key, record in readings(PARTS[name](text)).items():
        known = whole.get(key, {})
        wrong = {field: value for field, value in record.items() if value is not None and known.get(field) != value}
        assert wrong == {} or key == (None, None)
