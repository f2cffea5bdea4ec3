"""Documentation held to the truth: what the code knows is explained, and what the documentation shows is run."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from live.__main__ import _parser
from planner.__main__ import _COMMANDS
from planner.__main__ import main as planner_main
from planner.facts import BasisKind, Severity
from planner.model_catalog import catalogue_documents, search
from planner.plan_json import to_json
from planner.planning import answer
from planner.request import EngineFlags, PlanRequest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md")])
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
_CODE = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)+")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def headings(page: Path, level: int) -> set[str]:
    return set(re.findall(rf"^{'#' * level} (.+)$", text_of(page), re.MULTILINE))


def sections(page: Path) -> dict[str, str]:
    """The text below each heading of level 3."""
    parts = re.split(r"^### (.+)$", text_of(page), flags=re.MULTILINE)[1:]
    return {
        name: re.split(r"^##? ", body, flags=re.MULTILINE)[0].strip()
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }


# -- inputs -------------------------------------------------------------------------------------------------------------

# A request's field -> the names under which a person gives it, where they differ.
_WRITTEN_AS = {
    "model_id": {"model"},
    "gpu_memory_bytes": {"gpu_memory_gib"},
    "other_processes_bytes": {"other_processes_gib"},
    "flags": set(),
}


def input_names() -> set[str]:
    names = {field.name for field in fields(EngineFlags)}
    for field in fields(PlanRequest):
        names |= _WRITTEN_AS.get(field.name, {field.name})
    return names


def test_every_input_is_explained() -> None:
    explained = sections(DOCS / "inputs.md")

    assert sorted(input_names() - explained.keys()) == []
    assert sorted(name for name in input_names() if len(explained[name]) < 20) == []


def test_no_input_is_explained_that_does_not_exist() -> None:
    assert sorted(headings(DOCS / "inputs.md", 3) - input_names()) == []


# -- the answer ---------------------------------------------------------------------------------------------------------


def answers() -> Iterator[dict[str, Any]]:
    """Answers that between them hold every key: one that starts, one that fails, one in stages, one with windows."""
    cases = [
        (MODEL, "H100 80GB SXM", EngineFlags()),
        (MODEL, "GeForce RTX 4090", EngineFlags(enable_prefix_caching=True)),
        ("google/gemma-3-27b-it", "H100 80GB SXM", EngineFlags(pipeline_parallel_size=2)),
    ]
    for model_id, gpu, flags in cases:
        plan, model = answer(PlanRequest(model_id=model_id, gpu=gpu, flags=flags), catalogue_documents(model_id))
        yield to_json(plan, model)


_NAMED_BY_VALUE = {"resolved", "weights_by_role"}  # objects whose keys are flags or roles


def keys_of(value: object) -> set[str]:
    if isinstance(value, dict):
        inner = (keys_of(item) for key, item in value.items() if key not in _NAMED_BY_VALUE)
        return set(value).union(*inner)
    if isinstance(value, list):
        return set().union(*map(keys_of, value))
    return set()


def quoted(page: Path) -> set[str]:
    return set(re.findall(r"`([A-Za-z_]+)`", text_of(page)))


def test_every_answer_key_is_explained() -> None:
    keys = set().union(*map(keys_of, answers()))

    assert len(keys) > 50
    assert sorted(keys - quoted(DOCS / "answer.md")) == []


def test_every_budget_line_is_explained() -> None:
    names = {line["name"] for result in answers() for line in result["lines"]}
    table = set(re.findall(r"^\| `([a-z_]+)` \|", text_of(DOCS / "answer.md"), re.MULTILINE))
    formulas = "\n".join(headings(DOCS / "formulas.md", 2))

    assert names == table
    assert sorted(name for name in names if name not in formulas) == []


@pytest.mark.parametrize("kind", [*BasisKind.__args__, *Severity.__args__])
def test_every_word_of_certainty_is_explained(kind: str) -> None:
    pages = text_of(DOCS / "answer.md") + text_of(DOCS / "findings.md")

    assert f"- **{kind}** –" in pages


# -- findings -----------------------------------------------------------------------------------------------------------


def calls() -> Iterator[tuple[Path, ast.Call]]:
    for folder in ("planner", "live", "pages"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            yield from ((path, node) for node in ast.walk(tree) if isinstance(node, ast.Call))


def code_of(call: ast.Call) -> ast.expr | None:
    """The expression of a finding's code in `Finding(code=...)` or `ledger.find(code, text)`; None for any other call."""
    name = getattr(call.func, "id", None) or getattr(call.func, "attr", None)
    if name == "Finding":
        return next((keyword.value for keyword in call.keywords if keyword.arg == "code"), None)
    is_record = name == "find" and len(call.args) > 1 and isinstance(call.args[0], ast.Constant)
    return call.args[0] if is_record else None


def test_every_finding_is_explained_and_none_besides() -> None:
    expressions = [code for _, call in calls() if (code := code_of(call)) is not None]
    codes = {node.value for node in expressions if isinstance(node, ast.Constant)}

    assert all(_CODE.fullmatch(str(code)) for code in codes)
    assert sorted(codes - headings(DOCS / "findings.md", 3)) == []
    assert sorted(headings(DOCS / "findings.md", 3) - codes) == []


def test_findings_are_coded_by_constants_but_in_the_two_recorders() -> None:
    variable = {
        str(path.relative_to(ROOT))
        for path, call in calls()
        if (code := code_of(call)) is not None and not isinstance(code, ast.Constant)
    }

    assert variable <= {"planner/command_line.py", "planner/resolution.py"}


def test_each_finding_says_its_severity_and_more() -> None:
    explained = sections(DOCS / "findings.md")

    assert explained
    for name, body in explained.items():
        assert re.match(r"\*(info|warning|refusal)\.\* \S", body), name
        assert len(body) > 50, name


