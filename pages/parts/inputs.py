"""The form in the sidebar: model, card, release and vLLM's flags; an empty field shows what vLLM chooses."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from pages.parts import card_input, form, model_input, paste, problems, state, words
from pages.parts.fields import GROUPS, MAIN_FIELDS, SPECULATIVE_FIELDS, FieldGroup, FlagField
from pages.parts.language import mark, t
from pages.parts.said import said
from pages.parts.state import Answer, key
from planner.answer import Plan
from planner.facts import PlanError
from planner.versions import NEWEST, era_of, parse_version

_RELEASES = (
    NEWEST, "0.32.0", "0.31.0", "0.30.0", "0.28.0", "0.27.1", "0.26.0", "0.24.0", "0.23.0", "0.21.0", "0.20.0", "0.19.0",
    "0.18.0", "0.17.0", "0.16.0", "0.14.0", "0.12.0", "0.11.0", "0.10.2", "0.9.2", "0.8.5", "0.7.3", "0.6.6",
)  # fmt: skip
_USAGE_WORDS = {"api_server": "vllm serve", "llm_class": mark("LLM class (offline)")}
_COMPILE_CACHES = (mark("unknown"), mark("cold"), mark("warm"))
_MODEL_FIELDS = ("model", "model_id", "config", "model_dir", "hub_id", "upload", "revision")


def plan_form(answered: Answer | PlanError) -> None:
    """Draw the whole form; a mistake is said at its field, a plan lends its resolved values as placeholders."""
    problem = answered if isinstance(answered, PlanError) else None
    plan = answered.plan if isinstance(answered, Answer) else None
    defaults = _defaults(plan)
    paste.paste_input()
    st.subheader(t("Model"), anchor=False)
    model_input.model_input()
    problems.say(problem, *_MODEL_FIELDS)
    st.subheader(t("Card"), anchor=False)
    card_input.card_input(problem)
    st.subheader("vLLM", anchor=False)
    _release(problem)
    for field in MAIN_FIELDS:
        _flag(field, defaults, problem)
    for group in GROUPS:
        _group(group, defaults, problem)
    _speculative(problem)
    _environment(problem)


def _defaults(plan: Plan | None) -> Mapping[str, object]:
    return {} if plan is None else {item.name: item.value for item in plan.resolved}


def _release(problem: PlanError | None) -> None:
    st.selectbox(
        t("Release"),
        _RELEASES,
        key=key("vllm_version"),
        format_func=_release_words,
        accept_new_options=True,
        help=t("Memory rules differ by era; any other release can be typed."),
        persist_state="session",
    )
    problems.say(problem, "vllm_version")


def _release_words(release: str) -> str:
    try:
        return t("{release}  ·  era {label}", release=release, label=said(era_of(parse_version(release)).label))
    except PlanError:
        return release


def _group(group: FieldGroup, defaults: Mapping[str, object], problem: PlanError | None) -> None:
    names = [field.name for field in group.fields]
    given = sum(state.value(name) not in {None, ""} for name in names)
    with st.expander(
        t("{title} · {given} set", title=said(group.title), given=given) if given else said(group.title),
        key=key(f"group_{group.title}"),
        icon=group.icon,
        expanded=problems.is_about(problem, names),
    ):
        for field in group.fields:
            _flag(field, defaults, problem)


def _flag(field: FlagField, defaults: Mapping[str, object], problem: PlanError | None, prefix: str = "") -> None:
    """One flag: its own name as label, its meaning as help, the resolved default in grey."""
    placeholder = t("not set") if prefix else _placeholder(field.name, defaults)
    widget_key, label = key(prefix + field.name), field.name if prefix else words.flag_name(field.name)
    match field.kind:
        case "integer" | "number":
            _number(field, label, widget_key, placeholder)
        case "text":
            st.text_input(
                label, key=widget_key, placeholder=placeholder, help=said(field.meaning), persist_state="session"
            )
        case _:
            st.selectbox(
                label,
                field.options or (form.ON, form.OFF),
                index=None,
                key=widget_key,
                placeholder=placeholder,
                help=said(field.meaning),
                format_func=said if field.kind == "switch" else str,
                accept_new_options=field.kind == "choice",
                persist_state="session",
            )
    problems.say(problem, prefix + field.name)


def _placeholder(name: str, defaults: Mapping[str, object]) -> str:
    """What an empty field means: vLLM's resolved value, else the flag's own default."""
    own = form.FLAG_DEFAULTS[name]
    shown = defaults.get(name, own)
    return t("not set") if shown is None else t("default: {shown}", shown=words.shown_value(shown))


def _number(field: FlagField, label: str, widget_key: str, placeholder: str) -> None:
    kind = int if field.kind == "integer" else float
    st.number_input(
        label,
        min_value=kind(field.least),
        max_value=None if field.most is None else kind(field.most),
        step=kind(field.step),
        value=None,
        key=widget_key,
        placeholder=placeholder,
        help=said(field.meaning),
        persist_state="session",
    )


def _speculative(problem: PlanError | None) -> None:
    method = state.value(form.SPECULATIVE_PREFIX + "method")
    names = [form.SPECULATIVE_PREFIX + field.name for field in SPECULATIVE_FIELDS] + ["speculative_config"]
    with st.expander(
        t("Speculative decoding · {method}", method=method) if method else t("Speculative decoding"),
        key=key("group_speculative"),
        icon=":material/fast_forward:",
        expanded=problems.is_about(problem, names),
    ):
        for field in SPECULATIVE_FIELDS:
            _flag(field, {}, problem, prefix=form.SPECULATIVE_PREFIX)
        problems.say(problem, "speculative_config")


def _environment(problem: PlanError | None) -> None:
    with st.expander(t("How it is run"), key=key("group_environment"), icon=":material/settings:"):
        st.selectbox(
            t("Started by"),
            list(_USAGE_WORDS),
            key=key("usage_context"),
            format_func=lambda usage: said(_USAGE_WORDS[usage]),
            help=t("vllm serve and the LLM class start from different batch limits."),
            persist_state="session",
        )
        st.selectbox(
            t("Model runner"),
            ("auto", "v1", "v2"),
            key=key("model_runner"),
            help=t("Newer releases have two; auto chooses as vLLM does."),
            persist_state="session",
        )
        st.selectbox(
            t("Compile cache"),
            _COMPILE_CACHES,
            key=key("compile_cache"),
            format_func=said,
            help=t("The first start compiles; later ones find its results, and profile a little differently."),
            persist_state="session",
        )
        st.toggle(
            t("Lengths beyond the model's own"),
            key=key("allow_long_max_model_len"),
            help=t("VLLM\\_ALLOW\\_LONG\\_MAX\\_MODEL\\_LEN=1: vLLM then accepts a longer max\\_model\\_len."),
            persist_state="session",
        )
        problems.say(problem, "usage_context", "model_runner", "compile_cache")
