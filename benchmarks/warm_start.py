"""A short training alone and in a warm process: two in a row, the second of which is like every further job of a DAG.

The first one in a warm process includes its imports.
"""

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.harness import Benchmark, Case, Measure
from resync.base.processes import warm_client
from resync.papers.paper import load_suite

TIMED = """
import subprocess, sys, time
launch, folder = sys.argv[1:-1], sys.argv[-1]
for number in range(2):
    started = time.perf_counter()
    subprocess.run([*launch, "--out", f"{folder}/{number}"], check=True, stdout=subprocess.DEVNULL)
    print(time.perf_counter() - started, flush=True)
"""
RESYNC = [sys.executable, "-m", "resync"]
WARM = [sys.executable, "-c", "import sys; from resync.base.processes import warm; sys.exit(warm.run(sys.argv[1:]))"]
ROOT = Path(__file__).parents[1]


def benchmark(smallest: bool = False) -> Benchmark:
    """One run of smoke scale in both ways; there is no smaller size."""
    run = load_suite(ROOT / "paper_configs").runs("qsr", "smoke")[-1]
    return Benchmark(
        title=f"A short training, {run.id}",
        minutes=0.5,
        measures={"second_run": Measure("s", "lower"), "first_run": Measure("s", "lower")},
        cases=[
            Case("alone", partial(seconds, [], run.to_yaml())),
            Case("in a warm process", partial(seconds, WARM, run.to_yaml())),
        ],
        base="alone",
        code=["runs/launch", "base/processes", "runs/train"],
    )


def seconds(before: list[str], config: str) -> dict[str, float]:
    """Wall-clock seconds of two consecutive runs."""
    environment = {name: value for name, value in os.environ.items() if name != warm_client.ADDRESS}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.yaml"
        path.write_text(config)
        launch = [*RESYNC, "launch", "--config", str(path)]
        timed = [*before, sys.executable, "-c", TIMED, *launch, str(Path(folder) / "out")]
        printed = subprocess.run(timed, check=True, capture_output=True, text=True, env=environment, cwd=ROOT).stdout
    first, second = map(float, printed.split())
    return {"second_run": second, "first_run": first}
