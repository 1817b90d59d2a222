"""Third-party logs: each format is imported as a run and collected, and invalid logs are rejected."""

import hashlib
import itertools
import json
import math
import shutil
import types
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from synthetic import put_log

from resync.base.settings.errors import ConfigError
from resync.papers.audit import audit, write
from resync.papers.importer import import_log
from resync.papers.importer import table as tables
from resync.papers.importer.log import LogError
from resync.papers.paper import Suite, load_suite
from resync.papers.render import accuracy_curves, metrics_table, period_and_accuracy
from resync.papers.render.item import load
from resync.papers.render.table import Cell
from resync.papers.report import report
from resync.runs.metrics.columns import LogColumn
from resync.runs.metrics.registry import EVALUATED, METRICS, columns
from resync.runs.results.errors import ResultsError
from resync.runs.results.runs import RunResult, read_run, state_of
from resync.runs.results.summary import text_of
from resync.runs.run import Run
from resync.tools.cli import main

SGP = "toy/vit/sgp/seed0"
QSR = "toy/vit/qsr/seed0"
SGP_HEADER = (
    "Epoch,itr,BT(s),avg:BT(s),std:BT(s),NT(s),avg:NT(s),std:NT(s),DT(s),avg:DT(s),std:DT(s),"
    "Loss,avg:Loss,Prec@1,avg:Prec@1,Prec@5,avg:Prec@5,val"
)
MAP = """\
epoch: {column: epoch, add: 1}
val_top1: {column: "error", unit: "error %"}
train_loss: {column: loss}
training_seconds: {column: hours, unit: h}
"""
Import = Callable[..., RunResult]


EXPERIMENTS = {
    "asynchronous": """
expect: nobody waits
base: {optimizer: {name: sgd}}
series:
  adpsgd: {label: AD-PSGD, sync: {name: adpsgd}}
scales: {smoke: {seeds: [0]}}
""",
    "translated": """
expect: the text is translated
base: {optimizer: {name: adamw}, evaluation: {also: workers}}
series:
  sgp: {label: SGP, sync: {name: sgp}}
scales:
  smoke:
    data: {name: sentences, max_tokens: 64}
    model: {name: transformer, dim: 8, ffn_dim: 16, heads: 2, encoder_layers: 1, decoder_layers: 1}
    workers: 2
    batch_size: 2
    micro_batch_size: 1
    epochs: 2
    steps_per_epoch: 60
    schedule: {warmup_epochs: 1}
    seeds: [0]
""",
}


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    """Paper `toy` with runs of the original code's other programs."""
    configs = tmp_path_factory.mktemp("originals") / "configs"
    shutil.copytree(Path(__file__).parent / "configs", configs)
    for name, text in EXPERIMENTS.items():
        (configs / f"toy/experiments/{name}.yaml").write_text(text)
    return load_suite(configs)


@pytest.fixture
def imported(originals: Suite, tmp_path: Path) -> Import:
    """The result of a run after an import of these sources."""

    def run(kind: str, sources: list[Path | str], name: str = SGP, columns: str | None = None, **options) -> RunResult:
        if columns is not None:
            options["column_map"] = tmp_path / "columns.yaml"
            options["column_map"].write_text(columns)
        texts = [str(source) for source in sources]
        return read_run(import_log(originals, name, "smoke", kind, texts, tmp_path / "results", **options))

    return run


def write_ranks(folder: Path, name: str, texts: dict[int, list[str]], changes: dict[str, str]) -> list[Path]:
    """The files of 8 ranks with 8 images each, that of rank 3 with changes."""
    files = []
    for rank, lines in texts.items():
        text = "\n".join(["BEGIN-TRAINING", "World-Size,8", "Num-DLWorkers,2", "Batch-Size,8", SGP_HEADER, *lines, ""])
        for old, new in changes.items() if rank == 3 else ():
            assert old in text
            text = text.replace(old, new, 1)
        files.append(folder / f"{name}out_r{rank}_n8.csv")
        files[-1].write_text(text)
    return files


def sgp_row(epoch: int, itr: int, seconds: str, data: str, losses: tuple[str, str], top1: int, top5: int) -> str:
    """A row of training with the means up to this step."""
    times = [*[seconds] * 3, *["0.050"] * 3, data, "0.001", "0.001"]
    accuracies = ["50.000", f"{top1:.3f}", "80.000", f"{top5:.3f}"]
    return ",".join(map(str, [epoch, itr, *times, *losses, *accuracies, -1]))


def sgp_logs(folder: Path, **changes: str) -> list[Path]:
    """Rank r takes 0.1 s + r ms per step and ends at 90 + r %."""
    texts: dict[int, list[str]] = {rank: [] for rank in range(8)}
    for rank, epoch in itertools.product(range(8), range(30)):
        losses = f"{2 - epoch / 20:.4f}", f"{2.5 - epoch / 20 + rank / 100:.4f}"
        rest = f"{0.1 + rank / 1000:.3f}", f"0.0{rank + 1}0", losses, 40 + epoch + rank, 70 + epoch
        texts[rank] += [sgp_row(epoch, itr, *rest) for itr in (0, 10, 20, 21)]
        texts[rank].append(",".join(map(str, [epoch, -1, *[-1] * 15, f"{61 + epoch + rank:.3f}"])))
    return write_ranks(folder, "tag", texts, changes)


TABLE = "epoch,loss,error,hours\n" + "".join(
    f"{epoch},{2 - epoch / 20},{40 - epoch if epoch % 2 else ''},{(epoch + 1) / 100}\n" for epoch in range(30)
)
"""A table whose epochs count from 0, with an evaluation in every second epoch."""


def csv_log(folder: Path, text: str = TABLE) -> Path:
    (folder / "table.csv").write_text(text)
    return folder / "table.csv"


