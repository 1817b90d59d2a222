"""Reading wandb logs, offline.

wandb has no API for the binary logs `run-*.wandb`, only the command `wandb leet inspect --json`, of wandb 0.31 and
later, which prints one record per line. Only this module knows the form of the records.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from resync.base.errors import UserError
from resync.base.files import lines_of

FOLDER = "wandb"
TIMEOUT_SECONDS = 120


class WandbLogError(UserError):
    """A log that cannot be read; the message is one line that names the file."""


def logs(directory: Path) -> list[Path]:
    """The wandb logs of a run, oldest first: one per job that trained it."""
    return sorted(directory.glob(f"{FOLDER}/*run-*/run-*.wandb"))


def read_log(log: Path) -> list[dict[str, Any]]:
    """What one log has recorded in each call of `wandb.log`.

    Values are those of JSON; NaN and infinities are texts. Raises WandbLogError.
    """
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(log.resolve())]
    try:
        # Offline, the command reports nothing to wandb's server.
        result = subprocess.run(
            command,
            env=os.environ | {"WANDB_MODE": "offline"},
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise WandbLogError(f"{log}: wandb did not read it within {TIMEOUT_SECONDS} s") from None
    if result.returncode:
        reason = lines_of(result.stderr.strip() or "no message")[-1]
        raise WandbLogError(f"{log}: wandb cannot read it: {reason}")
    records = [json.loads(line) for line in lines_of(result.stdout)]
    return [record["history"].get("item", {}) for record in records if record["type"] == "history"]
