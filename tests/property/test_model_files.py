"""Headers and configs changed at random are read or refused by name; nothing else comes out."""

from __future__ import annotations

import io
import json
import struct
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from live.gguf_files import gguf_upload_documents
from live.hub_errors import HubError
from live.safetensors_headers import remote_header
from planner.checkpoint_headers import read_header
from planner.facts import PlanError
from planner.model_folder import config_documents, folder_documents

VALID = {"a.weight": {"dtype": "BF16", "shape": [4, 8], "data_offsets": [0, 64]}, "__metadata__": {"format": "pt"}}
HEADER = json.dumps(VALID).encode()
FILE = struct.pack("<Q", len(HEADER)) + HEADER + bytes(64)


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


GGUF = (
    b"GGUF"
    + struct.pack("<IQQ", 3, 1, 3)
    + (_text("general.architecture") + struct.pack("<I", 8) + _text("llama"))
    + (_text("llama.block_count") + struct.pack("<II", 4, 1))
    + (_text("llama.attention.head_count_kv") + struct.pack("<IIQII", 9, 4, 2, 8, 8))
    + (_text("token_embd.weight") + struct.pack("<IQQIQ", 2, 64, 32, 8, 0))
)
edits = st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=4)), max_size=4)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)

wrappings = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("model_id", "config", "gguf", "weights", "hf_quant_config", "model_ids"), json_values)
)


def _changed(content: bytes, changes: list[tuple[int, bytes]], length: int) -> bytes:
    edited = bytearray(content)
    for at, piece in changes:
        edited[at : at + len(piece)] = piece
    return bytes(edited[:length])


def _outcome(read):
    """What `read` gives, or the named error it raises; any other exception fails the test."""
    try:
        return read()
    except (PlanError, HubError) as error:
        return error


def _is_named(outcome: object) -> bool:
    return isinstance(outcome, PlanError | HubError) and "\n" not in outcome.text


def _read_local(content: bytes):
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "model.safetensors"
        path.write_bytes(content)
        return _outcome(lambda: read_header(path, "model_dir"))


def _read_remote(content: bytes):
    return _outcome(lambda: remote_header("model.safetensors", lambda _name, first, last: content[first:last]))


@given(changes=edits, length=st.integers(0, 500))
def test_changed_safetensors_header_is_read_or_refused(changes, length):
    outcome = _read_local(_changed(FILE, changes, length))

    assert outcome is None or _is_named(outcome) or all(tensor.num_bytes >= 0 for tensor in outcome)


@given(changes=edits, length=st.integers(0, 500))
def test_changed_remote_header_is_read_or_refused(changes, length):
    outcome = _read_remote(_changed(FILE, changes, length))

    assert _is_named(outcome) or all(tensor.num_bytes >= 0 for tensor in outcome)


@given(entry=json_values)
def test_header_of_any_json_is_read_or_refused(entry):
    text = json.dumps({"a": entry}).encode()

    outcome = _read_remote(struct.pack("<Q", len(text)) + text)

    assert _is_named(outcome) or len(outcome) == 1


def test_unchanged_headers_are_read():
    (tensor,) = _read_remote(FILE)

    assert tensor.num_bytes == 64
    assert _read_local(FILE) == (tensor,)
    assert _is_named(_read_remote(FILE[:20]))
    assert gguf_upload_documents(io.BytesIO(GGUF), "x.gguf").checkpoint_total_bytes == 64 * 32 // 32 * 34


@given(changes=edits, length=st.integers(0, 500))
def test_changed_gguf_header_is_read_or_refused(changes, length):
    content = io.BytesIO(_changed(GGUF, changes, length))

    outcome = _outcome(lambda: gguf_upload_documents(content, "x.gguf"))

    assert _is_named(outcome) or outcome.checkpoint_total_bytes >= 0


@given(content=st.binary(max_size=200) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_config_file_is_read_or_refused(content):
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "config.json"
        path.write_bytes(content)
        by_path, by_folder = _outcome(lambda: config_documents(path)), _outcome(lambda: folder_documents(name))

    assert (_is_named(by_path) and _is_named(by_folder)) or by_path.config_json == by_folder.config_json


@given(wrapped=wrappings)
def test_any_wrapped_config_is_read_or_refused(wrapped):
    outcome = _outcome(lambda: config_documents(json.dumps(wrapped)))

    assert _is_named(outcome) or isinstance(outcome.model_id, str)
