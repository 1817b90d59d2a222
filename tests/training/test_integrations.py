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
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import resync

for package in ("transformers", "lightning", "accelerate"):
    pytest.importorskip(package, reason=f"{package} is not installed: make trainers")
import lightning  # noqa: E402
from lightning.pytorch.callbacks import LearningRateFinder, ModelCheckpoint  # noqa: E402
from lightning.pytorch.plugins import MixedPrecision  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from transformers import TrainerCallback, TrainingArguments  # noqa: E402

from resync.integrations.lightning import Strategy  # noqa: E402
from resync.integrations.transformers import Trainer  # noqa: E402

# Imported once, and not by every process that is forked.
for module in ("torch._dynamo", "transformers.trainer"):
    import_module(module)

PAGE = Path(__file__).parents[2] / "docs/trainers.md"
SCRIPTS = {
    section.partition("\n")[0]: found[1]
    for section in PAGE.read_text().split("\n## ")
    if (found := re.search(r"```python\n(.*?)```", section, re.DOTALL))
}
STEPS, EPOCH, ACCUMULATED, PERIOD, BATCH = 6, 3, 2, 2, 4
SAVED = 3
SAMPLES = 2 * EPOCH * ACCUMULATED * BATCH
LR, CLIP = 0.1, 0.05


def on_two_processes(function: Callable[..., Any], *arguments: Any, number: int = 2) -> dict[int, Any]:
    """What `function` returns on every rank, started as by torchrun, but forked."""
    settings = LaunchConfig(
        1, 1, number, rdzv_backend="c10d", rdzv_endpoint="localhost:0", max_restarts=0, start_method="fork"
    )
    return elastic_launch(settings, function)(*arguments)


def hugging_face(folder: Path, **settings: Any) -> TrainingArguments:
    return TrainingArguments(str(folder), use_cpu=True, report_to="none", disable_tqdm=True, **settings)


def lightnings(strategy: Strategy, **settings: Any) -> lightning.Trainer:
    silent = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return lightning.Trainer(strategy=strategy, accelerator="cpu", **silent, **settings)


def run_script(script: str, folder: str) -> None:
    os.chdir(folder)
    runpy.run_path(script, run_name="__main__")


