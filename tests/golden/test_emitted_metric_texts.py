"""Texts as vLLM of each release writes them, in the states and shapes that people have, read as a careful person would."""

from __future__ import annotations

import gzip
import html
import json
import re
from collections.abc import Callable

import pytest
import scrapes
from scrapes import scrape

from live.engine_snapshot import read_text
from live.snapshot_json import engine_to_json

# Both names of a transfer are made with different values here, as no server has them: one of the two at a time.
NEW_OFFLOAD = ("vllm:kv_offload_load_bytes", "vllm:kv_offload_store_bytes")
OLD_OFFLOAD = ("vllm:kv_offload_total",)
OLD_PREFIX = ("vllm:gpu_prefix_cache", "vllm:gpu_cache_usage")
SHAPES = {
    "all": (),
    "no offload": ("vllm:kv_offload", "vllm:simple", "vllm:hisparse", "vllm:nixl", "vllm:mooncake"),
    "old offload": NEW_OFFLOAD,
}
RELEASES = sorted(scrapes.families())
V1_RELEASES = [release for release in RELEASES if release.endswith("v1")]


def readings(text: str | bytes) -> dict[tuple[object, object], dict[str, object]]:
    content = text if isinstance(text, bytes) else text.encode()
    records = [engine_to_json(engine) for engine in read_text(content, "saved", 0).engines]
    return {(record["model_name"], record["engine"]): record for record in records}


def without_of(release: str, shape: str) -> tuple[str, ...]:
    hidden = OLD_PREFIX if release == "0.11.0 v1" else ()
    return SHAPES[shape] + (OLD_OFFLOAD if shape == "all" and release >= "0.27" else ()) + hidden


def read_keys(text: str | bytes, expected: dict[tuple[str, str | None], dict[str, float | int | None]]) -> object:
    found = readings(text)
    assert set(found) == set(expected)
    return {whose: {key: found[whose][key] for key in record} for whose, record in expected.items()}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_release_is_read_as_its_source_says(release, shape):
    made = scrape(release, without=without_of(release, shape))

    assert read_keys(made.text, made.expected) == made.expected


@pytest.mark.parametrize("release", V1_RELEASES)
def test_data_parallel_engines_are_read_one_by_one(release):
    made = scrape(release, 3, without=without_of(release, "all"))

    assert read_keys(made.text, made.expected) == made.expected


@pytest.mark.parametrize("release", V1_RELEASES)
@pytest.mark.parametrize(
    "model", ['a/b{1},c="d"', "back\\slash", 'quo"te', "new\nline", "模型 7B", "# HELP vllm:x", "a}b"]
)
def test_any_model_name_is_read(release, model):
    made = scrape(release, model=model, without=without_of(release, "all"))

    assert read_keys(made.text, made.expected) == made.expected


# -- the shapes in which texts reach us -----------------------------------------------------------------------------------

SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(\{.*\})? (\S+)$")


def each_sample(change: Callable[[str, str, str], str]) -> Callable[[str], str]:
    def changed(line: str) -> str:
        found = SAMPLE.match(line)
        return line if found is None else change(found[1], found[2] or "", found[3])

    return lambda text: "\n".join(changed(line) for line in text.split("\n"))


def with_labels(name: str, labels: str, value: str) -> str:
    inside = labels[1:-1]
    return f'{name}{{{inside}{"," * bool(inside)}instance="10.0.0.3:8000",job="vllm"}} {value}'


def other_order(name: str, labels: str, value: str) -> str:
    inside = ",".join(reversed(re.findall(r'[a-z_]+="[^"]*"', labels)))
    return f"{name}{{{inside}}} {value}" if labels else f"{name} {value}"


def rows(text: str) -> list[dict[str, object]]:
    found = [match for line in text.split("\n") if (match := SAMPLE.match(line))]
    return [
        {
            "metric": {"__name__": match[1], **dict(re.findall(r'([a-z_]+)="([^"]*)"', match[2] or ""))},
            "value": match[3],
        }
        for match in found
    ]


def instant(text: str) -> str:
    result = [{"metric": row["metric"], "value": [1753795326.5, row["value"]]} for row in rows(text)]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}})


def ranged(text: str) -> str:
    result = [
        {"metric": row["metric"], "values": [[1753795311.5, "0.5"], [1753795326.5, row["value"]]]} for row in rows(text)
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}, indent=1)


def exported(text: str) -> str:
    lines = [
        {"metric": row["metric"], "values": [float(str(row["value"]))], "timestamps": [1753795326500]}
        for row in rows(text)
    ]
    return "\n".join(json.dumps(line) for line in lines)


def prom2json(text: str) -> str:
    families: dict[str, list[dict[str, object]]] = {}
    for row in rows(text):
        labels = dict(row["metric"])
        families.setdefault(labels.pop("__name__"), []).append({"labels": labels, "value": row["value"]})
    return json.dumps([{"name": name, "type": "GAUGE", "metrics": found} for name, found in families.items()])


