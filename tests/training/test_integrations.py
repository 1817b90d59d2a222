"""Trainers that own the loop: the scripts of docs/trainers.md, and the adapters to Hugging Face and Lightning."""

import os
import re
import runpy
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import resync

for package in ("transformers", "lightning", "accelerate"):
    pytest.importorskip(package, reason=f"{package} is not installed: make trainers")
# Imported once, and not by every process that is forked.
FORKED = ("torch._dynamo", "resync.integrations.transformers", "resync.integrations.lightning", "transformers.trainer")
for module in FORKED:
    import_module(module)

PAGE = Path(__file__).parents[2] / "docs/trainers.md"
SCRIPTS = {
    section.partition("\n")[0]: found[1]
    for section in PAGE.read_text().split("\n## ")
    if (found := re.search(r"```python\n(.*?)```", section, re.DOTALL))
}
STEPS, EPOCH, ACCUMULATED, PERIOD, BATCH = 6, 3, 2, 2, 4
SAMPLES = 2 * EPOCH * ACCUMULATED * BATCH
LR, CLIP = 0.1, 0.05


def on_two_processes(function: Callable[..., Any], *arguments: Any) -> dict[int, Any]:
    """What `function` returns on every rank, started as by torchrun, but forked."""
    settings = LaunchConfig(
        1, 1, 2, rdzv_backend="c10d", rdzv_endpoint="localhost:0", max_restarts=0, start_method="fork"
    )
    return elastic_launch(settings, function)(*arguments)


def run_script(script: str, folder: str) -> None:
    os.chdir(folder)
    runpy.run_path(script, run_name="__main__")


@pytest.mark.parametrize("name", ["Hugging Face Trainer", "PyTorch Lightning", "Accelerate", "nanoGPT"])
def test_a_script_of_the_page_runs_on_two_processes(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    assert len(SCRIPTS) == 4
    (tmp_path / "train.py").write_text(SCRIPTS[name])
    on_two_processes(run_script, str(tmp_path / "train.py"), str(tmp_path))
    found = dict(re.findall(r"rank (\d): (loss [\d.]+ after \d+ rounds of \d+ steps)", capfd.readouterr().out))
    assert found["0"] == found["1"]  # both judge the same average
    rounds, steps = map(int, re.findall(r"(\d+) (?:rounds|steps)", found["0"]))
    assert 1 < rounds < steps


def test_nanogpts_loop_continues_exactly(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: Any):
    whole = SCRIPTS["nanoGPT"]
    half = whole.partition("sync.finish()\n")[0].replace("range(first, STEPS)", "range(first, 16)")
    for name, text in {"whole": whole, "half": half}.items():
        (tmp_path / f"{name}.py").write_text(text)
    lines = []
    for name, resume in (("whole", ""), ("half", ""), ("whole", "1")):
        monkeypatch.setenv("RESUME", resume)
        on_two_processes(run_script, str(tmp_path / f"{name}.py"), str(tmp_path))
        lines.append(sorted(re.findall(r"rank \d: loss [\d.]+ after", capfd.readouterr().out)))
    assert lines[0] == lines[2]
    assert len(lines[0]) == 2
    assert lines[1] == []


class Net(nn.Module):
    """A small network that remembers its batches, in the forms that both trainers call."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        self.seen: list[tuple[Tensor, Tensor]] = []

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        if self.training:
            self.seen.append((x.clone(), labels.clone()))
        return {"loss": F.mse_loss(self.body(x).squeeze(1), labels)}

    def flat(self) -> Tensor:
        return torch.cat([parameter.detach().flatten() for parameter in self.body.parameters()])


def data() -> TensorDataset:
    random = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(SAMPLES, 4, generator=random), torch.randn(SAMPLES, generator=random))


def cosine(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)


def attach(model: nn.Module, optimizer: torch.optim.Optimizer) -> resync.Synchronised:
    return resync.attach(model, optimizer, resync.LocalSGD(period=PERIOD))


def by_hand(seen: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The parameters after the same steps in a loop of one's own."""
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=LR)
    scheduler, sync = cosine(optimizer), attach(net, optimizer)
    batches = iter(seen)
    for _ in range(STEPS):
        for _ in range(ACCUMULATED):
            (net(*next(batches))["loss"] / ACCUMULATED).backward()
        nn.utils.clip_grad_norm_(net.parameters(), CLIP)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    sync.finish()
    return net.flat()


