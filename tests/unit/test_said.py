"""Finished sentences of the planner in Chinese: by template, with their values, and none that it says left in English."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from emitted_texts import planner_texts, simulator_texts

from pages.parts import language
from pages.parts import said as said_module
from pages.parts.said import said, sentence
from pages.parts.sentence_templates import templates

# English words that stand in a row although the sentence is translated: names of code, logs, lists of values.
_LEFT_OVER = re.compile(r"(?<![\w`/.=-])[a-z]{3,}[,;]? (?:[a-z]{2,}[,;]? )?[a-z]{3,}(?![\w=])")
_QUOTED = re.compile(
    r"`[^`]*`|“[^”]*”|'[^']*'|got an unexpected keyword argument|python -m live fetch|quantization \S+"
)
_LISTED = re.compile(r"(?:[\w'-]+, )+[\w'-]+")  # formats, methods, kinds: names with commas between them


@pytest.fixture(autouse=True)
def chinese() -> Iterator[None]:
    language.ask(lambda: "zh")
    yield
    language.ask(lambda: "en")


def test_a_sentence_gets_its_values():
    text = "One request of 40,960 tokens needs 5.62 GiB of KV cache, more than the pool holds; 1,024 tokens would fit."

    assert said(text) == "一个 40,960 token 的请求需要 5.62 GiB 的 KV 缓存，超过缓存池的容量；1,024 token 可以放下。"


def test_a_value_that_is_itself_a_sentence_is_translated():
    assert said("2048 for a card of 70 GiB or more, doubled by performance_mode throughput") == (
        "70 GiB 或以上的卡时为 2048，performance_mode throughput 使其加倍"
    )


def test_sentences_one_after_the_other_are_each_translated():
    assert said("Reads it once. Nothing is left for the KV cache after weights, activation peak and graphs.") == (
        "Reads it once. 扣除权重、激活峰值和图之后，没有给 KV 缓存留下空间。"
    )


def test_a_number_and_its_noun_are_one_value():
    assert said("r1 preempted: 5 blocks freed, 1 block still cached") == "r1 被抢占：释放 5 个块，1 个块 仍在缓存中"


@pytest.mark.parametrize("text", ["", "Qwen/Qwen3-8B", "torch.OutOfMemoryError: CUDA out of memory.", "H100 TP 2"])
def test_what_nobody_of_us_says_stays(text):
    assert said(text) == text


def test_braces_in_a_value_are_no_holes():
    assert "{0}{x!r}" in said("{0}{x!r} is not in the offline catalogue; {y}.")


def test_english_readers_get_the_sentence_as_it_is():
    language.ask(lambda: "en")
    text = "Nothing is left for the KV cache after weights, activation peak and graphs."

    assert said(text) is text


def test_a_sentence_is_found_fast():
    texts = list(dict.fromkeys(planner_texts(0)))
    said(texts[0])
    said_module._said.cache_clear()
    before = time.process_time()
    for text in texts:
        said(text)

    assert (time.process_time() - before) / len(texts) < 0.001


def test_nothing_the_planner_says_stays_english():
    texts = dict.fromkeys(planner_texts(300))
    left = [(text, said(text)) for text in texts if _left_over(said(text))]

    assert left == []


def test_nothing_the_simulator_says_stays_english():
    assert [(text, said(text)) for text in dict.fromkeys(simulator_texts()) if _left_over(said(text))] == []


def _left_over(text: str) -> bool:
    return _LEFT_OVER.search(_LISTED.sub("", _QUOTED.sub("", text))) is not None


# -- the templates ------------------------------------------------------------------------------------------------------


def found(source: str) -> list[str]:
    return [template for _, template in templates(source)]


def test_a_template_names_its_holes():
    assert found('x = f"The pool has {pool.num_blocks:,} blocks of {count(size)} tokens."') == [
        "The pool has {num_blocks} blocks of {size} tokens."
    ]


def test_equal_holes_are_numbered():
    assert found('x = f"from {a.size} to {b.size} GiB"') == ["from {size} to {size_2} GiB"]


def test_choices_between_constants_make_a_template_each():
    assert found("""x = f"{n} line{'s' * (n > 1)} of it {'is' if n else 'are'} left out" """) == [
        "{n} line of it is left out",
        "{n} line of it are left out",
        "{n} lines of it is left out",
        "{n} lines of it are left out",
    ]


def test_sums_are_one_template():
    assert found('x = "The first part, " + f"and {rest} after it."') == ["The first part, and {rest} after it."]


def test_texts_in_holes_are_templates_too():
    assert found("""x = f"it is {f'a card of {size} GiB' if big else name}." """) == [
        "it is {value}.",
        "a card of {size} GiB",
    ]


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring of many words."""',
        'parser.add_argument("--x", help="what it is for")',
        'log.info("reading %s failed", name)',
        'connection.execute("SELECT name FROM series ORDER BY name")',
        'x = re.compile(r"took (?P<gib>[0-9]+) of it")',
        'x = "name"',
        'if text.startswith("Free memory on device"): pass',
    ],
)
def test_what_no_page_shows_is_no_template(source):
    assert found(source) == []


def test_a_part_sentence_is_translated_before_it_becomes_a_sentence_of_its_own():
    text = "up to 16 users throughput rises and the pool holds them all; sweep further to find the knee."

    assert sentence(text) == said(text)
    assert not _LEFT_OVER.search(sentence(text))
    language.ask(lambda: "en")
    assert sentence(text) == f"U{text[1:]}"
