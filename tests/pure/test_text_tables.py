"""Tables as text: what programs read back, and what people see."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resync.base.text_tables import aligned, csv_text, json_text, markdown, markdown_cells, plain_text


def test_csv_keeps_every_bit_and_leaves_the_unknown_empty():
    rows = [{"step": 1, "loss": 0.1 + 0.2}, {"step": 2, "loss": math.nan}, {"step": 3, "loss": None}, {"step": 4}]
    text = csv_text(rows, ["step", "loss"])
    assert text == "step,loss\n1,0.30000000000000004\n2,nan\n3,\n4,\n"
    assert csv_text([{"step": 1, "loss": 2.5}], ["loss", "step"], header=False) == "2.5,1\n"


def test_json_has_null_where_a_number_is_none():
    content = {"means": (1.5, math.nan), "nested": [{"detectable": math.inf}], "n": 3, "text": "±", "flag": True}
    text = json_text(content)
    assert json.loads(text, parse_constant=pytest.fail) == {
        "means": [1.5, None], "nested": [{"detectable": None}], "n": 3, "text": "±", "flag": True,
    }  # fmt: skip


def test_columns_are_aligned_to_either_side():
    lines = [("run", "steps", "note"), ("a/b", "1,000", "")]
    assert aligned(lines) == ["run  steps  note", "a/b  1,000"]
    assert aligned([("run", "n"), ("a", "10")]) == ["run   n", "a    10"]
    assert aligned([("run", "n", "x"), ("a", "10", "y")], right=False) == ["run  n   x", "a    10  y"]


def test_cells_of_markdown_cannot_end_a_column():
    assert markdown(["a|b", "c", "d"], [["1", "2", "3|4"]], "lcr") == [
        r"| a\|b | c | d |",
        "| :-- | :-: | --: |",
        r"| 1 | 2 | 3\|4 |",
    ]


@given(st.lists(st.text(), min_size=1))
def test_cells_of_markdown_are_read_back(cells: list[str]):
    line = markdown(cells, [], "l" * len(cells))[0]
    assert [plain_text(cell) for cell in markdown_cells(line)] == [" ".join(cell.split()) for cell in cells]