def report(net: Net, rows: list[Tensor], sync: resync.Synchronised, resumed: Net, folder: Path) -> dict[str, Any]:
    """What a rank has found; the parent gets lists, for tensors would be in shared memory."""
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    return {
        "rows": [row.tolist() for row in rows],
        "final": net.flat().tolist(),
        "by hand": by_hand(net.seen).tolist(),
        "resumed": resumed.flat().tolist(),
        "resumed steps": len(resumed.seen) // ACCUMULATED,
        "samples": [tuple(x) for inputs, _ in net.seen[: EPOCH * ACCUMULATED] for x in inputs.tolist()],
        "steps": (sync.steps, sync.rounds),
        "files": files,
    }


def check(found: dict[int, dict[str, Any]]) -> None:
    """What must hold with any trainer."""
    zero, one = found[0], found[1]
    assert zero["steps"] == one["steps"] == (STEPS, STEPS // PERIOD)
    # Workers are equal after an average and differ before it: nothing else averages their gradients.
    equal = [ours == theirs for ours, theirs in zip(zero["rows"], one["rows"], strict=True)]
    assert equal == [step % PERIOD == 0 for step in range(1, STEPS + 1)]
    assert len({*zero["samples"], *one["samples"]}) == SAMPLES  # every worker has data of its own
    for each in (zero, one):
        assert each["final"] == each["by hand"] == each["resumed"]
        assert each["resumed steps"] == STEPS - EPOCH


def with_transformers(folder: str) -> dict[str, Any]:
    from transformers import TrainerCallback, TrainingArguments

    from resync.integrations.transformers import Trainer

    class Watch(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            rows.append(model.flat())

    def fit(out: Path, resume: str | None = None) -> tuple[Net, Trainer]:
        net = Net()
        optimizer = torch.optim.AdamW(net.parameters(), lr=LR)
        args = TrainingArguments(
            str(out), per_device_train_batch_size=BATCH, gradient_accumulation_steps=ACCUMULATED, max_steps=STEPS,
            max_grad_norm=CLIP, save_steps=EPOCH, eval_strategy="steps", eval_steps=EPOCH,
            use_cpu=True, report_to="none",
            disable_tqdm=True, logging_steps=100,
        )  # fmt: skip
        samples = [{"x": x, "labels": y} for x, y in data()]
        trainer = Trainer(
            net, args, train_dataset=samples, eval_dataset=samples, callbacks=[Watch()], attach=attach,
            optimizers=(optimizer, cosine(optimizer)),
        )  # fmt: skip
        trainer.train(resume_from_checkpoint=resume)
        return net, trainer

    rows: list[Tensor] = []
    net, trainer = fit(Path(folder, "whole"))
    assert trainer.model_wrapped is net
    of_the_first = list(rows)
    resumed, _ = fit(Path(folder, "resumed"), str(Path(folder, f"whole/checkpoint-{EPOCH}")))
    assert trainer.sync is not None
    return report(net, of_the_first, trainer.sync, resumed, Path(folder, "whole"))


def test_hugging_faces_trainer_takes_the_steps_of_a_loop_of_ones_own(tmp_path: Path):
    found = on_two_processes(with_transformers, str(tmp_path))
    check(found)
    saved = tmp_path / f"whole/checkpoint-{EPOCH}"
    own = [torch.load(saved / f"resync_worker{rank}of2.pt")["model"] for rank in (0, 1)]
    average = import_module("safetensors.torch").load_file(saved / "model.safetensors")
    for name, tensor in average.items():
        assert torch.equal(tensor, (own[0][name] + own[1][name]) / 2)
    # The checkpoint lies within a round, where workers differ.
    assert not torch.equal(own[0]["body.0.weight"], own[1]["body.0.weight"])


def test_hugging_faces_trainer_refuses_what_would_not_be_averaged(tmp_path: Path):
    from transformers import TrainingArguments

    from resync.integrations.transformers import Trainer

    args = TrainingArguments(str(tmp_path), use_cpu=True, report_to="none")
    args.fp16 = True
    with pytest.raises(ValueError, match="fp16: every worker would skip steps of its own, allowed: bf16 or float32"):
        Trainer(Net(), args, attach=attach)
    args.fp16 = False
    trainer = Trainer(Net(), args, attach=attach, train_dataset=[{"x": torch.ones(4), "labels": torch.ones(())}])
    (tmp_path / "checkpoint-1").mkdir()
    trainer._resumed_from = str(tmp_path / "checkpoint-1")
    trainer.create_optimizer()
    trainer.optimizer = trainer.accelerator.prepare(trainer.optimizer)
    with pytest.raises(FileNotFoundError, match=r"resync_worker0of1\.pt: not found; a training continues from"):
        trainer.begin()


def test_hugging_faces_trainer_trains_again_after_an_interrupt(tmp_path: Path):
    from transformers import TrainerCallback, TrainingArguments

    from resync.integrations.transformers import Trainer

    class Interrupt(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 1 and not interrupted:
                interrupted.append(True)
                raise KeyboardInterrupt

    interrupted: list[bool] = []
    args = TrainingArguments(
        str(tmp_path), max_steps=2, use_cpu=True, report_to="none", disable_tqdm=True, save_strategy="no"
    )
    samples = [{"x": x, "labels": y} for x, y in data()]
    trainer = Trainer(Net(), args, train_dataset=samples, callbacks=[Interrupt()], attach=attach)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    trainer.train()
    assert trainer.sync is not None
    assert trainer.sync.steps == 2


def with_lightning(folder: str) -> dict[str, Any]:
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    from resync.integrations.lightning import Strategy

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: Any, index: int) -> Tensor:
            return self.net(*batch)["loss"]

        def on_train_batch_end(self, *_: Any) -> None:
            if len(self.net.seen) % ACCUMULATED == 0:
                rows.append(self.net.flat())

        def validation_step(self, batch: Any, index: int) -> None:
            both = [torch.empty_like(self.net.flat()) for _ in range(2)]
            dist.all_gather(both, self.net.flat())
            assert torch.equal(*both)
            self.log("val", self.net(*batch)["loss"], sync_dist=True)

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=LR)
            return [optimizer], [{"scheduler": cosine(optimizer), "interval": "step"}]

    def fit(out: Path, resume: str | None = None) -> tuple[Net, Strategy]:
        module, strategy = Module(), Strategy(attach, process_group_backend="gloo")
        trainer = lightning.Trainer(
            strategy=strategy, accelerator="cpu", devices=2, max_epochs=STEPS // EPOCH, logger=False,
            accumulate_grad_batches=ACCUMULATED, gradient_clip_val=CLIP, enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[ModelCheckpoint(out, filename="{step}", monitor="step", mode="max", save_last="link")],
        )  # fmt: skip
        lightning.seed_everything(5, verbose=False)
        loaders = DataLoader(data(), BATCH, shuffle=True), DataLoader(data(), BATCH)
        trainer.fit(module, *loaders, ckpt_path=resume)
        if resume is None:
            assert trainer.strategy.model is module
            strategy._training = True
            with pytest.raises(FileNotFoundError, match=r"of2: not found; a training continues from a checkpoint"):
                strategy.load_checkpoint(out / "none.ckpt")
            strategy._training = False
        return module.net, strategy

    rows: list[Tensor] = []
    whole = Path(folder, "whole")
    original = ModelCheckpoint._remove_checkpoint
    ModelCheckpoint._remove_checkpoint = lambda *_: None  # keeps the first checkpoint for the second training
    net, strategy = fit(whole)
    ModelCheckpoint._remove_checkpoint = original
    of_the_first = list(rows)
    [first] = whole.glob(f"step={EPOCH}.ckpt")
    resumed, _ = fit(Path(folder, "resumed"), str(first))
    assert strategy.sync is not None
    found = report(net, of_the_first, strategy.sync, resumed, whole)
    return found | {"removed": sorted(path.name for path in Path(folder, "resumed").iterdir())}


def test_lightning_takes_the_steps_of_a_loop_of_ones_own(tmp_path: Path):
    found = on_two_processes(with_lightning, str(tmp_path))
    check(found)
    saved = tmp_path / f"whole/step={EPOCH}.ckpt"
    files = [saved, *sorted(saved.parent.glob(f"{saved.name}.*"))]
    average, *own = (torch.load(path, weights_only=False)["state_dict"] for path in files)
    assert len(own) == 2
    for name, tensor in average.items():
        assert torch.equal(tensor, (own[0][name] + own[1][name]) / 2)
    assert not torch.equal(own[0]["net.body.0.weight"], own[1]["net.body.0.weight"])
    # The older checkpoint went with the files of its workers.
    last = f"step={STEPS}.ckpt"
    assert found[0]["removed"] == ["last.ckpt", last, f"{last}.worker0of2", f"{last}.worker1of2"]


def test_lightnings_strategy_refuses_what_would_not_be_averaged(tmp_path: Path):
    import lightning
    from lightning.pytorch.plugins import MixedPrecision

    from resync.integrations.lightning import Strategy

    class Module(lightning.LightningModule):
        def __init__(self, optimizers: int, fused: bool) -> None:
            super().__init__()
            self.net, self.optimizers_wanted, self.fused = Net(), optimizers, fused
            self.automatic_optimization = optimizers == 1

        def training_step(self, batch: Any, index: int) -> Tensor:
            return self.net(*batch)["loss"]

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(self.parameters(), fused=self.fused) for _ in range(self.optimizers_wanted)]

    def fit(optimizers: int, fused: bool = False, **settings: Any) -> None:
        trainer = lightning.Trainer(
            strategy=Strategy(attach, process_group_backend="gloo"), accelerator="cpu", devices=1, logger=False,
            enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False, max_steps=1, **settings,
        )  # fmt: skip
        try:
            trainer.fit(Module(optimizers, fused), DataLoader(data(), BATCH))
        finally:
            dist.destroy_process_group()

    with pytest.raises(ValueError, match="the module has 2 optimizers, allowed: one that has all parameters"):
        fit(2)
    plugin = MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu"))
    with pytest.raises(ValueError, match="precision 16-mixed: every worker would skip steps of its own"):
        fit(1, plugins=[plugin])
    plugin = MixedPrecision("16-mixed", "cpu", scaler=ShardedGradScaler("cpu"))
    with pytest.raises(ValueError, match="precision 16-mixed with a fused optimizer: its gradients would keep the"):
        fit(1, fused=True, plugins=[plugin])