@pytest.mark.parametrize("name", [*SCRIPTS])
def test_a_script_of_the_page_runs_on_two_processes(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    assert len(SCRIPTS) == 5
    (tmp_path / "train.py").write_text(SCRIPTS[name])
    on_two_processes(run_script, str(tmp_path / "train.py"), str(tmp_path))
    found = dict(re.findall(r"rank (\d): (loss [\d.]+ after \d+ rounds of \d+ steps)", capfd.readouterr().out))
    assert found["0"] == found["1"]  # both judge the same average
    rounds, steps = map(int, re.findall(r"(\d+) (?:rounds|steps)", found["0"]))
    assert 1 < rounds < steps


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


def samples() -> list[dict[str, Tensor]]:
    return [{"x": x, "labels": y} for x, y in data()]


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


def report(net: Net, rows: list[Tensor], sync: resync.Synchronised, resumed: Net) -> dict[str, Any]:
    """What a rank has found; the parent gets lists, for tensors would be in shared memory."""
    return {
        "rows": [row.tolist() for row in rows],
        "final": net.flat().tolist(),
        "by hand": by_hand(net.seen).tolist(),
        "resumed": resumed.flat().tolist(),
        "resumed steps": len(resumed.seen) // ACCUMULATED,
        "samples": [tuple(x) for inputs, _ in net.seen[: EPOCH * ACCUMULATED] for x in inputs.tolist()],
        "steps": (sync.steps, sync.rounds),
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


def check_average(average: dict[str, Tensor], own: list[dict[str, Tensor]]) -> None:
    """A checkpoint within a round, where two workers differ, has their average."""
    for name, tensor in average.items():
        assert torch.equal(tensor, (own[0][name] + own[1][name]) / 2)
        assert not torch.equal(own[0][name], own[1][name])


class Module(lightning.LightningModule):
    """The network as Lightning takes it; with `optimizers` other than 1 it is to step them by itself."""

    def __init__(self, optimizers: int = 1, **settings: Any) -> None:
        super().__init__()
        self.net, self.wanted, self.settings, self.fails = Net(), optimizers, settings, False
        self.automatic_optimization = optimizers == 1

    def training_step(self, batch: Any, index: int) -> Tensor:
        if self.fails and index:
            raise ArithmeticError
        return self.net(*batch)["loss"]

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(self.parameters(), **self.settings) for _ in range(self.wanted)]


def fit_alone(module: Module, **settings: Any) -> Strategy:
    """Two steps in one process."""
    strategy = Strategy(attach, process_group_backend="gloo")
    trainer = lightnings(strategy, devices=1, max_steps=2, enable_checkpointing=False, **settings)
    try:
        trainer.fit(module, DataLoader(data(), BATCH))
    finally:
        dist.destroy_process_group()
    return strategy


def with_transformers(folder: str) -> dict[str, Any]:
    class Watch(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            rows.append(model.flat())

    def fit(out: Path, resume: str | None = None) -> tuple[Net, Trainer]:
        net = Net()
        optimizer = torch.optim.AdamW(net.parameters(), lr=LR)
        args = hugging_face(
            out, per_device_train_batch_size=BATCH, gradient_accumulation_steps=ACCUMULATED, max_steps=STEPS,
            max_grad_norm=CLIP, save_steps=EPOCH, eval_strategy="steps", eval_steps=EPOCH, logging_steps=100,
        )  # fmt: skip
        trainer = Trainer(
            net, args, train_dataset=samples(), eval_dataset=samples(), callbacks=[Watch()], attach=attach,
            optimizers=(optimizer, cosine(optimizer)),
        )  # fmt: skip
        trainer.train(resume_from_checkpoint=resume)
        return net, trainer

    rows: list[Tensor] = []
    net, trainer = fit(Path(folder, "whole"))
    assert trainer.model_wrapped is net
    of_the_first = list(rows)
    resumed, _ = fit(Path(folder, "resumed"), str(Path(folder, f"whole/checkpoint-{EPOCH}")))
    return report(net, of_the_first, trainer.sync, resumed)


def test_hugging_faces_trainer_takes_the_steps_of_a_loop_of_ones_own(tmp_path: Path):
    check(on_two_processes(with_transformers, str(tmp_path)))
    saved = tmp_path / f"whole/checkpoint-{EPOCH}"
    own = [torch.load(saved / f"resync_worker{rank}of2.pt")["model"] for rank in (0, 1)]
    check_average(import_module("safetensors.torch").load_file(saved / "model.safetensors"), own)


def test_hugging_faces_trainer_refuses_what_would_not_be_averaged(tmp_path: Path):
    args = hugging_face(tmp_path)
    args.fp16 = True
    with pytest.raises(ValueError, match="fp16: every worker would skip steps of its own, allowed: bf16 or float32"):
        Trainer(Net(), args, attach=attach)
    args.fp16 = False
    trainer = Trainer(Net(), args, attach=attach, train_dataset=samples())
    (tmp_path / "checkpoint-1").mkdir()
    trainer._resumed_from = str(tmp_path / "checkpoint-1")
    trainer.create_optimizer()
    trainer.optimizer = trainer.accelerator.prepare(trainer.optimizer)
    with pytest.raises(FileNotFoundError, match=r"resync_worker0of1\.pt: not found; a training continues from"):
        trainer.begin()


def test_hugging_faces_trainer_trains_again_after_an_interrupt(tmp_path: Path):
    class Interrupt(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 1 and not interrupted:
                interrupted.append(True)
                raise KeyboardInterrupt

    interrupted: list[bool] = []
    args = hugging_face(tmp_path, max_steps=2, save_strategy="no")
    trainer = Trainer(Net(), args, train_dataset=samples(), callbacks=[Interrupt()], attach=attach)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    trainer.train()
    assert trainer.sync.steps == 2


def test_hugging_faces_trainer_begins_again_with_a_smaller_batch(tmp_path: Path):
    """As `auto_find_batch_size` does where the memory has not sufficed, here in the second step."""

    class Small(Trainer):
        def training_step(self, model: Any, inputs: Any, *more: Any) -> Any:
            batches.append(len(inputs["x"]))
            if len(batches) == 2:
                raise RuntimeError("CUDA out of memory.")
            return super().training_step(model, inputs, *more)

    batches: list[int] = []
    args = hugging_face(tmp_path, max_steps=3, save_strategy="no", auto_find_batch_size=True)
    trainer = Small(Net(), args, train_dataset=samples(), attach=attach)
    trainer.train()
    assert batches[0] == batches[1] > batches[2]
    assert trainer.sync.steps == 3


def with_lightning(folder: str) -> dict[str, Any]:
    class Watched(Module):
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
        module, strategy = Watched(), Strategy(attach, process_group_backend="gloo")
        trainer = lightnings(
            strategy, devices=2, max_epochs=STEPS // EPOCH, accumulate_grad_batches=ACCUMULATED, gradient_clip_val=CLIP,
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
    resumed, _ = fit(Path(folder, "resumed"), str(whole / f"step={EPOCH}.ckpt"))
    return report(net, of_the_first, strategy.sync, resumed)


def test_lightning_takes_the_steps_of_a_loop_of_ones_own(tmp_path: Path):
    check(on_two_processes(with_lightning, str(tmp_path)))
    saved = tmp_path / f"whole/step={EPOCH}.ckpt"
    files = [saved, *sorted(saved.parent.glob(f"{saved.name}.*"))]
    average, *own = (torch.load(path, weights_only=False)["state_dict"] for path in files)
    check_average(average, own)
    # The older checkpoint of the second training went with the files of its workers.
    last = f"step={STEPS}.ckpt"
    left = sorted(path.name for path in (tmp_path / "resumed").iterdir())
    assert left == ["last.ckpt", last, f"{last}.worker0of2", f"{last}.worker1of2"]


def test_lightnings_strategy_refuses_what_would_not_be_averaged():
    with pytest.raises(ValueError, match="the module has 2 optimizers, allowed: one that has all parameters"):
        fit_alone(Module(optimizers=2))
    plugin = MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu"))
    with pytest.raises(ValueError, match="precision 16-mixed: every worker would skip steps of its own"):
        fit_alone(Module(), plugins=[plugin])
    plugin = MixedPrecision("16-mixed", "cpu", scaler=ShardedGradScaler("cpu"))
    with pytest.raises(ValueError, match="precision 16-mixed with a fused optimizer: its gradients would keep the"):
        fit_alone(Module(fused=True), plugins=[plugin])


def test_lightning_fits_a_module_again_after_an_error():
    module = Module()
    module.fails = True
    with pytest.raises(ArithmeticError):
        fit_alone(module)
    module.fails = False
    assert fit_alone(module).sync.steps == 2


def test_lightnings_learning_rate_finder_trains_within_a_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    class Set(lightning.Callback):
        def on_train_end(self, trainer: Any, module: Any) -> None:
            nn.init.zeros_(next(module.parameters()))

    module, finder = Module(lr=LR), LearningRateFinder(num_training_steps=3)
    module.lr = LR
    strategy = fit_alone(module, callbacks=[finder, Set()])
    assert strategy.sync.steps == 2
    assert not next(module.parameters()).any()
    assert len(finder.optimal_lr.results["lr"]) >= 3
    assert not list(tmp_path.glob(".lr_find*"))


def test_a_removed_link_leaves_the_workers_files_of_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As seen by rank 1, when rank 0 has not removed the link yet."""
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


def sharded(net: Net) -> Any:
    """FSDP2 in each of two workers of two processes; returns their group."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    fully_shard(net.body[0], mesh=mesh["shard"])
    fully_shard(net, mesh=mesh["shard"])
    return mesh["replicate"]


def of_shards(net: Net) -> dict[str, Any]:
    """What a rank has seen and what it ends with."""
    whole = [parameter.full_tensor().detach().flatten() for parameter in net.body.parameters()]
    return {"seen": [(x.tolist(), y.tolist()) for x, y in net.seen], "final": torch.cat(whole).tolist()}


def sharded_with_transformers(folder: str, algorithm: Any, resumed: str | None) -> dict[str, Any]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    net = Net()
    group = sharded(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=LR)
    args = hugging_face(
        Path(folder), per_device_train_batch_size=BATCH // 2, gradient_accumulation_steps=ACCUMULATED, max_steps=STEPS,
        max_grad_norm=CLIP, save_steps=SAVED, eval_strategy="steps", eval_steps=EPOCH,
    )  # fmt: skip
    trainer = Trainer(
        net, args, train_dataset=samples(), eval_dataset=samples(), optimizers=(optimizer, cosine(optimizer)),
        attach=lambda model, optimizer: resync.attach(model, optimizer, algorithm, group=group),
    )  # fmt: skip
    trainer.train(resumed and f"{resumed}/checkpoint-{SAVED}")
    trainer.save_model(f"{folder}/final")
    saved = load_file(f"{folder}/final/model.safetensors") if dist.get_rank() == 0 else {}
    return of_shards(net) | {"saved": flat_of(saved)}


def sharded_with_lightning(folder: str, algorithm: Any, resumed: str | None) -> dict[str, Any]:
    class Sharded(Module):
        def configure_model(self) -> None:
            self.group = sharded(self.net)

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=LR)
            return [optimizer], [{"scheduler": cosine(optimizer), "interval": "step"}]

    def attach(module: Sharded, optimizer: torch.optim.Optimizer) -> resync.Synchronised:
        return resync.attach(module, optimizer, algorithm, group=module.group)

    module, strategy = Sharded(), Strategy(attach, process_group_backend="gloo")
    kept = ModelCheckpoint(folder, "{step}", every_n_train_steps=SAVED, save_top_k=-1)
    trainer = lightnings(
        strategy, devices=4, max_epochs=STEPS // EPOCH, accumulate_grad_batches=ACCUMULATED, gradient_clip_val=CLIP,
        callbacks=[kept],
    )  # fmt: skip
    trainer.fit(module, DataLoader(data(), BATCH // 2), ckpt_path=resumed and f"{resumed}/step={SAVED}.ckpt")
    trainer.save_checkpoint(Path(folder, "final.ckpt"))
    saved = torch.load(Path(folder, "final.ckpt"))["state_dict"] if dist.get_rank() == 0 else {}
    strategy.remove_checkpoint(Path(folder, f"step={STEPS}.ckpt"))
    dist.barrier()
    assert not list(Path(folder).glob(f"step={STEPS}*"))
    return of_shards(module.net) | {"saved": flat_of(saved)}


def flat_of(saved: dict[str, Tensor]) -> list[float]:
    """The parameters of a state that a trainer has written."""
    parts = [saved[key] for name, _ in Net().named_parameters() for key in saved if key.endswith(name)]
    return torch.cat([each.flatten() for each in parts]).tolist() if parts else []


def there_and_back(trained: Any, folder: str, algorithm: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A training, and one that continues from a checkpoint of it."""
    first = trained(f"{folder}/first", algorithm, None)
    return first, trained(f"{folder}/again", algorithm, f"{folder}/first")


@pytest.mark.parametrize("trained", [sharded_with_transformers, sharded_with_lightning])
def test_shards_in_a_trainer_continue_from_its_checkpoint(trained: Any, tmp_path: Path):
    found = on_two_processes(there_and_back, trained, str(tmp_path), resync.DiLoCo(period=2 * PERIOD), number=4)
    for first, again in found.values():
        assert again["final"] == first["final"]
    first, again = found[0]
    assert first["saved"] == again["saved"] == first["final"]


@pytest.mark.parametrize("trained", [sharded_with_transformers, sharded_with_lightning])
def test_shards_in_a_trainer_end_like_whole_workers(trained: Any, tmp_path: Path):
    """Two whole workers written out on the batches that the processes of each have seen."""
    found = on_two_processes(trained, str(tmp_path), resync.LocalSGD(period=PERIOD), None, number=4)
    nets = [Net(), Net()]
    optimizers = [torch.optim.AdamW(net.parameters(), lr=LR) for net in nets]
    schedulers = [cosine(optimizer) for optimizer in optimizers]
    for step in range(STEPS):
        for worker, (net, optimizer, scheduler) in enumerate(zip(nets, optimizers, schedulers, strict=True)):
            for rank in (2 * worker, 2 * worker + 1):
                for x, y in found[rank]["seen"][step * ACCUMULATED : (step + 1) * ACCUMULATED]:
                    (net(torch.tensor(x), torch.tensor(y))["loss"] / (2 * ACCUMULATED)).backward()
            nn.utils.clip_grad_norm_(net.parameters(), CLIP)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if (step + 1) % PERIOD == 0:
            with torch.no_grad():
                for one, other in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
                    one.copy_((one + other) / 2)
                    other.copy_(one)
    for rank in found.values():
        assert rank["final"] == pytest.approx(nets[0].flat().tolist(), abs=1e-6)
