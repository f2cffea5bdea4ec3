"""Invisible signs: taken out of words, and never out of a number, whose digits they would join."""

from __future__ import annotations

import time

import pytest

from live.engine_snapshot import read_text
from live.hidden_signs import number_with_hidden_sign, unescaped, without_hidden_signs, without_terminal_codes
from live.metrics import read_metrics

HEAD = 'vllm:num_requests_running{engine="0",model_name="m"}'
OTHER = 'vllm:num_requests_waiting{engine="0",model_name="m"} 3.0\n'
SIGNS = ["\0", "\u200b", "\u200d", "\xad", "\ufeff", "\u2060"]


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize(
    "number", ["1|95.5", "1|.5", "1.|5", "1|e5", "1e|5", "1e+|5", "1|e+5", "1.5|e-3", "2.|e3", "-|5", "1||9", "1|.|5"]
)
def test_a_sign_within_a_number_stays_and_the_number_is_not_read(sign: str, number: str) -> None:
    written = number.replace("|", sign)

    assert without_hidden_signs(f"x {written}\n") == f"x {written}\n"
    reading = read_metrics(f"{HEAD} {written}\n{OTHER}", 0)
    assert [(engine.num_requests_running, engine.num_requests_waiting) for engine in reading.engines] == [(None, 3.0)]
    assert [finding.code for finding in reading.findings] == ["metric-lines-unread", "number-with-hidden-sign"]
    assert repr(written.removeprefix("-")[:60]).strip("'\"") in reading.findings[1].text


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize(
    "text", ["vllm:|num_|requests", "| 64.0|", "Llama|-3", "e2|e_x", '"|16|"', "a|5", "5|a", "v|.x"]
)
def test_a_sign_elsewhere_goes(sign: str, text: str) -> None:
    assert without_hidden_signs(text.replace("|", sign)) == text.replace("|", "")
    assert number_with_hidden_sign(text.replace("|", sign)) is None


def test_a_label_that_holds_one_is_not_read() -> None:
    line = 'vllm:cache_config_info{block_size="1\x006",engine="0",kv_cache_max_concurrency="1\x0095.53125"} 1.0\n'

    config = read_metrics(line, 0).engines[0].cache_config

    assert config is not None
    assert (config.block_size, config.max_concurrency) == (None, None)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\x1b[01;31m\x1b[K6\x1b[m\x1b[K4.0", "64.0"),  # grep shows what it found
        ("6\x1b[3C4", "6\ufffd4"),
        ("6\x1b[2J4", "6\ufffd4"),
        ("\x1b[2Kvllm:x 6\x1b[0m", "vllm:x 6"),
        ("a\x1b[3Cb", "ab"),
    ],
)
def test_a_terminal_code_that_moves_joins_no_digits(text: str, plain: str) -> None:
    assert without_terminal_codes(text) == plain


def test_an_entity_that_stands_for_nothing_joins_no_digits() -> None:
    assert unescaped("1&#1;95 &quot;&#34;&lt;&#x22;&amp;") == '1\ufffd95 ""<"&'
    assert read_metrics(f"{HEAD} 1&#1;9\n{OTHER}", 0).engines[0].num_requests_running is None


def test_a_power_is_no_bold_text() -> None:
    assert read_metrics(f"{HEAD} 10**6\n{OTHER}", 0).engines[0].num_requests_running is None
    assert read_metrics(f"**{HEAD}** **7**\n{OTHER}", 0).engines[0].num_requests_running == 7.0


@pytest.mark.parametrize("piece", ["e\0", "1\0", "1.\0\0", "\0", "1e+\0", "é\u200b"])
def test_a_text_full_of_them_costs_little(piece: str) -> None:
    content = (piece * (1_900_000 // len(piece))).encode()

    began = time.process_time()
    read_text(content + b"\n" + OTHER.encode(), "pasted", 0)
    assert time.process_time() - began < 4.0
