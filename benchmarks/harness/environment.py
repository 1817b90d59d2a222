"""The machine and the versions that a measurement belongs to, without names of hosts or folders."""

import os
import platform
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from resync.runs.train.provenance import GIT, VERSIONS


def environment() -> dict[str, Any]:
    """What a reader must know to compare times."""
    devices = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {
        "machine": machine_kind(),
        "cpu": _cpu_model(),
        "cores": cores(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpus": devices,
        "cuda": torch.version.cuda if devices else None,
        "os": f"{platform.system()} {platform.release().split('-')[0]}, {_distribution()}",
        "threads": torch.get_num_threads(),
        "versions": VERSIONS,
        "git": GIT,
        "day": datetime.now(UTC).date().isoformat(),
    }


def machine_kind() -> str:
    """The folder of this machine's results: `cpu2`, or the name of its GPU."""
    if torch.cuda.is_available():
        return re.sub(r"\W+", "_", torch.cuda.get_device_name(0)).lower()
    return f"cpu{cores()}"


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return "unknown"
