"""Synchronisation in any training loop: an algorithm attached to the steps of a torch optimizer.

    sync = resync.QSR(model, optimizer, alpha=0.0175, h_base=4, total_steps=T, warmup_steps=W)
    for x, y in loader:
        loss(model(x), y).backward()
        optimizer.step(); scheduler.step(); optimizer.zero_grad()
    with sync.consensus():
        evaluate(model)

Each process is one worker. `torch.distributed` is used as set up by the caller; without it there is a single worker.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from hashlib import sha256
from inspect import Parameter, Signature, cleandoc, signature
from itertools import count, starmap, zip_longest
from math import inf
from textwrap import wrap
from types import FrameType
from typing import Any, Concatenate, ParamSpec

import torch
import torch.distributed as dist
from pydantic import Field
from pydantic.fields import FieldInfo
from torch import nn
from torch.optim import Optimizer

from resync.config.parts import SyncOptions
from resync.engine.clocks import Clocks
from resync.engine.guard import ATTACHED, Guard, check_attachable, description
from resync.engine.transport import Transport
from resync.engine.workers import Workers
from resync.formulas.periods import Period, PeriodRule, PowerRule, rule_of
from resync.processes.meeting import Meetings
from resync.settings.base import Check, Count, PositiveInt, PositiveNumber, Settings
from resync.sync import build
from resync.sync.algorithm import Training
from resync.sync.options import (
    adpsgd,
    allreduce,
    desloc,
    diloco,
    diloco_progress,
    dpsgd,
    gasloc,
    gpa,
    local,
    noloco,
    osgp,
    palsgd,
    sgp,
    slowmo,
    snoo,
    streaming_diloco,
)
from resync.sync.options._outer import OuterLr


class Synchronised:
    """A model and its optimizer, synchronised with the other processes by `optimizer.step()`.

    `options`, such as `resync.sync.options.sgp.SGP(peers=2)`, choose the algorithm; they count in steps, not epochs.
    All workers start from the parameters, frozen ones too, and the buffers of rank 0. Buffers (BatchNorm statistics)
    and optimizer state then stay local unless the algorithm says otherwise. The learning rate of a step is the largest
    one of the optimizer's groups. A closure given to `optimizer.step` is called before the algorithm sees the gradient.

    Raises ValueError if torchrun started this process but `init_process_group` was not called, for a model, an
    optimizer or options that the algorithm cannot handle, and if they differ between the ranks. `optimizer.step`,
    `consensus`, `finish` and `state_dict` raise RuntimeError where an average would not be that of what is trained
    (see docs/robustness.md), and TimeoutError, with their ranks, if others do not come to attach, to `consensus` or to
    `finish` within the time limit of the process group.
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
        if not total_steps >= 1:
            raise ValueError(f"total_steps: found {total_steps}, allowed: at least 1")
        check_attachable(model, optimizer)
        rank, size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        self._meetings = Meetings(f"attached{next(_NUMBERS)}", rank, size, _time_limit(model))
        arguments = f"{options!r} {total_steps=} {warmup_steps=} {seed=} {clip_norm=}"
        _check_equal(self._meetings, [arguments, *description(model)])
        workers = Workers.attach(model)
        self.transport = Transport(size, Clocks(workers.rows.device), rank, size)
        frozen = (each for each in model.parameters() if not each.requires_grad)
        self.transport.start_like_rank_0([workers.rows, *frozen, *model.buffers()])
        self.model, self.optimizer, self.workers = model, optimizer, workers
        self._guard = Guard(workers, optimizer)
        training = Training(workers, self.transport, optimizer, total_steps, warmup_steps, seed)
        self.algorithm = build(options, training)
        self.synced = False
        self._total_steps, self._warmup_steps = total_steps, warmup_steps
        self._unproven = options.rule if options.rule.follows_lr else None
        self._averages_gradients = options.averages_gradients
        self._clip_norm = clip_norm
        self._lr = 0.0
        self._in_consensus = self._has_gradient = self._stepping = False
        self._inner_steps = 0
        self._hooks = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        ]
        ATTACHED.add(model)
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

    @contextmanager
    def consensus(self) -> Iterator[nn.Module]:
        """The model with the average of all workers' parameters, for evaluation; a collective call between steps.

        What is done to the parameters in the block is undone at its end.
        """
        self._meet("consensus()")
        with self.algorithm.consensus() as model:
            self._in_consensus = True
            try:
                yield model
            finally:
                self._in_consensus = False

    def finish(self) -> None:
        """Give every worker the final average and detach from the optimizer; a collective call after the last step."""
        self._meet("finish()")
        self.algorithm.close()
        self.algorithm.synchronise()
        for hook in self._hooks:
            hook.remove()
        ATTACHED.discard(self.model)

    def state_dict(self) -> dict[str, Any]:
        """State of the algorithm; with those of the model and the optimizer, training continues exactly."""
        with self._located("state_dict()"):
            self._check_outside()
            self._guard.check_model()
        return self.algorithm.state_dict() | {"checksum": self.workers.checksum()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict`, after the states of the model and the optimizer have been restored.

        Raises ValueError if the model does not have the parameters with which the state was saved.
        """
        self._guard.check_model()
        if state["checksum"] != self.workers.checksum():
            raise ValueError(
                "the model does not have the parameters with which this state was saved: load the model's state first, "
                "after attaching, which overwrites the parameters with those of rank 0"
            )
        self._unproven = None
        self.algorithm.load_state_dict(state)

    def _meet(self, call: str) -> None:
        """Before a call of all ranks: raise an error if it cannot be an average, or if the ranks are not in step."""
        with self._located(call):
            self._check_outside()
            self._guard.check_model()
            counts = "" if self.algorithm.runs_free else f" after {self.steps} steps in {self.rounds} rounds"
            said = self._meetings.meet(f"{call} after {self.steps} steps", call + counts)
            if len(set(said)) > 1:
                raise RuntimeError(
                    f"the ranks are not in step: {_by_rank(said)}; each must make the same steps and calls"
                )

    def _check_outside(self) -> None:
        if self._in_consensus:
            raise RuntimeError("called inside `with consensus()`, whose end undoes it: end the block first")

    @contextmanager
    def _located(self, call: str) -> Iterator[None]:
        """Name the rank and the call or step in the errors of the block."""
        try:
            yield
        except RuntimeError as error:
            raise RuntimeError(f"rank {self.transport.rank}, {call}: {error}") from error

    @contextmanager
    def _explained(self, step: int) -> Iterator[None]:
        """Say of the back end's errors, which are about sockets, when they came."""
        try:
            yield
        except RuntimeError as error:
            error.add_note(f"resync: rank {self.transport.rank} was in the synchronisation of step {step}; if a "
                           "message did not come, another rank has ended or made fewer steps")  # fmt: skip
            raise

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        if self._stepping and _is_within_a_step(optimizer):
            self._inner_steps += 1
            return None
        self._stepping, self._inner_steps = True, 0
        with self._located(f"step {self.steps + 1}"):
            self._check_outside()
            self._guard.check()
        self._lr = max(float(group["lr"]) for group in optimizer.param_groups)
        self._has_gradient = False
        if len(args) > 1 and callable(args[1]):
            return (args[0], self._closure(args[1]), *args[2:]), kwargs
        if callable(closure := kwargs.get("closure")):
            return args, kwargs | {"closure": self._closure(closure)}
        self._synchronise_gradient()
        return None

    def _closure(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """The closure of a step, whose gradient the algorithm sees before the optimizer does."""

        def synchronised() -> Any:
            if self._has_gradient and self.algorithm.one_gradient:
                raise RuntimeError(
                    f"rank {self.transport.rank}, step {self.steps + 1}: the optimizer calls its closure more than "
                    "once in a step, and this algorithm synchronises one gradient, allowed: a local method, as LocalSGD"
                )
            loss = closure()
            if not self._has_gradient:
                self._synchronise_gradient()
            return loss

        return synchronised

    @torch.no_grad()
    def _synchronise_gradient(self) -> None:
        self._has_gradient = True
        if self._averages_gradients:
            self.workers.pack_gradients()
        with self._explained(self.steps + 1):
            self.algorithm.after_backward()
        if self._averages_gradients:
            if self._clip_norm:
                self.workers.clip_gradients(self._clip_norm)
            self.workers.unpack_gradients()

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._inner_steps:
            self._inner_steps -= 1
            return
        self._stepping = False
        if not self._has_gradient:
            raise RuntimeError(f"rank {self.transport.rank}, step {self.steps + 1}: the optimizer has not called its "
                               "closure, so that the algorithm has seen no gradient")  # fmt: skip
        first, begins_round = self.algorithm.steps, self.synced or self.algorithm.steps == 0
        with self._explained(first + 1):
            self.synced = self.algorithm.after_step(self._lr)
        if self._unproven and begins_round and first >= self._warmup_steps:
            self._prove(self._unproven, first)
        with self._explained(first + 1):
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


def _is_within_a_step(optimizer: Optimizer) -> bool:
    """Whether the step whose hook is running was called by another step of this optimizer.

    torch calls the hooks for each class with a `step` of its own, so that `super().step()` calls them again. Counting
    alone would not do: a step that raises never reaches its second hook.
    """
    step: FrameType | None = sys._getframe(2)
    assert step is not None
    code, caller = step.f_code, step.f_back
    while caller and not (caller.f_code is code and caller.f_locals["args"][0] is optimizer):
        caller = caller.f_back
    return caller is not None


class _Seeded(Settings):
    seed: Count = Field(default=0, description="seed of the algorithm's random numbers")


class _Ending(Settings):
    total_steps: PositiveInt | None = Field(
        default=None, description="number of steps of the training, whose end truncates the last round; None: unknown"
    )


class _Rounds(_Ending):
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


class _Clipped(Settings):
    clip_norm: PositiveNumber | None = Field(
        default=None,
        description="largest L2 norm of the averaged gradient; clipping before `step()` would clip local gradients",
    )


class _AllReduce(_Clipped, allreduce.AllReduce):
    """Gradients or parameters averaged over all workers in every step (see resync.sync.allreduce).

    Sends an all-reduce of the gradients, or parameters, in every step.
    """

    def checks(self) -> Iterator[Check]:
        """Refuse to clip an average that is not taken."""
        if self.clip_norm and not self.averages_gradients:
            yield ("clip_norm",), f"found {self.clip_norm:g} with average parameters, allowed: None; clip before step()"


class _LocalSGD(_Rounds, local.Local):
    """Parameters averaged after every round of local steps (see resync.sync.local and resync.periods).

    Sends an all-reduce of the parameters, and of each field in `average_state`, at the end of every round: 1/H of
    `AllReduce`.
    """


class _QSR(_Rounds, PowerRule):
    """Local SGD / AdamW with H = max(h_base, floor((alpha / lr)^power)) (see resync.sync.local).

    H is large where the learning rate is small, as also in a warm-up: rounds that start within `warmup_steps` have
    H = h_warmup. A first round after it that would last until the end raises ValueError.

    Sends an all-reduce of the parameters, and of each field in `average_state`, at the end of every round.
    """

    total_steps: PositiveInt = Field(description="number of steps of the training, whose end truncates the last round")
    warmup_steps: Count = Field(description="number of warm-up steps of the learning rate; 0 without a warm-up")
    average_state: local.StateNames = ()

    def options(self) -> SyncOptions:
        return local.Local(period=self, average_state=self.average_state)


class _SGP(_Seeded, sgp.SGP):
    """Synchronous push-sum gossip after every step (see resync.sync.sgp).

    Sends the parameters, and each field in `average_state`, to each of `peers` workers after every step.
    """


class _OSGP(_Seeded, osgp.OSGP):
    """Push-sum gossip that overlaps with the gradient computation (see resync.sync.osgp).

    Sends the parameters to each of `peers` workers, in every step with `staleness` 0, else when the last message
    has arrived.
    """


class _DPSGD(_Seeded, dpsgd.DPSGD):
    """Symmetric gossip after every step (see resync.sync.dpsgd).

    Sends the parameters to each of `peers` workers after every step.
    """


class _ADPSGD(Settings):
    """Asynchronous pairwise averaging in a background thread; call `finish` at the end (resync.sync.adpsgd_threads).

    No two runs have the same bits. `state_dict` is a collective call.

    Sends the parameters to one worker per step, for which no worker waits.
    """

    topology: adpsgd.PairTopology = "bipartite_exponential"

    def options(self) -> SyncOptions:
        return adpsgd.ADPSGD(topology=self.topology, asynchronous=True)


class _SlowMo(_Rounds, _Seeded, slowmo.SlowMo):
    """Slow momentum on the average, with Local SGD or base="allreduce" / "sgp" / "osgp" (see resync.sync.slowmo).

    Sends an all-reduce of the parameters at the end of every round with `average`, beside what `base` sends.
    """


class _DiLoCo(_Rounds, diloco.DiLoCo):
    """Nesterov momentum on the averaged pseudo-gradient after every round (see resync.sync.diloco).

    Sends an all-reduce of the parameters at the end of every round: 1/H of `AllReduce`.
    """


class _DiLoCoProgress(_Rounds, diloco_progress.DiLoCoProgress):
    """DiLoCo corrected for rounds of unequal length, an ablation of our own (see resync.sync.diloco_progress).

    Sends what `DiLoCo` sends.
    """


class _SNOO(_Rounds, _Clipped, snoo.SNOO):
    """Nesterov momentum on what rounds of data-parallel steps have changed (see resync.sync.snoo).

    Sends an all-reduce of the gradients in every step, and nothing at the end of a round.
    """


class _GPA(_Clipped, gpa.GPA):
    """Gradients between the optimizer's iterate and its average, which `consensus()` gives (see resync.sync.gpa).

    Sends an all-reduce of the gradients in every step.
    """


class _PALSGD(_Rounds, _Seeded, palsgd.PALSGD):
    """DiLoCo whose workers are pulled to the last average at random steps (see resync.sync.palsgd).

    Sends what `DiLoCo` sends.
    """


class _StreamingDiLoCo(_Ending, streaming_diloco.StreamingDiLoCo):
    """DiLoCo in fragments that take turns and travel during local steps (see resync.sync.streaming_diloco).

    Sends an all-reduce of one of `fragments` parts of the parameters every period / fragments steps.
    """


class _DESLOC(_Ending, desloc.DESLOC):
    """Adam's parameters and moments averaged with periods of their own (see resync.sync.desloc).

    Sends an all-reduce of the parameters in every period, and of each moment in every multiple that it has.
    """


class _NoLoCo(_Rounds, _Seeded, noloco.NoLoCo):
    """An outer step on the averages of random pairs of workers after every round (see resync.sync.noloco).

    Sends two vectors of the length of the parameters to one worker at the end of every round.
    """


class _GASLoC(_Rounds, _Seeded, gasloc.GASLoC):
    """Gossip between the two halves of Nesterov's outer step (see resync.sync.gasloc).

    Sends the parameters to one worker at the end of every round.
    """


class _Lookahead(Settings):
    """SlowMo without momentum: after every round, move the fraction `alpha` of the way (see resync.sync.slowmo).

    Lookahead is by Zhang et al. (2019).

    Sends an all-reduce of the parameters at the end of every round.
    """

    period: PeriodRule = Field(description="local steps in a round, or a rule of resync.periods")
    alpha: OuterLr = 0.5

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
    lines = [f"    {name}: {field.description}{_default(field)}" for name, field in fields.items()]
    if any("epoch" in line for line in lines):
        lines.append("Options that mention epochs count in steps here.")
    doc = [*cleandoc(arguments.__doc__).splitlines(), "", "Args:", *lines]
    attach.__doc__ = "\n".join(line for each in doc for line in _wrapped(each))
    METHODS[attach.__name__] = attach
    return attach


def _wrapped(line: str) -> list[str]:
    """A line of a docstring in lines of at most 120 characters."""
    start = line[: len(line) - len(line.lstrip())]
    inner = f"{start}    " if start else ""
    return wrap(line, 120, subsequent_indent=inner, break_long_words=False, break_on_hyphens=False) or [""]


def _default(field: FieldInfo) -> str:
    return "" if field.is_required() else f" (default: {field.default!r})"


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
DiLoCoProgress = _method(_DiLoCoProgress)
SNOO = _method(_SNOO)
GPA = _method(_GPA)
PALSGD = _method(_PALSGD)
StreamingDiLoCo = _method(_StreamingDiLoCo)
DESLOC = _method(_DESLOC)
NoLoCo = _method(_NoLoCo)
GASLoC = _method(_GASLoC)
Lookahead = _method(_Lookahead)


_NUMBERS = count()
"""Numbers of the attachments of this process, by which their meetings are told apart."""


def _time_limit(model: nn.Module) -> timedelta:
    """How long a rank waits for the others: the limit of the process group."""
    if not dist.is_initialized():
        return timedelta()
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    limit: timedelta = dist.group.WORLD._get_backend(device).options._timeout
    return limit


def _check_equal(meetings: Meetings, lines: list[str]) -> None:
    """Raise ValueError on every rank, with the first line that differs, if `lines` are not the same on all ranks."""
    digests = meetings.meet("attaching", sha256("\n".join(lines).encode()).hexdigest())
    if len(set(digests)) == 1:
        return
    found = [text.split("\n") for text in meetings.meet("attaching", "\n".join(lines))]
    other = next(rank for rank, digest in enumerate(digests) if digest != digests[0])
    ours, theirs = next(pair for pair in zip_longest(found[0], found[other], fillvalue="nothing") if len(set(pair)) > 1)
    raise ValueError(f"the ranks attach different things: rank 0 has {ours}, rank {other} has {theirs}")


def _by_rank(said: list[str]) -> str:
    """What was said, with the ranks that said it: `rank 0, 2: finish() after 4 steps`."""
    ranks = {text: [str(rank) for rank, other in enumerate(said) if other == text] for text in said}
    return "; ".join(f"rank {', '.join(who)}: {text}" for text, who in ranks.items())
