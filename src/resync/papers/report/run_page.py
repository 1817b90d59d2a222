"""The page of a run: its settings and how its siblings differ, its results, time, versions, and how to repeat it."""

from collections.abc import Mapping
from typing import Any

from resync.papers.report.content import Content
from resync.papers.report.curves import main_metric, run_charts
from resync.runs.metrics.registry import METRICS
from resync.runs.results.runs import RunResult, RunState
from resync.runs.results.seed_values import number
from resync.runs.results.summary import commits

_MOST_ROWS = 60
"""Evaluations that the table of a page shows; metrics.csv beside it has all."""


def run_page(content: Content, state: RunState) -> dict[str, Any]:
    """What the template of a run's page shows."""
    run, result = state.run, state.result
    name = (run.paper, run.experiment, run.series)
    return {
        "state": state,
        "run": run,
        "seeds": content.series[name],
        "siblings": [states[0].run for other, states in content.series.items() if other[:2] == name[:2]],
        "differences": _differences(content, state),
        "charts": run_charts(content, state),
        "final": _final(result) if result else [],
        "evaluations": _evaluations(result) if result else None,
        "time": _time(result) if result else None,
        "facts": _facts(result) if result else [],
        "commits": {git["commit"]: git["dirty"] for git in commits(result.summary)} if result else {},
        "items": [content.suite.papers[run.paper].items[item] for item in content.items_of_series[name]],
        "lines": content.lines_of_series[name],
        "yaml": run.to_yaml(),
        "directory": f"results/{run.directory}",
    }


def _differences(content: Content, state: RunState) -> list[tuple[str, list[str]]]:
    """The settings in which the series of the experiment differ, with the value of each at its first seed."""
    run = state.run
    series = [states[0].run for name, states in content.series.items() if name[:2] == (run.paper, run.experiment)]
    rates = {first.id: first.sync.effective_outer_lr for first in series}
    outer = {name: {} if rate is None else {"effective outer rate": f"{rate:.3g}"} for name, rate in rates.items()}
    settings = [content.settings[first.id] | outer[first.id] for first in series]
    keys = dict.fromkeys(key for values in settings for key in values)
    rows = [(key, [values.get(key, "") for values in settings]) for key in keys]
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def _final(result: RunResult) -> list[tuple[str, str, str]]:
    return [
        (METRICS[name].title, text, "" if METRICS[name].unit == "1" else METRICS[name].unit)
        for name, value in result.final_values()
        if name in METRICS and not name.endswith("_hours") and (text := shown(value)) != "NaN"
    ]


def _evaluations(result: RunResult) -> dict[str, Any]:
    table = result.metrics
    metric = main_metric(result)
    wanted = ("step", "epoch", "round", "h", "lr", "train_loss", "val_loss", metric, "bytes_sent", "training_seconds")
    names = [name for name in dict.fromkeys(wanted) if name in table]
    every = -(-len(table) // _MOST_ROWS)
    rows = sorted({*range(0, len(table), every), len(table) - 1})
    units = {name: METRICS[name].unit for name in names}
    counts = ("1", "steps", "epochs", "rounds")
    return {
        "headings": [(METRICS[name].title, "" if unit in counts else unit) for name, unit in units.items()],
        "rows": [[shown(value) for value in row] for row in table[names].iloc[rows].itertuples(index=False)],
        "every": every,
        "of": len(table),
    }


def _time(result: RunResult) -> dict[str, Any]:
    """The parts of the wall time in seconds, and the mean times of a sampled step, without those that are unknown."""
    seconds = result.summary["seconds"]
    training, communication = seconds["training"], seconds["communication"]
    evaluation, wall = seconds["evaluation"], seconds.get("wall")
    parts: list[tuple[str, float]] = []
    if training is not None and communication is not None:
        parts += [("computing and data", training - communication), ("communication", communication)]
    elif training is not None:
        parts += [("training, in which communication cannot be told apart", training)]
    if evaluation is not None:
        parts += [("evaluation", evaluation)]
    if wall is not None:
        parts += [("start-up, checkpoints and the rest", wall - sum(value for _, value in parts))]
    parts = [(name, value) for name, value in parts if value > 0]
    total = sum(value for _, value in parts) or 1.0
    shares = [(name, shown(value), 100 * value / total) for name, value in parts]
    means = result.steps[["step_data_seconds", "step_compute_seconds", "step_communication_seconds"]].mean().dropna()
    step = [(METRICS[str(name)].title.lower(), f"{1000 * mean:.3g}") for name, mean in means.items()]
    return {"parts": shares, "total": shown(total), "step": step}


def _facts(result: RunResult) -> list[tuple[str, str]]:
    summary = result.summary
    launch, data, imported = (summary.get(name) or {} for name in ("launch", "data", "imported"))
    gits = [f"{git['commit']}{' with uncommitted changes' if git['dirty'] else ''}" for git in commits(summary)]
    facts: Mapping[str, Any] = {
        "configuration": summary["config_hash"],
        "commit": ", ".join(dict.fromkeys(gits)),
        "started": _moment(summary.get("started")),
        "ended": _moment(summary.get("ended")),
        "continued from": ", ".join(map(str, summary.get("resumed_from") or [])),
        "imported from": ", ".join(source["name"] for source in imported.get("sources", [])),
        "of the log": "; ".join(imported.get("notes", [])),
        "SHA-256 of the parameters": summary.get("parameters_sha256"),
        **{f"launch: {name}": value for name, value in launch.items()},
        **{f"data: {name}": value for name, value in data.items()},
        **{f"version of {name}": value for name, value in (summary.get("versions") or {}).items()},
    }
    return [(name, str(value)) for name, value in facts.items() if value not in (None, "", [], {})]


def _moment(time: str | None) -> str:
    return f"{time[:10]} {time[11:16]} UTC" if time else ""


def shown(value: float | None) -> str:
    """A number with as many digits as a reader can use: `1,234,567`, `97.42`, `0.00123`."""
    if value is None:
        return "NaN"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}"
    if abs(value) >= 1000:
        return f"{value:,.1f}"
    return number(value, 2) if abs(value) >= 10 else number(value, 4) if abs(value) >= 0.01 else f"{value:.3g}"
