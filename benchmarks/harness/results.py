"""Results on disk and their figures."""

import json
import subprocess
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from resync.base.files import read_json, write_bytes, write_text
from resync.papers.render.style import GREY, PALETTE, TEXT, look, new_figure, svg

FOLDER = Path(__file__).parents[1] / "results"

Draw = Callable[[dict[str, Any]], Figure]


def write(path: Path, results: dict[str, Any], draw: Draw | None = None) -> None:
    """Write `path`, a JSON file, and its figure beside it."""
    write_text(path, json.dumps(_rounded(results), indent=1, allow_nan=False) + "\n")
    redraw(path, draw)


def age(name: str, environment: dict[str, Any], code: Sequence[str], root: Path) -> str:
    """Of which commit a result is, and how many commits have changed what it measures since."""
    git = environment["git"] or {"commit": "unknown", "dirty": False}
    commit, dirty = git["commit"], " with uncommitted changes" if git["dirty"] else ""
    count = [
        "git",
        "-C",
        str(root),
        "rev-list",
        "--count",
        f"{commit}..HEAD",
        "--",
        *(f"src/resync/{at}" for at in code),
    ]
    found = subprocess.run(count, capture_output=True, text=True)
    since = f"{found.stdout.strip()} commits since have changed {', '.join(code)}"
    if found.returncode:
        since = "that commit is not here"
    return f"{name}: {environment['day']}, commit {commit[:8]}{dirty}; {since}"


def redraw(path: Path, draw: Draw | None = None) -> None:
    """Draw the figure of a JSON file again, from nothing else."""
    results = read_json(path)
    with look():
        drawn = svg((draw or bars)(results), results["title"])
    write_bytes(path.with_suffix(".svg"), drawn)


def bars(results: dict[str, Any]) -> Figure:
    """A panel for each group, with the median of the first measure of every case, p5 to p95, and its ratio."""
    measure = next(iter(results["measures"]))
    unit = results["measures"][measure]["unit"]
    groups = list(dict.fromkeys(case["group"] for case in results["cases"]))
    panels = [[case for case in results["cases"] if case["group"] == group] for group in groups]
    columns = min(2, len(panels))
    stacks = [panels[column::columns] for column in range(columns)]
    heights = [max(map(len, row)) for row in zip_longest(*stacks, fillvalue=[])]
    figure = new_figure(TEXT, 0.5 + sum(0.17 * height + 0.45 for height in heights))
    axes = list(figure.subplots(len(heights), columns, squeeze=False, height_ratios=heights).flat)
    for each in axes:
        each.set_axis_off()
    for each, group, cases in zip(axes, groups, panels, strict=False):
        each.set_axis_on()
        _panel(each, cases, measure, results["base"])
        each.set_title(group, loc="left")
        each.set_xlabel(f"{measure.replace('_', ' ')} ({unit})" if unit != "1" else measure.replace("_", " "))
    figure.suptitle(f"{results['title']} ({_machine(results)})", fontsize=8.5)
    return figure


def _panel(axes: Any, cases: list[dict[str, Any]], measure: str, base: str) -> None:
    for place, case in enumerate(cases):
        number = case["numbers"].get(measure)
        if number is None:
            reason = case.get("unavailable", "not measured")
            axes.annotate(reason[:60], (0, place), xytext=(2, 0), textcoords="offset points", va="center", fontsize=5.5)
            continue
        middle = number["median"]
        spread = [[max(0.0, middle - number["p5"])], [max(0.0, number["p95"] - middle)]]
        axes.barh(place, middle, height=0.7, color=GREY if case["name"] == base else PALETTE[1], alpha=0.75)
        axes.errorbar(middle, place, xerr=spread, color="black", linewidth=0.6, capsize=1.5)
        ratio = f"  {number['ratio']:.2f}x" if "ratio" in number else ""
        end = max(middle, number["p95"])
        axes.annotate(f"{middle:.3g}{ratio}", (end, place), xytext=(3, 0), textcoords="offset points", va="center",
                      fontsize=6)  # fmt: skip
    axes.margins(x=0.25)
    axes.locator_params(axis="x", nbins=5)
    axes.set_yticks(range(len(cases)), [case["name"] for case in cases], fontsize=6.5)
    axes.set_ylim(len(cases) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.grid(visible=False, axis="y")


def _machine(results: dict[str, Any]) -> str:
    machine = results.get("environment", {})
    return ", ".join(machine.get("gpus") or [f"{machine.get('cpu', 'CPU')}, {machine.get('cores', '?')} cores"])


def _rounded(value: Any) -> Any:
    """Numbers with six digits: more would be noise in every diff."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list | tuple) else value
