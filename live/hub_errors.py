"""The named states in which a model cannot be had from the Hub, each with one sentence and its remedy."""

from __future__ import annotations

from typing import Literal

HubErrorKind = Literal[
    "not_found",
    "revision_not_found",
    "gated",
    "unauthorized",
    "no_network",
    "slow",
    "server_error",
    "no_safetensors",
    "no_config",
    "broken_config",
    "broken_header",
    "too_large",
    "bad_id",
]


class HubError(Exception):
    """A model's facts could not be brought from the Hub: `kind` names the state, the text is one sentence with the remedy."""

    def __init__(self, kind: HubErrorKind, text: str) -> None:
        super().__init__(text)
        self.kind: HubErrorKind = kind
        self.text = text
