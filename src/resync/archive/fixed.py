"""When each claim was fixed: the first commit from which on it says what is tested today, and with which regime."""

import json
import subprocess
from pathlib import Path

from resync.errors import UserError
from resync.files import write_text
from resync.paper.claim import FIXED, Fixed, fingerprints
from resync.settings.errors import ConfigError
from resync.settings.loader import parse


def write_fixed(configs: Path) -> None:
    """Write `fixed.json` beside each `claims.yaml`, from the history of the repository.

    Raises UserError where git has none.
    """
    for file in sorted(configs.glob("*/claims.yaml")):
        write_text(file.with_name(FIXED), json.dumps(fixed(file), indent=1) + "\n")


def fixed(file: Path) -> Fixed:
    """By claim of `claims.yaml` and part (`test`, `regime`), fingerprint, commit and its time."""
    found: Fixed = {}
    now: dict[str, dict[str, str]] = {}
    ended: set[tuple[str, str]] = set()
    log = _git(file, "log", "--follow", "--name-only", "--format=%H %cI", "--", file.name).split("\n")
    lines = [line for line in log if line]
    for (commit, time), name in zip((line.split() for line in lines[::2]), lines[1::2], strict=True):
        try:
            claims = parse(_git(file, "show", f"{commit}:{name}"), name).plain() or []
        except ConfigError:  # of another version
            break
        then = {claim["id"]: fingerprints(claim) for claim in claims}
        now = now or then
        for of, parts in now.items():
            for part, print_ in parts.items():
                if (of, part) not in ended and then.get(of, {}).get(part) == print_:
                    found.setdefault(of, {})[part] = (print_, commit, time)
                else:
                    ended.add((of, part))
    return found


def _git(file: Path, *arguments: str) -> str:
    try:
        return subprocess.run(
            ["git", "-C", str(file.parent), *arguments], capture_output=True, encoding="utf-8", check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise UserError(f"{file}: no history: {error}") from None
