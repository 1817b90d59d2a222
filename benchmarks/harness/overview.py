"""The two main figures of a machine in one: what synchronising costs beside peers, and what simulated workers cost."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from resync.base.files import read_json, write_bytes
from resync.papers.render.style import GREY, PALETTE, TEXT, look, new_figure, svg

OURS, PEER = PALETTE[1], GREY
SYNCHRONISED = "ResNet, 4 processes, loopback"
METHODS = {
    "Local SGD": ("PeriodicModelAverager", "accelerate LocalSGD"), "SlowMo": ("fairscale SlowMo",),
    "SGP": ("decent-dp",), "all-reduce": ("torch DDP",),
}  # fmt: skip
"""Methods of the benchmark `synchronisation`, and the peers that do the same."""
SIMULATED = ", K 8, "


def draw(folder: Path) -> None:
    """Write overview.svg from the JSON files of a machine; nothing where one of the two is missing."""
    files = [folder / "synchronisation.json", folder / "simulated.json"]
    if all(path.exists() for path in files):
        with look():
            drawn = svg(_figure(*map(read_json, files)), "Steps of training beside peers")
        write_bytes(folder / "overview.svg", drawn)


def _figure(synchronisation: dict[str, Any], simulated: dict[str, Any]) -> Figure:
    beside = _beside_no_communication(synchronisation)
    loops = _beside_the_plain_loop(simulated)
    figure = new_figure(TEXT, 0.9 + 0.16 * max(len(beside), len(loops)))
    left, right = figure.subplots(1, 2)
    _bars(left, beside, "Step of ResNet-18, 4 processes")
    left.set_xlabel("time beside a step without communication")
    _bars(right, loops, "Step of 8 simulated workers")
    right.set_xlabel("processor time beside a loop over models")
    for axes in (left, right):
        axes.axvline(1, color="black", linewidth=0.6)
    return figure


def _beside_no_communication(results: dict[str, Any]) -> list[tuple[str, float, str]]:
    """Label, ratio and colour of our forms and the peers of each method."""
    ratios = {
        case["name"]: case["numbers"]["step_time"]["ratio"]
        for case in results["cases"]
        if case["group"] == SYNCHRONISED and "step_time" in case["numbers"]
    }
    named = [
        (name, OURS if name.startswith(f"{method} (") else PEER)
        for method, peers in METHODS.items()
        for name in (f"{method} (library)", f"{method} (suite)", *peers)
    ]
    return [(name, ratios[name], colour) for name, colour in named if name in ratios]


def _beside_the_plain_loop(results: dict[str, Any]) -> list[tuple[str, float, str]]:
    """Label, ratio and colour of what `engine: auto` chooses, the cheapest first."""
    found = [
        (case["group"].replace(SIMULATED, ", ").removesuffix(", cpu"), case["numbers"]["processor_ms"]["ratio"], OURS)
        for case in results["cases"]
        if case["name"] == "auto" and SIMULATED in case["group"] and "processor_ms" in case["numbers"]
    ]
    return sorted(found, key=lambda bar: bar[1])


def _bars(axes: Axes, bars: list[tuple[str, float, str]], title: str) -> None:
    places = range(len(bars))
    axes.barh(places, [ratio for _, ratio, _ in bars], height=0.7, color=[colour for _, _, colour in bars])
    for place, (_, ratio, _) in zip(places, bars, strict=True):
        axes.annotate(
            f"{ratio:.2f}", (ratio, place), xytext=(2, 0), textcoords="offset points", va="center", fontsize=6
        )
    axes.set_yticks(places, [label for label, _, _ in bars], fontsize=6.5)
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.margins(x=0.12)
    axes.set_xlim(left=0)
    axes.grid(visible=False, axis="y")
    axes.set_title(title, loc="left")
