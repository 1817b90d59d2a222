"""The parts of one run, built from its configuration, and the state that a checkpoint keeps of them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from resync import data, models, optim, sync
from resync.config import Run
from resync.config.training import LossScale
from resync.data import Dataset
from resync.data.sampling import Sampler
from resync.engine.clocks import Clocks
from resync.engine.transport import Transport
from resync.engine.workers import Workers
from resync.formulas.schedules import Schedule
from resync.models.originals import load_original
from resync.prepare import data_root
from resync.streams import stream_seed
from resync.sync.algorithm import Algorithm, Training
from resync.train.checkpoint import Checkpoints, State, owned
from resync.train.label_noise import LabelNoise
from resync.train.last_models import LastModels
from resync.train.log import RunLog
from resync.train.loss_scale import LossScales
from resync.train.losses import Losses
from resync.train.mixup import Mixup
from resync.train.objective import Classification, Objective
from resync.train.plateau import Watch
from resync.train.start import load_start

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""The precisions that are reached by autocast."""


@dataclass
class Session:
    """Everything that trains one run on this process."""

    run: Run
    clocks: Clocks
    transport: Transport
    data: Dataset
    sampler: Sampler
    workers: Workers
    optimizer: Optimizer
    sync: Algorithm
    schedule: Schedule
    watch: Watch
    objective: Objective
    label_noise: LabelNoise | None
    mixup: Mixup | None
    loss_scales: LossScales | None
    losses: Losses
    last_models: LastModels
    checkpoints: Checkpoints
    log: RunLog | None
    resumed_from: list[int] = field(default_factory=list)

    @classmethod
    def build(cls, run: Run, out: Path, device: torch.device, rank: int, world_size: int) -> "Session":
        """Build every part; rank 0 keeps the log. Raises ValueError for what the model or transport refuses."""
        clocks = Clocks(device)
        transport = Transport(run.workers, clocks, rank, world_size)
        dataset = data.build(run.data.name, run.data.options).to(device)
        shape, classes = run.facts["input_shape"], run.facts["num_classes"]
        model = models.build(run.model, shape, classes, run.seed).to(device)
        if run.memory_format:
            model = model.to(memory_format=getattr(torch, run.memory_format))
        if run.start_from:
            load_start(model, run, out)
        if run.start_checkpoint:
            load_original(model, data_root(run.data.component) / run.start_checkpoint)
        workers = Workers(model, transport.num_local)
        optimizer = optim.build(run.optimizer, workers)
        training = Training(workers, transport, optimizer, run.total_steps, run.warmup_steps, run.seed, run.clip_norm)
        algorithm = sync.build(run.sync.in_steps(run.steps_per_epoch), training)
        if run.compile:
            workers.compile(run.compile)
        if any(isinstance(layer, nn.Dropout) and layer.p for layer in model.modules()):
            workers.before_gradient = lambda index: _seed_dropout(run, transport.local.start + index, algorithm.steps)
        return cls(
            run=run,
            clocks=clocks,
            transport=transport,
            data=dataset,
            sampler=Sampler(
                num_samples=dataset.num_train,
                num_workers=run.workers,
                local_batch=run.local_batch_size,
                steps=run.steps_per_epoch,
                seed=run.seed,
                replacement=run.sampling == "with_replacement",
            ),
            workers=workers,
            optimizer=optimizer,
            sync=algorithm,
            schedule=run.lr,
            watch=Watch(run.plateau, run.early_stopping),
            objective=_objective(run, algorithm),
            label_noise=LabelNoise(run.loss.label_noise, classes, run.seed) if run.loss.label_noise else None,
            mixup=Mixup(run.loss.mixup, classes, run.micro_batches, run.seed) if run.loss.mixup else None,
            loss_scales=_loss_scales(run, transport.num_local),
            losses=Losses(transport.num_local, device),
            last_models=LastModels(run.evaluation.average_last or 1),
            checkpoints=Checkpoints(out / "checkpoint", f"{run.hash} {dataset.sha256}", run.checkpoint.keep, transport),
            log=RunLog(out, run) if rank == 0 else None,
        )

    def lr(self, step: int) -> float:
        """The learning rate of the step about to be taken (0-based)."""
        return self.schedule(step) * self.watch.lr_factor

    def has_ended(self) -> bool:
        """Whether there is no step left to take."""
        return self.sync.steps >= self.run.total_steps or self.watch.stop

    def forward_backward(self, inputs: Any, targets: Any) -> Tensor:
        """Fill the local workers' gradients on a batch of `Dataset.batches`; their losses [k]."""
        loss, micro_batches = self.objective.loss, self.run.micro_batches
        if self.loss_scales:
            return self.loss_scales.forward_backward(self.workers, inputs, targets, loss, micro_batches)
        return self.workers.forward_backward(inputs, targets, loss, micro_batches)

    @property
    def volume_percent(self) -> float:
        """Bytes that a worker has sent, in percent of one parameter vector in every step; NaN before the first."""
        vectors = self.transport.bytes_sent / self.workers.rows[0].nbytes
        return 100 * vectors / self.sync.steps if self.sync.steps else float("nan")

    def save(self) -> None:
        """Write a checkpoint of this moment. Collective."""
        algorithm = self.sync.state_dict()
        own = algorithm.pop("workers")
        states = [
            self._worker_state(index) | {"sync": {name: owned(value[index]) for name, value in own.items()}}
            for index in range(self.workers.num_local)
        ]
        shared = {
            "sync": algorithm,
            "clocks": self.clocks.state_dict(),
            "loss_count": self.losses.count,
            "watch": self.watch.state_dict(),
            "last_models": self.last_models.state_dict(),
            "bytes": [self.transport.bytes_of_all, self.transport.wire_bytes],
            "log": self.log.state_dict() if self.log else None,
            "resumed_from": self.resumed_from,
        }
        self.checkpoints.save(self.sync.steps, states, shared)

    def resume(self) -> None:
        """Continue from the run's own newest checkpoint, if there is one. Collective."""
        found = self.checkpoints.load()
        if found is None:
            return
        states, shared = found
        self._load_workers(states)
        own = {name: torch.stack([state["sync"][name] for state in states]) for name in states[0]["sync"]}
        self.sync.load_state_dict(shared["sync"] | {"workers": own})
        self.clocks.load_state_dict(shared["clocks"])
        self.losses.count = shared["loss_count"]
        self.watch.load_state_dict(shared["watch"])
        self.last_models.load_state_dict(shared["last_models"], self.workers.rows.device)
        self.transport.bytes_of_all, self.transport.wire_bytes = shared["bytes"]
        self.resumed_from = [*shared["resumed_from"], self.sync.steps]
        if self.log:
            self.log.load_state_dict(shared["log"])

    def _worker_state(self, index: int) -> State:
        """What one worker owns: its row, its buffers, its part of the optimizer state and its losses."""
        optimizer_state = {
            name: owned(value[index] if value.shape == self.workers.rows.shape else value)
            for name, value in self.optimizer.state.get(self.workers.rows, {}).items()
            if value is not None
        }
        return {
            "row": owned(self.workers.rows[index]),
            "buffers": {name: owned(value) for name, value in self.workers.models[index].named_buffers()},
            "optimizer": optimizer_state,
            "loss_sum": self.losses.sums[index].item(),
            "loss_scale": self.loss_scales.worker_state(index) if self.loss_scales else None,
        }

    @torch.no_grad()
    def _load_workers(self, states: list[State]) -> None:
        rows = self.workers.rows
        for name, value in states[0]["optimizer"].items():
            per_worker = value.shape == rows[0].shape
            merged = torch.stack([state["optimizer"][name] for state in states]) if per_worker else value
            self.optimizer.state[rows][name] = merged.to(rows.device)
        for index, state in enumerate(states):
            rows[index].copy_(state["row"])
            self.losses.sums[index] = state["loss_sum"]
            if self.loss_scales:
                self.loss_scales.load_worker_state(index, state["loss_scale"])
            for name, buffer in self.workers.models[index].named_buffers():
                buffer.copy_(state["buffers"][name])


def _objective(run: Run, algorithm: Algorithm) -> Objective:
    """The objective of the data set's task."""
    smoothing, half = run.loss.label_smoothing, HALF.get(run.precision)
    if run.facts.get("task") == "translation":
        # SacreBLEU takes time to import, and nothing else needs it.
        from resync.train.translation import Translation

        return Translation(smoothing, half, algorithm.averages_gradients, run.evaluation.beam_search)
    return Classification(smoothing, half)


def _seed_dropout(run: Run, worker: int, step: int) -> None:
    """Let what a worker drops in a step depend on nothing else: not on the processes, a repetition or a resumption."""
    torch.manual_seed(stream_seed(run.seed, "dropout", worker=worker, epoch=step))


def _loss_scales(run: Run, num_local: int) -> LossScales | None:
    return LossScales(run.loss_scale or LossScale(), num_local) if run.precision == "fp16" else None
