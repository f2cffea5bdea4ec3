from importlib import import_module

from planner.families import _MODULES, builder_for
from planner.families.architectures import MODULE_OF


def test_the_index_names_the_first_module_that_builds_each_architecture():
    found: dict[str, str] = {}
    for name in _MODULES:
        for architecture in import_module(f"planner.families.{name}").BUILDERS:
            found.setdefault(architecture, name)

    assert found == MODULE_OF


def test_an_unknown_architecture_has_no_builder():
    assert builder_for("NoSuchForCausalLM") is None
