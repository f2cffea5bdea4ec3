"""Every family that vLLM exports is read into a field, or stands in the docs as kept, with what it is for or why it is not drawn."""

from __future__ import annotations

import json
import os
import re
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path

import pytest

from live.metric_names import CACHE_CONFIG_INFO, NUMBER_RULES, canonical
from live.metrics import read_metrics

ROOT = Path(__file__).parents[2]
RULES = ROOT.parent / "shared" / "design" / "vllm-memory-model.md"
FAMILIES = ROOT / "tests" / "golden" / "emitted_families.json"
DOCS = ROOT / "docs" / "live-sources.md"
LABELS = 'engine="0",model_name="M"'


def in_braces(token: str) -> list[str]:
    """`a_{b,c}` as a_b and a_c."""
    parts = [part.split(",") if place % 2 else [part] for place, part in enumerate(re.split(r"[{}]", token))]
    return ["".join(each.strip() for each in chosen) for chosen in product(*parts)]


def alternatives(token: str) -> list[str]:
    """`a_queries/hits` as a_queries and a_hits; `a_bytes/_time` as a_bytes and a_time."""
    first, *others = token.split("/")
    stem = first.rpartition("_")[0]
    return [first, *(f"{stem}_{other.removeprefix('_')}" for other in others)]


def names_of_the_rules() -> list[str]:
    """The families of the table in section 6.1, wildcards as they stand there."""
    text = RULES.read_text(encoding="utf-8") if RULES.exists() else ""
    section = text[text.find("### 6.1") : text.find("### 6.2")]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    tokens = [
        token.replace("…", "vllm:kv_offload") for row in rows for token in re.findall(r"`((?:vllm:|…)[^`]+)`", row)
    ]
    names = [name for token in tokens for part in in_braces(token) for name in alternatives(part)]
    return [name.replace("kv_offload_total_size", "kv_offload_size") for name in names]  # as its source names it


def documented() -> list[tuple[str, str, str]]:
    """Pattern, use, and reason of each family in the docs' table."""
    section = DOCS.read_text(encoding="utf-8").split("## Which families are read")[1].split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| `")
    ]
    return [(pattern, use, why) for names, use, why in rows for pattern in re.findall(r"`([^`]+)`", names)]


NUMBERS = {name for rule in NUMBER_RULES.values() for name in rule.names}


def is_covered(name: str) -> bool:
    known = canonical(name)
    return (
        known in NUMBERS
        or known == CACHE_CONFIG_INFO
        or any(fnmatchcase(known, canonical(one[0])) for one in documented())
    )


def test_the_rules_are_there():
    if not names_of_the_rules() and os.environ.get("CI") != "true":
        pytest.skip("the checkout has no shared folder beside it")

    assert len(names_of_the_rules()) > 50


@pytest.mark.parametrize("name", names_of_the_rules())
def test_a_family_of_the_rules_is_read_or_its_reason_is_documented(name):
    assert is_covered(name)


@pytest.mark.parametrize(
    "name",
    [
        name
        for families in json.loads(FAMILIES.read_text()).values()
        for name in families
        if name.startswith(
            ("vllm:kv_offload_", "vllm:kv_block_", "vllm:num_", "vllm:prompt_", "vllm:gpu_", "vllm:cpu_")
        )
    ],
)
def test_a_family_about_memory_of_any_release_is_read_or_documented(name):
    assert is_covered(name)


@pytest.mark.parametrize("pattern", [pattern for pattern, _, _ in documented()])
def test_a_documented_family_is_kept_in_the_sample(pattern):
    name = pattern.replace("*", "x")

    (gauge,) = read_metrics(f'{name}{{{LABELS},tier="0"}} 3.0\n', 0).engines
    (histogram,) = read_metrics(f"{name}_sum{{{LABELS}}} 3.0\n", 0).engines

    kept = [one.value for one in gauge.labelled] + [one.sum for one in histogram.histograms]
    assert kept == [3, 3]


@pytest.mark.parametrize(("pattern", "use", "why"), documented())
def test_a_documented_family_has_a_use_or_a_reason(pattern, use, why):
    assert use or why, pattern
