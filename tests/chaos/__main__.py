"""`make chaos`: kill processes of runs until there are enough kills or Ctrl-C, and report what that cost."""

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "WANDB_MODE": "offline"}  # before torch is imported
sys.path.append(str(Path(__file__).parents[1] / "training"))

from harness import Harness


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", type=Path, help="file for all kills as JSON")
    parser.add_argument("--keep", type=Path, help="folder in which runs and logs stay; default: they are deleted")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        harness = Harness((options.keep or Path(temporary)).absolute(), options.seed)
        for number in (signal.SIGINT, signal.SIGTERM):  # also where it was started in the background
            signal.signal(number, harness.interrupt)
        report = harness.run(options.kills)
    if options.report:
        options.report.write_text(report.as_json())
    print(f"\n{report.as_text()}", flush=True)
    if report.defects:
        return 1
    return 0 if report.complete else 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
