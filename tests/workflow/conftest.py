"""A copy of the workflow in its own folder, where results can be faked, and Snakemake's actions there."""

import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from launched import copy_files

ROOT = Path(__file__).parents[2]
# Two papers, and few experiments of these: a plan takes time for each run.
PAPERS = {"qsr": {"vit_b16_b4096", "vit_b16_b4096_rules", "two_processes"}, "ddp_tricks": {"guide", "guide_log"}}
SOURCES = "Snakefile", "environment.yml", "src", "workflow", *(f"paper_configs/{name}" for name in ("scales", *PAPERS))

FAKE_RESYNC = """
import json
import sys
from pathlib import Path

step, *flags = sys.argv[1:]
if step == "data":
    sys.exit(print(flags))
given = {flag: value for flag, value in zip(flags, flags[1:]) if flag.startswith("--")}
scale = given.get("--scale")
named = "." if not flags or flags[0].startswith("--") else flags[0]
stems = {
    "launch": f"{given.get('--out')}/[metrics.csv steps.csv summary.json]",
    "collect": f"results/{scale}/{named}/collected.[csv parquet]",
    "render": f"figures/{scale}/{named}.[pdf png svg csv md tex]",
    "audit": f"results/{scale}/{named}/audit.[json]",
    "report": f"results/{scale}/site/index.[html]",
    "plan": f"results/{scale}/plan.[json md]",
    "rehearse": f"results/{scale}/rehearsal" + (f"/{given['--shape']}.[json]" if "--shape" in given else ".[json md]"),
}
stem, endings = stems[step].rstrip("]").split("[")
for ending in endings.split():
    Path(stem + ending).write_text(str(sys.argv))
if step == "launch":
    [hash] = Path(given["--out"]).glob("*.hash")
    Path(given["--out"], "summary.json").write_text(json.dumps({"config_hash": hash.stem}))
"""


class Job(NamedTuple):
    """A job that a dry run lists; `fields` are its lines: output, wildcards, resources, ..."""

    rule: str
    fields: dict[str, str]


class SnakemakeServer:
    """Snakemake, imported once with its plug-ins and forked for every call, because imports take most of the time.

    So is what the package imports to plan, and to tell at the end of a dry run what it would cost, torch among it: of a
    copy whose code a test changes, the jobs alone import their own package.
    """

    SOURCE = """
import atexit, gc, os, sys
import smart_open
import torch._dynamo
from snakemake.cli import get_argument_parser, main

from resync.base.processes import garbage, workflow_lock, workflow_timer
from resync.papers.archive import reference
from resync.tools import workflow
from resync.tools.cli import configuration

get_argument_parser()
gc.freeze()
for line in sys.stdin:
    directory, output, *arguments = line.rstrip("\\n").split("\\t")
    if (child := os.fork()) == 0:
        os.chdir(directory)
        sys.path.insert(0, "src")
        os.environ["PYTHONPATH"] = "src"
        for stream in (1, 2):
            os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        sys.argv[1:] = arguments
        try:
            main(arguments)
        except SystemExit as ended:
            atexit._run_exitfuncs()
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(ended.code or 0)  # without clearing the memory that is shared with the others
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

    def __init__(self) -> None:
        command = [sys.executable, "-c", self.SOURCE]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def run(self, directory: Path, arguments: list[str], output: Path) -> int:
        """The exit code of `snakemake <arguments>` in a directory; what it prints goes to a file."""
        assert self.process.stdin
        assert self.process.stdout
        print(directory, output, *arguments, sep="\t", file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())


@cache
def snakemake_server() -> SnakemakeServer:
    """The server of this process, which ends when this process closes the server's input or ends."""
    return SnakemakeServer()


class Workflow:
    """A copy of the files of `source`, with their times, which Snakemake compares."""

    def __init__(self, directory: Path, source: Path, names: Iterable[str]) -> None:
        self.directory = directory
        copy_files(source, names, directory)

    def attempt(self, *arguments: str) -> tuple[int, str]:
        """Exit code and output of Snakemake with the local profile and the copied package."""
        output = self.directory / "snakemake.out"
        command = ["--profile", "workflow/profiles/local", *arguments]
        return snakemake_server().run(self.directory, command, output), output.read_text()

    def snakemake(self, *arguments: str) -> str:
        """Output of Snakemake, which must succeed."""
        code, output = self.attempt(*arguments)
        assert code == 0, output
        return output

    def jobs(self, *arguments: str) -> list[Job]:
        """The jobs of a dry run, except those of target rules, which make nothing."""
        rule = re.compile(r"^(?:local)?rule (\w+):\n((?:    .*\n)+)", re.MULTILINE)
        listed = rule.findall(self.snakemake("--dry-run", *arguments))
        jobs = [Job(name, dict(re.findall(r"^    (\w+): (.*)$", text, re.MULTILINE))) for name, text in listed]
        return [job for job in jobs if "output" in job.fields]

    def edit(self, file: str, pattern: str, replacement: str) -> None:
        """Replace the first match of a pattern in a file; there must be one."""
        path = self.directory / file
        text, count = re.subn(pattern, replacement, path.read_text(), count=1)
        assert count == 1, f"{file} has no {pattern}"
        path.write_text(text)


def keep(paper: Path, experiments: set[str]) -> None:
    """Remove the other experiments from a paper's folder, and what refers to them."""
    others = [file for file in (paper / "experiments").iterdir() if file.stem not in experiments]
    for file in [*others, paper / "fixed.json"]:
        file.unlink()
    declared = yaml.safe_load((paper / "paper.yaml").read_text())
    declared.pop("times", None)
    for items in ("figures", "tables"):
        shown = [{series.split("/")[0] for series in item["series"]} for item in declared[items]]
        declared[items] = [item for item, names in zip(declared[items], shown, strict=True) if names <= experiments]
    write(paper / "paper.yaml", declared)
    items = {None, *(item["id"] for item in declared["figures"] + declared["tables"])}
    for file in (paper / "published.yaml", paper / "claims.yaml"):
        entries = [entry for entry in yaml.safe_load(file.read_text()) if entry.get("item") in items]
        write(file, [each for each in entries if not any(other.stem in yaml.safe_dump(each) for other in others)])


def write(file: Path, content: object) -> None:
    file.write_text(yaml.safe_dump(content, sort_keys=False))


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the workflow, with less to plan."""
    folder = tmp_path_factory.mktemp("small")
    copy_files(ROOT, SOURCES, folder)
    for name, experiments in PAPERS.items():
        keep(folder / "paper_configs" / name, experiments)
    return folder


@pytest.fixture
def workflow(small: Path, tmp_path: Path) -> Workflow:
    """The workflow without results."""
    return Workflow(tmp_path, small, SOURCES)


@pytest.fixture
def fake_resync() -> str:
    """A program in place of `resync` that only writes the files of a step."""
    return FAKE_RESYNC


@pytest.fixture(scope="session")
def all_finished(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """The workflow after a complete run in which every step only wrote its files."""
    workflow = Workflow(tmp_path_factory.mktemp("finished"), small, SOURCES)
    (workflow.directory / "src/resync/__main__.py").write_text(FAKE_RESYNC)
    workflow.snakemake()
    return workflow


@pytest.fixture
def finished(all_finished: Workflow, tmp_path: Path) -> Workflow:
    """A copy of the finished workflow, for tests that change it."""
    return Workflow(tmp_path, all_finished.directory, (*SOURCES, "results", "figures", ".snakemake"))