def test_lightning_fits_a_module_again_after_an_error():
    import lightning

    from resync.integrations.lightning import Strategy

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.fails = Net(), True

        def training_step(self, batch: Any, index: int) -> Tensor:
            if self.fails and index:
                raise ArithmeticError
            return self.net(*batch)["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters())

    def fit() -> Strategy:
        strategy = Strategy(attach, process_group_backend="gloo")
        trainer = lightning.Trainer(
            strategy=strategy, accelerator="cpu", devices=1, logger=False, max_steps=2, enable_progress_bar=False,
            enable_model_summary=False, enable_checkpointing=False,
        )  # fmt: skip
        trainer.fit(module, DataLoader(data(), BATCH))
        return strategy

    module = Module()
    try:
        with pytest.raises(ArithmeticError):
            fit()
        module.fails = False
        assert fit().sync.steps == 2
    finally:
        dist.destroy_process_group()


def test_a_removed_link_leaves_the_workers_files_of_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As seen by rank 1, when rank 0 has not removed the link yet."""
    from resync.integrations.lightning import Strategy

    for name, value in (("global_rank", 1), ("world_size", 2), ("is_global_zero", False)):
        monkeypatch.setattr(Strategy, name, value)
    for name in ("step=3.ckpt", "step=3.ckpt.worker1of2"):
        (tmp_path / name).touch()
    (tmp_path / "last.ckpt").symlink_to("step=3.ckpt")
    strategy = Strategy(attach)
    strategy.remove_checkpoint(tmp_path / "last.ckpt")
    assert (tmp_path / "step=3.ckpt.worker1of2").exists()
    strategy.remove_checkpoint(tmp_path / "step=3.ckpt")
    assert not (tmp_path / "step=3.ckpt.worker1of2").exists()
