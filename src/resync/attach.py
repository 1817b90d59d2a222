"""Synchronisation in anybody's training loop: an algorithm that hangs on the steps of a torch optimizer.

    sync = resync.QSR(model, optimizer, alpha=0.0175, h_base=4, total_steps=T)
    for x, y in loader:
        loss(model(x), y).backward()
        optimizer.step(); scheduler.step(); optimizer.zero_grad()
    with sync.consensus():
        evaluate(model)

Each process is one worker. `torch.distributed` is used as the caller has set it up; without it there is one worker.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from math import inf
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from resync import sync
from resync.engine.clocks import Clocks
from resync.engine.transport import Transport
from resync.engine.workers import Workers
from resync.formulas.periods import Constant, Period, PowerRule
from resync.sync.mixes import PeerPhases


class Synchronised:
    """A model and its optimizer, synchronised with the other processes by `optimizer.step()`.

    All workers start from the parameters of rank 0. Buffers (BatchNorm statistics) and optimizer state stay local
    unless an algorithm says otherwise. The learning rate of a step is the largest of the optimizer's groups.

    Raises ValueError when torchrun started several processes that have not joined (`init_process_group`), and for a
    model or options that the algorithm cannot work with.
    """

    def __init__(
        self,
        name: str,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        total_steps: float = inf,
        warmup_steps: int = 0,
        seed: int = 0,
        clip_norm: float | None = None,
        **options: Any,
    ) -> None:
        _check(model, optimizer)
        workers = Workers.attach(model)
        rank, size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        self.transport = Transport(size, Clocks(workers.rows.device), rank, size)
        if size > 1:
            dist.broadcast(workers.rows.data, src=0)
        self.model, self.optimizer, self.workers = model, optimizer, workers
        training = sync.Training(workers, self.transport, optimizer, total_steps, warmup_steps, seed)
        self.algorithm = sync.build(name, options, training)
        self.synced = False
        self._clip_norm = clip_norm
        self._lr = 0.0
        self._hooks = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        ]
        self.algorithm.before_forward()

    @property
    def steps(self) -> int:
        """Completed optimizer steps."""
        return self.algorithm.steps

    @property
    def rounds(self) -> int:
        """Completed rounds."""
        return self.algorithm.rounds

    @property
    def h(self) -> int:
        """Local steps of the current round."""
        return self.algorithm.h

    @property
    def bytes_sent(self) -> int:
        """Bytes that a worker has sent."""
        return self.transport.bytes_sent

    def consensus(self) -> AbstractContextManager[nn.Module]:
        """The model with the average of all workers' parameters, for evaluation; collective, between two steps."""
        return self.algorithm.consensus()

    def finish(self) -> None:
        """After the last step: every worker gets the average for good, and the optimizer is let go. Collective."""
        self.algorithm.close()
        self.algorithm.synchronise()
        for hook in self._hooks:
            hook.remove()

    def state_dict(self) -> dict[str, Any]:
        """What the algorithm needs to continue exactly, beside the states of the model and the optimizer."""
        return self.algorithm.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned, after the model and the optimizer."""
        self.algorithm.load_state_dict(state)

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._lr = max(float(group["lr"]) for group in optimizer.param_groups)
        if self.algorithm.averages_gradients:
            self.workers.pack_gradients()
        self.algorithm.after_backward()
        if self.algorithm.averages_gradients:
            if self._clip_norm:
                self.workers.clip_gradients(self._clip_norm)
            self.workers.unpack_gradients()

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self.synced = self.algorithm.after_step(self._lr)
        self.algorithm.before_forward()


def AllReduce(model: nn.Module, optimizer: Optimizer, *, clip_norm: float | None = None) -> Synchronised:
    """Gradients averaged over all workers in every step (see resync.sync.allreduce).

    The average is then clipped to the L2 norm `clip_norm`: clipping before `step()` would clip what one worker has.
    """
    return Synchronised("allreduce", model, optimizer, clip_norm=clip_norm)


def LocalSGD(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    h: int | Period,
    total_steps: float = inf,
    warmup_steps: int = 0,
    average_state: Sequence[str] = (),
) -> Synchronised:
    """Parameters averaged every `h` steps, or by any rule of resync.formulas.periods (see resync.sync.local)."""
    return Synchronised(
        "local",
        model,
        optimizer,
        total_steps=total_steps,
        warmup_steps=warmup_steps,
        period=_period(h),
        average_state=average_state,
    )


def QSR(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    alpha: float,
    h_base: int,
    total_steps: float,
    warmup_steps: int = 0,
    power: float = 2.0,
    h_warmup: int | None = None,
    h_max: int | None = None,
    average_state: Sequence[str] = (),
) -> Synchronised:
    """Local SGD / AdamW with H = max(h_base, floor((alpha / lr)^power)) (see resync.sync.local)."""
    period = PowerRule(alpha, power, h_base, h_warmup, h_max)
    return LocalSGD(
        model,
        optimizer,
        h=period,
        total_steps=total_steps,
        warmup_steps=warmup_steps,
        average_state=average_state,
    )


def SGP(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    topology: str | int = "exponential",
    peers: int | PeerPhases = 1,
    mixing_weights: Sequence[float] | None = None,
    seed: int = 0,
) -> Synchronised:
    """Synchronous push-sum gossip after every step (see resync.sync.sgp)."""
    return Synchronised(
        "sgp", model, optimizer, seed=seed, topology=topology, peers=peers, mixing_weights=mixing_weights
    )


def OSGP(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    topology: str | int = "exponential",
    peers: int | PeerPhases = 1,
    mixing_weights: Sequence[float] | None = None,
    staleness: int = 0,
    biased: bool = False,
    seed: int = 0,
) -> Synchronised:
    """Push-sum gossip that overlaps with the gradient (see resync.sync.osgp)."""
    options: dict[str, Any] = {"topology": topology, "peers": peers, "mixing_weights": mixing_weights}
    options |= {"staleness": staleness, "biased": biased}
    return Synchronised("osgp", model, optimizer, seed=seed, **options)


def DPSGD(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    topology: str | int = "bipartite_exponential",
    peers: int | PeerPhases = 1,
) -> Synchronised:
    """Symmetric gossip after every step (see resync.sync.dpsgd)."""
    return Synchronised("dpsgd", model, optimizer, topology=topology, peers=peers)


def ADPSGD(model: nn.Module, optimizer: Optimizer, *, topology: str | int = "bipartite_exponential") -> Synchronised:
    """Asynchronous pairwise averaging in a background thread; call `finish` at the end (see resync.sync.pairing)."""
    return Synchronised("adpsgd", model, optimizer, topology=topology, asynchronous=True)


def SlowMo(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    h: int | Period,
    alpha: float = 1.0,
    beta: float = 0.5,
    average: bool = True,
    buffers: str = "keep",
    base: str = "none",
    total_steps: float = inf,
    warmup_steps: int = 0,
    **base_options: Any,
) -> Synchronised:
    """Slow momentum on the average, around Local SGD or base="allreduce" / "sgp" / "osgp" (see resync.sync.slowmo)."""
    outer = {"alpha": alpha, "beta": beta, "average": average, "buffers": buffers}
    return _outer(model, optimizer, h, total_steps, warmup_steps, base=base, base_options=base_options, **outer)


def DiLoCo(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    h: int | Period,
    lr: float = 0.7,
    momentum: float = 0.9,
    total_steps: float = inf,
    warmup_steps: int = 0,
) -> Synchronised:
    """Nesterov momentum on the averaged pseudo-gradient every `h` steps (see resync.sync.slowmo)."""
    outer = {"alpha": lr, "beta": momentum, "nesterov": True, "scale_by_lr": False}
    return _outer(model, optimizer, h, total_steps, warmup_steps, **outer)


def Lookahead(model: nn.Module, optimizer: Optimizer, *, h: int, alpha: float = 0.5) -> Synchronised:
    """Every `h` steps, go the part `alpha` of the way (Zhang et al. 2019): SlowMo without momentum."""
    return _outer(model, optimizer, h, inf, 0, alpha=alpha, beta=0.0)


def _outer(
    model: nn.Module, optimizer: Optimizer, h: int | Period, total_steps: float, warmup_steps: int, **options: Any
) -> Synchronised:
    options |= {"total_steps": total_steps, "warmup_steps": warmup_steps}
    return Synchronised("slowmo", model, optimizer, period=_period(h), **options)


def _period(h: int | Period) -> Period:
    return Constant(h) if isinstance(h, int) else h


def _check(model: nn.Module, optimizer: Optimizer) -> None:
    if dist.is_available() and not dist.is_initialized() and dist.is_torchelastic_launched():
        raise ValueError("torchrun started this process, but torch.distributed is not set up: "
                         "call torch.distributed.init_process_group first")  # fmt: skip
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    missing = [name for name, each in model.named_parameters() if each.requires_grad and id(each) not in held]
    if missing:
        raise ValueError(f"the optimizer does not have these parameters of the model: {', '.join(missing)}; "
                         "freeze them (requires_grad_(False)) or add them")  # fmt: skip
    if isinstance(model, nn.parallel.DistributedDataParallel):
        raise ValueError("the model is wrapped in DistributedDataParallel, allowed: the model itself")
    if any(isinstance(each, torch.nn.parameter.UninitializedParameter) for each in model.parameters()):
        raise ValueError("the model has parameters without a shape yet: run one forward pass first")
