"""The shipped Slurm profile on a real Slurm with four virtual nodes: whatever happens, a run is trained once."""

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import forked
import pytest
from cluster import ACCOUNTING, INSTALL, Cluster, missing, running, start_node
from conftest import ROOT, Workflow
from machine import until

from resync.base.processes import lock, warm_client, workflow_lock
from resync.papers.paper import load_suite
from resync.runs.train.interrupt import Interruption
from resync.runs.train.watchdog import Watchdog

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(missing()), reason=f"no {', '.join(missing())}: {INSTALL}"),
    pytest.mark.skipif(os.geteuid() != 0, reason="slurmd needs root"),
]

RUN_SETTINGS = """\
base:
  data: {name: digits}
  model: {name: mlp, hidden: [16]}
  workers: 2
  batch_size: 64
  epochs: 2
  steps_per_epoch: 20
  optimizer: {name: sgd, momentum: 0.9}
  schedule: {name: constant, lr: 0.05}
  sync: {name: allreduce}
  log: {every_steps: 5, wandb: disabled}
"""
TWO_NODES = f"""\
expect: One process on each of two nodes ends like both on one.
{RUN_SETTINGS}
  resources: {{nodes: 2, cpus: 1, max_restarts: 0, memory_mb: 2000}}
series:
  torchrun:
    label: torchrun
  deepspeed:
    label: DeepSpeed
    resources: {{launcher: deepspeed}}
scales:
  smoke: {{processes: 2, seeds: [0]}}
"""
ONE_NODE = f"""\
expect: Several runs fit on a node.
{RUN_SETTINGS}
  resources: {{cpus: 1, memory_mb: 1000}}
series:
  small:
    label: small
scales:
  smoke: {{seeds: [0, 1, 2, 3, 4]}}
"""
PAPER = """\
title: {}
authors: [Ada Lovelace]
venue: Tests 2024
arxiv: "2310.14423"
"""
FIGURE = """\
figures:
  - {id: curves, kind: accuracy_curves, title: Both launchers, caption: The same twice., series: [nodes]}
"""
FILES = {
    "wide/paper.yaml": PAPER.format("Two nodes") + FIGURE,
    "wide/experiments/nodes.yaml": TWO_NODES,
    "packed/paper.yaml": PAPER.format("One node"),
    "packed/experiments/nodes.yaml": ONE_NODE,
    "scales/smoke.yaml": "device: cpu\n",
    "scales/mini.yaml": "{}\n",
    "scales/gpu.yaml": "{}\n",
    "scales/paper.yaml": "{}\n",
}
RUN = "results/smoke/{}/nodes/{}/seed{}"
STAGES = (7, 17, 27, 37)


class Stages:
    """Steps at which the torchrun run waits, in whichever job it is, until the test continues."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        for file in folder.glob("stage*"):
            file.unlink()

    def reached(self, step: int) -> str:
        """The id of the Slurm job that waits at a step."""
        file = self.folder / f"stage{step}"
        self.cluster.until(lambda: file.exists() and file.read_text(), seconds=600)
        (self.folder / "stage_signal").unlink(missing_ok=True)
        return file.read_text()

    def signalled(self, step: int) -> None:
        """Continue from a step as soon as the job's signal has arrived."""
        self.cluster.until((self.folder / "stage_signal").exists)
        self.go_on(step)

    def go_on(self, *steps: int) -> None:
        for step in steps or STAGES:
            (self.folder / f"stage{step}_over").touch()


def wait_in_stages(watchdog: Watchdog, steps: int, beat=Watchdog.beat) -> None:
    """In place of `beat`."""
    beat(watchdog, steps)
    over = Path(f"stage{steps}_over")
    if steps in STAGES and {"SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"} <= os.environ.keys() and not over.exists():
        Path(f"stage{steps}").write_text(os.environ["SLURM_JOB_ID"])
        until(over.exists)


