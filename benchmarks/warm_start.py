"""Benchmark of a smoke run alone and in a warm process: `python benchmarks/warm_start.py`.

Runs the same short training twice in each way, from the repository's folder, and prints seconds and their ratio. The
first warm run includes the imports; the second one takes as long as every further job of a DAG.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from resync.config import load_suite
from resync.processes import warm

TIMED = """
import subprocess, sys, time
launch, folder = sys.argv[1:-1], sys.argv[-1]
for number in range(2):
    started = time.perf_counter()
    subprocess.run([*launch, "--out", f"{folder}/{number}"], check=True, stdout=subprocess.DEVNULL)
    print(time.perf_counter() - started, flush=True)
"""


def seconds(before: list[str], config: Path, folder: Path) -> list[float]:
    """Wall-clock seconds of two consecutive runs."""
    launch = [sys.executable, "-m", "resync", "launch", "--config", str(config)]
    timed = [*before, sys.executable, "-c", TIMED, *launch, str(folder)]
    environment = {name: value for name, value in os.environ.items() if name != warm.ADDRESS}
    printed = subprocess.run(timed, check=True, capture_output=True, text=True, env=environment).stdout
    return [float(line) for line in printed.split()]


def main() -> None:
    """Measure and print."""
    run = load_suite(Path("paper_configs")).runs("qsr", "smoke")[-1]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "run.yaml"
        config.write_text(run.to_yaml())
        started = time.perf_counter()
        alone = seconds([], config, Path(folder) / "alone")
        warmed = seconds([sys.executable, "-m", "resync", "warm"], config, Path(folder) / "warm")
    print(f"{run.id}, {time.perf_counter() - started:.0f} s in all")
    for name, (first, second) in (("alone", alone), ("warm", warmed)):
        print(f"{name:>6}: first {first:6.1f} s, second {second:6.1f} s")
    print(f"a further job: {alone[1] / warmed[1]:.1f} times faster in a warm process")


if __name__ == "__main__":
    main()
