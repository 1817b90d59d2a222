"""Provenance of a run: times, machine, versions and commit."""

import platform
import resource
import subprocess
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from resync.base.files import lines_of

PACKAGES = ("torch", "torchvision", "numpy", "sentencepiece", "sacrebleu", "wandb")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


VERSIONS = {"python": platform.python_version(), "resync": _version("resync-suite")} | {
    name: _version(name) for name in PACKAGES
}
"""Versions of Python and of the packages that affect results, read once for all runs of a warm process.

None for a package that is not installed.
"""


def _git() -> dict[str, Any] | None:
    # Without locks, which would be in the way of whoever commits meanwhile.
    ask = ["git", "--no-optional-locks", "-C", str(Path(__file__).parent), "status", "--porcelain=v2", "--branch"]
    try:
        lines = lines_of(subprocess.run(ask, capture_output=True, encoding="utf-8", check=True).stdout)
    except (OSError, subprocess.CalledProcessError):
        return None
    [commit] = [line.split()[-1] for line in lines if line.startswith("# branch.oid ")]
    return {"commit": commit, "dirty": any(not line.startswith("#") for line in lines)}


GIT = _git()
"""Commit of the checkout and whether it has changes, when the code was imported; None outside a checkout."""


def _processor() -> str:
    """Model of the processor: its name, and on Linux also family and model, which a virtual machine does not hide."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0].split("\n")
    except OSError:
        return platform.processor() or platform.machine()
    entries = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    numbers = [f"{name} {entries[name]}" for name in ("cpu family", "model", "stepping") if name in entries]
    return ", ".join([entries.get("model name", platform.machine()), *numbers])


PROCESSOR = _processor()


class TrainingJob:
    """A job that has trained a run, or a part of it, on a device."""

    def __init__(self, device: str | torch.device = "cpu") -> None:
        self.device = torch.device(device)
        self.checkpoint_seconds: float | None = None
        self.started = now()
        self.first_step = 0
        self._began = time.monotonic()

    def record(self) -> dict[str, Any]:
        """Since when and how long it has trained, from which step on, with which code; seconds of its last checkpoint.

        And the peak of the memory that this process has had of its GPU, beside all that the GPU has; or of the machine.
        """
        seconds = time.monotonic() - self._began
        return {
            "started": self.started, "seconds": seconds, "first_step": self.first_step, "git": GIT,
            "checkpoint_seconds": self.checkpoint_seconds, **_memory(self.device),
        }  # fmt: skip


UNKNOWN_JOBS = [{"started": None, "seconds": None, "first_step": 0, "git": None}]
"""The jobs before a checkpoint of a version of resync that did not record them."""


def _memory(device: torch.device) -> dict[str, int | None]:
    if device.type == "cpu":
        return {"peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "memory_bytes": None}
    there = torch.cuda.get_device_properties(device).total_memory
    return {"peak_memory_bytes": torch.cuda.max_memory_reserved(device), "memory_bytes": there}


def now() -> str:
    """The current time in UTC, as ISO 8601 in whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")
