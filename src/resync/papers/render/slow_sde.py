"""The slow SDE of Local SGD: predictions as lines, simulations of Local SGD as points (see `formulas.slow_sde`)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from resync.papers.render.item import ItemData
from resync.papers.render.lines import LETTERS, footnote, legend_of, letter
from resync.papers.render.points import Point
from resync.papers.render.style import DASHES, GREY, PALETTE, new_panels
from resync.workers.formulas.slow_sde import Floats, diffuse, predict, simulate

PERIODS = [1, 4, 12, 200]
WORKERS = [2, 8]
LR = 0.02
TIMES = np.linspace(0, 4, 9)
FINE_TIMES = np.linspace(0, 4, 201)
DIFFUSION_PERIODS = [1, 10, 100]
DIFFUSION_WORKERS, DIFFUSION_TIME, DIFFUSION_NOISE, DIFFUSION_REPLICAS = 8, 0.4, 0.3, 8192
MARKERS = "os^D"


@dataclass(frozen=True)
class Drift:
    """Position on the manifold with H = `period`: predicted at FINE_TIMES, mean of simulations at TIMES."""

    period: int
    predicted: Floats
    mean: Floats
    standard_error: Floats


@dataclass(frozen=True)
class Diffusion:
    """Variance of the arc length: predicted for every H, simulated for DIFFUSION_PERIODS."""

    predicted: float
    variance: Floats
    standard_error: Floats


@dataclass(frozen=True)
class DriftAndDiffusion:
    """Drift by number of workers, and diffusion."""

    drift: dict[int, list[Drift]]
    diffusion: Diffusion

    def points(self) -> Iterator[Point]:
        axes = "Learning rate² x steps", "Position a"
        for panel, (workers, drifts) in zip(LETTERS, self.drift.items(), strict=False):
            for drift in drifts:
                series = f"H={drift.period}, K={workers}"
                for x, y in zip(FINE_TIMES.tolist(), drift.predicted.tolist(), strict=True):
                    yield Point(panel, series, "computed", axes[0], x, axes[1], y)
                yield from _simulated(panel, series, axes, TIMES, drift.mean, drift.standard_error)
        axes, panel, series = ("Period H (steps)", "Variance of arc length"), LETTERS[len(self.drift)], "diffusion"
        yield Point(panel, series, "computed", axes[0], None, axes[1], self.diffusion.predicted)
        values = self.diffusion.variance, self.diffusion.standard_error
        yield from _simulated(panel, series, axes, np.array(DIFFUSION_PERIODS, dtype=float), *values)


def _simulated(
    panel: str, series: str, axes: tuple[str, str], xs: Floats, ys: Floats, errors: Floats
) -> Iterator[Point]:
    for x, y, error in zip(xs.tolist(), ys.tolist(), (2 * errors).tolist(), strict=True):
        yield Point(panel, series, "simulated", axes[0], x, axes[1], y, y - error, y + error, "± 2 standard errors")


def prepare(data: ItemData) -> DriftAndDiffusion:
    """Simulations and predictions, which are the same at every scale."""
    return DriftAndDiffusion({workers: _drift(workers) for workers in WORKERS}, _diffusion())


def draw(panels: DriftAndDiffusion, width: float) -> Figure:
    """One drift panel per number of workers, and one diffusion panel."""
    figure, grid = new_panels(width, len(panels.drift) + 1, 2.1)
    *drifts, last = grid.flat
    for axes, (workers, drift) in zip(drifts, panels.drift.items(), strict=True):
        axes.sharey(drifts[0])
        _draw_drift(axes, drift)
        axes.set_title(f"Drift, $K={workers}$")
    for axes in drifts:
        if axes in grid[:, 0]:
            axes.set_ylabel("Position $a$ (flattest: 0)")
        else:
            axes.tick_params(labelleft=False)
    _draw_diffusion(last, panels.diffusion)
    letter(grid.flat)
    handles = [
        Line2D([], [], color=color, linestyle=dash, marker=marker, markeredgecolor="white")
        for color, dash, marker in zip(PALETTE, DASHES, MARKERS, strict=True)
    ]
    legend_of(figure, handles, [f"H = {period}" for period in PERIODS], columns=len(handles))
    footnote(figure, f"lines: slow SDE · points: simulation, learning rate {LR:g} (drift) · bars: ± 2 standard errors")
    return figure


def _drift(workers: int) -> list[Drift]:
    simulated = simulate(PERIODS, workers, LR, times=TIMES)
    errors = simulated.std(-1, ddof=1) / np.sqrt(simulated.shape[-1])
    return [
        Drift(period, predict(period, workers, LR, FINE_TIMES), mean, error)
        for period, mean, error in zip(PERIODS, simulated.mean(-1), errors, strict=True)
    ]


def _diffusion() -> Diffusion:
    time, noise, replicas = DIFFUSION_TIME, DIFFUSION_NOISE, DIFFUSION_REPLICAS
    variances = diffuse(DIFFUSION_PERIODS, DIFFUSION_WORKERS, time=time, noise=noise, replicas=replicas)
    expected = noise**2 * time / DIFFUSION_WORKERS
    return Diffusion(expected, variances, variances * np.sqrt(2 / (replicas - 1)))  # valid for normal samples


def _draw_drift(axes: Axes, drifts: list[Drift]) -> None:
    for drift, color, dash, marker in zip(drifts, PALETTE, DASHES, MARKERS, strict=True):
        axes.plot(FINE_TIMES, drift.predicted, color=color, linestyle=dash)
        axes.errorbar(
            TIMES, drift.mean, 2 * drift.standard_error, fmt=marker, color=color, markeredgecolor="white", zorder=3
        )
    axes.set(xlabel=r"Learning rate$^2$ $\times$ steps", ylim=(0.5, 1.02))


def _draw_diffusion(axes: Axes, diffusion: Diffusion) -> None:
    axes.axhline(1e3 * diffusion.predicted, color="black")
    values, errors = 1e3 * diffusion.variance, 2e3 * diffusion.standard_error
    axes.errorbar(DIFFUSION_PERIODS, values, errors, fmt="o", color=GREY, markeredgecolor="white", capsize=2, zorder=3)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda period, _: f"{period:g}"))
    axes.set(xlabel="Period $H$ (steps)", ylabel=r"Variance of arc length ($10^{-3}$)", xlim=(0.7, 140))
    axes.set(title=f"Diffusion, $K={DIFFUSION_WORKERS}$", ylim=(0, 1.4e3 * diffusion.predicted))
