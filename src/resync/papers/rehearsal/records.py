"""What a rehearsal has measured, the verdict on its shape, and the pages with all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import ceil
from pathlib import Path
from typing import Any

from resync.base.files import read_json, write_text
from resync.base.text_tables import json_text, markdown
from resync.papers.plan.cost import FLOAT32_BYTES, in_units, volume
from resync.papers.plan.rehearsed import NAME, Rates, shape_id, shape_of
from resync.papers.rehearsal.cut import on_noise
from resync.runs.results import state
from resync.runs.results.runs import read_run
from resync.runs.run import Run

WAITING = 0.1
"""The share of a step from which on a reader is too slow ..."""
NOTICEABLE = 0.005
"""... unless the wait is shorter than these seconds."""
_MEMORY = ("OutOfMemoryError", "out of memory", "MemoryError", "can't allocate memory")
"""Parts of the errors of torch, CUDA and Python when memory is short."""


def record(runs: Sequence[Run], out: Path, code: int) -> bool:
    """Write the record of a rehearsal that has ended, with rates or a verdict; return whether it failed."""
    run = runs[0]
    content: dict[str, Any] = {
        "shape": shape_id(run), "of": shape_of(run), "text": _in_words(run), "run": run.id,
        "data": "noise" if on_noise(run) else run.data.name,
    }  # fmt: skip
    failed = bool(code or read_run(out).summary["diverged"])
    if failed:
        last = state.recorded(out)
        unknown = f"exit code {code}; resources.memory_mb may be too small" if code else "its loss is not finite"
        reason = last.reason if last and last.reason else unknown
        verdict, remedy = _failure(run, reason)
        content |= {"verdict": verdict, "remedy": remedy, "reason": reason, "rates": None, "measured": None}
    else:
        content |= _measured(out)
        content |= {"reason": "", "verdict": "", "remedy": ""}
    write_text(out.with_suffix(".json"), json_text(content) + "\n")
    return failed


def _measured(out: Path) -> dict[str, Any]:
    result = read_run(out)
    summary, steps = result.summary, result.steps
    communication = steps["step_communication_seconds"].fillna(0.0)
    alone = steps["step_compute_seconds"] + steps["step_data_seconds"]
    [*_, last] = summary["jobs"]
    kept = [file for folder in (out / "checkpoint").iterdir() for file in folder.iterdir()]
    seconds = summary["seconds"]["communication"]
    overlaps = seconds is None
    rates = Rates(
        step=float(steps["step_compute_seconds"].median()),
        data=float(steps["step_data_seconds"].median()),
        communication=0.0 if overlaps else seconds / max(1, summary["bytes_sent"]),
        overlaps=overlaps,
        evaluation=None
        if summary["data"]["name"] == "noise"
        else summary["seconds"]["evaluation"] / len(result.curve("step")),
        checkpoint=last["checkpoint_seconds"],
    )
    return {
        "rates": asdict(rates),
        "measured": {
            "peak_memory_bytes": max(job["peak_memory_bytes"] for job in summary["jobs"]),
            "memory_bytes": last["memory_bytes"],
            "step_median": float((alone + communication).median()),
            "step_p95": float((alone + communication).quantile(0.95)),
            "communication_seconds": None if overlaps else float(communication.mean()),
            "checkpoint_bytes": sum(file.stat().st_size for file in kept),
            "parameters": summary["parameters"],
            "resumed_from": summary["resumed_from"],
            "device": summary["launch"]["device"],
        },
    }


def gather(results: Path, scale: str, of: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """Write what has been rehearsed of these shapes, with the hours and the limit of their longest runs; return it."""
    folder = results / scale / NAME
    there = {name: folder / f"{name}.json" for name in of}
    shapes = [_judged(read_json(file), of[name]) for name, file in there.items() if file.exists()]
    absent = [_in_words(runs[0]) for name, runs in of.items() if not there[name].exists()]
    content = {"shapes": shapes, "not rehearsed": absent}
    write_text(folder.with_suffix(".json"), json_text(content) + "\n")
    write_text(folder.with_suffix(".md"), page(scale, content))
    return content


def _judged(content: dict[str, Any], runs: Sequence[Run]) -> dict[str, Any]:
    """A record with the hours of the longest of these runs and, if the rehearsal has finished, a verdict."""
    content |= {"runs": len(runs), "hours": None, "limit_hours": min(run.resources.minutes for run in runs) / 60}
    if content["rates"] is None:
        return content
    rates, size = Rates(**content["rates"]), content["measured"]["parameters"] * FLOAT32_BYTES
    hours = {run.id: rates.hours(run, float(volume(run).vectors) * size) for run in runs}
    longest = max(runs, key=lambda run: hours[run.id])
    content |= {"hours": hours[longest.id], "limit_hours": longest.resources.minutes / 60}
    verdict, remedy = "fine", ""
    if rates.data > max(NOTICEABLE, WAITING * (rates.step + rates.data)):
        verdict = "reader too slow"
        remedy = (
            "more resources.cpus, of which each decodes images, or data.format beton"
            if "format" in (longest.data.options)
            else "resources on which less else runs: the data are in memory"
        )
    elif content["hours"] > content["limit_hours"]:
        jobs = ceil(content["hours"] / content["limit_hours"])
        verdict = "limit too short"
        remedy = f"resources.minutes: {ceil(content['hours'] * 66)}, or it goes on in {jobs} jobs, one after the other"
    return content | {"verdict": verdict, "remedy": remedy}


def _failure(run: Run, reason: str) -> tuple[str, str]:
    if not any(part in reason for part in _MEMORY):
        return "failed", reason
    batch = run.forward_batch_size
    smaller = next((size for size in range(batch // 2, 0, -1) if batch % size == 0), None)
    norm = ", over which BatchNorm then normalises" if run.model.has_batch_norm else ""
    remedy = f"micro_batch_size: {smaller}, a forward pass of so many samples{norm}" if smaller else "a larger GPU"
    return "out of memory", remedy


def _in_words(run: Run) -> str:
    resources = run.resources
    options = [f"{name}: {value}" for name, value in run.model if name in ("depth", "dim")]
    machine = f"{resources.nodes} x {resources.gpus_per_node} GPUs" if resources.gpus_per_node else "CPU"
    parts = [" ".join([run.model.name, *options]), f"batch {run.batch_size // run.processes}", run.precision,
             run.sync.name, run.engine.name, resources.launcher, machine]  # fmt: skip
    if run.data.options.get("format"):
        parts.append(run.data.format)
    return ", ".join(parts)


def page(scale: str, content: Mapping[str, Any]) -> str:
    """The text of rehearsal.md: a line for each shape."""
    rows = [_row(shape) for shape in content["shapes"]]
    lines = [f"# Rehearsal of the runs at {scale} scale", ""]
    lines += markdown(_HEADINGS, rows, "l" * 2 + "r" * 10 + "l") if rows else ["Nothing has been rehearsed."]
    lines += ["", *(f"Not rehearsed: {text}." for text in content["not rehearsed"])]
    return "\n".join(lines).rstrip() + "\n"


_HEADINGS = ("shape", "data", "runs", "memory", "step ms", "p95 ms", "data ms", "comm. ms", "checkpoint", "seconds",
             "hours", "limit", "verdict")  # fmt: skip


def _row(shape: Mapping[str, Any]) -> tuple[str, ...]:
    measured, rates = shape["measured"], shape["rates"]
    verdict = ": ".join(filter(None, (shape["verdict"], shape["remedy"])))
    limit = f"{shape['limit_hours']:.3g}"
    if measured is None:
        return shape["text"], shape["data"], str(shape["runs"]), *["-"] * 8, limit, verdict

    def ms(seconds: float | None) -> str:
        return "overlaps" if seconds is None else f"{1000 * seconds:.3g}"

    there = measured["memory_bytes"]
    memory = in_units(measured["peak_memory_bytes"], "B") + (f" of {in_units(there, 'B')}" if there else "")
    return (
        shape["text"], shape["data"], str(shape["runs"]), memory, ms(measured["step_median"]), ms(measured["step_p95"]),
        ms(rates["data"]), ms(measured["communication_seconds"]), in_units(measured["checkpoint_bytes"], "B"),
        f"{rates['checkpoint']:.3g}", f"{shape['hours']:.3g}", limit, verdict,
    )  # fmt: skip
