"""`resync rehearse`: each shape of job runs some steps, is stopped with a checkpoint, goes on, and gets its verdict."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from launched import code_of, forked
from runs import constant_lr, make_session
from torch import Tensor

from resync.papers.paper import load_suite
from resync.papers.plan.rehearsed import failures, shape_of, shapes
from resync.papers.rehearsal.cut import STEPS, cut
from resync.runs.results.runs import read_run
from resync.runs.run import Run
from resync.runs.train.loop import batches, train_step
from resync.tasks.data import noise
from resync.tasks.data_sets.declaration import data_set
from resync.tools.cli import main

CONFIGS = Path(__file__).parents[2] / "paper_configs"
EXPERIMENT = """\
expect: Each series is another shape of job, with another verdict.
base:
  data: {name: digits}
  model: {name: mlp, hidden: [16]}
  workers: 2
  batch_size: 64
  epochs: 3
  steps_per_epoch: 20
  optimizer: {name: sgd, momentum: 0.9}
  schedule: {name: constant, lr: 0.05}
  sync: {name: allreduce}
  log: {every_steps: 5, wandb: disabled}
  resources: {memory_mb: 2000}
series:
  fine: {label: fine}
  again: {label: the same shape, epochs: 2}
  long:
    label: longer than its job
    batch_size: 32
    epochs: 500000
    resources: {minutes: 1}
  large:
    label: larger than the machine
    model: {name: mlp, hidden: [100000000000]}
  waiting:
    label: its samples take longer to gather than its gradients to compute
    data: {name: gaussian_clusters}
    batch_size: 32768
    steps_per_epoch: 3
    model: {name: linear}
  no_gpu:
    label: without the GPU that it wants
    batch_size: 16
    device: cuda
scales:
  smoke: {seeds: [0]}
"""
FILES = {
    "tried/paper.yaml": "title: Tried\nauthors: [Ada Lovelace]\nvenue: Tests 2024\narxiv: '2310.14423'\n",
    "tried/experiments/shapes.yaml": EXPERIMENT,
    "scales/smoke.yaml": "device: cpu\n",
    **{f"scales/{name}.yaml": "{}\n" for name in ("mini", "gpu", "paper")},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the configuration and the rehearsals of all its shapes."""
    folder = tmp_path_factory.mktemp("rehearsed")
    for name, text in FILES.items():
        file = folder / "paper_configs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        assert rehearse(folder) == 0
    return folder


def rehearse(folder: Path, *flags: str) -> int:
    places = "--configs", str(folder / "paper_configs"), "--results", str(folder / "results")
    return main(["rehearse", *places, "--scale", "smoke", *flags])


def gathered(folder: Path) -> dict[str, dict]:
    """What the page's JSON says of every shape, by the series of the run that was rehearsed."""
    content = json.loads((folder / "results/smoke/rehearsal.json").read_text())
    assert not content["not rehearsed"]
    return {each["run"].split("/")[2]: each for each in content["shapes"]}


@pytest.mark.timeout(900)
def test_a_verdict_for_every_shape(folder: Path):
    found = gathered(folder)
    verdicts = {series: each["verdict"] for series, each in found.items()}
    assert verdicts == {
        "fine": "fine", "long": "limit too short", "large": "out of memory", "waiting": "reader too slow",
        "no_gpu": "failed",
    }  # fmt: skip
    assert found["fine"]["runs"] == 2
    assert found["long"]["hours"] > found["long"]["limit_hours"] == pytest.approx(1 / 60)
    assert "resources.minutes" in found["long"]["remedy"]
    assert found["waiting"]["rates"]["data"] > 0.1 * found["waiting"]["rates"]["step"]
    assert "micro_batch_size: 16" in found["large"]["remedy"]
    assert "no CUDA device" in found["no_gpu"]["reason"]
    folders = {name: folder / "results/smoke/rehearsal" / each["shape"] for name, each in found.items()}
    assert {name: failures(each) for name, each in folders.items() if failures(each)} == {"large": 1, "no_gpu": 1}
    page = (folder / "results/smoke/rehearsal.md").read_text()
    assert all(each["remedy"] in page for each in found.values())


