"""Draws a lesson, its exercise and its traps, the list of lessons, and the teacher's view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

import pandas as pd
import streamlit as st

from pages.parts import learn_state, report_learn, state, words
from pages.parts.language import t
from pages.parts.learn_answer import read_answer
from pages.parts.learn_attention import attention_kinds
from pages.parts.learn_budget import budget
from pages.parts.learn_lesson import Attempt, Exercise, Grade, Lesson, after, answer_words, grade
from pages.parts.learn_live import reading
from pages.parts.learn_paging import paging
from pages.parts.learn_preemption import preemption
from pages.parts.learn_sharing import sharing
from pages.parts.learn_state import Learner, key
from pages.parts.learn_token import cost_of_a_token
from pages.parts.learn_weights import weights
from pages.parts.report_button import About, report_button
from pages.parts.said import said
from planner.facts import PlanError

_MAKERS: dict[str, Callable[[Learner], Lesson]] = {
    "weights": weights,
    "token": cost_of_a_token,
    "attention": attention_kinds,
    "paging": paging,
    "sharing": sharing,
    "preemption": preemption,
    "budget": budget,
    "live": reading,
}
_TRIES_BEFORE_ANSWER = 2
WORKSHOP_MINUTES = 90


def make(slug: str, learner: Learner) -> Lesson:
    """The lesson `slug` for `learner`."""
    return _MAKERS[slug](learner)


def outline() -> None:
    """The lessons in order, solved ones marked, with the progress below; in the sidebar."""
    st.subheader(t("Eight lessons"), anchor=False)
    for place, (slug, title) in enumerate(learn_state.titles().items()):
        is_open = slug == learn_state.value("lesson")
        is_solved = learn_state.attempt(slug).is_solved
        st.button(
            f"{place + 1}. {title}",
            key=key(f"open_{slug}"),
            icon=":material/check_circle:" if is_solved else ":material/radio_button_unchecked:",
            type="primary" if is_open else "tertiary",
            on_click=learn_state.open_lesson,
            args=(slug,),
        )
    solved, total = learn_state.num_solved(), len(learn_state.SLUGS)
    st.progress(solved / total, text=t("{solved} of {total} exercises solved", solved=solved, total=total))
    _progress_files()
    st.toggle(t("Teacher's view"), key=key("is_teacher"), persist_state="session")


def _progress_files() -> None:
    """Save the progress, and go on from one that was saved."""
    st.download_button(
        t("Download my progress"),
        data=learn_state.progress_json(),
        file_name="kvscope-progress.json",
        mime="application/json",
        key=key("progress"),
        icon=":material/download:",
        on_click="ignore",
    )
    problem = learn_state.take("progress_problem")
    with st.expander(t("Go on from a saved progress"), expanded=problem is not None, key=key("progress_place")):
        st.file_uploader(
            t("The file that the button above saved"),
            type="json",
            max_upload_size=1,
            key=key("progress_file"),
            on_change=learn_state.take_progress,
        )
        if problem is not None:
            st.error(said(problem), icon=":material/error:")


def lesson(slug: str, learner: Learner) -> None:
    """The lesson `slug`."""
    shown = make(slug, learner)
    st.caption(
        t(
            "Lesson {place} of {total} · about {minutes} min · your model: {model}",
            place=learn_state.SLUGS.index(slug) + 1,
            total=len(learn_state.SLUGS),
            minutes=shown.minutes,
            model=words.plain(learner.model_id),
        )
    )
    _stand_in(learner)
    st.header(learn_state.titles()[slug], anchor=False)
    st.markdown(f"*{shown.goal}*")
    st.markdown(shown.text)
    with st.container(border=True):
        shown.figure()
    _exercise(shown)
    _traps(shown)
    title = learn_state.titles()[slug]
    about = About(title=t("Learn: {lesson}", lesson=title), subject=learner.model_id)
    report_button("learn", about, lambda: report_learn.handout(title, shown))
    _neighbours(slug)


def _stand_in(learner: Learner) -> None:
    """Say what stands in where the Plan page makes no plan."""
    if learner.is_example:
        text = t("The Plan page has no plan now, so its first example stands in for your model.")
    elif not learner.has_own_flags:
        text = t(
            "The Plan page's flags make no plan now, so the lessons take your model with vLLM's defaults on an H100."
        )
    else:
        return
    st.info(text, icon=":material/info:")


def _exercise(shown: Lesson) -> None:
    exercise, attempt = shown.exercise, learn_state.attempt(shown.slug)
    st.subheader(t("Exercise"), anchor=False)
    st.markdown(exercise.question)
    _answer_field(shown.slug, exercise)
    with st.container(horizontal=True, gap="small"):
        _button("check", t("Check"), ":material/done:", _check, shown, type="primary")
        _button("hint", t("Hint"), ":material/lightbulb:", learn_state.note_hint, shown.slug)
        if attempt.num_tries >= _TRIES_BEFORE_ANSWER and not attempt.is_solved:
            _button("answer", t("Show the answer"), ":material/visibility:", learn_state.note_answer, shown.slug)
    _feedback(shown)


def _button(name: str, label: str, icon: str, act: Callable[..., None], about: Lesson | str, **looks: Any) -> None:
    slug = about if isinstance(about, str) else about.slug
    st.button(label, key=key(f"{name}_{slug}"), icon=icon, on_click=act, args=(about,), **looks)


def _answer_field(slug: str, exercise: Exercise) -> None:
    if exercise.choices:
        st.radio(
            t("Your answer"),
            range(len(exercise.choices)),
            index=None,
            format_func=lambda place: exercise.choices[place],
            key=key(f"given_{slug}"),
        )
    else:
        st.text_input(t("Your answer ({unit})", unit=exercise.unit), key=key(f"given_{slug}"), width=260, max_chars=60)


def _given(shown: Lesson) -> float:
    """What stands in the answer's field, in the exercise's unit; raises `PlanError` where that is no answer."""
    given = learn_state.value(f"given_{shown.slug}")
    if isinstance(given, str):
        return read_answer(given, shown.exercise.unit)
    if given is None:
        raise PlanError("answer", None, t("Give an answer first."))
    return float(given)


def _check(shown: Lesson) -> None:
    """Grade what stands in the answer's field; a callback, so that the outline above knows of it."""
    try:
        given = _given(shown)
        result = grade(shown.exercise, given)
    except PlanError as problem:
        learn_state.keep("answer_problem", (shown.slug, problem.text))
        return
    learn_state.keep_attempt(shown.slug, after(learn_state.attempt(shown.slug), given, result))


