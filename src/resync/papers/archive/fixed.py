"""When each claim was fixed: the first commits from which on it says what is tested, how, and in which regime."""

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from resync.base.errors import UserError
from resync.base.files import write_text
from resync.base.settings.errors import ConfigError
from resync.base.settings.loader import parse
from resync.papers.paper.claim import FIXED, TEST_RULE, Fixed, fingerprint

_RULE = ":(glob)src/resync/**/claim.py"
"""Where the rule stands, and has stood."""
_BEFORE_NAMES = {"2": "37b9bee7fa30547a65e18824aa4aa3cbd3dedc6b"}
"""The commits that brought the rules that are older than their names, by version."""

_Entry = Mapping[str, Any]


def write_fixed(configs: Path) -> None:
    """Write `fixed.json` beside each `claims.yaml`, from the history of the repository.

    Raises UserError where git has none.
    """
    rule = _rule(configs)
    for file in sorted(configs.glob("*/claims.yaml")):
        by_claim = {name: {**parts, "rule": rule} for name, parts in fixed(file).items()}
        write_text(file.with_name(FIXED), json.dumps(by_claim, indent=1) + "\n")


def fixed(file: Path) -> Fixed:
    """By claim of `claims.yaml` and part (`test`, `regime`, `pilots`): fingerprint, commit and its time."""
    by_claim: Fixed = {}
    history = [(commit, time, {claim["id"]: claim for claim in claims}) for commit, time, claims in _history(file)]
    experiments = {claim["experiment"] for _, _, claims in history[:1] for claim in claims.values()}
    files = {name: file.parent / "experiments" / f"{name}.yaml" for name in experiments}
    histories = {name: list(_history(path)) for name, path in files.items()}
    for name, claim in history[0][2].items() if history else ():
        tests = [(commit, time, claims.get(name, {})) for commit, time, claims in history]
        by_claim[name] = {"test": _since(tests, fingerprint)}
        of_experiment = histories[claim["experiment"]]
        if of_experiment and "regime" in of_experiment[0][2]:
            by_claim[name]["regime"] = _since(of_experiment, lambda entry: fingerprint(entry, "regime", "tuned"))
        if of_experiment and _has_pilots(of_experiment[0][2]):
            by_claim[name]["pilots"] = _since(of_experiment, lambda entry: str(_has_pilots(entry)))
    return by_claim


def _since(history: list[tuple[str, str, Any]], of: Callable[[Any], str]) -> tuple[str, str, str]:
    """What a file says now, and the first commit, with its time, since which it has said so."""
    now = of(history[0][2])
    last = history[0]
    for entry in history:
        if of(entry[2]) != now:
            break
        last = entry
    return now, last[0], last[1]


def _has_pilots(experiment: _Entry) -> bool:
    return any("pilot_seeds" in layer for layer in experiment.get("scales", {}).values())


def _history(file: Path) -> Iterator[tuple[str, str, Any]]:
    """The commits that changed a file, the newest first, with their times and what it said, back to other versions."""
    log = _git(file, "log", "--follow", "--name-only", "--format=%H %cI", "--", file.name).split("\n")
    lines = [line for line in log if line]
    for (commit, time), name in zip((line.split() for line in lines[::2]), lines[1::2], strict=True):
        try:
            yield commit, time, parse(_git(file, "show", f"{commit}:{name}"), name).plain() or []
        except ConfigError:  # of another version
            return


def _rule(configs: Path) -> tuple[str, str, str]:
    """The rule of tests, and the commit that brought it."""
    version = TEST_RULE.rpartition("; ")[2]
    commit = _BEFORE_NAMES.get(version)
    if commit is None:
        top = Path(_git(configs / "any", "rev-parse", "--show-toplevel").strip())
        commit = _git(top / "any", "log", "--format=%H", f"-S{TEST_RULE}", "--", _RULE).split()[-1]
    return TEST_RULE, commit, _git(configs / "any", "show", "-s", "--format=%cI", commit).strip()


def _git(file: Path, *arguments: str) -> str:
    try:
        return subprocess.run(
            ["git", "-C", str(file.parent), *arguments], capture_output=True, encoding="utf-8", check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise UserError(f"{file}: no history: {error}") from None
