"""`python -m benchmarks [--only a,b] [--redraw]`: all benchmarks, or those named, in alphabetical order."""

import argparse
import sys
import time
from importlib import import_module
from pathlib import Path
from types import ModuleType

from benchmarks.harness import cases, overview, results
from benchmarks.harness.environment import environment, machine_kind

HERE = Path(__file__).parent


def names() -> list[str]:
    """The benchmarks: the files beside this one."""
    return sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))


def load(name: str) -> ModuleType:
    """The module of a benchmark."""
    return import_module(f"benchmarks.{name}")


def measure(name: str, folder: Path) -> bool:
    """Run one benchmark and write its results; returns whether no process of it has failed."""
    module = load(name)
    print(f"{name}:", flush=True)
    found = {"environment": environment()} | cases.run(module.benchmark(), lambda line: print(f"  {line}", flush=True))
    results.write(folder / f"{name}.json", found, getattr(module, "draw", None))
    for goal in found["goals"]:
        print(f"  {_sentence(goal)}", flush=True)
    return not any(case.get("unavailable", "").startswith("failed") for case in found["cases"])


def _sentence(goal: dict) -> str:
    beside = f" beside {goal['beside'] or ' or '.join(goal['among'])}" if goal["among"] else ""
    reached = "not measured" if goal["reached"] is None else f"{goal['reached']:.4g}"
    where = f"{goal['group']}: " if goal["group"] else ""
    return (
        f"{'met ' if goal['met'] else 'OPEN'} {where}{goal['case']}{beside}, {goal['measure']}: "
        f"{reached} (goal {goal['limit']:g})"
    )


def main() -> None:
    """Measure or redraw."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", default="", help="names of benchmarks, separated by commas")
    parser.add_argument("--redraw", action="store_true", help="draw the figures of all results again")
    given = parser.parse_args()
    chosen = [name for name in given.only.split(",") if name] or names()
    if unknown := sorted(set(chosen) - set(names())):
        parser.error(f"--only: found {', '.join(unknown)}, allowed: {', '.join(names())}")
    if given.redraw:
        for path in sorted(results.FOLDER.glob("*/*.json")):
            if path.stem in chosen:
                results.redraw(path, getattr(load(path.stem), "draw", None))
        for folder in results.FOLDER.iterdir():
            overview.draw(folder)
        return
    started = time.monotonic()
    folder = results.FOLDER / machine_kind()
    failed = [name for name in chosen if not measure(name, folder)]
    overview.draw(folder)
    print(f"{len(chosen)} benchmarks in {(time.monotonic() - started) / 60:.1f} minutes")
    if failed:
        sys.exit(f"processes failed in: {', '.join(failed)}")


if __name__ == "__main__":
    main()
