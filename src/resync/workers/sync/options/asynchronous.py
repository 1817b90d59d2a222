"""Options of algorithms whose workers do not wait for each other, in simulated time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field

from resync.base.settings.base import Check, NonNegativeNumber, PositiveNumber, wrong
from resync.base.settings.units import LocalSteps
from resync.workers.formulas.clock import VirtualClock
from resync.workers.formulas.periods import Constant, Period
from resync.workers.formulas.phases import Timetable
from resync.workers.sync.options.base import EngineNeeds, Look, SyncOptions, Traffic
from resync.workers.sync.options.outer import OuterLr, OuterMomentum


class AsyncLocalSGD(SyncOptions):
    """Asynchronous Local SGD, a server that takes the change of each worker when it comes (Liu et al. 2024).

    Every worker copies the server's model, makes `h` steps, and sends its change. When it does so follows from the
    run's virtual clock. It has no form for a training loop of your own.

    Sends the parameters to the server after every `h` steps of a worker.
    """

    label = "Async. Local SGD"
    look = Look("teal", "D", "short")
    needs: ClassVar[EngineNeeds] = EngineNeeds(
        separate_optimizer_steps=True, one_process_per_worker=True, virtual_clock=True
    )
    is_timed: ClassVar[bool] = True
    traffic: ClassVar[Traffic] = Traffic(every="round")
    name: Literal["async_local_sgd"] = Field(default="async_local_sgd", init=False)
    h: LocalSteps = Field(description="local steps of a phase")
    least_steps: LocalSteps | None = Field(
        default=None,
        description="dynamic local steps: a slower worker makes h times its speed relative to the fastest, at least "
        "these; null: all make h",
    )
    server: Literal["mean", "buffer", "each", "delayed_nesterov"] = Field(
        default="each",
        description="mean: workers wait for each other, and the server takes the mean of their changes (synchronous); "
        "buffer: it takes `weight` times every change, summed over as many as there are workers; each: at once; "
        "delayed_nesterov: 1 / workers of every change at once, and momentum after as many as there are workers",
    )
    weight: PositiveNumber | None = Field(default=None, description="factor of a worker's change; null: 1 / workers")
    optimizer_state: Literal["kept"] | None = Field(
        default=None,
        description="kept: a worker's own goes on from phase to phase, as with the paper's language models; null: new "
        "in every phase, as in the authors' notebook",
    )
    lr: OuterLr = 0.7
    momentum: OuterMomentum = 0.9
    max_wait: NonNegativeNumber | None = Field(
        default=None,
        description="simulated seconds for which the first worker that ends its phase waits for others, to start "
        "together with them; null: 0",
    )
    peak_first: bool = Field(
        default=False,
        description="whether the first step of every phase has the schedule's first learning rate, as in the authors' "
        "notebook",
    )

    def checks(self) -> Iterator[Check]:
        without = {"mean": ("weight", "max_wait", "least_steps"), "delayed_nesterov": ("weight",)}
        for name in without.get(self.server, ()):
            if getattr(self, name) is not None:
                yield wrong(name, f"{getattr(self, name):g} with server {self.server}", "null")

    def timetable(self, workers: int, clock: VirtualClock, seed: int, choices: Callable[[], Any] | None) -> Timetable:
        from resync.base.streams import stream  # only here: it imports numpy

        choose = (choices or partial(stream, seed, "choice of data streams"))().choice
        mean = self.server == "mean"
        messages = clock.average(workers) if mean else 2 * (clock.message_seconds or 0.0)
        paces = [clock.pace(worker) for worker in range(workers)]
        steps = [max(int(self.h * min(paces) / pace), self.least_steps or self.h) for pace in paces]
        return Timetable(
            steps, lambda *part: clock.seconds(seed, *part) + messages, choose,
            None if mean else self.max_wait or 0.0, clock.back,
        )  # fmt: skip

    @property
    def rule(self) -> Period:
        return Constant(h=self.h)
