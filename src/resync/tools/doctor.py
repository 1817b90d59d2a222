"""What this machine and its installation have of what runs can use: a line each, with how to get what is missing."""

import fcntl
import os
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from tempfile import TemporaryFile
from typing import Literal

from resync.base.files import lines_of
from resync.base.settings.errors import ConfigError
from resync.papers.paper import load_suite
from resync.runs.run.run import SCALES
from resync.tasks.data_sets.declaration import data_set
from resync.tasks.prepare.availability import availability
from resync.tasks.prepare.folders import DATA_ROOT

_LEAST_GB = 5.0
"""Free space, in GB, below which results of mini scale may not fit."""
_SLURM_SECONDS = 20
_OPTIONAL = (
    ("ffcv", "ImageNet at paper scale from .beton files; torch reads image files without it"),
    ("deepspeed", "engine and launcher deepspeed"),
    ("wandb", "logs of runs for Weights & Biases"),
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
    yield _package("resync", "resync-suite", "runs from its sources", "pip install --no-deps -e .")
    here = configs.is_dir() and Path("Snakefile").is_file()
    remedy = "start in a clone of the repository; the library, train and launch work without one"
    yield _finding("papers", here, f"{configs} is {'there' if here else 'not here'}", remedy, without="needed")
    snakemake = _package("snakemake", remedy="make, or pip install '.[suite]' in a clone")
    yield snakemake if snakemake.state == "ok" else replace(snakemake, state="needed")
    yield from _torch()
    folder = next(parent for parent in (results, *results.absolute().parents) if parent.exists())
    free = shutil.disk_usage(folder).free / 1e9
    remedy = f"less than {_LEAST_GB:g} GB: `resync plan` says what a scale needs"
    yield _finding("disk", free >= _LEAST_GB, f"{free:.1f} GB free for {results}", remedy)
    yield _locks(results)
    yield from _data(configs)
    yield _slurm()
    for name, use in _OPTIONAL:
        yield _package(name, remedy=f"pip install '.[{name}]' in a clone: {use}")
    for name, use in _PROGRAMS:
        path = shutil.which(name)
        yield _finding(name, path, path or "not in PATH", f"a package of the system: {use}")


def _finding(
    name: str, there: object, found: str, remedy: str, without: Literal["needed", "optional"] = "optional"
) -> Finding:
    return Finding(name, "ok", found) if there else Finding(name, without, found, remedy)


def _package(name: str, distribution: str = "", missing: str = "not installed", remedy: str = "") -> Finding:
    try:
        return Finding(name, "ok", version(distribution or name))
    except PackageNotFoundError:
        return Finding(name, "optional", missing, remedy)


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
    nccl = dist.is_available() and dist.is_nccl_available()
    found = ".".join(map(str, torch.cuda.nccl.version())) if nccl else "not in this torch"
    yield _finding("NCCL", nccl, found, "needed for several GPUs")
    try:
        dist.ProcessGroupGloo(dist.HashStore(), 0, 1)
        yield Finding("gloo", "ok", "finds an interface")
    except (AttributeError, RuntimeError) as error:  # such as of a host whose name has no address
        remedy = f"an address for {socket.gethostname()} in /etc/hosts, or GLOO_SOCKET_IFNAME=lo"
        yield Finding("gloo", "needed", str(error).splitlines()[0], remedy)


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
        yield Finding("configuration", "needed", error.lines[0], "resync list names all problems")
        return
    root = os.environ.get(DATA_ROOT)
    there = root and Path(root).is_dir()
    remedy = f"mkdir FOLDER; export {DATA_ROOT}=FOLDER; resync data get --scale mini (smoke scale needs no data)"
    yield _finding(DATA_ROOT, there, (root if there else f"{root}: no such folder") if root else "not set", remedy)
    if not there:
        return
    readers: dict[str, dict[str, list[str]]] = {}
    for scale, paper in product(SCALES, sorted(suite.papers)):
        for name in {run.data.name for run in suite.runs(paper, scale) if run.data.component.is_prepared}:
            readers.setdefault(name, {}).setdefault(scale, []).append(paper)
    for name, by_scale in sorted(readers.items()):
        uses = "; ".join(f"{scale}: {', '.join(papers)}" for scale, papers in by_scale.items())
        where = availability(data_set(name))
        yield Finding(f"data {name} ({uses})", "optional" if where.remedy else "ok", where.found, where.remedy)


def _slurm() -> Finding:
    if not shutil.which("sbatch"):
        return Finding("Slurm", "optional", "no sbatch in PATH", "needed for resync run --profile slurm only")
    ask = ["sinfo", "--noheader", "--format=%R"]
    try:
        done = subprocess.run(ask, capture_output=True, encoding="utf-8", check=False, timeout=_SLURM_SECONDS)
    except subprocess.TimeoutExpired:
        return Finding("Slurm", "optional", f"sinfo gives no answer within {_SLURM_SECONDS} s")
    except OSError as error:
        return Finding("Slurm", "optional", f"sinfo: {error.strerror}")
    if done.returncode:
        said = lines_of(done.stderr.strip())
        reason = said[-1].removeprefix("sinfo: ") if said else f"exit code {done.returncode}"
        return Finding("Slurm", "optional", f"no cluster answers here ({reason})")
    partitions = f"partitions {', '.join(sorted(set(done.stdout.split())))}"
    if _package("snakemake-executor-plugin-slurm").state != "ok":
        remedy = "pip install '.[slurm]' in a clone"
        return Finding("Slurm", "optional", f"{partitions}, but Snakemake's executor is not installed", remedy)
    return Finding("Slurm", "ok", partitions)
