"""The Learn page: every lesson, its exercise answered right and wrong, the hint and the answer, progress, the teacher's view."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from pages.parts import learn_state, learn_view, report_learn
from pages.parts.learn_lesson import Lesson
from pages.parts.learn_state import SLUGS, Learner
from pages.parts.report_button import About, _report
from pages.parts.report_html import to_html
from pages.parts.report_sections import Section
from planner.model_catalog import catalogue_documents
from planner.planning import answer
from planner.request import PlanRequest

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
        app.number_input(key=key).set_value(given)
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


@pytest.mark.parametrize("slug", SLUGS)
def test_lesson_draws_for_a_model_of_another_kind(open_lesson: OpenLesson, slug: str) -> None:
    app = open_lesson(slug, model="Qwen/Qwen3-Next-80B-A3B-Instruct", gpu="GeForce RTX 4090")

    assert not app.exception
    assert app.header[0].value == learn_state.titles()[slug]


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
    assert not any("for the pool" in text.value for text in app.markdown)
