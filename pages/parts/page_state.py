"""The fields of one page in the session, each under its own widget key; the `*_state` modules say what they mean."""

from __future__ import annotations

from typing import Any

import streamlit as st


class PageState:
    """What one page keeps in the session: the field `x` of the page `plan` lives under the widget key `plan_x`."""

    def __init__(self, page: str) -> None:
        self._page = page

    def key(self, field: str) -> str:
        """The widget key of `field`."""
        return f"{self._page}_{field}"

    def value(self, field: str) -> Any:  # whatever the widget of that field holds
        """What `field` holds now; None when it is empty."""
        return st.session_state.get(self.key(field))

    def keep(self, field: str, new_value: object) -> None:
        """Put `new_value` into `field`; only before its widget is drawn, so in callbacks."""
        st.session_state[self.key(field)] = new_value

    def take(self, field: str) -> Any:  # what was kept there
        """What `field` held, told once; None when it held nothing."""
        return st.session_state.pop(self.key(field), None)

    def values(self) -> dict[str, Any]:
        """All fields of the page with what they hold."""
        prefix = self.key("")
        held = ((str(name), each) for name, each in st.session_state.items())
        return {name.removeprefix(prefix): each for name, each in held if name.startswith(prefix)}
