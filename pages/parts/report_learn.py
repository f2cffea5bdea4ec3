"""The Learn page as a report's sections: a lesson as a handout, or the whole workshop with its answers. Knows no Streamlit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pages.parts import words
from pages.parts.language import t
from pages.parts.learn_lesson import Exercise, Lesson, answer_words
from pages.parts.report_sections import Heading, Link, Section, Table, Text, from_markdown


def handout(title: str, lesson: Lesson) -> tuple[Section, ...]:
    """One lesson without its answer: text, exercise, and the claims that are often repeated beside what was computed."""
    return tuple(_handout(title, lesson))


def _handout(title: str, lesson: Lesson) -> Iterator[Section]:
    yield Heading(text=title)
    yield Text(text=from_markdown(lesson.goal))
    yield from (Text(text=from_markdown(part)) for part in lesson.text.split("\n\n"))
    yield from _exercise(lesson.exercise)
    yield Text(text=t("Hint: {hint}", hint=from_markdown(lesson.exercise.hint)), is_small=True)
    yield traps_table(lesson)


def workshop(titles: Mapping[str, str], lessons: Sequence[Lesson], links: Mapping[str, str]) -> tuple[Section, ...]:
    """The teacher's paper: timing, and for each lesson its exercise, answer, slips, question to discuss and link."""
    return tuple(_workshop(titles, lessons, links))


def _workshop(titles: Mapping[str, str], lessons: Sequence[Lesson], links: Mapping[str, str]) -> Iterator[Section]:
    begins = [sum(each.minutes for each in lessons[:place]) for place in range(len(lessons))]
    yield Table(
        title=t("Timing"),
        columns=(t("From minute"), t("Minutes"), t("Lesson"), t("Goal")),
        rows=tuple(
            (str(begin), str(each.minutes), titles[each.slug], each.goal)
            for begin, each in zip(begins, lessons, strict=True)
        ),
    )
    for each in lessons:
        yield Heading(text=titles[each.slug])
        yield from _exercise(each.exercise)
        yield Text(text=from_markdown(f"{answer_words(each.exercise)} {each.exercise.explanation}"))
        for slip in each.exercise.slips:
            yield Text(
                text=t(
                    "Who answers {value}: {text}", value=words.three_digits(slip.value), text=from_markdown(slip.text)
                )
            )
        yield Text(text=t("To discuss: {question}", question=from_markdown(each.discussion)))
        yield Link(text=t("Opens the lesson"), url=links[each.slug])


def _exercise(exercise: Exercise) -> Iterator[Section]:
    yield Heading(text=t("Exercise"), level=3)
    yield Text(text=from_markdown(exercise.question))
    for place, choice in enumerate(exercise.choices):
        yield Text(text=f"{place + 1}. {from_markdown(choice)}")


def traps_table(lesson: Lesson) -> Table:
    """The claims around a lesson, what was computed, and why they differ."""
    return Table(
        title=t("What is often said"),
        columns=(t("Claim"), t("Computed here"), t("Why")),
        rows=tuple(
            (from_markdown(trap.claim), from_markdown(trap.exact), from_markdown(trap.why)) for trap in lesson.traps
        ),
    )
