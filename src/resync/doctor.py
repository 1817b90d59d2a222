"""What this machine and its installation have of what runs can use: a line each, with how to get what is missing."""

import fcntl
import os
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import Literal

from resync.data_sets.declaration import data_set
from resync.paper import Suite, load_suite
from resync.prepare.availability import availability
from resync.prepare.folders import DATA_ROOT
from resync.run.run import SCALES
from resync.settings.errors import ConfigError

_LEAST_GB = 5.0
"""Free space, in GB, below which results of mini scale may not fit."""
_SLURM_SECONDS = 20
_OPTIONAL = (
    ("ffcv", "ImageNet at paper scale from .beton files; torch reads image files without it"),
    ("deepspeed", "engine and launcher deepspeed"),
    ("wandb", "the second record of each run's metrics"),
    ("tensorboard", "log.tensorboard"),
)
"""Packages that are extras of the same name, and what needs them."""
_PROGRAMS = (("git", "its commit is recorded with each result"), ("chromium", "draws the pages in their tests"))


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for: whether it is there, what was found, and how to get it.

    `needed` is missing without which not even smoke scale runs; `optional` is missing for some runs or tests only.
    """

    name: str
    state: Literal["ok", "needed", "optional"]
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        sign = {"ok": "ok      ", "needed": "MISSING ", "optional": "-       "}[self.state]
        return f"{sign} {self.name}: {self.found}{f' -> {self.remedy}' if self.remedy else ''}"


def examine(configs: Path, results: Path) -> Iterator[Finding]:
    """Everything that was looked for, from what all runs need to what some tests need."""
    yield Finding("Python", "ok", f"{sys.version.split()[0]} ({sys.executable})")
    try:
        yield Finding("resync", "ok", version("resync-suite"))
    except PackageNotFoundError:
        yield Finding("resync", "optional", "runs from its sources", "pip install --no-deps -e .")
    if configs.is_dir() and Path("Snakefile").is_file():
        yield Finding("papers", "ok", f"{configs} is there")
    else:
        remedy = "start in a clone of the repository; the library, train and launch work without one"
        yield Finding("papers", "needed", f"{configs} is not here", remedy)
    yield _package("snakemake", "needed", "make, or pip install '.[suite]' in a clone")
    yield from _torch()
    yield _disk(results)
    yield _locks(results)
    yield from _data(configs)
    yield _slurm()
    for name, use in _OPTIONAL:
        yield _package(name, "optional", f"pip install '.[{name}]' in a clone: {use}")
    for name, use in _PROGRAMS:
        path = shutil.which(name)
        yield Finding(name, "ok" if path else "optional", path or "not in PATH",
                      "" if path else f"a package of the system: {use}")  # fmt: skip


def _package(name: str, without: Literal["needed", "optional"], remedy: str) -> Finding:
    if find_spec(name) is None:
        return Finding(name, without, "not installed", remedy)
    return Finding(name, "ok", version(name))


def _torch() -> Iterator[Finding]:
    try:
        import torch
        import torch.distributed as dist
    except (ImportError, OSError) as error:
        yield Finding("torch", "needed", str(error).splitlines()[0], "make, or pip install . in a clone")
        return
    yield Finding("torch", "ok", f"{torch.__version__}, {torch.get_num_threads()} threads")
    if torch.cuda.is_available():
        names = Counter(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
        gpus = ", ".join(f"{number} x {name}" for name, number in names.items())
        yield Finding("CUDA", "ok", f"{torch.version.cuda}: {gpus}")
    elif torch.version.cuda is None:
        yield Finding("CUDA", "optional", "torch was built without it", "needed at paper scale: make without TORCH=cpu")
    else:
        driver = "a driver but no usable GPU" if shutil.which("nvidia-smi") else "no driver (nvidia-smi)"
        yield Finding("CUDA", "optional", f"torch has {torch.version.cuda}, {driver}", "needed at paper scale only")
    if dist.is_available() and dist.is_nccl_available():
        yield Finding("NCCL", "ok", ".".join(map(str, torch.cuda.nccl.version())))
    else:
        yield Finding("NCCL", "optional", "not in this torch", "needed for several GPUs")
    try:
        dist.ProcessGroupGloo(dist.HashStore(), 0, 1)
        yield Finding("gloo", "ok", "finds an interface")
    except (AttributeError, RuntimeError) as error:  # such as of a host whose name has no address
        remedy = f"an address for {socket.gethostname()} in /etc/hosts, or GLOO_SOCKET_IFNAME=lo"
        yield Finding("gloo", "needed", str(error).splitlines()[0], remedy)


def _disk(results: Path) -> Finding:
    folder = next(each for each in (results, *results.absolute().parents) if each.exists())
    free = shutil.disk_usage(folder).free / 1e9
    found = f"{free:.1f} GB free for {results}"
    if free >= _LEAST_GB:
        return Finding("disk", "ok", found)
    return Finding("disk", "optional", found, f"less than {_LEAST_GB:g} GB: `resync plan` says what a scale needs")


def _locks(results: Path) -> Finding:
    if not results.is_dir():
        return Finding("locks", "optional", f"{results} is not here")
    try:
        with TemporaryFile(dir=results) as probe:
            fcntl.lockf(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return Finding("locks", "optional", f"{results}: {error.strerror}", "never start two jobs for one run there")
    return Finding("locks", "ok", f"{results} has them")


def _data(configs: Path) -> Iterator[Finding]:
    try:
        suite = load_suite(configs)
    except ConfigError as error:
        yield Finding("configuration", "needed", error.lines[0], "resync validate lists all problems")
        return
    root = os.environ.get(DATA_ROOT)
    if not root:
        yield Finding(
            DATA_ROOT, "optional", "not set", "the folder of real data; smoke scale needs none (docs/data.md)"
        )
    elif not Path(root).is_dir():
        yield Finding(DATA_ROOT, "optional", f"{root}: no such folder", "docs/data.md")
    else:
        yield Finding(DATA_ROOT, "ok", root)
    for name, readers in sorted(_readers(suite).items()):
        where = availability(data_set(name))
        yield Finding(f"data {name} ({readers})", "optional" if where.remedy else "ok", where.found, where.remedy)


def _readers(suite: Suite) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for scale in SCALES:
        papers: dict[str, list[str]] = {}
        for paper in sorted(suite.papers):
            for name in {run.data.name for run in suite.runs(paper, scale) if run.data.component.is_prepared}:
                papers.setdefault(name, []).append(paper)
        for name, readers in papers.items():
            found.setdefault(name, []).append(f"{scale}: {', '.join(readers)}")
    return {name: "; ".join(scales) for name, scales in found.items()}


def _slurm() -> Finding:
    if not shutil.which("sbatch"):
        return Finding("Slurm", "optional", "no sbatch in PATH", "needed for snakemake --profile slurm only")
    ask = ["sinfo", "--noheader", "--format=%R"]
    try:
        done = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=_SLURM_SECONDS)
    except subprocess.TimeoutExpired:
        return Finding("Slurm", "optional", f"sinfo gives no answer within {_SLURM_SECONDS} s")
    except OSError as error:
        return Finding("Slurm", "optional", f"sinfo: {error.strerror}")
    if done.returncode:
        said = done.stderr.strip().splitlines()
        return Finding("Slurm", "optional", said[-1] if said else f"sinfo ends with exit code {done.returncode}")
    return Finding("Slurm", "ok", f"partitions {', '.join(sorted(set(done.stdout.split())))}")
