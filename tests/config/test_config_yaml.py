"""The strict YAML loader: what a scalar means, positions, and that what it writes it reads back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resync.base.settings.errors import ConfigError
from resync.base.settings.loader import dump, load, parse
from resync.base.settings.tree import Node, merge

SCALARS = {
    "1": 1,
    "-7": -7,
    "1e-3": 1e-3,
    "1E5": 1e5,
    ".5": 0.5,
    "3.": 3.0,
    "true": True,
    "null": None,
    "~": None,
    "": None,
    "on": "on",
    "off": "off",
    "yes": "yes",
    "No": "No",
    "y": "y",
    "2024-01-31": "2024-01-31",
    "1:30": "1:30",
    "012": "012",
    "0x1f": "0x1f",
    "1_000": "1_000",
    "'1'": "1",
    '"true"': "true",
    "1.2.3": "1.2.3",
    "e5": "e5",
}


@pytest.mark.parametrize(("text", "value"), SCALARS.items())
def test_scalars_mean_what_they_look_like(text, value):
    found = parse(f"key: {text}\n", "file").plain()["key"]
    assert found == value
    assert type(found) is type(value)


def test_positions_are_those_of_keys_and_list_items(tmp_path):
    file = tmp_path / "positions.yaml"
    file.write_text("# comment\na:\n  b:\n    c: 1\nlist:\n  - x\n  - {y: [1,\n      2]}\n")
    node = load(file)
    assert node.entries["a"].entries["b"].entries["c"].line == 4
    assert node.entries["a"].line == 2
    second = node.entries["list"].value[1].entries["y"].value[1]
    assert (second.line, second.path) == (8, ("list", 1, "y", 1))
    assert str(second.problem("odd")) == f"{file}:8: list[1].y[1]: odd"


text = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufeff"), max_size=8)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.floats(allow_nan=False)
    | text
    | st.sampled_from([word for word in SCALARS if not word.startswith(("'", '"'))])
)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(text, trees, max_size=4))
def test_dumped_data_loads_as_the_same_data(data):
    loaded = parse(dump(data), "file").plain()
    assert loaded == data
    assert repr(loaded) == repr(data)  # 1, 1.0 and True are equal, but not the same


def node(data, file="file", path=()):
    if isinstance(data, dict):
        return Node({key: node(value, file, (*path, key)) for key, value in data.items()}, file, 1, path)
    if isinstance(data, list):
        return Node([node(value, file, (*path, index)) for index, value in enumerate(data)], file, 1, path)
    return Node(data, file, 1, path)


MERGES = {
    "keys": ({"a": 1, "b": 1}, {"b": 2, "c": 2}, {"a": 1, "b": 2, "c": 2}),
    "deep": ({"a": {"b": 1, "c": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
    "lists_are_replaced": ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
    "null_replaces": ({"a": {"b": 1}}, {"a": None}, {"a": None}),
    "same_name": ({"name": "x", "a": 1}, {"name": "x", "b": 2}, {"name": "x", "a": 1, "b": 2}),
    "no_name": ({"name": "x", "a": 1}, {"b": 2}, {"name": "x", "a": 1, "b": 2}),
    "name_comes_later": ({"a": 1}, {"name": "x"}, {"a": 1, "name": "x"}),
    "other_name": ({"name": "x", "a": 1}, {"name": "y", "b": 2}, {"name": "y", "b": 2}),
    "other_rule": ({"p": {"rule": "x", "a": 1}}, {"p": {"rule": "y"}}, {"p": {"rule": "y"}}),
}


@pytest.mark.parametrize(("under", "over", "expected"), MERGES.values(), ids=MERGES)
def test_later_layers_win(under, over, expected):
    assert merge(node(under), node(over)).plain() == expected


def test_merged_values_remember_their_file():
    merged = merge(node({"a": {"b": 1, "c": 1}}, "base"), node({"a": {"c": 2}}, "scale"))
    assert merged.entries["a"].entries["b"].file == "base"
    assert merged.entries["a"].entries["c"].file == "scale"


NESTED = {
    "lists": "a: " + "[" * 300_000,  # libyaml recurses: so many ended the process
    "mappings in braces": "{a: " * 5_000,
    "mappings": "\n".join(f"{' ' * depth}a:" for depth in range(5_000)),
    "lists on one line": "- " * 20_000 + "x",
    "keys": "? " * 20_000 + "x",
}


@pytest.mark.parametrize("text", NESTED.values(), ids=NESTED)
def test_what_is_nested_too_deep_is_one_line(text):
    with pytest.raises(ConfigError) as error:
        parse(text, "file")
    place = "file:101" if "\n" in text else "file:1"
    assert str(error.value) == f"{place}: found lists or mappings nested more than 100 deep, allowed: at most 100"


def test_what_is_nested_as_deep_as_allowed_is_read_and_written():
    text = "a: " + "[" * 99 + "]" * 99 + "\n"
    assert parse(dump(parse(text, "file").plain()), "file").plain() == parse(text, "file").plain()
