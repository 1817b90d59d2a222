"""The static signatures of the library are those of the declarations."""

import ast
from inspect import signature

from resync import static
from resync.methods import METHODS


def test_the_files_are_what_the_declarations_say():
    written = {path: path.read_text() for path in static.FILE.parent.glob("*.pyi")}
    assert written == static.files(), "write them again: python -m resync.static"


def test_a_function_has_every_option_with_its_meaning():
    found = {node.name: node for node in ast.parse(static.text()).body if isinstance(node, ast.FunctionDef)}
    assert found.keys() == METHODS.keys()
    for name, method in METHODS.items():
        _, _, *options = signature(method).parameters
        assert [each.arg for each in found[name].args.kwonlyargs] == options
        doc = ast.get_docstring(found[name]) or ""
        assert all(f"\n    {option}: " in doc for option in options)
        assert "\nSends " in doc
        assert "The step (resync.sync." in doc