def remember_and_say(interruption: Interruption, number: int, frame, remember=Interruption._remember) -> None:
    """In place of `_remember`."""
    remember(interruption, number, frame)
    Path("stage_signal").touch()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workflow with two tiny papers."""
    folder = tmp_path_factory.mktemp("workflow")
    Workflow(folder, ROOT, ["Snakefile", "environment.yml", "src", "workflow"])
    (folder / "slurm").symlink_to("workflow/profiles/slurm")
    forked.write_clients(folder / "src")
    for name, text in FILES.items():
        path = folder / "paper_configs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture(scope="module")
def environment(cluster: Cluster, folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which Slurm's commands and the forked programs are found."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Watchdog, "beat", wait_in_stages)
        patch.setattr(Interruption, "_remember", remember_and_say)
        with forked.process(cluster.folder / "socket", cluster.environment) as environment:
            yield environment


@pytest.fixture(scope="module")
def undisturbed(folder: Path, environment: dict[str, str]) -> Path:
    """The torchrun run with both processes on this machine and without interruption."""
    run = load_suite(folder / "paper_configs").runs("wide", "smoke", "nodes", "torchrun")[0]
    (folder / "local.yaml").write_text(run.to_yaml())
    command = [sys.executable, "-m", "resync", "launch", "--config", "local.yaml", "--out", "local"]
    subprocess.run(command, cwd=folder, env=environment, check=True, timeout=600)
    return folder / "local"


@pytest.fixture
def stages(cluster: Cluster, folder: Path) -> Iterator[Stages]:
    stages = Stages(cluster, folder)
    yield stages
    stages.go_on()


@contextmanager
def snakemake(folder: Path, environment: dict[str, str], *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """`snakemake --profile slurm`, which ends with the block."""
    command = [sys.executable, "-m", "snakemake", "--profile", "slurm", *arguments]
    with (folder / "snakemake.out").open("ab") as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def summary(run: Path) -> dict:
    return json.loads((run / "summary.json").read_text())


def metrics(run: Path) -> list[dict[str, str]]:
    """The rows of metrics.csv without times."""
    with (run / "metrics.csv").open(newline="") as file:
        return [{name: row[name] for name in row if "seconds" not in name} for row in csv.DictReader(file)]


def said(run: Path) -> str:
    """The log of training; Snakemake removes it when it starts the run again."""
    log = run / "train.log"
    return log.read_text() if log.exists() else ""


def checkpoints(run: Path) -> list[int]:
    """The steps of the complete checkpoints."""
    return sorted(int(each.name.removeprefix("step")) for each in (run / "checkpoint").glob("step??????????"))


def assert_complete(run: Path, undisturbed: Path) -> dict:
    """The results are those of the other run, and nothing half-written is beside them. Returns the summary."""
    assert summary(run)["parameters_sha256"] == summary(undisturbed)["parameters_sha256"]
    assert metrics(run) == metrics(undisturbed)
    names = {each.name for each in run.iterdir() if each.suffix not in (".hash", ".log", ".tsv")}
    assert names == {"checkpoint", "metrics.csv", "model.pt", "run.lock", "run.yaml", "steps.csv", "summary.json"}
    assert len(checkpoints(run)) == len(list((run / "checkpoint").iterdir()))
    return summary(run)


def test_a_run_over_two_nodes_is_trained_once_whatever_happens_to_its_jobs(
    cluster, folder, environment, undisturbed, stages
):
    """One run with DeepSpeed is left alone. One with torchrun is requeued, cancelled, and loses two Snakemakes."""
    run = folder / RUN.format("wide", "torchrun", 0)
    target = f"{RUN.format('wide', 'torchrun', 0)}/summary.json"
    with snakemake(folder, environment, target) as first:
        job = stages.reached(7)
        shown = cluster.ask("scontrol", "show", "job", job)
        assert "NumNodes=2" in shown
        assert "Comment=rule_train_wildcards_smoke_wide_nodes_torchrun_0" in shown
        cluster.ask("scancel", "--signal=USR1", job)  # the end of its time is near: Slurm starts the job again
        stages.signalled(7)
        assert stages.reached(17) == job
        assert "Restarts=1" in cluster.ask("scontrol", "show", "job", job)
        cluster.ask("scancel", job)  # Snakemake submits another one
        stages.signalled(17)
        assert stages.reached(27) != job
        polled, patient = folder / forked.POLLED, folder / forked.PATIENT
        patient.touch()
        polled.unlink()
        cluster.until(polled.exists)  # Snakemake forgets its jobs for as long as it asks about them
        [holder] = (folder / ".snakemake" / workflow_lock.HOLDERS).read_text().splitlines()
        os.kill(json.loads(holder)["pid"], signal.SIGINT)  # Ctrl-C: it cancels its jobs
        stages.signalled(27)
        assert first.wait(300) == 1
    patient.unlink()
    cluster.until(lambda: not cluster.ask("squeue", "--noheader"))
    assert checkpoints(run)[-1] == 30
    with snakemake(folder, environment, target) as second:
        job = stages.reached(37)
        second.kill()
    with snakemake(folder, environment, "--unlock") as unlock:
        assert unlock.wait(300) == 0
    with snakemake(folder, environment, "wide") as third:
        cluster.until(lambda: "waiting for the job" in said(run) or third.poll() is not None, seconds=600)
        assert lock.holder(run)["slurm_job"] == job
        stages.go_on(37)
        assert third.wait(900) == 0
    assert all((folder / file).exists() for file in ("figures/smoke/wide/curves.pdf", "results/smoke/wide/audit.json"))
    assert assert_complete(run, undisturbed)["resumed_from"] == [10, 20, 30]
    deepspeed = assert_complete(folder / RUN.format("wide", "deepspeed", 0), undisturbed)
    assert (deepspeed["launch"]["world_size"], deepspeed["resumed_from"]) == (2, [])


def test_a_run_goes_on_on_other_nodes_when_one_dies(cluster, folder, environment, undisturbed, stages):
    """After kill -9 of the second node's daemon, Slurm requeues the job; the first part leaves no lock behind."""
    out = folder / "dead_node"
    command = f"exec {shlex.quote(sys.executable)} -m resync launch --config local.yaml --out {out} --nodes 2"
    sbatch = ["sbatch", "--nodes=2", "--ntasks=2", "--requeue", "--open-mode=append",
              f"--output={folder}/dead_node.log", "--wrap", command]  # fmt: skip
    subprocess.run(sbatch, cwd=folder, env=environment, check=True)
    job = stages.reached(7)
    names = cluster.ask("squeue", "--noheader", f"--jobs={job}", "--format=%N").strip()
    second = cluster.ask("scontrol", "show", "hostnames", names).split()[1]
    cluster.daemons[second].kill()
    cluster.until(lambda: "Restarts=1" in cluster.ask("scontrol", "show", "job", job), seconds=300)
    stages.go_on()
    cluster.until((out / "summary.json").exists, seconds=600)
    start_node(cluster, second)
    assert summary(out)["parameters_sha256"] == summary(undisturbed)["parameters_sha256"]


