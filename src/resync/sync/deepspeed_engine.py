"""Synchronous data-parallel training by the engine of DeepSpeed."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from resync.sync.algorithm import Algorithm, Training


class DeepSpeed(Algorithm):
    """AllReduce by DeepSpeed's engine, with ZeRO stage 0, 1 or 2 (Rajbhandari et al. 2020).

    The engine owns the parameters, averages the gradients and steps the optimizer; `rows` is a copy of the parameters
    after every step. Stage 1 shards the optimizer state over the processes, stage 2 the gradients too.

    Raises ValueError where a process hosts more than one worker, or where DeepSpeed is not installed.
    """

    averages_gradients = True

    def __init__(self, training: Training, zero_stage: int) -> None:
        super().__init__(training)
        if self.workers.num_local != 1:
            found = f"{self.workers.num_local} workers in a process"
            raise ValueError(f"sync allreduce: engine deepspeed needs one worker a process, found {found}")
        model = self.workers.models[0]
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        [group] = self.optimizer.param_groups
        group["params"] = self.parameters
        self.engine = _initialize(model, self.optimizer, zero_stage, self.clip_norm)
        self.workers.forwards[0] = self.engine
        self.workers.backpropagate = self.engine.backward
        self.workers.incomplete = self._incomplete

    def step(self, lr: float) -> None:
        """The engine's step; it clips the averaged gradient itself."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.engine.step()

    def after_step(self, lr: float) -> bool:
        """Copy the parameters to `rows`; count the gradient that the engine has averaged."""
        self.rows[0].copy_(_flat(self.parameters))
        self.transport.count_average(self.rows)
        return super().after_step(lr)

    def synchronise(self) -> None:
        """All workers are equal already."""

    @contextmanager
    def consensus(self) -> Iterator[nn.Module]:
        """The model: all workers are equal."""
        yield self.workers.models[0]

    def state_dict(self) -> dict[str, Any]:
        """The base state, and of the optimizer what the engine keeps in this process, [1, n] a field."""
        state = super().state_dict()
        counters = {}
        for name, values in self._optimizer_state().items():
            if values[0].ndim:
                state["workers"][name] = _flat(values).unsqueeze(0)
            else:
                counters[name] = values[0].item()
        state["workers"]["shard"] = _flat(self._shards).unsqueeze(0)
        return state | {"counters": counters}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned, after the rows; on as many processes as it was saved from."""
        super().load_state_dict(state)
        fields = {name: values[0] for name, values in state["workers"].items()}
        _scatter(self.rows[0], self.parameters)
        _scatter(fields.pop("shard"), self._shards)
        for name, values in fields.items():
            restored = [torch.empty_like(shard) for shard in self._shards]
            _scatter(values, restored)
            for shard, value in zip(self._shards, restored, strict=True):
                self.optimizer.state[shard][name] = value
        for name, count in state["counters"].items():
            for shard in self._shards:
                self.optimizer.state[shard][name] = torch.tensor(count, dtype=torch.float32, device=shard.device)

    @property
    def _shards(self) -> list[Tensor]:
        """What the inner optimizer updates in this process: all parameters, or ZeRO's part of them."""
        return list(self.optimizer.param_groups[0]["params"])

    def _optimizer_state(self) -> dict[str, list[Tensor]]:
        states = [self.optimizer.state[shard] for shard in self._shards]
        return {name: [state[name] for state in states] for name, value in states[0].items() if value is not None}

    @contextmanager
    def _incomplete(self) -> Iterator[None]:
        self.engine.set_gradient_accumulation_boundary(False)
        yield
        self.engine.set_gradient_accumulation_boundary(True)


def _initialize(model: nn.Module, optimizer: torch.optim.Optimizer, zero_stage: int, clip_norm: float | None) -> Any:
    try:
        import deepspeed
    except ImportError as error:
        raise ValueError(
            "sync allreduce: engine deepspeed needs DeepSpeed, which is not installed: pip install deepspeed"
        ) from error
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    # On CPUs DeepSpeed would compile collectives of its own, for minutes; gloo has them.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # Its buckets are allocated whole, and the default is 2 GB each.
    bucket = min(sum(parameter.numel() for parameter in model.parameters()), 500_000_000)
    settings = {
        "train_micro_batch_size_per_gpu": 1,  # DeepSpeed wants a number; the batches come from resync's loader
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
