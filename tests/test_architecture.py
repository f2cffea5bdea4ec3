"""The walls between the packages: who may import what, and names that would hide a package."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLANNER_FILES = sorted((ROOT / "planner").rglob("*.py"))
LIVE_FILES = sorted((ROOT / "live").rglob("*.py"))
PAGE_FILES = sorted((ROOT / "pages").rglob("*.py"))
OWN = {"planner", "live", "pages"}


def imported_roots(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("path", PLANNER_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_planner_imports_only_itself_numpy_and_the_standard_library(path):
    allowed = set(sys.stdlib_module_names) | {"planner", "numpy"}

    assert imported_roots(path) <= allowed


@pytest.mark.parametrize("path", PLANNER_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_planner_opens_no_connection(path):
    assert not imported_roots(path) & {"socket", "http", "urllib", "ssl", "ctypes"}


@pytest.mark.parametrize("path", LIVE_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_live_never_draws(path):
    assert not imported_roots(path) & {"streamlit", "plotly", "pages", "matplotlib"}


@pytest.mark.parametrize("path", [*LIVE_FILES, *PAGE_FILES], ids=lambda path: str(path.relative_to(ROOT)))
def test_vllm_is_imported_only_by_the_engine_modules(path):
    is_engine = (ROOT / "live" / "engine") in path.parents

    assert is_engine or "vllm" not in imported_roots(path)


def test_charts_know_no_streamlit():
    assert "streamlit" not in imported_roots(ROOT / "pages" / "parts" / "charts.py")


@pytest.mark.parametrize("path", sorted((ROOT / "pages").glob("*.py")), ids=lambda path: path.name)
def test_no_page_has_the_name_of_a_module_we_import(path):
    every = set().union(*(imported_roots(file) for file in [*PLANNER_FILES, *LIVE_FILES, *PAGE_FILES]))

    assert path.stem not in every | OWN


def test_no_test_folder_hides_a_package():
    names = {folder.name for folder in (ROOT / "tests").rglob("*") if folder.is_dir()}

    assert not names & OWN


@pytest.mark.parametrize("folder", sorted(OWN))
def test_each_package_keeps_its_init(folder):
    assert (ROOT / folder / "__init__.py").is_file()