def _feedback(shown: Lesson) -> None:
    attempt = learn_state.attempt(shown.slug)
    slug, problem = learn_state.take("answer_problem") or (None, "")
    if slug == shown.slug:
        st.warning(said(problem), icon=":material/edit:")
    if attempt.used_hint and not attempt.is_solved:
        st.info(shown.exercise.hint, icon=":material/lightbulb:")
    if attempt.last_given is not None and attempt.last_given == _readable(shown):
        _say(shown, grade(shown.exercise, attempt.last_given), attempt)
    if attempt.saw_answer and not attempt.is_solved:
        st.info(
            t(
                "{answer} {explanation}",
                answer=f"**{answer_words(shown.exercise)}**",
                explanation=shown.exercise.explanation,
            )
        )


def _readable(shown: Lesson) -> float | None:
    """What stands in the answer's field; None where it is no answer."""
    try:
        return _given(shown)
    except PlanError:
        return None


def _say(shown: Lesson, result: Grade, attempt: Attempt) -> None:
    exercise = shown.exercise
    typed = learn_state.value(f"given_{shown.slug}")
    if isinstance(typed, str) and attempt.last_given is not None and not typed.replace(".", "", 1).isdecimal():
        number = words.three_digits(attempt.last_given)
        st.caption(t("Read as {number} {unit}.", number=number, unit=exercise.unit))
    if result.grading == "right":
        st.success(t("Right. {explanation}", explanation=exercise.explanation), icon=":material/check_circle:")
    elif result.grading == "near":
        st.warning(t("Not yet. {slip}", slip=result.text), icon=":material/arrow_forward:")
    elif attempt.num_tries < _TRIES_BEFORE_ANSWER:
        st.warning(t("Not yet. Try again, or take the hint."), icon=":material/close:")
    else:
        st.warning(t("Not yet. Take the hint, or see the answer."), icon=":material/close:")


