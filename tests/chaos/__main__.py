"""`make chaos`: kill processes of runs until there are enough kills, print the report, and keep it as JSON."""

import argparse
import os
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
        report = Harness((options.keep or Path(temporary)).absolute(), options.seed).run(options.kills)
    if options.report:
        options.report.write_text(report.as_json())
    print(report.as_text())
    return 1 if report.defects else 0


if __name__ == "__main__":
    sys.exit(main())
