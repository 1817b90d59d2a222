"""Synchronisation in any training loop: an algorithm attached to the steps of a torch optimizer.

    sync = resync.QSR(model, optimizer, alpha=0.0175, h_base=4, total_steps=T, warmup_steps=W)
    for x, y in loader:
        loss(model(x), y).backward()
        optimizer.step(); scheduler.step(); optimizer.zero_grad()
    with sync.consensus():
        evaluate(model)

Each process is one worker. `torch.distributed` is used as set up by the caller; without it there is a single worker.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from inspect import Parameter, Signature, cleandoc, signature
from itertools import starmap
from math import inf
from typing import Any, Concatenate, ParamSpec

import torch
import torch.distributed as dist
from pydantic import Field
from pydantic.fields import FieldInfo
from torch import nn
from torch.optim import Optimizer

from resync.config.parts import SyncOptions
from resync.engine.clocks import Clocks
from resync.engine.transport import Transport
from resync.engine.workers import Workers
from resync.formulas.periods import Period, PeriodRule, PowerRule, rule_of
from resync.settings.base import Check, Count, PositiveInt, PositiveNumber, Settings
from resync.sync import build
from resync.sync.algorithm import Training
from resync.sync.options import adpsgd, allreduce, dpsgd, local, osgp, sgp, slowmo


class Synchronised:
    """A model and its optimizer, synchronised with the other processes by `optimizer.step()`.

    `options`, such as `resync.sync.options.sgp.SGP(peers=2)`, choose the algorithm; they count in steps, not epochs.
    All workers start from the parameters of rank 0. Buffers (BatchNorm statistics) and optimizer state stay local
    unless the algorithm says otherwise. The learning rate of a step is the largest one of the optimizer's groups.

    Raises ValueError if torchrun started this process but `init_process_group` was not called, and for a model or
    options that the algorithm cannot handle.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        options: SyncOptions,
        *,
        total_steps: float = inf,
        warmup_steps: int = 0,
        seed: int = 0,
        clip_norm: float | None = None,
    ) -> None:
        _check(model, optimizer)
        workers = Workers.attach(model)
        rank, size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        self.transport = Transport(size, Clocks(workers.rows.device), rank, size)
        if size > 1:
            dist.broadcast(workers.rows.data, src=0)
        self.model, self.optimizer, self.workers = model, optimizer, workers
        training = Training(workers, self.transport, optimizer, total_steps, warmup_steps, seed)
        self.algorithm = build(options, training)
        self.synced = False
        self._total_steps, self._warmup_steps = total_steps, warmup_steps
        self._unproven = options.rule if options.rule.follows_lr else None
        self._averages_gradients = options.averages_gradients
        self._clip_norm = clip_norm
        self._lr = 0.0
        self._hooks = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        ]
        self.algorithm.before_forward()

    @property
    def steps(self) -> int:
        """Number of completed optimizer steps."""
        return self.algorithm.steps

    @property
    def rounds(self) -> int:
        """Number of completed rounds."""
        return self.algorithm.rounds

    @property
    def h(self) -> int:
        """Number of local steps in the current round."""
        return self.algorithm.h

    @property
    def bytes_sent(self) -> int:
        """Bytes that each worker has sent so far."""
        return self.transport.bytes_sent

    def consensus(self) -> AbstractContextManager[nn.Module]:
        """The model with the average of all workers' parameters, for evaluation; a collective call between steps."""
        return self.algorithm.consensus()

    def finish(self) -> None:
        """Give every worker the final average and detach from the optimizer; a collective call after the last step."""
        self.algorithm.close()
        self.algorithm.synchronise()
        for hook in self._hooks:
            hook.remove()

    def state_dict(self) -> dict[str, Any]:
        """State of the algorithm; with those of the model and the optimizer, training continues exactly."""
        return self.algorithm.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict`, after the states of the model and the optimizer have been restored."""
        self._unproven = None
        self.algorithm.load_state_dict(state)

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._lr = max(float(group["lr"]) for group in optimizer.param_groups)
        if self._averages_gradients:
            self.workers.pack_gradients()
        self.algorithm.after_backward()
        if self._averages_gradients:
            if self._clip_norm:
                self.workers.clip_gradients(self._clip_norm)
            self.workers.unpack_gradients()

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        first, begins_round = self.algorithm.steps, self.synced or self.algorithm.steps == 0
        self.synced = self.algorithm.after_step(self._lr)
        if self._unproven and begins_round and first >= self._warmup_steps:
            self._prove(self._unproven, first)
        self.algorithm.before_forward()

    def _prove(self, period: Period, first: int) -> None:
        """Raise ValueError if the first round after the warm-up, whose step `first` is complete, is never to end."""
        self._unproven = None
        h = self.algorithm.h
        if first + h >= self._total_steps and h > getattr(period, "h_base", 1):
            raise ValueError(
                f"the period of the first round after the warm-up, H = {h} at step {first} with learning rate "
                f"{self._lr:g}, is all that is left of total_steps = {self._total_steps}: workers would be averaged "
                f"only once, at the end; is warmup_steps = {self._warmup_steps} the whole warm-up of the learning rate?"
            )


class _Seeded(Settings):
    seed: Count = Field(default=0, description="seed of the algorithm's random numbers")


class _Rounds(Settings):
    total_steps: PositiveInt | None = Field(
        default=None, description="number of steps of the training, whose end truncates the last round; None: unknown"
    )
    warmup_steps: Count | None = Field(
        default=None,
        description="number of warm-up steps of the learning rate; required where the period follows the learning rate",
    )

    def checks(self) -> Iterator[Check]:
        """Require the warm-up for a rule that would take its small learning rates for those at the end."""
        yield from super().checks()
        period = getattr(self, "period", None)
        if period is not None and rule_of(period).follows_lr and self.warmup_steps is None:
            yield ("warmup_steps",), "missing, allowed: integer >= 0, because the period follows the learning rate"


class _AllReduce(allreduce.AllReduce):
    """Gradients or parameters averaged over all workers in every step (see resync.sync.allreduce)."""

    clip_norm: PositiveNumber | None = Field(
        default=None,
        description="largest L2 norm of the averaged gradient; clipping before `step()` would clip local gradients",
    )

    def checks(self) -> Iterator[Check]:
        """Refuse to clip an average that is not taken."""
        if self.clip_norm and not self.averages_gradients:
            yield ("clip_norm",), f"found {self.clip_norm:g} with average parameters, allowed: None; clip before step()"


class _LocalSGD(_Rounds, local.Local):
    """Parameters averaged after every round of local steps (see resync.sync.local and resync.periods)."""


class _QSR(_Rounds, PowerRule):
    """Local SGD / AdamW with H = max(h_base, floor((alpha / lr)^power)) (see resync.sync.local).

    H is large where the learning rate is small, as also in a warm-up: rounds that start within `warmup_steps` have
    H = h_warmup. A first round after it that would last until the end raises ValueError.
    """

    total_steps: PositiveInt = Field(description="number of steps of the training, whose end truncates the last round")
    warmup_steps: Count = Field(description="number of warm-up steps of the learning rate; 0 without a warm-up")
    average_state: local.StateNames = ()

    def options(self) -> SyncOptions:
        return local.Local(period=self, average_state=self.average_state)


class _SGP(_Seeded, sgp.SGP):
    """Synchronous push-sum gossip after every step (see resync.sync.sgp)."""


class _OSGP(_Seeded, osgp.OSGP):
    """Push-sum gossip that overlaps with the gradient computation (see resync.sync.osgp)."""


class _DPSGD(dpsgd.DPSGD):
    """Symmetric gossip after every step (see resync.sync.dpsgd)."""


class _ADPSGD(Settings):
    """Asynchronous pairwise averaging in a background thread; call `finish` at the end (resync.sync.adpsgd_threads).

    No two runs have the same bits. `state_dict` is a collective call.
    """

    topology: adpsgd.PairTopology = "bipartite_exponential"

    def options(self) -> SyncOptions:
        return adpsgd.ADPSGD(topology=self.topology, asynchronous=True)


class _SlowMo(_Rounds, _Seeded, slowmo.SlowMo):
    """Slow momentum on the average, with Local SGD or base="allreduce" / "sgp" / "osgp" (see resync.sync.slowmo)."""


class _DiLoCo(_Rounds):
    """Nesterov momentum on the averaged pseudo-gradient after every round (see resync.sync.slowmo)."""

    period: PeriodRule = Field(description="local steps in a round, or a rule of resync.periods")
    lr: slowmo.OuterLr = 0.7
    momentum: slowmo.OuterMomentum = 0.9

    def options(self) -> SyncOptions:
        return slowmo.SlowMo(period=self.period, alpha=self.lr, beta=self.momentum, nesterov=True, scale_by_lr=False)


class _Lookahead(Settings):
    """SlowMo without momentum: after every round, move the fraction `alpha` of the way (Zhang et al. 2019)."""

    period: PeriodRule = Field(description="local steps in a round, or a rule of resync.periods")
    alpha: slowmo.OuterLr = 0.5

    def options(self) -> SyncOptions:
        return slowmo.SlowMo(period=self.period, alpha=self.alpha, beta=0.0)


P = ParamSpec("P")
METHODS: dict[str, Callable[..., Synchronised]] = {}
"""The algorithms by name, as functions of a model, its optimizer and the algorithm's options."""


def _method(arguments: Callable[P, Settings]) -> Callable[Concatenate[nn.Module, Optimizer, P], Synchronised]:
    """The function that attaches an algorithm; `arguments` declares its options and what it must know of a training."""

    def attach(model: nn.Module, optimizer: Optimizer, *args: P.args, **options: P.kwargs) -> Synchronised:
        given: Any = arguments(*args, **options)
        training = {name: value for name in _OF_TRAINING if (value := getattr(given, name, None)) is not None}
        chosen = given if isinstance(given, SyncOptions) else given.options()
        return Synchronised(model, optimizer, chosen, **training)

    return _described(attach, arguments)


def _described(attach: Any, arguments: Any) -> Any:
    """`attach` with the name, signature and help lines of its arguments."""
    fields = {name: field for name, field in arguments.model_fields.items() if field.init is not False}
    ahead = list(signature(attach).parameters.values())[:2]
    attach.__name__ = attach.__qualname__ = arguments.__name__.removeprefix("_")
    attach.__signature__ = Signature([*ahead, *starmap(_parameter, fields.items())], return_annotation=Synchronised)
    lines = [f"    {name}: {field.description}" for name, field in fields.items()]
    if any("epoch" in line for line in lines):
        lines.append("Options that mention epochs count in steps here.")
    attach.__doc__ = "\n".join([cleandoc(arguments.__doc__), "", "Args:", *lines])
    METHODS[attach.__name__] = attach
    return attach


def _parameter(name: str, field: FieldInfo) -> Parameter:
    default = Parameter.empty if field.is_required() else field.default
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=field.annotation)


_OF_TRAINING = ("total_steps", "warmup_steps", "seed", "clip_norm")
AllReduce = _method(_AllReduce)
LocalSGD = _method(_LocalSGD)
QSR = _method(_QSR)
SGP = _method(_SGP)
OSGP = _method(_OSGP)
DPSGD = _method(_DPSGD)
ADPSGD = _method(_ADPSGD)
SlowMo = _method(_SlowMo)
DiLoCo = _method(_DiLoCo)
Lookahead = _method(_Lookahead)


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
