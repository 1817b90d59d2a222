"""The notebook of docs/ runs from its first cell to its last, and answers its question."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs/notebooks/qsr_or_constant_h.ipynb"


@pytest.mark.slow
def test_the_notebook_runs_and_has_an_answer(monkeypatch: pytest.MonkeyPatch):
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    programs = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    shown = [kind for cell in cells for output in cell.get("outputs", ()) for kind in output["data"]]
    assert {"image/png", "text/html"} <= set(shown)  # of a complete run, for readers who start none
    plt.switch_backend("agg")
    monkeypatch.setattr(plt, "show", plt.close)
    names: dict = {}
    for number, program in enumerate(programs):
        if number == 2:
            names["seeds"], names["base"]["epochs"] = [0, 1], 3
        exec(compile(program, f"cell {number}", "exec"), names)
    table = names["table"]
    assert list(table.index) == ["all-reduce", "H = 4", "QSR"]
    rounds = table["rounds"]
    assert rounds["all-reduce"] > rounds["H = 4"] >= rounds["QSR"]
    assert (table["accuracy (%)"] > 60).all()
