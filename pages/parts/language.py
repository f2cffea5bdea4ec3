"""The reader's language: `t` gives a sentence of ours in it, from the gettext catalogues in pages/locale.

English is the source. Units, flag names, model and card names stay as they are, so they come in as values.
"""

from __future__ import annotations


def t(message: str, **values: object) -> str:
    """`message` in the reader's language with `values` put into its `{names}`."""
    return message.format(**values) if values else message
