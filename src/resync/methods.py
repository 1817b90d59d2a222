"""The algorithms by name, for a model and an optimizer: `resync.SGP(model, optimizer, peers=2)`.

Each function attaches its algorithm (`resync.attach`). Its signature and help come from the algorithm's options and
from what it must know of a training.
"""

from collections.abc import Callable, Iterator
from inspect import Parameter, Signature, cleandoc, signature
from itertools import starmap
from textwrap import wrap
from typing import Any, Concatenate, ParamSpec

from pydantic import Field
from pydantic.fields import FieldInfo
from torch import nn
from torch.optim import Optimizer

from resync.attach import Synchronised
from resync.config.parts import SyncOptions
from resync.formulas.periods import PeriodRule, PowerRule, rule_of
from resync.settings.base import Check, Count, PositiveInt, PositiveNumber, Settings
from resync.sync.options import every_step, outer, rounds
from resync.sync.options.outer import OuterLr


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


class _AllReduce(_Clipped, every_step.AllReduce):
    """Gradients or parameters averaged over all workers in every step (see resync.sync.allreduce).

    Sends an all-reduce of the gradients, or parameters, in every step.
    """

    def checks(self) -> Iterator[Check]:
        """Refuse to clip an average that is not taken."""
        if self.clip_norm and not self.needs.average_gradients:
            yield ("clip_norm",), f"found {self.clip_norm:g} with average parameters, allowed: None; clip before step()"


class _LocalSGD(_Rounds, rounds.Local):
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
    average_state: rounds.StateNames = ()

    def options(self) -> SyncOptions:
        return rounds.Local(period=self, average_state=self.average_state)


class _SGP(_Seeded, every_step.SGP):
    """Synchronous push-sum gossip after every step (see resync.sync.sgp).

    Sends the parameters, and each field in `average_state`, to each of `peers` workers after every step.
    """


class _OSGP(_Seeded, every_step.OSGP):
    """Push-sum gossip that overlaps with the gradient computation (see resync.sync.osgp).

    Sends the parameters to each of `peers` workers, in every step with `staleness` 0, else when the last message
    has arrived.
    """


class _DPSGD(_Seeded, every_step.DPSGD):
    """Symmetric gossip after every step (see resync.sync.dpsgd).

    Sends the parameters to each of `peers` workers after every step.
    """


class _ADPSGD(Settings):
    """Asynchronous pairwise averaging in a background thread; call `finish` at the end (resync.sync.adpsgd_threads).

    No two runs have the same bits. `state_dict` is a collective call.

    Sends the parameters to one worker per step, for which no worker waits.
    """

    topology: every_step.PairTopology = "bipartite_exponential"

    def options(self) -> SyncOptions:
        return every_step.ADPSGD(topology=self.topology, asynchronous=True)


class _SlowMo(_Rounds, _Seeded, outer.SlowMo):
    """Slow momentum on the average, with Local SGD or base="allreduce" / "sgp" / "osgp" (see resync.sync.slowmo).

    Sends an all-reduce of the parameters with `average`, and of every moment with buffers="average", at the end of
    every round, beside what `base` sends.
    """


class _DiLoCo(_Rounds, outer.DiLoCo):
    """Nesterov momentum on the averaged pseudo-gradient after every round (see resync.sync.diloco).

    Sends an all-reduce of the parameters at the end of every round: 1/H of `AllReduce`.
    """


class _DiLoCoProgress(_Rounds, outer.DiLoCoProgress):
    """DiLoCo corrected for rounds of unequal length, an ablation of our own (see resync.sync.diloco_progress).

    Sends what `DiLoCo` sends.
    """


class _SNOO(_Rounds, _Clipped, outer.SNOO):
    """Nesterov momentum on what rounds of data-parallel steps have changed (see resync.sync.snoo).

    Sends an all-reduce of the gradients in every step, and nothing at the end of a round.
    """


class _GPA(_Clipped, every_step.GPA):
    """Gradients between the optimizer's iterate and its average, which `consensus()` gives (see resync.sync.gpa).

    Sends an all-reduce of the gradients in every step.
    """


class _PALSGD(_Rounds, _Seeded, outer.PALSGD):
    """DiLoCo whose workers are pulled to the last average at random steps (see resync.sync.palsgd).

    Sends an all-reduce of the gradients in every step before `start`, then what `DiLoCo` sends.
    """


class _StreamingDiLoCo(_Ending, outer.StreamingDiLoCo):
    """DiLoCo in fragments that take turns and travel during local steps (see resync.sync.streaming_diloco).

    Sends an all-reduce of one of `fragments` parts of the parameters every period / fragments steps.
    """


class _DESLOC(_Ending, rounds.DESLOC):
    """Adam's parameters and moments averaged with periods of their own (see resync.sync.desloc).

    Sends an all-reduce of the parameters in every period, and of each moment in every multiple that it has.
    """


class _NoLoCo(_Rounds, _Seeded, outer.NoLoCo):
    """An outer step on the averages of random pairs of workers after every round (see resync.sync.noloco).

    Sends two vectors of the length of the parameters at the end of every round: to one worker, or to all with the
    topology `complete`.
    """


class _Lookahead(_Rounds):
    """SlowMo without momentum: after every round, move the fraction `alpha` of the way (see resync.sync.slowmo).

    Lookahead is by Zhang et al. (2019).

    Sends an all-reduce of the parameters at the end of every round.
    """

    period: PeriodRule = Field(description="local steps in a round, or a rule of resync.periods")
    alpha: OuterLr = 0.5

    def options(self) -> SyncOptions:
        return outer.SlowMo(period=self.period, alpha=self.alpha, beta=0.0)


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
Lookahead = _method(_Lookahead)
