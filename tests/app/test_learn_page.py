"""The Learn page: every lesson, its exercise answered right and wrong, the hint and the answer, progress, the teacher's view."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from streamlit.testing.v1 import AppTest

from pages.parts import language_state, learn_state, learn_view, report_learn
from pages.parts.learn_lesson import Lesson
from pages.parts.learn_state import SLUGS, Learner
from pages.parts.report_button import About, _report
from pages.parts.report_html import to_html
from pages.parts.report_sections import Section
from planner.model_catalog import catalogue_documents
from planner.planning import answer
from planner.request import EngineFlags, PlanRequest

ROOT = Path(__file__).parents[2]
OpenLesson = Callable[..., AppTest]


@pytest.fixture
def open_lesson() -> OpenLesson:
    """Opens a lesson by its link."""

    def open_page(slug: str, **query: str) -> AppTest:
        app = AppTest.from_file(str(ROOT / "pages" / "_frame.py"), default_timeout=60)
        app.query_params["lesson"] = slug
        for name, text in query.items():
            app.query_params[name] = text
        app.run()
        app.switch_page("learn.py")
        return app.run()

    return open_page


@pytest.fixture(scope="module")
def lessons() -> dict[str, Lesson]:
    """The lessons for the model that the Plan page shows first."""
    request = PlanRequest(model_id="Qwen/Qwen3-8B", gpu="H100 80GB SXM")
    documents = catalogue_documents(request.model_id)
    plan, facts = answer(request, documents)
    learner = Learner(model_id=request.model_id, documents=documents, request=request, facts=facts, plan=plan)
    return {slug: learn_view.make(slug, learner) for slug in SLUGS}


def give(app: AppTest, lesson: Lesson, given: float) -> AppTest:
    """The page after `given` was put into the answer and checked."""
    key = learn_state.key(f"given_{lesson.slug}")
    if lesson.exercise.choices:
        app.radio(key=key).set_value(int(given))
    else:
        app.text_input(key=key).set_value(f"{given:.6g}")
    return app.button(key=learn_state.key(f"check_{lesson.slug}")).click().run()


def wrong(lesson: Lesson) -> float:
    exercise = lesson.exercise
    return (exercise.answer + 1) % len(exercise.choices) if exercise.choices else exercise.answer * 3 + 7


@pytest.mark.parametrize("slug", SLUGS)
def test_right_answer_is_graded_right_and_explained(
    open_lesson: OpenLesson, lessons: dict[str, Lesson], slug: str
) -> None:
    app = give(open_lesson(slug), lessons[slug], lessons[slug].exercise.answer)

    assert not app.exception
    assert [said.value for said in app.success] == [f"Right. {lessons[slug].exercise.explanation}"]
    assert app.session_state[learn_state.key("attempts")][slug].is_solved


@pytest.mark.parametrize("slug", SLUGS)
def test_wrong_answer_leads_to_hint_and_then_to_the_answer(
    open_lesson: OpenLesson, lessons: dict[str, Lesson], slug: str
) -> None:
    lesson = lessons[slug]
    app = give(give(open_lesson(slug), lesson, wrong(lesson)), lesson, wrong(lesson))
    assert not app.success
    assert app.warning[0].value.startswith("Not yet.")

    app.button(key=learn_state.key(f"hint_{slug}")).click().run()
    assert lesson.exercise.hint in [said.value for said in app.info]

    app.button(key=learn_state.key(f"answer_{slug}")).click().run()
    assert any(lesson.exercise.explanation in said.value for said in app.info)
    assert not app.exception


def test_known_slip_is_told_by_name(open_lesson: OpenLesson, lessons: dict[str, Lesson]) -> None:
    slip = lessons["weights"].exercise.slips[0]

    app = give(open_lesson("weights"), lessons["weights"], slip.value)

    assert app.warning[0].value == f"Not yet. {slip.text}"


def test_no_answer_is_asked_for(open_lesson: OpenLesson) -> None:
    app = open_lesson("token").button(key=learn_state.key("check_token")).click().run()

    assert app.warning[0].value == "Give an answer first."


def test_unknown_lesson_in_the_link_opens_the_first(open_lesson: OpenLesson) -> None:
    app = open_lesson("<b>nothing</b>")

    assert app.header[0].value == learn_state.titles()[SLUGS[0]]
    assert not app.exception


def test_lessons_take_the_model_of_the_link(open_lesson: OpenLesson) -> None:
    app = open_lesson("token", model="mistralai/Mistral-7B-Instruct-v0.2", gpu="L40S")

    said = [each.value.replace("\\", "") for each in app.markdown]
    assert any("Mistral-7B" in each and "4.00 times less" in each for each in said)


MAMBA = {
    "architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", "torch_dtype": "bfloat16", "hidden_size": 2048,
    "num_hidden_layers": 48, "state_size": 128, "conv_kernel": 4, "expand": 2, "head_dim": 64, "num_heads": 64,
    "n_groups": 8, "vocab_size": 32768, "chunk_size": 256,
}  # fmt: skip
ENCODER = {
    "architectures": ["BertModel"], "model_type": "bert", "torch_dtype": "float32", "hidden_size": 384,
    "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 1536, "max_position_embeddings": 512,
    "vocab_size": 30522, "type_vocab_size": 2,
}  # fmt: skip
KINDS = {
    "states alone": PlanRequest(model_id="own/mamba", config_json=json.dumps(MAMBA), gpu="L40S"),
    "no cache": PlanRequest(model_id="own/bert", config_json=json.dumps(ENCODER), gpu="L40S"),
    "hybrid": PlanRequest(model_id="Qwen/Qwen3-Next-80B-A3B-Instruct", gpu="GeForce RTX 4090"),
    "windows": PlanRequest(model_id="google/gemma-3-27b-it", gpu="H100 80GB SXM"),
    "latents, far too large": PlanRequest(model_id="moonshotai/Kimi-K2-Instruct", gpu="T4"),
    "refused": PlanRequest(model_id="community/Molmo-7B-D-bnb-nf4", gpu="L40S"),
    "short and old": PlanRequest(model_id="openai-community/gpt2", gpu="T4"),
    "flags that make no plan": PlanRequest(
        model_id="Qwen/Qwen3-8B", gpu="L40S", flags=EngineFlags(tensor_parallel_size=3)
    ),
}
OWN_LESSONS = ("weights", "token", "budget")  # the others' figures are of the catalogue's models
NO_NUMBER = re.compile(r"(?<![A-Za-z])(nan|inf|None)(?![A-Za-z])|∞|[{}]|(?<![\d.,])0 (tokens|requests|个 token|个请求)")


def texts_of(app: AppTest) -> list[str]:
    """What the page says in sentences, captions, boxes and for those who do not see the figure."""
    said = [each.value for kind in (app.markdown, app.caption, app.info, app.warning) for each in kind]
    return said + [chart.proto.alt for chart in app.get("plotly_chart")]


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("kind", KINDS)
def test_lessons_hold_for_every_kind_of_model(
    open_lesson: OpenLesson, monkeypatch: pytest.MonkeyPatch, kind: str, language: str
) -> None:
    monkeypatch.setattr(language_state, "_OUTSIDE", language)
    app = open_lesson(OWN_LESSONS[0], lang=language, **KINDS[kind].to_query())

    for slug in OWN_LESSONS:
        app.session_state[learn_state.key("lesson")] = slug
        app.run()

        assert not app.exception
        assert len(app.get("plotly_chart")) == 1
        assert [text for text in texts_of(app) if NO_NUMBER.search(text)] == []


@pytest.mark.parametrize(
    ("kind", "slug", "said"),
    [
        ("states alone", "token", "each request holds a state of 49.7 MiB"),
        ("states alone", "budget", "the states of 750 requests"),
        ("no cache", "token", "so it needs no KV cache"),
        ("no cache", "budget", "so nothing fills them"),
        ("hybrid", "token", "Its layers with a state add 37.7 MiB a request"),
        ("windows", "token", "they keep their latest 1,024 tokens"),
        ("refused", "budget", "no quantisation method bitsandbytes"),
        ("flags that make no plan", "token", "The Plan page's flags make no plan now"),
    ],
)
def test_what_is_said_is_true_of_the_kind(open_lesson: OpenLesson, kind: str, slug: str, said: str) -> None:
    app = open_lesson(slug, **KINDS[kind].to_query())

    assert said in " ".join(texts_of(app)).replace("\N{NO-BREAK SPACE}", " ").replace("\\", "")


def test_lessons_take_the_plan_pages_flags(open_lesson: OpenLesson) -> None:
    query = {"model": "Qwen/Qwen3-8B", "gpu": "L4", "quantization": "fp8", "kv_cache_dtype": "fp8"}
    weights = open_lesson("weights", **query)
    token = open_lesson("token", **query)

    assert any("8.79" in text for text in texts_of(weights))
    assert any("`kv_cache_dtype` fp8 it is 72.0" in text for text in texts_of(token))


@pytest.mark.parametrize("slug", ["attention", "paging", "sharing", "preemption", "live"])
def test_other_lessons_draw_beside_any_model(open_lesson: OpenLesson, slug: str) -> None:
    app = open_lesson(slug, **KINDS["states alone"].to_query())

    assert not app.exception
    assert app.header[0].value == learn_state.titles()[slug]


@pytest.mark.parametrize(
    ("given", "said"),
    [("24,3 GiB", "Right."), ("24,867 MiB", "Right."), ("much", "is no number"), ("24 blocks", "does not fit here")],
)
def test_answers_are_read_as_they_are_written(open_lesson: OpenLesson, given: str, said: str) -> None:
    app = open_lesson("weights")
    app.text_input(key=learn_state.key("given_weights")).set_value(given)
    app.button(key=learn_state.key("check_weights")).click().run()

    assert not app.exception
    assert said in " ".join(each.value for kind in (app.success, app.warning) for each in kind)


def test_learners_links_of_the_teachers_view_open_lessons_with_the_model(
    open_lesson: OpenLesson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language_state, "_OUTSIDE", "zh")
    app = open_lesson("weights", teacher="1", model="Qwen/Qwen3-0.6B", gpu="L4", lang="zh")

    links = [dict(parse_qsl(urlsplit(each.value).query)) for each in app.code]
    assert [link["lesson"] for link in links] == list(SLUGS)
    assert all("teacher" not in link for link in links)
    assert all((link["model"], link["gpu"], link["lang"]) == ("Qwen/Qwen3-0.6B", "L4", "zh") for link in links)


def test_teachers_view_has_every_answer_and_link_within_the_time(
    open_lesson: OpenLesson, lessons: dict[str, Lesson]
) -> None:
    app = open_lesson("weights", teacher="1")

    said = "\n".join(each.value for each in app.markdown)
    links = [each.value for each in app.code]
    assert not app.exception
    assert all(lesson.exercise.explanation in said for lesson in lessons.values())
    assert all(any(f"lesson={slug}" in link for link in links) for slug in SLUGS)
    assert sum(lesson.minutes for lesson in lessons.values()) < learn_view.WORKSHOP_MINUTES


def text_of(sections: Sequence[Section]) -> str:
    about = About(title="Learn", subject="Qwen/Qwen3-8B")
    return html.unescape(to_html(_report(about, lambda: sections, None)))


@pytest.mark.parametrize("slug", SLUGS)
def test_handout_has_question_and_traps_but_no_answer(lessons: dict[str, Lesson], slug: str) -> None:
    lesson = lessons[slug]

    text = text_of(report_learn.handout(learn_state.titles()[slug], lesson))

    assert lesson.exercise.question in text
    assert all(trap.claim in text and trap.exact in text for trap in lesson.traps)
    assert lesson.exercise.explanation not in text


def test_workshop_paper_has_every_answer(lessons: dict[str, Lesson]) -> None:
    links = {slug: f"http://localhost/learn?lesson={slug}" for slug in SLUGS}

    text = text_of(report_learn.workshop(learn_state.titles(), list(lessons.values()), links))

    assert all(lesson.exercise.explanation in text for lesson in lessons.values())
    assert all(link in text for link in links.values())


def test_an_example_in_place_of_the_learners_model_is_said_to_be_one(open_lesson: OpenLesson) -> None:
    missing = open_lesson("token", model="nobody/none")
    present = open_lesson("token", model="Qwen/Qwen3-0.6B", gpu="L40S")

    assert "The Plan page has no plan now" in missing.info[0].value
    assert not present.info


def test_a_model_that_does_not_fit_has_no_pool_below_zero(open_lesson: OpenLesson) -> None:
    app = open_lesson("budget", model="deepseek-ai/DeepSeek-V3", gpu="T4")

    assert not app.exception
    assert any("more than the" in warning.value for warning in app.warning)
    assert next(text.value for text in app.markdown if "for the pool" in text.value).startswith("**Qwen/Qwen3-8B**")
