"""What the pipeline takes beside training: planning, collecting and auditing ten thousand runs, one figure, one job."""

import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks import _made_results, warm_start
from benchmarks.harness import Benchmark, Case, Goal, Measure
from benchmarks.harness.processes import Failed
from resync.base.processes import warm_client
from resync.papers.paper import load_suite

ROOT = Path(__file__).parents[1]
RESYNC = [sys.executable, "-m", "resync"]
SNAKEMAKE = [sys.executable, "-m", "snakemake", "--profile", "workflow/profiles/local", "--quiet", "all", "--nolock"]
FIGURE = "figures/paper/qsr/h_vit.pdf"


def benchmark(smallest: bool = False) -> Benchmark:
    """Each verb in a process of its own, as a user starts it."""
    series, seeds = (2, 3) if smallest else (_made_results.SERIES, _made_results.SEEDS)
    runs = f"{series * seeds:,} runs"
    place = tempfile.TemporaryDirectory(prefix="resync-pipeline-")
    folder = place.name
    made = ["--configs", f"{folder}/configs", "--results", f"{folder}/results", "made"]
    render = [*RESYNC, "render", "--figures", f"{folder}/figures"]
    cases = {
        "dry run of all papers": [[*SNAKEMAKE, "-n", "--config", "scale=paper"]],
        "plan of all papers": [[*RESYNC, "plan", "--scale", "paper"]],
        f"collect {runs}": [[*RESYNC, "collect", *made]],
        f"audit {runs}": [[*RESYNC, "audit", *made]],
        f"status of {runs}": [[*RESYNC, "status", *made]],
        f"draw {runs}": [[*render, *made[:-1], f"made/{_made_results.ITEM}"]],
        "one figure again": [
            [*SNAKEMAKE, "-n", "--config", "scale=paper", "--", FIGURE],
            [*render, "--results", f"{folder}/results", "qsr/h_vit", "--scale", "paper"],
        ],
    }
    limits = (15, 8, 60, 60, 60, 60, 5, 2)
    return Benchmark(
        title="The pipeline without training",
        minutes=8,
        measures={name: Measure(unit, "lower") for name, unit in _MEASURES.items()},
        cases=[
            *(Case(name, partial(measured, commands)) for name, commands in cases.items()),
            Case("one step in a warm process", one_step),
        ],
        base="dry run of all papers",
        code=["papers/audit", "papers/plan", "papers/render", "runs/results", "papers/paper", "tools/workflow.py"],
        goals=[
            *(Goal(name, limit) for name, limit in zip([*cases, "one step in a warm process"], limits, strict=True)),
            Goal(f"collect {runs}", 2e9, measure="peak_memory"),
            Goal(f"collect {runs}", 40, measure="processor_seconds"),
            *(Goal(f"{verb} {runs}", 30, measure="processor_seconds") for verb in ("audit", "status of", "draw")),
        ],
        notes=[
            "Each of the many runs has a thousand values in two tables and a summary; they were made without training.",
            "One figure again: Snakemake's plan for it, and drawing it. It is computed from the configuration.",
            "One step: a whole job of a training of one step, from its start to its results.",
        ],
        warm_up=lambda: _made_results.write(Path(folder), series, seeds),
        close=place.cleanup,
    )


_MEASURES = {"seconds": "s", "processor_seconds": "s", "peak_memory": "B"}


_WAIT = """
import os, sys
quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
_, status, usage = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=quiet), 0)
print(usage.ru_utime + usage.ru_stime, 1024 * usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""A small process that starts a command, since the kernel counts in a command's memory that of who has started it."""


def measured(commands: list[list[str]]) -> dict[str, float]:
    """Seconds, processor time and largest memory of commands that run one after the other."""
    environment = {name: value for name, value in os.environ.items() if name != warm_client.ADDRESS}
    started, processor, peak = time.perf_counter(), 0.0, 0.0
    for command in commands:
        waiting = [sys.executable, "-I", "-S", "-c", _WAIT, *command]
        ended = subprocess.run(waiting, cwd=ROOT, env=environment, capture_output=True, text=True)
        if ended.returncode:
            raise Failed(f"{' '.join(command)}: {ended.stderr}")
        seconds, memory = map(float, ended.stdout.split())
        processor, peak = processor + seconds, max(peak, memory)
    return {"seconds": time.perf_counter() - started, "processor_seconds": processor, "peak_memory": peak}


def one_step() -> dict[str, float]:
    """Seconds of the second of two jobs of one step in a warm process."""
    run = load_suite(ROOT / "paper_configs", papers=["qsr"]).runs("qsr", "smoke", "vit_b16_b4096", "h4")[0]
    shorter = {"epochs": 1, "steps_per_epoch": 1}
    schedule = run.schedule.model_copy(update={"warmup_epochs": None})
    text = run.model_copy(update=shorter | {"schedule": schedule}).to_yaml()
    return {"seconds": warm_start.seconds(warm_start.WARM, text)["second_run"]}
