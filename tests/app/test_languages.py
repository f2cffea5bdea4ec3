"""Every page in Chinese: it draws without an exception, and none of our English is left on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from live import monitor
from pages.parts import language, language_state

ROOT = Path(__file__).parents[2]
PAGES = ("plan.py", "simulate.py", "weigh.py", "watch.py", "calibrate.py", "compare.py", "verify.py", "learn.py")

# Two words of English prose in a row; a lone word may be a name, a unit or a flag's value.
_ENGLISH = re.compile(r"(?<![\w./=@-])[A-Za-z][a-z]{2,}[,;:]? [a-z]{3,}(?![\w=(])")
# Not ours to translate, with why.
_KEPT = re.compile(
    r"`[^`]*`"  # code
    r"|“[^”]*”"  # a line of vLLM's log as it is printed
    r"|vllm serve[^\n]*|head -c[^\n]*|make engine"  # commands
    r"|https?://\S+"
    r"|Hugging Face|(?:Model loading took|Available KV cache memory)[^\n]*|llama awq"  # a name, a line of vLLM's, an example of a filter
    r"|(?:\w+, ){4,}\w+"  # the values that a field takes
    r"|aiconfigurator[^\n]*|PyPI[^\n]*"  # where a config comes from
)
_FIELDS = ("label", "help", "placeholder", "body", "text", "alt", "title")


@pytest.fixture(autouse=True)
def own_recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monitor.stop_process_monitor()
    monkeypatch.setenv(monitor.FOLDER_SETTING, str(tmp_path))
    monkeypatch.setenv("KVSCOPE_CALIBRATIONS", str(tmp_path / "calibrations.json"))
    yield
    monitor.stop_process_monitor()
    language.ask(lambda: "en")


@pytest.fixture(autouse=True)
def words_outside_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test driver asks widgets for their words after the run, where no reader is known."""
    monkeypatch.setattr(language_state, "_OUTSIDE", "zh")


def open_in(page: str, **query: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "pages" / "_frame.py"), default_timeout=120)
    for name, text in query.items():
        app.query_params[name] = text
    app.run()
    return app if page == "plan.py" else app.switch_page(page).run()


def words_of(app: AppTest) -> Iterator[str]:
    """Every text that the page shows or says to those who do not see it."""
    waiting: list[Any] = [app._tree]
    while waiting:
        node = waiting.pop()
        waiting.extend(getattr(node, "children", {}).values())
        proto = getattr(node, "proto", None)
        for field in _FIELDS:
            text = getattr(proto, field, "")
            if isinstance(text, str) and not text.startswith("<style>"):
                yield text
        for text in getattr(proto, "options", ()):
            yield str(getattr(text, "content", text))


def english_left(app: AppTest) -> list[str]:
    return [text for text in words_of(app) if _ENGLISH.search(_KEPT.sub("", text.replace("\\", "")))]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_drawn_in_chinese_without_english_left(page):
    app = open_in(page, lang="zh")

    assert not app.exception
    assert any(re.search("[\u4e00-\u9fff]", text) for text in words_of(app))
    assert english_left(app) == []


@pytest.mark.parametrize(
    "query",
    [
        {"model": "meta-llama/Llama-3.1-70B-Instruct", "gpu": "RTX 4090"},
        {"model": "Qwen/Qwen3-8B", "gpu": "H100 80GB SXM", "tensor_parallel_size": "3"},
        {"model": "google/gemma-3-27b-it", "gpu": "Tesla T4", "max_model_len": "8k", "kv_cache_dtype": "nvfp4"},
        {"model": "deepseek-ai/DeepSeek-V3", "gpu": "H200", "tensor_parallel_size": "8", "pipeline_parallel_size": "2"},
        {"model": "nobody/nothing", "gpu": "H100 80GB SXM"},
        {"gpu": "a card", "model": "Qwen/Qwen3-8B"},
    ],
)
def test_plans_that_fail_are_explained_in_chinese(query):
    app = open_in("plan.py", lang="zh", **query)

    assert not app.exception
    assert english_left(app) == []


@pytest.mark.parametrize(
    "sim", ["workload.long_generations", "workload.drawn", "workload.table~block_size.16", "nonsense"]
)
def test_simulations_are_told_in_chinese(sim):
    app = open_in("simulate.py", lang="zh", sim=sim)

    assert not app.exception
    assert english_left(app) == []


def test_the_link_decides_before_the_browser():
    app = AppTest.from_file(str(ROOT / "pages" / "_frame.py"), default_timeout=60)
    app.context = {"locale": "zh-CN"}
    app.query_params["lang"] = "en"

    assert "vLLM will start" in app.run().header[0].value


def test_the_browser_decides_where_the_link_says_nothing():
    app = AppTest.from_file(str(ROOT / "pages" / "_frame.py"), default_timeout=60)
    app.context = {"locale": "zh-TW"}
    app.run()

    assert "vLLM 可以启动" in app.header[0].value
    assert "lang" not in app.query_params


@pytest.mark.parametrize(("named", "kept"), [("xx", None), ("zh_CN", "zh"), ("EN-gb", None)])
def test_a_language_that_we_do_not_have_leaves_the_link(named, kept):
    app = open_in("plan.py", lang=named)

    assert not app.exception
    assert app.query_params.get("lang") == kept
    assert not app.warning


def test_the_chooser_changes_language_and_link_and_keeps_the_form(monkeypatch):
    monkeypatch.setattr(language_state, "_OUTSIDE", "en")
    app = open_in("plan.py", model="Qwen/Qwen3-8B", gpu="L4", max_model_len="2048")
    app.button_group(key="language_choice").set_value("zh").run()

    assert "vLLM 可以启动" in app.header[0].value
    assert app.query_params["lang"] == "zh"
    assert app.text_input(key="plan_max_model_len").value == "2048"

    monkeypatch.setattr(language_state, "_OUTSIDE", "zh")
    app.switch_page("simulate.py").run()
    assert app.query_params["lang"] == "zh"
    app.button_group(key="language_choice").set_value("en").run()
    assert "ran full" in app.header[0].value
