"""The reader of pasted YAML, held to PyYAML where both read the same language."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from planner.yaml_subset import looks_like_yaml, read_yaml

TEXTS = [
    "model: org/m\nmax-model-len: 8192\nenforce-eager: true\n",
    "a: 1.5\nb: ~\nc: null\nd: 'it''s'\ne: \"x: y\"\n",
    "# a note\n---\nargs:\n- --model\n- org/m\n- --max-num-seqs\n- '4'\n",
    "spec:\n  containers:\n    - name: vllm\n      args: [--model, org/m, \"--dtype\", 'half']\n    - name: other\n",
    'config: {"a": [1, 2],\n  "b": {}}\nnext: 3  # said after\n',
    "-\n  a: 1\n-\n  - 2\n",
    "outer:\n  inner:\n",
    "long:\n  one two\n  three\n",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_means_what_it_means_in_yaml(text: str) -> None:
    assert read_yaml(text) == yaml.safe_load(text)


@pytest.mark.parametrize(("text", "value"), [("", None), ("# only a note", None), ("a: [1, b", ["1", "b"])])
def test_what_is_no_whole_yaml_still_gives_a_value(text: str, value: object) -> None:
    read = read_yaml(text)

    assert read == ({"a": value} if text.startswith("a") else value)


def test_nesting_beyond_any_file_ends() -> None:
    deep = "\n".join(" " * level + "a:" for level in range(200))

    assert read_yaml(deep) is not None


@given(text=st.text(alphabet="ab:-#[]{}'\" \n1.", max_size=60))
def test_any_text_gives_a_value(text: str) -> None:
    assert isinstance(read_yaml(text), str | int | float | list | dict | None)


@pytest.mark.parametrize(
    ("text", "is_yaml"), [("model: m", True), ("- a: 1", True), ("vllm serve m", False), ("", False)]
)
def test_a_pasted_text_is_told_from_a_command(text: str, is_yaml: bool) -> None:
    assert looks_like_yaml(text) is is_yaml
