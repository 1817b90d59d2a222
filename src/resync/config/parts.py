"""The bases of the options that a run chooses by name: what each says of itself to planning and training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from resync.formulas.periods import Constant, Period
from resync.formulas.topology import TopologyName
from resync.settings.options import Options


@dataclass(frozen=True)
class Traffic:
    """What workers send each other in the exchanges of an algorithm.

    Attributes:
        every: an exchange after every step, or after every round.
        topology: who the peers are; None: every exchange is an average over all workers.
        peers: (first step, peers of a worker in one mix) in ascending order from 0 on; 0 peers is an average over all.
        mixing_weights: what a worker keeps, then what each out-peer gets; None: equal weights.
        interval: steps between two mixes.
        overlap: who waits for a message: the next step (`none`), the next message, so that it travels while steps are
            computed (`bounded`), or nobody (`full`).
    """

    every: Literal["step", "round"] = "step"
    topology: TopologyName | None = None
    peers: tuple[tuple[int, int], ...] = ((0, 1),)
    mixing_weights: tuple[float, ...] | None = None
    interval: int = 1
    overlap: Literal["none", "bounded", "full"] = "none"


class SyncOptions(Options):
    """The options of any synchronisation algorithm."""

    room: ClassVar[str] = "sync"
    label: ClassVar[str] = ""
    """What figures call it apart from any series; empty: its name."""
    can_be_base: ClassVar[bool] = False
    """Whether slow momentum can be put around the algorithm."""

    @property
    def averages_gradients(self) -> bool:
        """Whether it averages gradients over all workers in every step, which an engine may do for it."""
        return False

    @property
    def steps_apart(self) -> bool:
        """Whether some workers of a process make a step without the others, so that each has its own state."""
        return False

    @property
    def traffic(self) -> Traffic | None:
        """What it sends, peers in the unit of these options; None: not known, so that no cost can be planned."""
        return None

    @property
    def rule(self) -> Period:
        """How many local steps a round has, in the unit of these options."""
        return Constant(h=1)

    @property
    def inner(self) -> SyncOptions | None:
        """The algorithm that exchanges within the rounds of this one."""
        return None

    def vectors_per_round(self, state_vectors: int) -> int:
        """Vectors as long as the parameters that a worker sends at the end of a round.

        `state_vectors`: how many such vectors the optimizer's state has.
        """
        return 1


class ModelOptions(Options):
    """The options of any model."""

    room: ClassVar[str] = "models"
    task: ClassVar[str] = "classification"
    """What the model is for."""
    batch_norm: ClassVar[bool | None] = None
    """Whether it has BatchNorm, where no option decides; None: not known."""

    @property
    def has_batch_norm(self) -> bool | None:
        """Whether the model of these options has BatchNorm, whose statistics an evaluation estimates again."""
        return self.batch_norm


class OptimizerOptions(Options):
    """The options of any inner optimizer."""

    room: ClassVar[str] = "optim"

    @property
    def state_vectors(self) -> int:
        """Vectors as long as the parameters in the state of a worker's optimizer."""
        return 0

    @property
    def decay_of_matrices(self) -> float:
        """The weight decay that the optimizer leaves to `decay` of its module, for matrices alone."""
        return 0.0


class KindOptions(Options):
    """The options of any kind of figure or table."""

    room: ClassVar[str] = "render"
    planned: ClassVar[bool] = False
    """Whether it is computed from the configuration alone, so that nothing is trained for it."""
    shows_series: ClassVar[bool] = True
    """Whether an item of this kind names series."""