def without_comments(text: str) -> str:
    return "".join(f"{line}\n" for line in text.splitlines() if not line.startswith("#"))


def wrapped(width: int) -> Callable[[str], str]:
    return lambda text: "\n".join(
        line[at : at + width] for line in text.split("\n") for at in range(0, len(line) or 1, width)
    )


SHAPED: dict[str, Callable[[str], str | bytes]] = {
    "times": each_sample(lambda name, labels, value: f"{name}{labels} {value} 1753795326500"),
    "exemplars": each_sample('{}{} {} # {{trace_id="4bf92f"}} 1.0 1753795326.5'.format),
    "end mark": lambda text: f"{text}# EOF\n",
    "end mark without line end": lambda text: f"{text}# EOF",
    "tabs": each_sample(lambda name, labels, value: f"{name}{labels}\t{value}"),
    "spaces": each_sample(lambda name, labels, value: f"  {name}{labels}   {value}  "),
    "space before braces": each_sample(lambda name, labels, value: f"{name} {labels} {value}"),
    "labels in other order": each_sample(other_order),
    "comma behind the last label": each_sample(lambda name, labels, value: f"{name}{labels[:-1]}{',}' * bool(labels)} {value}"),
    "scraper's labels": each_sample(with_labels),
    "federation": each_sample(lambda *parts: f"{with_labels(*parts)} 1753795326500"),
    "no HELP": lambda text: re.sub(r"# HELP .*\n", "", text) if "blocks" not in text else text,
    "no comments": lambda text: without_comments(text) if "blocks" not in text else text,
    "relabelled": lambda text: text.replace("vllm:", "vllm_"),
    "Ray's old way": lambda text: text.replace("vllm:", "ray_vllm:"),
    "Ray's way": lambda text: text.replace("vllm:", "ray_vllm_"),
    "docker, relabelled": lambda text: "".join(f"vllm_1  | {line}\n" for line in text.replace("vllm:", "vllm_").splitlines()),
    "docker": lambda text: "".join(f"vllm_server_1  | {line}\n" for line in text.splitlines()),
    "kubectl": lambda text: "".join(f"[pod/vllm-6c/vllm] {line}\n" for line in text.splitlines()),
    "curl -i": lambda text: f"HTTP/1.1 200 OK\r\ndate: Wed\r\ncontent-length: 12345\r\n\r\n{text}",
    "curl -v": lambda text: f"* Connected to localhost\n> GET /metrics HTTP/1.1\n>\n< HTTP/1.1 200 OK\n<\n{text}* left intact\n",
    "access log between": lambda text: text.replace("# TYPE", 'INFO:     127.0.0.1:4 - "GET /metrics HTTP/1.1" 200 OK\n# TYPE'),
    "HTML": lambda text: f"<pre>{html.escape(text)}</pre>",
    "fence": lambda text: f"metrics:\n```text\n{text}```\n",
    "colours": lambda text: re.sub(r"(?m)^(\S+)", "\x1b[1;32m\\1\x1b[0m", text),
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "mark": lambda text: f"\ufeff{text}",
    "UTF-16": lambda text: text.encode("utf-16"),
    "gzip": lambda text: gzip.compress(text.encode()),
    "wrapped at 80": wrapped(80),
    "wrapped at 120": wrapped(120),
    "twice": lambda text: text + text,
    "twice, joined": lambda text: text.rstrip("\n") + "\n\n" + text,
    "instant query": instant,
    "range query": ranged,
    "VictoriaMetrics": exported,
    "prom2json": prom2json,
    "capital exponent": lambda text: text.replace("e+", "E+"),
    "no exponents": each_sample(lambda name, labels, value: f"{name}{labels} {float(value)!r}"),
    "whole numbers": each_sample(lambda name, labels, value: f"{name}{labels} {float(value):.17g}"),
    "plus signs": each_sample(lambda name, labels, value: f"{name}{labels} +{value}"),
}  # fmt: skip
MAY_LACK = {"wrapped at 80", "wrapped at 120"}


@pytest.mark.parametrize("release", ["0.6.6 v0", "0.8.5 v1", "0.11.0 v1", "0.19.0 v1", "0.33.0 v1"])
@pytest.mark.parametrize("shape", SHAPED)
def test_a_shape_changes_no_reading(release, shape):
    made = scrape(release, 1 if release == "0.6.6 v0" else 2, without=without_of(release, "all"))

    found = readings(SHAPED[shape](made.text))

    assert set(found) == set(made.expected)
    for whose, record in made.expected.items():
        right = {key: value for key, value in record.items() if shape not in MAY_LACK or found[whose][key] is not None}
        assert {key: found[whose][key] for key in right} == right
