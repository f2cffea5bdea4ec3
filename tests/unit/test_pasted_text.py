"""What lies around a pasted metrics text is undone, at a cost that no hostile text can raise."""

from __future__ import annotations

import time

import pytest

from live.metrics import read_metrics
from live.pasted_text import plain_line, plain_text
from live.text_bytes import LARGEST_TEXT_BYTES, decode_text

SAMPLE = 'vllm:num_requests_running{engine="0",model_name="M"} 3.0'


def test_an_exported_text_stays_as_it_is() -> None:
    text = f"# HELP vllm:x A & B, 'quoted'.\n# TYPE vllm:x gauge\n{SAMPLE}\n"

    assert plain_text(text) == text


def test_adjacent_literals_of_a_source_file_are_one_line() -> None:
    source = '\t"vllm:num_requests_running{engine=\\"0\\"," +\n\t\t"model_name=\\"M\\"} 3.0\\n"\n'

    assert read_metrics(source, 0).engines[0].num_requests_running == 3


def test_adjacent_python_literals_are_one_line() -> None:
    source = "    'vllm:num_requests_running{engine=\"0\",'\n    'model_name=\"M\"} 3.0\\n'\n    'vllm:x 1.0\\n'\n"

    assert read_metrics(source, 0).engines[0].num_requests_running == 3


@pytest.mark.parametrize("value", ["3.0...", "3.0…", "3.0>", "3.0.", "3.0e", "3,000.0", "3.0%", "0x3", "3.0.0"])
def test_a_value_that_may_be_cut_or_is_none_is_not_taken(value: str) -> None:
    engines = read_metrics(SAMPLE.replace("3.0", value) + "\n" + SAMPLE.replace("running", "waiting") + "\n", 0).engines

    assert engines[0].num_requests_running is None
    assert engines[0].num_requests_waiting == 3


def test_an_escaped_line_end_in_a_label_stays_one() -> None:
    line = 'vllm:num_requests_running{model_name="a\\nb"} 3.0\n'

    assert read_metrics(line, 0).engines[0].identity.model_name == "a\nb"


def test_a_literal_entity_in_a_label_stays_as_it_is() -> None:
    line = 'vllm:num_requests_running{model_name="R&amp;D"} 3.0\n'

    assert read_metrics(line, 0).engines[0].identity.model_name == "R&amp;D"


def test_an_empty_label_is_no_doubled_quote() -> None:
    assert plain_line('vllm:x{engine="",model_name="M"} 1.0') == 'vllm:x{engine="",model_name="M"} 1.0'


@pytest.mark.parametrize(
    "piece",
    [
        "^[]",
        "\x1b]",
        '" ',
        "\\n ",
        "<a",
        "\x0b",
        "{",
        "[",
        '"',
        "\\x1b[",
        "vllm:x{",
        "# ",
        "'\t+",
        "=3D",
        "&amp;",
        "**",
        "](",
        "\r",
    ],
)
def test_a_hostile_text_costs_little(piece: str) -> None:
    text = f"{SAMPLE}\n# HELP vllm:y {piece * (1_000_000 // len(piece))}\nvllm:z{piece * 100_000}"
    begin = time.process_time()

    read_metrics(text, 0)
    read_metrics(piece * (1_000_000 // len(piece)), 0)

    assert time.process_time() - begin < 10


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be", "utf-16", "utf-32", "utf-32-le", "utf-32-be"])
def test_a_text_is_read_in_its_encoding_with_and_without_mark(encoding: str) -> None:
    assert decode_text(f"{SAMPLE}\n".encode(encoding)) == f"{SAMPLE}\n"


@pytest.mark.parametrize(
    "content", [b"", b"\0", b"\0\0\0\0", b"\xff\xfe", b"\xff\xfe\0\0", b"\x1f\x8b", bytes(range(256)) * 20]
)
def test_any_bytes_are_a_text(content: bytes) -> None:
    assert isinstance(decode_text(content), str)
    assert len(decode_text(content)) <= LARGEST_TEXT_BYTES
