"""The report of each page: gathers what the page holds and draws its button."""

from __future__ import annotations

from functools import partial

from pages.parts import report_plan, state, words
from pages.parts.language import t
from pages.parts.report_button import About, report_button
from pages.parts.state import Answer


def plan(answered: Answer) -> None:
    """The Plan page's report."""
    found = answered.plan
    slices = state.cached_sweep(answered) if found.pool.groups else ()
    about = About(
        title=t("Memory plan"),
        subject=words.subject(found),
        versions=(("vLLM", found.vllm_version),),
    )
    report_button("plan", about, partial(report_plan.plan_sections, found, state.cached_what_ifs(answered), slices))
