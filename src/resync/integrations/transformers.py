"""Hugging Face: a Trainer whose workers an algorithm synchronises, in place of DistributedDataParallel.

trainer = Trainer(
    model, args, train_dataset=data,
    attach=lambda model, optimizer: resync.attach(model, optimizer, resync.LocalSGD(period=8)),
)
trainer.train()
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from torch.optim import Optimizer
from transformers.trainer_utils import get_last_checkpoint

from resync.integrations import sharded
from resync.library import Synchronised


class Trainer(transformers.Trainer):
    """`transformers.Trainer` on processes that are workers: `attach` attaches the algorithm when `train` begins.

    It shards the data and gathers what is evaluated and logged, as ever; gradients are not averaged. `sync` is what
    `attach` returned. `evaluate`, `predict` and `save_model` use the average over all workers, and `train` ends with
    it in every worker. `average_tokens_across_devices` is switched off: the loss of a worker is a mean over its own
    tokens, and no worker waits for the others to count theirs.

    The model of a checkpoint is the average. Beside it, every worker writes a file of its own
    (`resync_worker<rank>of<size>.pt`), with which `resume_from_checkpoint` continues exactly, on as many workers.

    A model that `fully_shard` has sharded within each worker is trained too, with `resync.attach(..., group=...)`. Its
    workers write folders of torch.distributed.checkpoint, from which they continue on any number of processes each.

    Raises ValueError with FSDP or DeepSpeed of the Trainer itself, which divide what the algorithm averages, with
    `fp16`, whose loss scale would let workers skip different steps, with `load_best_model_at_end` of a sharded model,
    and FileNotFoundError if a checkpoint has no file of this worker.
    """

    sync: Synchronised

    def __init__(self, *args: Any, attach: Callable[[nn.Module, Optimizer], Synchronised], **kwargs: Any) -> None:
        self.attach = attach
        self._training = self._in_average = False
        self._resumed_from: str | None = None
        super().__init__(*args, **kwargs)
        self.args.average_tokens_across_devices = False
        self.add_callback(_Workers(self))

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            raise ValueError("found FSDP or DeepSpeed, allowed: neither; fully_shard the model within each worker "
                             "before it is given to the Trainer")  # fmt: skip
        if self.args.fp16:
            raise ValueError("fp16: every worker would skip steps of its own, allowed: bf16 or float32")
        self.accelerator.prepare_model = partial(self.accelerator.prepare_model, evaluation_mode=True)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        if resume_from_checkpoint is True:
            resume_from_checkpoint = get_last_checkpoint(self.args.output_dir) or True
        self._resumed_from = resume_from_checkpoint if isinstance(resume_from_checkpoint, str) else None
        try:
            return super().train(resume_from_checkpoint, *args, **kwargs)
        except BaseException:
            if self._training:
                self._training = False
                self.sync.detach()
            raise

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        with self._average():
            return super().evaluation_loop(*args, **kwargs)

    def save_model(self, *args: Any, **kwargs: Any) -> None:
        """Save the average; during the training a call of all ranks."""
        with self._average():
            super().save_model(*args, **kwargs)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        super()._save(output_dir, sharded.whole_state(self.model) if self._has_shards else state_dict)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if not self._has_shards:  # the workers write both
            super()._save_optimizer_and_scheduler(output_dir)

    def _load_from_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        if not self._has_shards:  # the workers have their own
            super()._load_from_checkpoint(*args, **kwargs)

    @property
    def _has_shards(self) -> bool:
        return sharded.has_shards(self.model)

    def begin(self) -> None:
        optimizer, resumed = self.optimizer.optimizer, self._resumed_from
        if self._training:  # auto_find_batch_size begins again, where the memory has not sufficed
            self.sync.detach()
        if self._has_shards and self.args.load_best_model_at_end:
            raise ValueError("load_best_model_at_end: found a sharded model, allowed: false")
        if self._has_shards and resumed:
            sharded.prepare(self.model, optimizer)
        self.sync = self.attach(self.model, optimizer)
        self._training = True
        if self._has_shards and resumed:
            saved = sharded.load(self._own_folder(resumed), self.sync, scheduler=self.lr_scheduler.state_dict())
            self.lr_scheduler.load_state_dict(saved["scheduler"])
        elif resumed:
            self._load_own(self._own_file(resumed))

    def _load_own(self, own: Path) -> None:
        if not own.exists():
            raise FileNotFoundError(
                f"{own}: not found; a training continues from a checkpoint that as many workers have saved. To start "
                "another one from its parameters, load them into the model (from_pretrained)"
            )
        state = torch.load(own, map_location="cpu", weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.sync.load_state_dict(state["resync"])

    def save_own(self) -> None:
        """Write what this worker continues from into the checkpoint that has just been saved."""
        if self.args.save_only_model:
            return
        checkpoint = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        if self._has_shards:
            sharded.save(self._own_folder(checkpoint), self.sync, scheduler=self.lr_scheduler.state_dict())
            return
        own = self._own_file(checkpoint)
        parts = {"model": self.model, "optimizer": self.optimizer, "resync": self.sync}
        temporary = own.with_suffix(".part")
        torch.save({name: part.state_dict() for name, part in parts.items()}, temporary)
        temporary.replace(own)

    def finish(self) -> None:
        if self._training:
            if self.sync.steps:
                self.sync.take_parameters()  # callbacks may have set them, as to an average of the weights
            self.sync.finish()
            self._training = False

    def _load_best_model(self) -> None:
        self.finish()  # otherwise the average would be that of the best model and the state of the algorithm
        super()._load_best_model()

    def _own_file(self, checkpoint: str | Path) -> Path:
        return Path(checkpoint) / f"resync_worker{self.args.process_index}of{self.args.world_size}.pt"

    def _own_folder(self, checkpoint: str | Path) -> Path:
        worker, workers = sharded.worker_of(self.sync)
        return Path(checkpoint) / f"resync_worker{worker}of{workers}"

    @contextmanager
    def _average(self) -> Iterator[None]:
        """The average in the model, while workers differ."""
        if not self._training or self._in_average:
            yield
            return
        with self.sync.consensus():
            self._in_average = True
            try:
                yield
            finally:
                self._in_average = False


class _Workers(transformers.TrainerCallback):
    """Tells the trainer when the training begins, has saved a checkpoint, and ends."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.trainer.begin()

    def on_save(self, *_: Any, **__: Any) -> None:
        self.trainer.save_own()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.trainer.finish()
