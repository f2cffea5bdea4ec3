"""The catalogues in pages/locale: what pages, planner and watchers say is collected, merged and compiled (`make messages`)."""

from __future__ import annotations

import io
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

from pages.parts.language import DOMAIN, FOLDER

ROOT = Path(__file__).parents[1]
TEMPLATE = FOLDER / f"{DOMAIN}.pot"
TRANSLATIONS = tuple(sorted(FOLDER.glob(f"*/LC_MESSAGES/{DOMAIN}.po")))
HEADER = "# What KVScope's pages say; units, flag names, model and card names are not translated (docs/translating.md)."
KEYWORDS = {"t": None, "mark": None, "pgettext": ((1, "c"), 2)}
# The first pattern that fits a file decides. What only a terminal shows is left out, and vLLM's own words.
METHODS = [
    *((pattern, "ignore") for pattern in (
        "planner/*_cli.py", "planner/__main__.py", "planner/truth.py", "planner/truth_*.py", "planner/score_*.py",
        "planner/kv_errors.py", "planner/startup_texts.py", "planner/startup_lines.py",
        "live/*_cli.py", "live/__main__.py", "live/engine/environment.py", "live/engine/oracle*.py",
    )),
    ("planner/data/gpus.json", "pages.parts.sentence_templates:extract_notes"),
    ("planner/**.py", "pages.parts.sentence_templates:extract"),
    ("live/**.py", "pages.parts.sentence_templates:extract"),
    ("pages/**.py", "pages.parts.sentence_templates:extract_calls"),
]  # fmt: skip


def collected() -> Catalog:
    """Every message of the source, each with the files that it stands in."""
    found = Catalog(project="KVScope", header_comment=HEADER, fuzzy=False)
    for folder in ("live", "pages", "planner"):
        for path, _, message, _, context in extract_from_dir(
            ROOT, METHODS, keywords=KEYWORDS, directory_filter=lambda path, at=folder: _is_in(Path(path), at)
        ):
            found.add(message, context=context, locations=[(path, None)])
    return _plain(found)


def _is_in(path: Path, folder: str) -> bool:
    parts = path.relative_to(ROOT).parts
    return parts[:1] == (folder,) and not path.name.startswith((".", "_"))


def merged(translation: Path, template: Catalog) -> Catalog:
    """The translation with the template's messages: new ones empty, gone ones left out."""
    with translation.open("rb") as file:
        held = read_po(file)
    held.update(template, no_fuzzy_matching=True, update_creation_date=False)
    held.obsolete.clear()
    held.project, held.version, held.msgid_bugs_address = "KVScope", "1", ""
    held.last_translator, held.language_team = "KVScope", "Simplified Chinese"
    return _plain(held)


def _plain(catalogue: Catalog) -> Catalog:
    """`catalogue` without format flags: a per cent sign is one here, and no message is formatted by it."""
    for message in catalogue:
        message.flags -= {"python-format", "python-brace-format"}
    return catalogue


def text_of(catalogue: Catalog, *, has_header: bool) -> bytes:
    """The catalogue as a .po or .pot file holds it."""
    out = io.BytesIO()
    write_po(out, catalogue, width=0, omit_header=not has_header, sort_by_file=True, include_lineno=False)
    return out.getvalue()


def compiled(translation: Path) -> bytes:
    """The translation as `gettext` reads it at run time."""
    with translation.open("rb") as file:
        catalogue = read_po(file)
    out = io.BytesIO()
    write_mo(out, catalogue)
    return out.getvalue()


def main() -> None:
    """Bring template, translations and their compiled forms up to date; say how much is still to translate."""
    template = collected()
    TEMPLATE.write_bytes(text_of(template, has_header=False))
    for translation in TRANSLATIONS:
        catalogue = merged(translation, template)
        translation.write_bytes(text_of(catalogue, has_header=True))
        translation.with_suffix(".mo").write_bytes(compiled(translation))
        missing = sum(1 for message in catalogue if message.id and not message.string)
        print(f"{translation.relative_to(ROOT)}: {len(catalogue)} messages, {missing} not translated")


if __name__ == "__main__":
    main()