def test_logs_of_the_original_sgp_code_are_averaged_over_ranks(imported: Import, suite: Suite, tmp_path: Path):
    files = sgp_logs(tmp_path)
    result = imported("sgp", files)
    assert list(result.metrics["step"]) == [22 * epoch for epoch in range(1, 31)]
    assert list(result.metrics["epoch"]) == list(range(1, 31))
    assert "val_top1" not in result.metrics  # every rank has validated its own model
    assert [result.metrics[f"worker_val_top1_{each}"][0] for each in ("mean", "min", "max")] == [61 + 3.5, 61, 61 + 7]
    assert result.metrics["train_loss"][1] == pytest.approx(2.45 + 0.035)
    assert result.metrics["train_top1"][1] == pytest.approx(41 + 3.5)
    assert result.metrics["train_top5"][1] == pytest.approx(71)
    assert result.metrics["training_seconds"].iloc[-1] == pytest.approx(660 * 0.1035)
    assert result.metrics[["round", "h", "lr", "bytes_sent", "communication_seconds"]].isna().all(axis=None)
    assert list(result.steps["step"][:5]) == [1, 11, 21, 22, 23]
    assert list(result.steps["step_data_seconds"]) == pytest.approx([0.045] * len(result.steps))
    assert result.final("best_worker_val_top1_mean") == result.final("worker_val_top1_mean") == pytest.approx(93.5)
    assert result.imported
    assert result.imported["format"] == "sgp"
    assert [source["name"] for source in result.imported["sources"]] == [file.name for file in files]
    assert result.imported["sources"][7]["sha256"] == hashlib.sha256(files[7].read_bytes()).hexdigest()
    assert Run.from_file(result.directory / "run.yaml").hash == result.summary["config_hash"]


def test_the_later_version_of_the_sgp_code_leaves_the_first_steps_of_an_epoch_untimed(imported: Import, tmp_path: Path):
    """Its first row then has a mean time of 0; later epochs begin with the times of the one before."""
    files = sgp_logs(tmp_path)
    for rank, file in enumerate(files):
        time = f"{0.1 + rank / 1000:.3f}"
        text = file.read_text().replace(f"\n0,0,{','.join([time] * 3)}", "\n0,0,0.000,0.000,0.000", 1)
        file.write_text(text)
    result = imported("sgp", files)
    timed = result.steps["step_data_seconds"].notna()
    assert list(result.steps["step"][timed][:6]) == [11, 21, 22, 33, 43, 44]
    assert result.metrics["training_seconds"].iloc[-1] == pytest.approx(660 * 0.1035)


ADPSGD = "toy/asynchronous/adpsgd/seed0"


