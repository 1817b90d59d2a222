"""PyTorch Lightning: a strategy whose workers an algorithm synchronises, in place of DistributedDataParallel.

strategy = Strategy(lambda model, optimizer: resync.attach(model, optimizer, resync.LocalSGD(period=8)))
lightning.Trainer(strategy=strategy, devices=4).fit(model)
"""

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.trainer.states import TrainerFn
from torch import nn
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.optim import Optimizer

from resync.base.torch_private import takes_loss_scale
from resync.integrations import sharded
from resync.library import Synchronised


class Strategy(DDPStrategy):
    """Every process is a worker; `attach` attaches the algorithm to the module and its optimizer when `fit` begins.

    Lightning starts the processes, shards the data and reduces what is logged, as with `DDPStrategy`, whose arguments
    are also taken here; gradients are not averaged. `sync` is what `attach` returned. Validation inside `fit` is that
    of the average over all workers, and `fit` ends with the average in every worker.

    A checkpoint has the average, which other programs load as they load any of Lightning's. Beside it, every worker
    writes a file of its own (`<checkpoint>.worker<rank>of<size>`), with which `fit(ckpt_path=...)` continues exactly,
    on as many workers.

    A module whose `configure_model` applies `fully_shard` within each worker is trained too, with
    `resync.attach(..., group=...)`. Its workers write folders of torch.distributed.checkpoint, from which they continue
    on any number of processes each.

    Raises ValueError for more than one optimizer, a loss scale (`16-mixed`) on which the workers do not agree, so that
    they would skip different steps, or which a fused optimizer would have to remove, and FileNotFoundError if a
    checkpoint has no file of this worker.
    """

    sync: Synchronised

    def __init__(self, attach: Callable[[nn.Module, Optimizer], Synchronised], **arguments: Any) -> None:
        super().__init__(**arguments)
        self.attach = attach
        self._training = False
        self._average = ExitStack()
        self._in_average = False

    @property
    def restore_checkpoint_after_setup(self) -> bool:
        """Attaching overwrites the parameters with those of rank 0, so that a checkpoint is to be loaded after it."""
        return True

    def configure_ddp(self) -> None:
        """Leave the module as it is, where `DDPStrategy` wraps it."""

    def setup(self, trainer: pl.Trainer) -> None:
        super().setup(trainer)
        if trainer.state.fn != TrainerFn.FITTING:
            return
        if len(self.optimizers) != 1:
            raise ValueError(f"the module has {len(self.optimizers)} optimizers, allowed: one that has all parameters")
        scaler = getattr(self.precision_plugin, "scaler", None)
        if scaler is not None and not isinstance(scaler, ShardedGradScaler):
            raise ValueError("precision 16-mixed: every worker would skip steps of its own, allowed: bf16-mixed, or "
                             "plugins=[MixedPrecision('16-mixed', 'cuda', scaler=ShardedGradScaler())]")  # fmt: skip
        if scaler is not None and takes_loss_scale(self.optimizers[0]):
            raise ValueError("precision 16-mixed with a fused optimizer: its gradients would keep the loss scale, "
                             "allowed: fused=False, or bf16-mixed")  # fmt: skip
        if self._has_shards and trainer.ckpt_path:
            sharded.prepare(self.lightning_module, self.optimizers[0])
        self.sync = self.attach(self.lightning_module, self.optimizers[0])
        self._training = True

    def on_train_end(self) -> None:
        """Take for the worker's parameters what callbacks have set, such as an average of its weights."""
        if self._training and self.sync.steps:
            self.sync.take_parameters()

    def teardown(self) -> None:
        """Leave the average in every worker: here, since the end of a loop may be that of the learning rate finder."""
        if self._training:
            self._training = False
            self.sync.finish()
        super().teardown()

    def on_exception(self, exception: BaseException) -> None:
        super().on_exception(exception)
        if self._training:
            self._leave_average()
            self._training = False
            self.sync.detach()

    def on_validation_start(self) -> None:
        self._enter_average()

    def on_validation_end(self) -> None:
        self._leave_average()

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        """Write the worker's own file or folder, and on rank 0 the whole average."""
        # The tensors of `checkpoint` are those of the module, and change with them.
        validating = self._in_average
        self._leave_average()
        if self._training and "optimizer_states" in checkpoint:
            own = self._own_file(filepath)
            if self._has_shards:
                sharded.save(Path(own), self.sync)
                checkpoint |= {"optimizer_states": []}
            else:
                state = checkpoint | {"resync": self.sync.state_dict()}
                self.checkpoint_io.save_checkpoint(state, own, storage_options)
        self._enter_average()
        if self._has_shards:
            checkpoint["state_dict"] = sharded.whole_state(self.lightning_module)
        super().save_checkpoint(checkpoint, filepath, storage_options)
        if not validating:
            self._leave_average()

    @property
    def _has_shards(self) -> bool:
        return sharded.has_shards(self.lightning_module)

    def load_model_state_dict(self, checkpoint: Any, strict: bool = True) -> None:
        if not (self._training and self._has_shards):  # the workers have their own
            super().load_model_state_dict(checkpoint, strict)

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """The worker's own file, to continue a training; the average for everything else."""
        if not self._training:
            return super().load_checkpoint(checkpoint_path, weights_only)
        own = self._own_file(checkpoint_path)
        if self._has_shards:
            return super().load_checkpoint(checkpoint_path, weights_only) | {"own": own}
        try:
            return super().load_checkpoint(own, weights_only)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{own}: not found; a training continues from a checkpoint that as many workers have saved while it "
                "ran. To start another one from its parameters, load them into the module (load_from_checkpoint)"
            ) from None

    def load_optimizer_state_dict(self, checkpoint: Any) -> None:
        if self._has_shards:
            sharded.load(Path(checkpoint["own"]), self.sync)
            return
        super().load_optimizer_state_dict(checkpoint)
        self.sync.load_state_dict(checkpoint["resync"])

    def remove_checkpoint(self, filepath: Any) -> None:
        super().remove_checkpoint(filepath)
        # Not where a link leads, which another rank may have removed already: that checkpoint stays.
        if not self._has_shards or sharded.is_first_of_worker(self.sync):
            self.checkpoint_io.remove_checkpoint(self._beside(filepath))

    def _own_file(self, checkpoint: Any) -> str:
        """Where this worker's state is; `last.ckpt` may be a link to the checkpoint that has it."""
        return self._beside(os.path.realpath(checkpoint) if os.path.islink(checkpoint) else checkpoint)

    def _beside(self, path: Any) -> str:
        worker, workers = sharded.worker_of(self.sync) if self._has_shards else (self.global_rank, self.world_size)
        return f"{os.fspath(path)}.worker{worker}of{workers}"

    def _enter_average(self) -> None:
        if self._training and not self._in_average:
            self._average.enter_context(self.sync.consensus())
            self._in_average = True

    def _leave_average(self) -> None:
        self._in_average = False
        self._average.close()
