"""The engine `deepspeed`: DeepSpeed averages gradients and steps the optimizer, with ZeRO stage 0, 1 or 2."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from resync.base.errors import UserError
from resync.workers.engine.engine import Engine, EngineParts, Measured


class DeepSpeed(Engine):
    """For all-reduce with one worker per process (Rajbhandari et al. 2020).

    DeepSpeed owns the parameters; `rows` is updated with a copy after every step. Stage 1 shards the optimizer state
    over the processes, stage 2 the gradients too. Autocast is that of the other engines, so that the forward pass does
    not go through DeepSpeed, which would end it. In fp16, a worker's gradient is unscaled before DeepSpeed gets it, and
    averaged after the backward pass: an overflow repeats the worker's gradient, where DeepSpeed would skip the step. So
    DeepSpeed's own loss scaler is not used: which engine a run has may not decide how many steps it takes.

    Raises ValueError for more or less than one process per worker, or if DeepSpeed is not installed.
    """

    name = "deepspeed"
    averages_gradients = True

    def __init__(self, parts: EngineParts, zero_stage: int) -> None:
        super().__init__(parts)
        if self.workers.num_local != 1:
            found = f"{self.workers.num_local} workers in a process"
            raise UserError(f"engine deepspeed needs one worker per process, found {found}")
        if self.members.processes != 1:
            found = f"{self.members.processes} processes for a worker"
            raise UserError(f"engine deepspeed needs one process per worker, found {found}")
        self.transport = parts.transport
        self.state_format = f"DeepSpeed with ZeRO stage {zero_stage}"
        model = self.workers.models[0]
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        for parameter in self.parameters:
            parameter.grad = None  # DeepSpeed's gradients are its own, not the workers' buffer
        [group] = self.optimizer.param_groups
        group["params"] = self.parameters
        self.module = _initialize(model, self.optimizer, zero_stage, self.clip_norm)

    def gradient_norms(self) -> Tensor:
        """NaN: the gradients are in DeepSpeed's own, possibly sharded buffers."""
        return torch.full_like(self.workers.rows[:, 0].detach(), torch.nan)

    def step(self, lr: float) -> None:
        """DeepSpeed's step, which clips the averaged gradient itself; the parameters are copied to `rows`."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.module.step()
        self.workers.rows.data[0].copy_(_flat(self.parameters))
        self.transport.wire_bytes += self.workers.rows.nbytes

    def backpropagate(self, loss: Tensor) -> None:
        """The backward pass, in which DeepSpeed reduces the gradients; in fp16, that of this worker alone."""
        if self.loss_scales is None:
            self.module.backward(loss)
            return
        gradients = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
        self.workers.grads[0].add_(_flat(list(gradients)))

    @contextmanager
    def collecting(self, index: int) -> Iterator[None]:
        """A context at whose start the row is zero."""
        self.workers.grads[index].zero_()
        yield

    @contextmanager
    def incomplete(self) -> Iterator[None]:
        """A context without averaging: DeepSpeed averages at the boundary of gradient accumulation."""
        if self.loss_scales is not None:
            yield
            return
        self.module.set_gradient_accumulation_boundary(False)
        yield
        self.module.set_gradient_accumulation_boundary(True)

    def state_dict(self) -> dict[str, Any]:
        """The optimizer state in this process: fields [1, n], the shard of the parameters, and counters."""
        own, counters = {"shard": _flat(self._shards).unsqueeze(0)}, {}
        for name, values in self._optimizer_state().items():
            if values[0].ndim:
                own[name] = _flat(values).unsqueeze(0)
            else:
                counters[name] = values[0].item()
        scales = self.loss_scales.state_dict() if self.loss_scales else {}
        return {"format": self.state_format, "counters": counters, "workers": own | scales}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned, after the rows; with the same number of processes."""
        fields = {name: values[0] for name, values in self._fields_of_workers(state).items()}
        _scatter(self.workers.rows.data[0], self.parameters)
        _scatter(fields.pop("shard"), self._shards)
        for name, values in fields.items():
            restored = [torch.empty_like(shard) for shard in self._shards]
            _scatter(values, restored)
            for shard, value in zip(self._shards, restored, strict=True):
                self.optimizer.state[shard][name] = value
        for name, count in state["counters"].items():
            for shard in self._shards:
                self.optimizer.state[shard][name] = torch.tensor(count, dtype=torch.float32, device=shard.device)

    def gradient_of(self, index: int, inputs: Any, targets: Any, step: int) -> Measured:
        """The gradient of the worker; in fp16, DeepSpeed then gets it as that of a linear function."""
        measured = super().gradient_of(index, inputs, targets, step)
        if self.loss_scales is not None:
            parts = self.workers.grads[0].split([parameter.numel() for parameter in self.parameters])
            products = [
                (parameter * part.view_as(parameter)).sum()
                for parameter, part in zip(self.parameters, parts, strict=True)
            ]
            self.module.backward(torch.stack(products).sum())
        return measured

    @property
    def _shards(self) -> list[Tensor]:
        """The tensors that the inner optimizer updates in this process: all parameters, or ZeRO's shard of them."""
        return list(self.optimizer.param_groups[0]["params"])

    def _optimizer_state(self) -> dict[str, list[Tensor]]:
        states = [self.optimizer.state[shard] for shard in self._shards]
        return {name: [state[name] for state in states] for name, value in states[0].items() if value is not None}


def _initialize(model: nn.Module, optimizer: torch.optim.Optimizer, zero_stage: int, clip_norm: float | None) -> Any:
    try:
        import deepspeed
    except ImportError as error:
        raise UserError("engine deepspeed needs DeepSpeed, which is not installed: pip install deepspeed") from error
    os.environ.setdefault("LOCAL_RANK", "0")  # which DeepSpeed reads, and launchers set for several processes
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    # On CPUs DeepSpeed would compile its own collectives, which takes minutes; gloo's are good enough.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # DeepSpeed allocates buckets at their full size, by default 2 GB each.
    bucket = min(sum(parameter.numel() for parameter in model.parameters()), 500_000_000)
    settings = {
        "train_micro_batch_size_per_gpu": 1,  # required, but unused: the batches come from resync's loader
        "gradient_clipping": clip_norm or 0.0,
        "zero_optimization": {"stage": zero_stage, "reduce_bucket_size": bucket, "allgather_bucket_size": bucket},
        "zero_allow_untested_optimizer": True,
        "steps_per_print": None,
    }
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings, dist_init_required=False)
    return engine


def _flat(tensors: list[Any]) -> Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


@torch.no_grad()
def _scatter(flat: Tensor, tensors: list[Any]) -> None:
    for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(part.view_as(tensor))