def test_a_rehearsal_stops_with_a_checkpoint_and_goes_on(folder: Path):
    fine = gathered(folder)["fine"]
    measured, run = fine["measured"], read_run(folder / "results/smoke/rehearsal" / fine["shape"])
    stopped_at = run.summary["steps"] - 2
    assert measured["resumed_from"] == [stopped_at]
    assert [job["first_step"] for job in run.summary["jobs"]] == [0, stopped_at]
    assert measured["checkpoint_bytes"] > 0
    assert measured["peak_memory_bytes"] > 10**7
    assert measured["step_p95"] >= measured["step_median"] > 0


def test_what_has_been_rehearsed_is_not_rehearsed_again(folder: Path, capfd: pytest.CaptureFixture[str]):
    fine = gathered(folder)["fine"]
    assert rehearse(folder, "--shape", fine["shape"]) == 0
    assert "has its results" in capfd.readouterr().out


@pytest.mark.parametrize("paper", sorted(each.parent.name for each in CONFIGS.glob("*/experiments")))
def test_every_shape_of_paper_scale_has_a_rehearsal_without_its_data(paper, tmp_path, monkeypatch):
    monkeypatch.setenv("RESYNC_DATA", str(tmp_path))
    monkeypatch.delenv("RESYNC_PREPARED", raising=False)
    for run, *_ in shapes(load_suite(CONFIGS).runs(paper, "paper")).values():
        short, stop = cut(run)
        assert 0 < stop < short.total_steps <= 2 * STEPS
        assert (short.data.name == "noise") == run.data.component.is_prepared
        assert short.model == run.model
        # A run.yaml has no resources: `resync launch` takes them as flags.
        other = dict.fromkeys(("data", "reader", "launcher", "nodes", "gpus_per_node", "cpus"))
        assert shape_of(short) | other == shape_of(run) | other


def _takes_a_step(run: Run, folder: Path) -> int:
    torch.set_num_threads(1)
    data = yaml.safe_load(cut(run)[0].to_yaml())["data"]
    if data["name"] == "noise":
        data["facts_of"] |= {"train_samples": 1000}  # to make the 4.5 M sentences of WMT takes minutes
    of_text = {"micro_batch_size": 1, "data": data | {"max_tokens": 64}} if "max_tokens" in data else {}
    session = make_session(
        folder, workers=2 if run.data.name == "quadratics" else 1, batch_size=2, epochs=1,
        **{"model": run.model.model_dump(mode="json"), "data": data, **constant_lr(0.01), **of_text},
    )  # fmt: skip
    before = session.workers.rows.detach().clone()
    train_step(session, *next(batches(session)))
    assert session.workers.rows.isfinite().all()
    assert (session.workers.rows != before).any()
    return 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_model_of_paper_scale_takes_a_step_on_two_samples(papers, tmp_path, monkeypatch):
    """At its published size, on noise where its data are missing; the largest, a transformer of 210 M, on 64 tokens.

    In processes of their own, since the largest needs 4 GB.
    """
    monkeypatch.setenv("RESYNC_DATA", str(tmp_path))
    monkeypatch.delenv("RESYNC_PREPARED", raising=False)
    runs = [run for paper in papers.papers for run in papers.runs(paper, "paper")]
    for number, run in enumerate({f"{run.model!r} {run.facts}": run for run in runs}.values()):
        log = tmp_path / f"{number}.log"
        with forked(_takes_a_step, run, tmp_path / str(number), log=log) as process:
            assert code_of(process) == 0, f"{run.model}:\n{log.read_text()}"


@pytest.mark.parametrize("name", ["imagenet1k", "shakespeare_char", "multi30k_en_de"])
def test_noise_has_the_shape_of_its_data(name):
    facts = data_set(name).facts | {"train_samples": 100}
    data = noise.build(facts, 1000)
    assert 0 < data.num_train <= 100  # of text: batches
    inputs, targets = next(iter(data.validation(0, 1)))
    assert targets.max() < facts["num_classes"]
    if isinstance(inputs, Tensor):
        assert list(inputs.shape[1:]) == facts["input_shape"]
