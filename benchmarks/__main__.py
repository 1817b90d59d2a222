"""`python -m benchmarks [--only a,b] [--smallest DIR|--redraw|--list]`: all benchmarks, or those named, by name."""

import argparse
import sys
import time
import traceback
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

from benchmarks.harness import cases, overview, results
from benchmarks.harness.environment import environment, machine_kind
from resync.base.files import read_json

HERE = Path(__file__).parent


def names() -> list[str]:
    """The benchmarks: the files beside this one."""
    return sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))


def load(name: str) -> ModuleType:
    """The module of a benchmark."""
    return import_module(f"benchmarks.{name}")


def measure(name: str, folder: Path, smallest: bool) -> bool:
    """Run one benchmark and write its results; returns whether it and no process of it has failed."""
    print(f"{name}:", flush=True)
    try:
        module = load(name)
        measured = cases.run(module.benchmark(smallest), lambda line: print(f"  {line}", flush=True), once=smallest)
    except Exception:  # the others are measured all the same
        traceback.print_exc()
        return False
    found = {"environment": environment()} | measured
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
    parser.add_argument("--list", action="store_true", help="say how old all results are")
    parser.add_argument("--smallest", type=Path, metavar="DIR", help="one round of the smallest size, into this folder")
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
    if given.list:
        print(*ages(results.FOLDER), sep="\n")
        return
    started = time.monotonic()
    folder = given.smallest or results.FOLDER / machine_kind()
    failed = [name for name in chosen if not measure(name, folder, given.smallest is not None)]
    overview.draw(folder)
    print(*ages(folder), f"{len(chosen)} benchmarks in {(time.monotonic() - started) / 60:.1f} minutes", sep="\n")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def ages(folder: Path) -> Iterator[str]:
    """A line for each result below a folder, with its commit and what has changed since."""
    for path in sorted(folder.rglob("*.json")):
        code = load(path.stem).benchmark().code
        yield results.age(path.stem, read_json(path)["environment"], code, HERE.parent)


if __name__ == "__main__":
    main()
