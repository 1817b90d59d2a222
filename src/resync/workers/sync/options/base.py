"""The base of the options of all algorithms: what each declares to planning and training."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from resync.base.settings.options import Options
from resync.workers.formulas.clock import VirtualClock
from resync.workers.formulas.periods import Constant, Period
from resync.workers.formulas.topology import TopologyName

if TYPE_CHECKING:
    from resync.workers.formulas.phases import Timetable


class Look(NamedTuple):
    """How lines are drawn: a colour of `resync.papers.render.style`, a marker of matplotlib, and a dash."""

    color: Literal["black", "vermillion", "blue", "green", "orange", "purple", "sky", "wine", "teal", "olive", "indigo"]
    marker: str
    dash: Literal["solid", "long", "short", "dash-dot"]


@dataclass(frozen=True)
class Traffic:
    """The messages that workers exchange in an algorithm.

    Attributes:
        every: whether there is an exchange after every step or after every round.
        topology: the graph that gives the peers; None: every exchange is an average over all workers.
        peers: pairs (first step, peers of a worker per mixing step), in ascending order from step 0; 0 peers stands
            for an average over all workers.
        weight: that of every message in place of the graph's own weights; None: those.
        vectors: parameter-sized vectors that an exchange sends to each peer, or averages.
        half_duplex: whether the two workers of a pair send one after the other.
        all_reduce: the algorithm of an average over all workers; `default`: that of the network's library;
            `all_gather`: each sends its whole message to all others.
        staleness: largest number of steps by which a message may be late (resync.workers.formulas.arrivals); a worker
            sends the next one when it has arrived.
        overlapped: number of steps that are computed while an average over all workers travels.
        overlap: what waits for a message: the next step (`none`), the next message, so that it travels while steps are
            computed (`bounded`), or nothing (`full`).
    """

    every: Literal["step", "round"] = "step"
    topology: TopologyName | None = None
    peers: tuple[tuple[int, int], ...] = ((0, 1),)
    weight: float | None = None
    vectors: int = 1
    half_duplex: bool = False
    all_reduce: Literal["default", "ring", "recursive_doubling", "all_gather"] = "default"
    staleness: int = 0
    overlapped: int = 0
    overlap: Literal["none", "bounded", "full"] = "none"

    @property
    def is_waited_for(self) -> bool:
        """Whether the next step begins when whole vectors have arrived, so that a clock can tell their time."""
        return self.overlap == "none" and not self.overlapped and self.all_reduce != "all_gather"


class EngineNeeds(NamedTuple):
    """What an algorithm asks of the engine and its processes.

    Attributes:
        average_gradients: whether gradients are averaged over all workers in every step.
        engine_may_average: whether the engine may take this average, by the all-reduce of the back end.
        separate_optimizer_steps: whether some workers of a process may step without the others, so that each needs an
            optimizer state of its own.
        one_process_per_worker: whether a process must host all GPUs of its workers.
        virtual_clock: whether workers take their steps at the times of the run's virtual clock.
    """

    average_gradients: bool = False
    engine_may_average: bool = False
    separate_optimizer_steps: bool = False
    one_process_per_worker: bool = False
    virtual_clock: bool = False


_LOOP = r"""
\1for x, y in loader:
\1    loss(model(x), y).backward(); optimizer.step(); optimizer.zero_grad()"""


class SyncOptions(Options):
    """The options of a synchronisation algorithm."""

    room: ClassVar[str] = "sync"
    label: ClassVar[str] = ""
    """The algorithm's name in figures that show no series; empty: its name in configurations."""
    look: ClassVar[Look | None] = None
    """How its lines are drawn; None: that follows from its name, or from its period rule."""
    can_be_base: ClassVar[bool] = False
    """Whether the algorithm can be the base algorithm of slow momentum."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Complete the example of a docstring, which attaches the algorithm, by the loop that is that of all."""
        cls.__doc__ = re.sub(r"^( +)sync = resync\.attach.*$", rf"\g<0>{_LOOP}", cls.__doc__ or "", flags=re.MULTILINE)
        # The types are in the docstring of each option; here they would be a screen of pydantic's annotations.
        fields = {name: field for name, field in cls.model_fields.items() if field.init is not False}
        defaults = {
            name: Parameter.empty if field.is_required() else field.get_default(call_default_factory=True)
            for name, field in fields.items()
        }
        cls.__signature__ = Signature(
            [Parameter(name, Parameter.KEYWORD_ONLY, default=default) for name, default in defaults.items()]
        )
        super().__pydantic_init_subclass__(**_)

    if not TYPE_CHECKING:

        def __init__(self, /, *found, **options):
            if found:
                name = type(self).__name__
                raise TypeError(
                    f"{name} takes its options by their names; to attach it: "
                    f"resync.attach(model, optimizer, {name}(...), ...)"
                )
            super().__init__(**options)

        __init__.__pydantic_base_init__ = True

    @property
    def needs(self) -> EngineNeeds:
        """What it asks of the engine."""
        return EngineNeeds()

    @property
    def traffic(self) -> Traffic | None:
        """Its messages, peers in the unit of these options; None: unknown, so that no cost can be forecast."""
        return None

    @property
    def rule(self) -> Period:
        """The rule for the number of local steps per round, in the unit of these options."""
        return Constant(h=1)

    @property
    def inner(self) -> SyncOptions | None:
        """The algorithm that communicates within the rounds of this one, if any."""
        return None

    @property
    def is_timed(self) -> bool:
        """Whether the simulated times of its steps are known."""
        return False

    def timetable(
        self, workers: int, clock: VirtualClock, seed: int, choices: Callable[[], Any] | None
    ) -> Timetable | None:
        """When its workers' phases start and end; None for an algorithm that has none.

        `choices` gives a new generator, with which a worker chooses its data stream; None: from the seed's stream.
        """
        return None

    @property
    def effective_outer_lr(self) -> float | None:
        """By how much a constant change of the rounds moves the outer step in the limit; None without outer momentum.

        1 is what plain averaging does. Compare algorithms at equal effective rates.
        """
        return None

    def vectors_per_round(self, state_vectors: int) -> int | Fraction:
        """Number of parameter-sized vectors that a worker sends, to each peer, at the end of a round.

        `state_vectors` is the number of such vectors in the optimizer's state.
        """
        return 1

    def exchanged(self, lengths: Sequence[int], state_vectors: int) -> Iterator[tuple[int, int | Fraction]]:
        """The exchanges of a training whose rounds have these lengths, in order, for traffic after every round.

        Each is the steps since the one before and the vectors that a worker sends to each peer.
        """
        vectors = self.vectors_per_round(state_vectors)
        return ((steps, vectors) for steps in lengths)
