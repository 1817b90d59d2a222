"""The figure of the slow SDE: what it predicts as lines, what Local SGD does as points."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from resync.files import write_bytes
from resync.formulas.slow_sde import Floats, diffuse, predict, simulate
from resync.render import style
from resync.text_tables import csv_text

PERIODS = [1, 10, 50, 200]
WORKERS = [2, 8]
ETA = 0.02
TIMES = np.linspace(0, 4, 9)
MARKERS = "os^D"
HEADER = ["panel", "workers", "h", "time", "predicted", "simulated", "standard_error"]
Record = list[float | int | str]


def draw_theory(figures: Path) -> list[Path]:
    """Simulate, predict and draw into `figures`/theory/slow_sde.{pdf,png,csv}; the files written."""
    records: list[Record] = []
    with style.look():
        figure = style.new_figure(style.DOUBLE_COLUMN, 2.5)
        axes = figure.subplots(1, 3, width_ratios=[1, 1, 0.8])
        for panel, workers in zip(axes, WORKERS, strict=False):
            records += _drift(panel, workers)
        records += _diffusion(axes[-1])
        axes[0].set_ylabel("Position $a$ on the manifold")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(PERIODS))
        files = style.encode(figure)
    files[".csv"] = _table(records)
    for suffix, content in files.items():
        write_bytes(figures / f"theory/slow_sde{suffix}", content)
    return [figures / f"theory/slow_sde{suffix}" for suffix in files]


def _drift(axes: Axes, workers: int) -> list[Record]:
    simulated = simulate(PERIODS, workers, ETA, times=TIMES)
    fine = np.linspace(0, TIMES[-1], 201)
    records: list[Record] = []
    for period, color, marker, runs in zip(PERIODS, style.PALETTE, MARKERS, simulated, strict=True):
        axes.plot(fine, predict(period, workers, ETA, fine), color=color)
        mean, error = runs.mean(-1), runs.std(-1, ddof=1) / np.sqrt(runs.shape[-1])
        axes.errorbar(TIMES, mean, error, fmt=marker, color=color, markeredgecolor="white", label=f"$H={period}$")
        predicted = predict(period, workers, ETA, TIMES)
        records += [
            ["drift", workers, period, *map(float, row)] for row in zip(TIMES, predicted, mean, error, strict=True)
        ]
    axes.set(xlabel=r"Time $\eta^2 \cdot$ steps", title=f"Drift, $K={workers}$", ylim=(0.5, 1.02))
    return records


def _diffusion(axes: Axes) -> list[Record]:
    periods, workers, time, noise, replicas = [1, 10, 100], 8, 0.4, 0.3, 8192
    found: Floats = diffuse(periods, workers, time=time, noise=noise, replicas=replicas)
    expected = noise**2 * time / workers
    error = found * np.sqrt(2 / (replicas - 1))  # of the variance of a normal variable
    axes.axhline(1e3 * expected, color="black")
    axes.errorbar(periods, 1e3 * found, 1e3 * error, fmt="o", color=style.PALETTE[1], markeredgecolor="white")
    axes.set(xscale="log", xlabel="Period $H$ (steps)", ylabel=r"Variance of arc length ($10^{-3}$)")
    axes.set(title=f"Diffusion, $K={workers}$", ylim=(0, 1.4e3 * expected))
    return [
        ["diffusion", workers, period, time, expected, float(variance), float(sigma)]
        for period, variance, sigma in zip(periods, found, error, strict=True)
    ]


def _table(records: list[Record]) -> bytes:
    return csv_text((dict(zip(HEADER, record, strict=True)) for record in records), HEADER).encode()