def adpsgd_logs(folder: Path, epochs: int = 30, steps: int = 22, slow: int = 3, **changes: str) -> list[Path]:
    """Logs of 8 ranks in which rank 0 takes `slow` times as long per step, so that the others make more.

    In a unit of time 7 ranks make a step, and in every `slow`-th one all 8. A rank logs every fifth step with the
    global epoch and step, and the last step of each of its own epochs with its own.
    """
    ended, everyone, time = epochs * steps * 8, 0, 0
    texts: dict[int, list[str]] = {rank: [] for rank in range(8)}
    own = dict.fromkeys(range(8), 0)
    while everyone < ended:
        time += 1
        for rank in range(8):
            if rank == 0 and time % slow:
                continue
            epoch, itr = divmod(own[rank], steps)
            own[rank] += 1
            everyone += 1
            losses = "1.5", f"{2 + rank / 100:.4f}"
            rest = f"{0.1 * (slow if rank == 0 else 1):.3f}", "0.001", losses, 40 + epoch, 60 + epoch
            if itr % 5 == 0:
                texts[rank].append(sgp_row(everyone // (steps * 8), 10_000 + everyone, *rest))
            if itr == steps - 1:
                texts[rank].append(sgp_row(epoch, itr, *rest))
    return write_ranks(folder, "adpsgd_", texts, changes)


def test_logs_of_adpsgd_follow_the_steps_of_all_ranks(imported: Import, tmp_path: Path):
    """Seven ranks make 3 steps while one makes 1: the ends of global epochs lie between those of their own."""
    result = imported("sgp", adpsgd_logs(tmp_path), ADPSGD)
    assert list(result.metrics["step"]) == [22 * epoch for epoch in range(1, 31)]
    assert not [name for name in result.metrics if name in EVALUATED]
    # 30 * 22 * 8 steps in all at 7 + 1/3 a unit of 0.1 s.
    assert result.metrics["training_seconds"].iloc[-1] == pytest.approx(30 * 22 * 8 / (7 + 1 / 3) * 0.1)
    assert result.final("train_loss") == pytest.approx(2.035)
    # 5280 steps in 720 units of time: the slow rank has finished 240 // 22 = 10 epochs, the others 720 // 22 = 32.
    assert result.final("train_top1") == pytest.approx((40 + 9 + 7 * (40 + 31)) / 8)
    assert result.final("train_top5") == pytest.approx((60 + 9 + 7 * (60 + 31)) / 8)
    # After one global epoch, of 24 units, the slow rank has not finished any.
    assert result.metrics["train_loss"][0] == pytest.approx(2.04)


def test_a_requeued_job_of_adpsgd_is_one_log(imported: Import, tmp_path: Path):
    """Its ranks log two epochs again: the values of the later job count, as in one that was left alone."""
    files = adpsgd_logs(tmp_path)
    undisturbed = imported("sgp", files, ADPSGD).metrics
    for file in files:
        lines = file.read_text().splitlines()
        begins = {
            number: next(i for i, line in enumerate(lines) if line.startswith(f"{number},1")) for number in (20, 22)
        }
        file.write_text("\n".join([*lines[: begins[22]], *lines[begins[20] :], ""]))
    result = imported("sgp", files, ADPSGD, replace=True)
    assert result.metrics[["step", "training_seconds"]].equals(undisturbed[["step", "training_seconds"]])
    assert result.metrics.iloc[-1].equals(undisturbed.iloc[-1])
    assert result.imported["notes"] == ["steps from 441 on were logged again: the values of the later job count"]


FAIRSEQ = """\
{rank}: | model transformer_vaswani_wmt_en_de_big, criterion LabelSmoothedCrossEntropyCriterion
{rank}: | epoch 001:     20 / 60 loss=9.500, nll_loss=9.1, num_updates=20, lr=0.0001, train_wall=5
{rank}: | epoch 001 | loss 9.000 | nll_loss 8.500 | ppl 362.04 | num_updates 60 | lr 0.0002 | train_wall 3{rank}
{rank}: | epoch 001 | valid on 'valid' subset | valid_loss 6.100 | valid_nll_loss 4.{rank} | num_updates 60
{rank}: | epoch 002 | loss 7.000 | nll_loss 6.500 | num_updates 120 | lr 0.0001 | wall 99 | train_wall 6{rank}
{rank}: | epoch 002 | valid on 'valid' subset | valid_loss 5.100 | valid_nll_loss 2.{rank} | num_updates 120
"""


def fairseq_log(folder: Path, **changes: str) -> list[Path]:
    """Lines of 2 ranks, mixed as a launcher prints them."""
    lines = [text.split("\n") for text in (FAIRSEQ.format(rank=rank) for rank in range(2))]
    text = "\n".join(line for pair in zip(*lines, strict=True) for line in pair)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    file = folder / "transformer.out"
    file.write_text(text)
    return [file]


TRANSFORMER = "toy/translated/sgp/seed0"


def test_the_transformers_log_is_of_the_workers_own_models_in_bits(imported: Import, tmp_path: Path):
    result = imported("fairseq", fairseq_log(tmp_path), TRANSFORMER)
    assert list(result.metrics["step"]) == [60, 120]
    assert list(result.metrics["epoch"]) == [1, 2]
    assert list(result.metrics["worker_val_loss_mean"]) == pytest.approx([4.05 * math.log(2), 2.05 * math.log(2)])
    assert "val_loss" not in result.metrics
    assert list(result.metrics["train_loss"]) == pytest.approx([9 * math.log(2), 7 * math.log(2)])
    assert list(result.metrics["training_seconds"]) == [30.5, 60.5]
    assert list(result.metrics["lr"]) == [0.0002, 0.0001]
    assert result.final("best_worker_val_loss_mean") == pytest.approx(2.05 * math.log(2))
    # Other subsets are left out, and lines without a rank are of the first.
    log = tmp_path / "transformer.out"
    other = "1: | epoch 002 | valid on 'valid1' subset | valid_nll_loss 8.0 | num_updates 120"
    lines = [*(line for line in log.read_text().splitlines() if line.startswith("1: ")), other]
    log.write_text("\n".join(line.removeprefix("1: ") for line in lines))
    result = imported("fairseq", [log], TRANSFORMER, replace=True)
    assert result.final("worker_val_loss_mean") == pytest.approx(2.1 * math.log(2))


WRONG_LOGS = [
    (sgp_logs, {"World-Size,8": "World-Size,4"}, "r3_n8.csv:2: World-Size: found 4, allowed: 8"),
    (sgp_logs, {"Batch-Size,8": "Batch-Size,32"}, "r3_n8.csv:4: Batch-Size: found 32, allowed: 8"),
    (sgp_logs, {"avg:Loss": "Loss-mean"}, "r3_n8.csv:5: no column 'avg:Loss'; did you mean 'Loss'?"),
    (sgp_logs, {"Epoch,itr": "epoch,itr"}, "r3_n8.csv: no header line"),
    (sgp_logs, {"0,10,0.103": "0,1_0,0.103"}, "r3_n8.csv:7: column 'itr': found '1_0'"),
    (sgp_logs, {"0,21,0.103": "0,22,0.103"}, "r3_n8.csv:9: found epoch 0, itr 22, allowed: itr 0 to 21"),
    (sgp_logs, {"0,21,0.103": "0,20,0.103"}, "r3_n8.csv:10: found validation of epoch 0, allowed: once, after"),
    (sgp_logs, {"\n1,-1,": "\n0,-1,"}, "r3_n8.csv:15: found validation of epoch 0, allowed: once, after"),
    (sgp_logs, {"0,10,0.103": "0,11,0.103"}, "r0_n8.csv: rank 3: logged at other steps than rank 0"),
    (sgp_logs, {"1,0,0.103": "0,10,0.103"}, "r3_n8.csv:11: found epoch 0, itr 10, allowed: "),
    (sgp_logs, {"1,0,0.103": "0,0,0.103"}, "r0_n8.csv: rank 3: logged at other steps than rank 0"),
    (sgp_logs, {"-1,64.000": "-1,164.000"}, "rank 3, step 22: worker_val_top1_mean: found 164 %, allowed: 0 to 100"),
    (
        sgp_logs,
        {"43.000,80.000,70.000,-1\n0,-1": "-43.000,80.000,70.000,-1\n0,-1"},
        "rank 3, step 22: train_top1: found -43 %, allowed: 0 to 100",
    ),
    (
        sgp_logs,
        {"1,21,0.103,0.103": "1,21,0.103,0.003"},
        "rank 3, step 44: training_seconds: found 0.132 s after 2.266",
    ),
    (adpsgd_logs, {"avg:Loss": "avg:Los"}, "r3_n8.csv:5: no column 'avg:Loss'"),
    (adpsgd_logs, {"0,21,0.100": "0,-1,0.100"}, "r3_n8.csv:11: found a validation row"),
    (adpsgd_logs, {"epochs": 20}, "r0_n8.csv:49: ends in epoch 19, allowed: 29"),
    (fairseq_log, {"valid_nll_loss": "nll"}, "transformer.out: no validation of toy/translated/sgp/seed0 (lines with "),
    (fairseq_log, {"valid_nll_loss 2.1": "valid_nll_loss -2.1"}, "rank 1, step 120: worker_val_loss_mean: found -1.4"),
    (fairseq_log, {"train_wall 60": "train_wall 6"}, "rank 0, step 120: training_seconds: found 6 s after 30, allowed"),
    (fairseq_log, {"2.1 | num_updates 120": "2.1 | num_updates 60"}, "transformer.out:12: found valid_nll_loss again"),
    (fairseq_log, {"1: |": "7: |"}, "transformer.out:6: found rank 7, allowed: 0 to 1"),
    (fairseq_log, {"valid_nll_loss 2.1": "valid_nll_loss two"}, "transformer.out:12: column 'valid_nll_loss': found"),
    (fairseq_log, {"2.1 | num_updates 120": "2.1 | num_updates 119"}, "transformer.out: rank 1: logged at other steps"),
    (fairseq_log, {"num_updates 120": "num_updates 100"}, "transformer.out: the last evaluation is at step 100 "),
]


@pytest.mark.parametrize(("write", "changes", "message"), WRONG_LOGS)
def test_a_wrong_log_of_a_program_is_one_line(write, changes, message: str, imported: Import, tmp_path: Path):
    kind, name = {sgp_logs: ("sgp", SGP), adpsgd_logs: ("sgp", ADPSGD), fairseq_log: ("fairseq", TRANSFORMER)}[write]
    with pytest.raises(LogError) as caught:
        imported(kind, write(tmp_path, **changes), name)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "results").exists()


def test_a_table_is_mapped_and_converted(imported: Import, tmp_path: Path):
    result = imported("csv", [csv_log(tmp_path)], columns=MAP)
    assert list(result.metrics["epoch"]) == list(range(2, 31, 2))
    assert result.metrics["val_top1"].iloc[-1] == 100 - (40 - 29)
    assert result.metrics["training_seconds"].iloc[-1] == pytest.approx(0.3 * 3600)
    assert result.steps.empty  # epochs are no steps


BY_STEP = "step: {column: step}\ntrain_loss: {column: loss}\nval_top1: {column: accuracy}\n"


def test_rows_of_one_step_are_one_evaluation(imported: Import, tmp_path: Path):
    """Programs that call wandb.log twice in a step leave its loss and its accuracy in two rows."""
    log = csv_log(tmp_path, "step,loss,accuracy\n330,0.9,\n,0.95,\n330,,50\n660,,60\n660,0.8,\n")
    result = imported("csv", [log], QSR, BY_STEP)
    assert list(result.metrics["train_loss"]) == [0.9, 0.8]
    assert list(result.metrics["val_top1"]) == [50, 60]
    csv_log(tmp_path, "step,loss,accuracy\n300,0.9,\n330,,50\n660,,60\n")  # a loss that would be lost
    with pytest.raises(LogError, match=r"table.csv:2: column 'loss': no value is kept"):
        imported("csv", [log], QSR, BY_STEP, replace=True)


def test_charts_of_one_run_are_joined(imported: Import, tmp_path: Path):
    charts = []
    for metric, value in (("val/acc", 0.9), ("train/loss", 1.5)):
        lines = ['"Step"' + "".join(f',"{run} - {metric}{bound}"' for run in ("a - 1", "b")
                                    for bound in ("", "__MIN", "__MAX"))]  # fmt: skip
        for step in range(0, 661, 60 if metric == "val/acc" else 30):
            cells = [str(value - step / 10_000)] * 3 + [str(value)] * 3
            lines.append(",".join([str(step), *cells]))
        charts.append(tmp_path / f"{metric.replace('/', '_')}.csv")
        charts[-1].write_text("\n".join(lines) + "\n")
    columns = "step: {column: Step}\nval_top1: {column: val/acc, unit: fraction}\ntrain_loss: {column: train/loss}\n"
    columns += "step_loss: {column: train/loss}\n"
    with pytest.raises(LogError, match=r"val_acc.csv:1: found the runs a, b, allowed: one, chosen with --wandb-run"):
        imported("wandb-csv", charts, columns=columns)
    result = imported("wandb-csv", charts, columns=columns, wandb_run="a - 1")
    assert result.metrics["val_top1"].iloc[-1] == pytest.approx(90 - 6.6)
    assert result.metrics["train_loss"].iloc[-1] == pytest.approx(1.5 - 0.066)
    assert list(result.steps["step"]) == list(range(30, 660, 60))
    text = charts[0].read_text()
    charts[0].write_text(text.replace("\n60,0.894,0.894", "\n60,0.894,0.882"))
    with pytest.raises(LogError, match=r"val_acc.csv:3: column 'a - 1 - val/acc': found a mean of values from 0.882"):
        imported("wandb-csv", charts, columns=columns, wandb_run="a - 1", replace=True)


def test_a_run_on_a_server_is_read_whole(imported: Import, monkeypatch: pytest.MonkeyPatch):
    rows = [{"_step": step, "step": step, "acc": 90.0, "loss": "NaN" if step == 0 else 1.0} for step in (0, 330, 660)]
    rows[1:1] = [{"_step": 1, "lr": 0.1}, {"step": 110, "lr": 0.1}, {"step": 110, "loss": 2.5}]

    class Api:
        def __init__(self, timeout: int) -> None:
            pass

        def run(self, path: str) -> types.SimpleNamespace:
            if path != "lab/sgp/x1":
                raise ValueError(f"Could not find run {path}")
            return types.SimpleNamespace(scan_history=lambda: iter(rows))

    monkeypatch.setitem(__import__("sys").modules, "wandb", types.SimpleNamespace(Api=Api, Error=KeyError))
    columns = "step: {column: step}\nval_top1: {column: acc}\nstep_loss: {column: loss}\nlr: {column: lr}\n"
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with pytest.raises(LogError, match="lab/sgp/x1: WANDB_API_KEY is not set"):
        imported("wandb-api", ["lab/sgp/x1"], columns=columns)
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    with pytest.raises(LogError, match="lab/sgp/x2: wandb cannot read it: Could not find run"):
        imported("wandb-api", ["lab/sgp/x2"], columns=columns)
    result = imported("wandb-api", ["lab/sgp/x1"], columns=columns)
    assert list(result.metrics["val_top1"]) == [90.0] * 3
    assert result.steps[["step", "lr", "step_loss"]].to_numpy().tolist() == [[110, 0.1, 2.5]]
    assert result.imported
    assert result.imported["sources"][0]["name"] == "wandb run lab/sgp/x1"


def test_the_log_of_an_offline_run_is_read_with_the_columns_of_its_program(
    imported: Import, finished: Path, logged: tuple[bytes, bytes], tmp_path: Path
):
    """The folder of a job, or of all jobs of the run; or the file itself."""
    log = put_log(tmp_path, logged[0])
    columns = "step: {column: _step}\nval_top1: {column: val_top1}\ntrain_loss: {column: train_loss}\n"
    for path in (log.parent, tmp_path / "wandb"):
        result = imported("wandb-offline", [path], QSR, columns, replace=True)
        assert [source["name"] for source in (result.imported or {})["sources"]] == [log.name]
    original = read_run(finished / "smoke" / QSR).metrics
    for name in ("step", "val_top1", "train_loss"):
        pd.testing.assert_series_equal(result.metrics[name], original[name])
    put_log(tmp_path, logged[1], 1)
    with pytest.raises(LogError, match=r"wandb: found the logs run-log0.wandb, run-log1.wandb, allowed: "):
        imported("wandb-offline", [tmp_path / "wandb"], QSR, columns, replace=True)
    log.write_bytes(b"hello")
    with pytest.raises(LogError, match=r"run-log0.wandb: no rows"):
        imported("wandb-offline", [log], QSR, columns, replace=True)


def test_everything_downstream_says_that_it_was_imported(imported: Import, suite: Suite, results: Path, tmp_path: Path):
    columns = tmp_path / "columns.yaml"
    columns.write_text(MAP)
    for run in suite.runs("toy", "smoke", "vit", "parallel"):
        for file in (results / run.directory).iterdir():
            file.unlink()
        log = csv_log(tmp_path, TABLE.replace(",2.0,", f",{2 + run.seed / 10},"))
        import_log(suite, run.id, "smoke", "csv", [str(log)], results, columns)
        assert state_of(run, results).status == "finished"
    result = audit(suite, "smoke", results)
    content = json.loads(write(result, results / "smoke").read_text())
    row = next(row for row in content["rows"] if row["id"] == "parallel_top1")
    assert (row["ours"]["imported"], row["provenance"]["imported"][0]["format"]) == (3, "csv")
    assert next(row for row in result.claims if row.id == "accuracies").sides[1].ours.imported == 3
    period, curves, table = (
        kind.prepare(load(suite, "toy", item, "smoke", results))
        for kind, item in ((period_and_accuracy, "fig5"), (accuracy_curves, "fig6"), (metrics_table, "table1"))
    )
    epochs, times = (panel.lines for panel in curves.panels)
    assert period.panels[1].lines[0].label == epochs[0].label == "Parallel SGD (imported)"
    assert [line.label for line in times] == ["SGP"]  # no time is modelled without a model's size
    assert table.rows[0][1] == Cell("89.00 ± 0.00", mark="a")
    assert [table.rows[0][index].text for index in (3, 5)] == ["\N{EN DASH}"] * 2  # bytes and rounds
    assert table.note.endswith("a imported")
    site = report(suite, "smoke", results, tmp_path / "figures").parent
    assert "3 imported" in (site / "audit.html").read_text()
    assert "imported from" in (site / "toy/vit/parallel/seed0/index.html").read_text()


def test_a_log_is_of_one_seed(suite: Suite, imported: Import, tmp_path: Path):
    """Under another seed it is refused, also as another file; one seed may be imported again."""
    first, second, _ = (run.id for run in suite.runs("toy", "smoke", "vit", "parallel"))
    log = csv_log(tmp_path)
    copy = log.with_name("copy.csv")
    copy.write_bytes(log.read_bytes())
    summary = imported("csv", [log], first, MAP).directory / "summary.json"
    with pytest.raises(LogError, match=r"^copy\.csv: was imported as .*/parallel/seed0 already, allowed: "):
        imported("csv", [copy], second, MAP)
    imported("csv", [copy], first, MAP, replace=True)
    imported("csv", [log], SGP, MAP)  # of another series
    entries = json.loads(summary.read_text()) | {"imported": {"sources": [{}]}}
    for damaged in ("[]", text_of(entries, {})):
        summary.write_text(damaged)
        with pytest.raises(LogError, match=f"cannot be compared with those of {summary}"):
            imported("csv", [log], second, MAP)


def test_agreeing_logs_reproduce_nothing(suite: Suite, finished: Path, tmp_path: Path):
    """The paper's number as a log of each seed, and a claim whose one side are logs."""
    (tmp_path / "columns.yaml").write_text('step: {column: step}\nval_top1: {column: top1, unit: "%"}\n')
    results = tmp_path / "results"

    def log(run: Run, top1: float) -> None:
        (tmp_path / "log.csv").write_text(f"step,top1\n{run.total_steps},{top1}\n")
        import_log(suite, run.id, run.scale, "csv", [str(tmp_path / "log.csv")], results, tmp_path / "columns.yaml")

    for run in suite.runs("toy", "paper", "vit", "h4"):
        log(run, 79.32 + run.seed / 1000)
    found = audit(suite, "paper", results)
    row = next(row for row in found.rows if row.id == "h4_top1")
    assert (row.verdict, row.because) == ("untested", "logs of others")
    assert row.reason.endswith("; 3 of 3 runs are imported logs")
    for run in suite.runs("toy", "smoke", "vit", "qsr"):
        log(run, 99 + run.seed / 1000)
    for run in suite.runs("toy", "smoke", "vit", "h4"):
        shutil.copytree(finished / run.directory, results / run.directory)
    claim = next(claim for claim in audit(suite, "smoke", results).claims if claim.id == "qsr_beats_h4")
    assert (claim.verdict, claim.because) == ("untested", "logs of others")


def test_a_metric_that_a_log_lacks_costs_one_row(suite: Suite, results: Path, tmp_path: Path):
    """The SGP code validates the workers' own models, and these figures and tables show the consensus model."""

    def logs(run: Run) -> None:
        files = sgp_logs(tmp_path)
        for file in files:
            file.write_text(file.read_text().replace("Num-DLWorkers,2", f"Num-DLWorkers,{2 + run.seed}"))
        import_log(suite, run.id, "smoke", "sgp", [str(file) for file in files], results, replace=True)

    for run in suite.runs("toy", "smoke", "vit", "sgp"):
        logs(run)
    row = next(row for row in audit(suite, "smoke", results).rows if row.id == "sgp_top1")
    assert row.because == "source uncertain"
    rows = metrics_table.prepare(load(suite, "toy", "table1", "smoke", results)).rows
    assert [row[1].text for row in rows][-1] == "not measured"
    assert rows[0][1].parts
    for kind, item in ((period_and_accuracy, "fig5"), (accuracy_curves, "fig6")):
        drawn = kind.prepare(load(suite, "toy", item, "smoke", results))
        assert drawn.setting.partition(" · modelled time")[0].endswith("without val_top1: SGP")
    for run in suite.runs("toy", "smoke", "vit", "parallel"):
        logs(run)
    with pytest.raises(ResultsError, match=r"^fig6: without val_top1: Parallel SGD, SGP$"):
        accuracy_curves.prepare(load(suite, "toy", "fig6", "smoke", results))


def test_a_log_that_diverged_stays_diverged(imported: Import, suite: Suite, tmp_path: Path):
    lines = TABLE.splitlines()[:26]
    assert ",17," in lines[24]
    lines[24] = lines[24].replace(",17,", ",nan,")
    result = imported("csv", [csv_log(tmp_path, "\n".join(lines))], columns=MAP)
    assert result.summary["final"]["val_top1"] is None
    state = state_of(suite.runs("toy", "smoke", "vit", "sgp")[0], tmp_path / "results")
    assert (state.status, state.reason) == ("diverged", "at step 528")


def test_nan_where_nothing_was_evaluated_is_missing_and_said(imported: Import, tmp_path: Path, capsys):
    """NaN before a number was not evaluated; the last one, or an infinity, is a divergence."""
    lines = TABLE.splitlines()
    lines[1:] = [",".join(text or "nan" for text in line.split(",")) for line in lines[1:]]
    result = imported("csv", [csv_log(tmp_path, "\n".join(lines))], columns=MAP)
    assert result.summary["status"] == "finished"
    assert list(result.metrics["epoch"]) == list(range(2, 31, 2))
    assert result.imported["notes"] == ["val_top1: NaN in 15 rows before a number counts as not evaluated"]
    for wrong in ("inf", "-inf"):
        text = TABLE.replace("\n1,1.95,39,", f"\n1,1.95,{wrong},")
        result = imported("csv", [csv_log(tmp_path, text)], columns=MAP, replace=True)
        assert result.summary["diverged"]["step"] == 44
    flags = [f"--configs={Path(__file__).parent / 'configs'}", f"--results={tmp_path / 'r'}", f"--run={SGP}"]
    flags += ["--format=csv", f"--columns={tmp_path / 'columns.yaml'}", str(csv_log(tmp_path, text))]
    assert main(["import", *flags]) == 0
    assert f"{SGP}: diverged at step 44\n" in capsys.readouterr().err


def test_charts_of_a_diverged_run_and_two_calls_of_a_step_have_equal_nan(imported: Import, tmp_path: Path):
    chart = [
        "epoch,a - acc,a - acc__MIN,a - acc__MAX",
        *(f"{e},{','.join(['50' if e < 20 else 'NaN'] * 3)}" for e in range(31)),
    ]
    charts = csv_log(tmp_path, "\n".join(chart) + "\n")
    result = imported("wandb-csv", [charts], columns="epoch: {column: epoch}\nval_top1: {column: acc}\n")
    assert result.summary["diverged"]["step"] == 22 * 20
    calls = csv_log(tmp_path, "step,acc,loss\n330,60,\n660,nan,\n660,nan,nan\n")
    columns = "step: {column: step}\nval_top1: {column: acc}\ntrain_loss: {column: loss}\n"
    result = imported("csv", [calls], columns=columns, replace=True)
    assert list(result.metrics["step"]) == [330, 660]
    log = fairseq_log(tmp_path, **{"valid_nll_loss 2.0": "valid_nll_loss nan"})
    repeated = log[0].read_text() + "0: | epoch 002 | valid on 'valid' subset | valid_nll_loss nan | num_updates 120\n"
    log[0].write_text(repeated)
    assert imported("fairseq", log, TRANSFORMER).summary["diverged"]["step"] == 120


def test_a_requeued_job_of_the_original_code_is_one_run(imported: Import, tmp_path: Path):
    """It takes an epoch again and appends to its log; the values of the later job count."""
    files = sgp_logs(tmp_path)
    for rank, file in enumerate(files):
        lines = file.read_text().split("\n")
        # Header of 5 lines, then 5 lines an epoch; ranks were killed at different steps of epoch 3.
        again = [line.replace("2.0", "1.0", 1) for line in lines[20:25]]
        assert len(again) == 5
        file.write_text("\n".join([*lines[: 21 + rank % 4], *again, *lines[25:]]))
    result = imported("sgp", files)
    assert list(result.metrics["step"]) == [22 * epoch for epoch in range(1, 31)]
    assert list(result.steps["step"][11:17]) == [66, 67, 77, 87, 88, 89]
    assert result.imported["notes"] == ["steps from 67 on were logged again: the values of the later job count"]
    log = fairseq_log(tmp_path)
    lines = log[0].read_text().split("\n")
    log[0].write_text("\n".join([*lines[:8], *[line.replace("loss 4.", "loss 3.") for line in lines[4:8]], *lines[8:]]))
    assert "loss 9.000" in lines[4]
    assert "valid_nll_loss 4.0" in lines[6]
    result = imported("fairseq", log, TRANSFORMER)
    assert list(result.metrics["worker_val_loss_mean"]) == pytest.approx([3.05 * math.log(2), 2.05 * math.log(2)])
    assert result.imported["notes"] == ["steps from 60 on were logged again: the values of the later job count"]


def test_the_newer_names_of_fairseq_are_read(imported: Import, tmp_path: Path):
    names = {"valid_loss": "loss", "valid_nll_loss": "nll_loss"}
    result = imported("fairseq", fairseq_log(tmp_path, **names), TRANSFORMER)
    assert list(result.metrics["worker_val_loss_mean"]) == pytest.approx([4.05 * math.log(2), 2.05 * math.log(2)])
    assert list(result.metrics["training_seconds"]) == [30.5, 60.5]


def test_an_offline_run_that_was_resumed_is_one_run(imported: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of a step that both jobs have logged the later job's values count, and what only the first has logged stays."""
    jobs = [
        [{"s": 220, "acc": 60.0, "loss": 2.0}, {"s": 440, "acc": 61.0, "loss": 1.9}, {"s": 550, "loss": 9.0}],
        [{"s": 440, "loss": 1.5}, {"s": 660, "acc": 64.0, "loss": 1.4}],
    ]
    for number, _ in enumerate(jobs):
        log = tmp_path / f"wandb/offline-run-{number}-x/run-x.wandb"
        log.parent.mkdir(parents=True)
        log.write_bytes(bytes([number]))
    monkeypatch.setattr("resync.papers.importer.wandb_runs.read_log", lambda log: jobs[log.read_bytes()[0]])
    columns = "step: {column: s}\nval_top1: {column: acc}\ntrain_loss: {column: loss}\nstep_loss: {column: loss}\n"
    result = imported("wandb-offline", [tmp_path / "wandb"], columns=columns)
    assert result.metrics[["step", "val_top1", "train_loss"]].to_numpy().tolist() == [
        [220, 60, 2], [440, 61, 1.5], [660, 64, 1.4],
    ]  # fmt: skip
    assert result.steps.empty
    assert result.imported["notes"] == ["steps from 440 on were logged again: the values of the later job count"]


def test_results_are_only_replaced_on_request(imported: Import, results: Path, suite: Suite, tmp_path: Path):
    run = suite.runs("toy", "smoke", "vit", "sgp")[0]
    (tmp_path / "columns.yaml").write_text(MAP)
    arguments = [SGP, "smoke", "csv", [str(csv_log(tmp_path))], results, tmp_path / "columns.yaml"]
    before = (results / run.directory / "metrics.csv").read_bytes()
    (results / run.directory / "checkpoint").mkdir()
    with pytest.raises(LogError, match=r"sgp/seed0: has results \(checkpoint, metrics.csv, steps.csv, summary.json\)"):
        import_log(suite, *arguments)
    broken = [*arguments[:3], [str(csv_log(tmp_path, "epoch,loss,error,hours\n1,2,x,3\n"))], *arguments[4:]]
    with pytest.raises(LogError, match="found 'x', allowed: a number"):
        import_log(suite, *broken, replace=True)
    assert (results / run.directory / "metrics.csv").read_bytes() == before
    csv_log(tmp_path)
    import_log(suite, *arguments, replace=True)
    assert sorted(file.name for file in (results / run.directory).iterdir()) == [
        run.hash_file.name, "metrics.csv", "run.yaml", "steps.csv", "summary.json",
    ]  # fmt: skip


WRONG_TABLES = {
    "epoch,loss,err,hours\n1,2,3,4\n": ":1: no column 'error', to which the map assigns val_top1; did you mean 'err'?",
    "epoch,loss,error,hours\n": ": no rows",
    "": ": no rows",
    "epoch,loss,error,hours\n0,2,ten,0\n": ":2: column 'error': found 'ten'",
    "epoch,loss,error,hours\n0,2,\N{ARABIC-INDIC DIGIT ONE},0\n": ":2: column 'error': found '",
    "epoch,loss,error,hours\n,2,10,0\n": ":2: column 'epoch': found nothing",
    "epoch,loss,error,hours\nnan,2,10,0\n": ":2: column 'epoch': found nan",
    "epoch,loss,error,hours\n1e308,2,10,0\n": ":2: column 'epoch': found 1e+308",
    "epoch,loss,error,hours\n0,2\n": ":2: found 2 values, allowed: 4",
    f"epoch,loss,error,hours\n0,2,{'9' * 200_000},0\n": ":2: field larger than field limit",
    "epoch,loss,loss,error,hours\n0,2,2,1,0\n": ":1: found the column 'loss' twice",
    "epoch,loss,error,hours\n0,2,,0\n": ":1: no row has a validation metric",
    "epoch,loss,error,hours\n1,2,9,0\n1,2,9,0\n": ":3: found step 44 after 44",
    "epoch,loss,error,hours\n1,2,9,0\n": ": the last evaluation is at step 44 (epoch 2), allowed: 660 (30)",
    "epoch,loss,error,hours\n1,2,9,0\n\0": ":",
    "epoch,loss,error,hours\n0,2,101,0\n": ":2: column 'error' as val_top1: found -1 %, allowed: 0 to 100",
    "epoch,loss,error,hours\n0,2,9,0\n1,2,-1e308,0\n": ":3: column 'error' as val_top1: found 1e+308 %, allowed: 0 to",
    "epoch,loss,error,hours\n0,-2,9,0\n": ":2: column 'loss' as train_loss: found -2 nats, allowed: a number >= 0",
    "epoch,loss,error,hours\n0,2,9,-1\n": ":2: column 'hours' as training_seconds: found -3600 s, allowed: a",
    "epoch,loss,error,hours\n0,2,9,inf\n": ":2: column 'hours' as training_seconds: found inf s, allowed: a",
    "epoch,loss,error,hours\n0,2,9,2\n1,2,8,nan\n2,2,7,1\n": ":4: column 'hours' as training_seconds: found 3600 s "
    "after 7200, allowed: no less",
}


@pytest.mark.parametrize("text", WRONG_TABLES, ids=lambda text: text[22:40])
def test_a_wrong_table_is_one_line(text: str, imported: Import, tmp_path: Path):
    with pytest.raises(LogError) as caught:
        imported("csv", [csv_log(tmp_path, text)], columns=MAP)
    assert str(caught.value).removeprefix(f"{tmp_path}/").startswith(f"table.csv{WRONG_TABLES[text]}")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "results").exists()


def test_no_column_may_leave_the_range_of_its_metric(suite: Suite):
    """Every metric that a log can have: below and above its range, and a total that falls."""
    [run] = suite.runs("toy", "smoke", "vit", "sgp")[:1]

    def message(name: str, *values: float) -> str:
        mapped = {"step": LogColumn(column="s"), name: LogColumn(column="v"), "val_loss": LogColumn(column="loss")}
        evaluated = {"loss": "2"} if "metrics" in METRICS[name].files else {}
        rows = [{"s": str(22 * place), "v": f"{value:.17g}"} | evaluated for place, value in enumerate(values, 1)]
        cells = [
            {key: tables.PlacedCell(text, f"log:{place}") for key, text in row.items()}
            for place, row in enumerate([*rows, {"s": "660", "loss": "2"}], 2)
        ]
        try:
            tables.translate(tables.PlacedTable("log:1", ("s", "v", "loss"), cells), mapped, run)
        except LogError as error:
            return str(error)
        return ""

    for name in {*columns("metrics"), *columns("steps")} - {"step", "epoch", "val_loss"}:
        metric = METRICS[name]
        inside = metric.least if math.isfinite(metric.least) else 0.0
        assert not message(name, inside, min(metric.most, inside + 1)), name
        for wrong in (metric.least - 1, metric.most * 1.1 + 1):
            if math.isfinite(wrong):
                found = message(name, wrong)
                assert found.startswith("log:2: column 'v'"), name
                assert f"found {wrong:g}" in found, name
        if metric.grows:
            assert "found 1" in message(name, 2, 1), name


def test_every_rank_is_needed_once(imported: Import, tmp_path: Path):
    files = sgp_logs(tmp_path)
    with pytest.raises(LogError, match="no log of rank 2, 7 of 8"):
        imported("sgp", [*files[:2], *files[3:7]])
    with pytest.raises(LogError, match=r"tagout_r0_n8.csv: found rank 0 of 8 again"):
        imported("sgp", [*files, files[0]])
    other = files[0].rename(tmp_path / "out_r0_n16.csv")
    with pytest.raises(LogError, match="found rank 0 of 16, allowed: each rank of 8"):
        imported("sgp", [other])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (MAP + "val_top9: {column: x}\n", "columns.yaml:5: val_top9: found 'val_top9', allowed: "),
        (MAP.replace("error %", "percent"), "columns.yaml:2: val_top1.unit: found 'percent', allowed: %, fraction, "),
        (MAP + "step: {column: x}\n", "columns.yaml:1: found epoch and step, allowed: step or epoch"),
        (
            MAP + "val_top5: {column: error, unit: error %}\n",
            "columns.yaml:5: val_top5: found 'error' again, allowed: ",
        ),
        (MAP.replace("column: loss", "colum: loss"), "columns.yaml:3: train_loss.colum: unknown key"),
    ],
)
def test_a_wrong_column_map_is_one_line(columns: str, message: str, imported: Import, tmp_path: Path):
    with pytest.raises(ConfigError) as caught:
        imported("csv", [csv_log(tmp_path)], columns=columns)
    (line,) = caught.value.lines
    assert line.removeprefix(f"{tmp_path}/").startswith(message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"--run": "toy/vit/spg/seed0"}, "--run: found 'toy/vit/spg/seed0', allowed: "),
        ({"--columns": None}, "--columns: missing"),
        ({"--format": "sgp"}, "--columns: has no effect on format sgp"),
        ({"--wandb-run": "a"}, "--wandb-run: has no effect"),
        ({"source": "no/such.csv"}, "no/such.csv: No such file or directory"),
    ],
)  # fmt: skip
def test_a_mistake_on_the_command_line_is_one_line(changes, message: str, tmp_path: Path, capsys):
    (tmp_path / "columns.yaml").write_text(MAP)
    flags = {
        "--configs": str(Path(__file__).parent / "configs"), "--results": str(tmp_path / "results"), "--run": SGP,
        "--format": "csv", "--columns": str(tmp_path / "columns.yaml"), "source": str(csv_log(tmp_path)),
    } | changes  # fmt: skip
    source = flags.pop("source")
    given = [text for flag, value in flags.items() if value is not None for text in (flag, value)]
    assert main(["import", *given, source]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"resync: error: {message}")