# -- worked examples ----------------------------------------------------------------------------------------------------


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """The fenced blocks of a language with the line each starts on."""
    text = text_of(page)
    found = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text[: match.start()].count("\n") + 2, match[1]) for match in found]


def test_every_worked_example_holds() -> None:
    page = DOCS / "formulas.md"
    names: dict[str, Any] = {}
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    for line, source in blocks(page, "python"):
        example = doctest.DocTestParser().get_doctest(source, names, page.name, page.name, line - 1)
        example.globs = names  # one after the other, as a reader reads
        runner.run(example, out=report.append, clear_globs=False)

    assert runner.tries > 80
    assert "".join(report) == ""


def test_every_formula_section_names_its_source_and_works_an_example() -> None:
    parts = re.split(r"^## ", text_of(DOCS / "formulas.md"), flags=re.MULTILINE)[1:]

    assert len(parts) > 12
    for part in parts:
        title = part.splitlines()[0]
        assert ">>> " in part, title
        assert "*Source:*" in part, title


# -- README -------------------------------------------------------------------------------------------------------------

README = ROOT / "README.md"


def test_make_targets_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", text_of(README), re.MULTILINE))

    assert {"run", "test"} <= named
    assert sorted(named - targets) == []


def test_files_that_the_readme_installs_or_runs_exist() -> None:
    named = re.findall(r"(?:-r|streamlit run) (\S+)", text_of(README))

    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_subcommands_of_the_readme_exist() -> None:
    named = set(re.findall(r"python -m planner ([a-z]+)", text_of(README)))

    assert {"plan", "score"} <= named <= _COMMANDS.keys()
    for name in named:
        assert callable(importlib.import_module(_COMMANDS[name]).main)


def option_names() -> set[str]:
    plan = {field.name for field in fields(EngineFlags)} | input_names() | {"model_dir", "config", "json", "batch"}
    return {f"--{name.replace('_', '-')}" for name in plan} | {"--markdown", "--out", "--revision"}


def test_options_of_the_readme_exist() -> None:
    own = re.findall(r"python -m planner plan[^`]*", text_of(README))
    named = {word for line in own for word in re.findall(r"--[a-z][a-z-]+", line)}

    assert len(named) >= 5
    assert sorted(named - option_names()) == []


def test_fetch_command_of_the_readme_parses() -> None:
    (command,) = re.findall(r"`python -m live (fetch [^`]+)`", text_of(README))

    arguments = _parser().parse_args(shlex.split(command))

    assert arguments.command == "fetch"
    assert arguments.out == Path("DIR")


def console_examples() -> list[tuple[str, str]]:
    found = []
    for _, block in blocks(README, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


@pytest.mark.parametrize(("command", "shown"), console_examples())
def test_console_examples_print_what_is_shown(command: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(command)
    assert words[:3] == ["python", "-m", "planner"]

    status = planner_main(words[3:])

    assert status == 0
    assert capsys.readouterr().out == shown


def test_batch_line_of_the_readme_is_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = re.findall(r"`(\{\"model\".*?\})`", text_of(README))
    batch = tmp_path / "requests.jsonl"
    batch.write_text(line + "\n", encoding="utf-8")

    status = planner_main(["plan", "--batch", str(batch)])

    result = json.loads(capsys.readouterr().out)
    assert status == 0
    assert result["model_id"] == json.loads(line)["model"]


def test_number_of_models_in_the_readme_is_right() -> None:
    (number,) = re.findall(r"(\d+) models can be planned", text_of(README))

    assert int(number) == sum(entry.is_plannable for entry in search())


def test_accuracy_tables_of_the_readme_are_those_of_the_accuracy_page() -> None:
    """Both are `python -m planner score --markdown`; the README shows a part of it."""
    part = text_of(README).split("## How close predictions were")[1].split("## How sure a number is")[0]
    rows = [line for line in part.splitlines() if line.startswith("| ")]
    whole = text_of(DOCS / "accuracy.md").splitlines()

    assert len(rows) > 20
    assert [row for row in rows if row not in whole] == []


# -- all pages ----------------------------------------------------------------------------------------------------------


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_images_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", text_of(page))
    dead = []
    for link in links:
        if "://" in link:
            continue
        name, _, fragment = link.partition("#")
        target = page.parent / name if name else page
        is_dead = not target.exists()
        if not is_dead and fragment:
            titles = re.findall(r"^#+ (.+)$", text_of(target), re.MULTILINE)
            is_dead = fragment not in {anchor(title) for title in titles}
        dead += [link] if is_dead else []

    assert dead == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_no_path_or_index_of_one_machine(page: Path) -> None:
    text = text_of(page)

    assert re.findall(r"(?<![\w.:/])/(?:home|root|work|opt|tmp|usr|Users|mnt)/\S*", text) == []
    assert re.findall(r"\b(?:pypi\.org|files\.pythonhosted\.org|\S*artifactory\S*|index-url\b)", text) == []


def test_paths_in_the_pages_exist() -> None:
    """Paths of this project in backticks: `planner/...`, `live/...`, `pages/...`, `tests/...`, `docs/...`."""
    pattern = re.compile(r"`((?:planner|live|pages|tests|docs)/[\w./-]+)`")
    named = {match for page in PAGES if page.name != "CHANGELOG.md" for match in pattern.findall(text_of(page))}

    assert len(named) > 10
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_modules_in_the_structure_page_exist() -> None:
    text = text_of(DOCS / "structures.md")
    named = set(re.findall(r"`((?:planner|live)\.[a-z_]+)`", text))

    assert len(named) > 15
    for name in named:
        assert importlib.util.find_spec(name) is not None, name