def _traps(shown: Lesson) -> None:
    if not shown.traps:
        return
    st.subheader(t("What is often said"), anchor=False)
    for trap in shown.traps:
        with st.container(border=True):
            st.markdown(f":material/format_quote: {words.plain(trap.claim)}")
            st.markdown(f"**{words.plain(trap.exact)}**")
            st.caption(words.plain(trap.why))


def _neighbours(slug: str) -> None:
    place = learn_state.SLUGS.index(slug)
    with st.container(horizontal=True, horizontal_alignment="distribute"):
        for step, icon in ((-1, ":material/arrow_back:"), (1, ":material/arrow_forward:")):
            if 0 <= place + step < len(learn_state.SLUGS):
                other = learn_state.SLUGS[place + step]
                st.button(
                    learn_state.titles()[other],
                    key=key(f"go_{step}"),
                    icon=icon,
                    on_click=learn_state.open_lesson,
                    args=(other,),
                )


def teacher(learner: Learner) -> None:
    """The plan for a class: times, goals, answers, questions to discuss, a link per lesson."""
    lessons = [make(slug, learner) for slug in learn_state.SLUGS]
    minutes = sum(each.minutes for each in lessons)
    st.header(t("A workshop of {minutes} minutes", minutes=WORKSHOP_MINUTES), anchor=False)
    st.markdown(
        t(
            "{minutes} minutes of lessons leave {rest} for questions. All of it works offline: the figures are computed here, and "
            "the live engine of the last lesson is a recording. A link opens its lesson with the model that the Plan page has "
            "now, so choose your class's model there first.",
            minutes=minutes,
            rest=WORKSHOP_MINUTES - minutes,
        )
    )
    st.table(pd.DataFrame(_timing(lessons)).set_index(t("From minute")))
    for place, each in enumerate(lessons):
        with st.expander(f"{place + 1}. {learn_state.titles()[each.slug]}", key=key(f"teach_{each.slug}")):
            _answers(each)
    links = {slug: lesson_link(slug) for slug in learn_state.SLUGS}
    about = About(title=t("A workshop on vLLM's memory"), subject=learner.model_id)
    report_button("workshop", about, lambda: report_learn.workshop(learn_state.titles(), lessons, links))


def _answers(each: Lesson) -> None:
    st.markdown(f"*{each.goal}*")
    st.markdown(each.exercise.question)
    st.markdown(words.sentences(f"**{answer_words(each.exercise)}**", each.exercise.explanation))
    for slip in each.exercise.slips:
        number = words.three_digits(slip.value)
        st.markdown(t("Who answers {value}: {text}", value=number, text=slip.text))
    st.markdown(t("To discuss: {question}", question=each.discussion))
    st.code(lesson_link(each.slug), language=None, wrap_lines=True)


def _timing(lessons: Sequence[Lesson]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    begin = 0
    for place, each in enumerate(lessons):
        rows.append(
            {
                t("From minute"): begin,
                t("Minutes"): each.minutes,
                t("Lesson"): f"{place + 1}. {learn_state.titles()[each.slug]}",
                t("Goal"): each.goal,
            }
        )
        begin += each.minutes
    return rows


def lesson_link(slug: str) -> str:
    """The address that opens a lesson, not the teacher's view, with the present model and flags."""
    base = (st.context.url or "").split("?", 1)[0]
    query = {name: text for name, text in state.link_query("learn").items() if name != "teacher"}
    return f"{base}?{urlencode(query | {'lesson': slug})}"
