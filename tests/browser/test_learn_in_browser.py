"""The Learn page in a real browser: every exercise answered wrong and right, links, what axe meets, narrow and dark."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from pages.parts import learn_state, learn_view
from pages.parts.learn_lesson import Exercise
from pages.parts.learn_state import SLUGS, Learner
from planner.model_catalog import catalogue_documents
from planner.planning import answer
from planner.request import PlanRequest


def exercise_of(slug: str) -> Exercise:
    """The exercise as the page asks it for the model that it shows first."""
    request = PlanRequest(model_id="Qwen/Qwen3-8B", gpu="H100 80GB SXM")
    documents = catalogue_documents(request.model_id)
    plan, facts = answer(request, documents)
    learner = Learner(model_id=request.model_id, documents=documents, request=request, facts=facts, plan=plan)
    return learn_view.make(slug, learner).exercise


def give(page: Page, exercise: Exercise, given: float) -> None:
    if exercise.choices:
        page.get_by_text(exercise.choices[int(given)], exact=True).click()
    else:
        field = page.get_by_label("Your answer")
        field.fill(f"{given:.6g}")
        field.press("Tab")
    page.get_by_role("button", name="Check").click()


@pytest.mark.parametrize("slug", SLUGS)
def test_exercise_is_answered_wrong_and_right(open_page, slug: str) -> None:
    exercise = exercise_of(slug)
    page = open_page(f"/learn?lesson={slug}")
    wrong = (exercise.answer + 1) % len(exercise.choices) if exercise.choices else exercise.answer * 3 + 7

    give(page, exercise, wrong)
    expect(page.get_by_text("Not yet.")).to_be_visible()

    give(page, exercise, exercise.answer)
    expect(page.get_by_text("Right.")).to_be_visible()
    expect(page.get_by_text("1 of 8 exercises solved")).to_be_visible()


def test_link_follows_the_open_lesson_and_brings_it_back(open_page) -> None:
    page = open_page("/learn")
    page.get_by_role("button", name=learn_state.titles()["sharing"]).first.click()
    page.wait_for_url("**lesson=sharing**")

    again = open_page(page.url)

    expect(again.get_by_role("heading", name=learn_state.titles()["sharing"])).to_be_visible()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_axe_finds_nothing_serious_and_nothing_is_too_wide(open_page, width: int, scheme: str) -> None:
    page = open_page("/learn?lesson=paging", width=width, scheme=scheme)
    expect(page.get_by_role("heading", name="Exercise")).to_be_visible()

    found = Axe().run(page).response["violations"]

    assert [each["id"] for each in found if each["impact"] in {"serious", "critical"}] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_teachers_view_passes_axe(open_page) -> None:
    page = open_page("/learn?teacher=1")
    expect(page.get_by_role("heading", name="A workshop of 90 minutes")).to_be_visible()

    found = Axe().run(page).response["violations"]

    assert [each["id"] for each in found if each["impact"] in {"serious", "critical"}] == []