@pytest.mark.parametrize(
    ("flags", "seeds", "number", "cpus"),
    [
        (["--groups", "train=packed", "--group-components", "packed=2"], (0, 1), "JobId", 2),
        (["--slurm-array-jobs", "train"], (2, 3), "ArrayJobId", 1),
    ],
)
def test_runs_of_a_series_share_a_job(flags, seeds, number, cpus, cluster, folder, environment):
    runs = [RUN.format("packed", "small", seed) for seed in seeds]
    targets = [f"{run}/summary.json" for run in runs]
    for options in (["--omit-from", "train"], flags):  # an array holds what is ready at once
        with snakemake(folder, environment, *targets, *options) as process:
            assert process.wait(600) == 0
    assert [summary(folder / run)["seed"] for run in runs] == list(seeds)
    jobs = [json.loads((folder / run / "run.lock").read_text())["slurm_job"] for run in runs]
    shown = [cluster.ask("scontrol", "show", "job", job) for job in jobs]
    [[shared], [same]] = [set(re.findall(rf"\b{number}=(\d+)", text)) for text in shown]
    assert shared == same
    assert all(f"NumCPUs={cpus} " in text for text in shown)


def test_every_shape_is_rehearsed_by_the_path_of_its_runs(folder, environment, stages):
    """Each job is asked to stop, requeued, and goes on: torchrun and DeepSpeed on two nodes, and one node."""
    stages.go_on()
    with snakemake(folder, environment, "rehearse") as process:
        assert process.wait(900) == 0
    content = json.loads((folder / "results/smoke/rehearsal.json").read_text())
    assert not content["not rehearsed"]
    found = {each["run"].split("/")[2]: each for each in content["shapes"]}
    assert {series: each["verdict"] for series, each in found.items()} == dict.fromkeys(
        ("torchrun", "deepspeed", "small"), "fine"
    )
    for each in found.values():
        rehearsed = summary(folder / "results/smoke/rehearsal" / each["shape"])
        assert rehearsed["resumed_from"] == [rehearsed["steps"] - 2]
        nodes = each["of"]["nodes"]
        assert rehearsed["launch"]["world_size"] == nodes
        log = (folder / "results/smoke/rehearsal" / f"{each['shape']}.log").read_text()
        assert "finished after" in log


def test_the_programs_as_shipped_train_on_two_nodes(cluster: Cluster, undisturbed: Path, tmp_path: Path):
    """Without the forks that the other tests put in the place of `python -m resync`: sbatch, srun, torchrun."""
    (tmp_path / "run.yaml").write_text((undisturbed / "run.yaml").read_text())
    flags = "--nodes 2 --cpus 1 --launcher torchrun --max-restarts 0 --timeout 600"
    command = f"{shlex.quote(sys.executable)} -m resync launch --config run.yaml --out out {flags}"
    environment = cluster.environment | {"PYTHONPATH": str(ROOT / "src")}
    environment.pop(warm_client.ADDRESS, None)
    job = ["sbatch", "--wait", "--nodes=2", "--ntasks=2", "--cpus-per-task=1", "--output=job.log", f"--wrap={command}"]
    done = subprocess.run(job, cwd=tmp_path, env=environment, timeout=600)
    assert done.returncode == 0, (tmp_path / "job.log").read_text()
    assert summary(tmp_path / "out")["launch"]["world_size"] == 2
    assert summary(tmp_path / "out")["parameters_sha256"] == summary(undisturbed)["parameters_sha256"]


@pytest.mark.skipif(bool(missing(ACCOUNTING)), reason=f"no {', '.join(missing(ACCOUNTING))}: {INSTALL}")
def test_a_cluster_with_accounting_is_asked_by_sacct(tmp_path, folder):
    run = RUN.format("packed", "small", 4)
    with (
        running(tmp_path, accounting=True) as cluster,
        forked.process(tmp_path / "socket", cluster.environment) as environment,
    ):
        flags = ["--slurm-status-command", "sacct"]
        with snakemake(folder, environment, f"{run}/summary.json", *flags) as process:
            assert process.wait(600) == 0
        job = json.loads((folder / run / "run.lock").read_text())["slurm_job"]
        shown = cluster.ask("sacct", "--noheader", "--allocations", f"--jobs={job}", "--format=State,Comment%80")
        assert shown.split() == ["COMPLETED", "rule_train_wildcards_smoke_packed_nodes_small_4"]
    assert summary(folder / run)["seed"] == 4
