"""Options of algorithms that average after rounds of local steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, ClassVar, Literal

from pydantic import Field

from resync.base.settings.base import Several
from resync.base.settings.units import LocalSteps
from resync.workers.formulas.periods import Constant, Period, PeriodRule, PowerRule, rule_of
from resync.workers.sync.options.base import Look, SyncOptions, Traffic


class RoundsOptions(SyncOptions):
    """The options of an algorithm that averages after every round of local steps."""

    period: PeriodRule = Field(description="rule for H, the number of local steps per round")

    @property
    def rule(self) -> Period:
        return rule_of(self.period)

    @property
    def traffic(self) -> Traffic:
        return Traffic(every="round")


class LocalSGD(RoundsOptions):
    """Local SGD / Local AdamW, parameters averaged after every round of H local steps (Gu et al. 2024, Algorithm 2).

    Sends an all-reduce of the parameters, and of each field in `average_state`, at the end of every round: 1/H of the
    volume of AllReduce.

        sync = resync.attach(model, optimizer, resync.LocalSGD(period=4))
    """

    name: Literal["local"] = Field(default="local", init=False)
    average_state: Several[str] = Field(
        default=(),
        description="fields of the optimizer's state to average too, e.g. exp_avg; all others stay with their worker",
    )

    def __repr_name__(self) -> str:
        return "QSR" if isinstance(self.period, PowerRule) else type(self).__name__

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """As typed in Python: `QSR` takes the options of its rule."""
        for name, value in super().__repr_args__():
            yield from value.__repr_args__() if isinstance(value, PowerRule) else [(name, value)]

    def vectors_per_round(self, state_vectors: int) -> int:
        return 1 + len(self.average_state)


def QSR(
    *,
    alpha: float,
    h_base: int = 1,
    power: float = 2.0,
    h_warmup: int | None = None,
    average_state: Sequence[str] = (),
) -> LocalSGD:
    """Local SGD / AdamW with the Quadratic Synchronisation Rule (Gu et al. 2024): H grows as the learning rate falls.

    H = max(h_base, floor((alpha / lr)^power)), lr at the first step of the round. Small learning rates at the start of
    a training are not those of its end: rounds that start within `warmup_steps` of `attach` have H = h_warmup.

    Sends an all-reduce of the parameters at the end of every round: 1/H of the volume of AllReduce.

    In a configuration: {name: local, period: {rule: power, alpha: 0.0175, h_base: 4}}. In a loop of your own:

        sync = resync.attach(model, optimizer, resync.QSR(alpha=0.0175, h_base=4), total_steps=T, warmup_steps=W)
        for x, y in loader:
            loss(model(x), y).backward(); optimizer.step(); scheduler.step(); optimizer.zero_grad()

    Args:
        alpha: growth coefficient, in the unit of the learning rate: of peak * h_base^(1 / power), H is h_base at the
            peak, and grows as soon as the learning rate falls. The paper has 0.0175 for a peak of 0.008 and h_base 4.
        h_base: smallest number of local steps in a round.
        power: 2 is QSR, 1 the linear rule, 3 the cubic rule.
        h_warmup: H of rounds that start during the warm-up; None: h_base.
        average_state: fields of the optimizer's state to average too, e.g. exp_avg; all others stay with their worker.
    """
    period = PowerRule(alpha=alpha, power=power, h_base=h_base, h_warmup=h_warmup)
    return LocalSGD(period=period, average_state=average_state)


class DESLOC(SyncOptions):
    """Local Adam whose parameters and moments are averaged with periods of their own (Iacob et al. 2025).

    Sends an all-reduce of the parameters in every period, and of each moment in every multiple that it has.

        sync = resync.attach(model, optimizer, resync.DESLOC(period=10))
    """

    label = "DES-LOC"
    look = Look("wine", "X", "dash-dot")
    traffic: ClassVar[Traffic] = Traffic(every="round")
    name: Literal["desloc"] = Field(default="desloc", init=False)
    period: LocalSteps = Field(description="local steps between two averages of the parameters, Kx")
    first_moment_period: LocalSteps | None = Field(
        default=None, description="local steps between two averages of Adam's first moments, Ku; null: 3 periods"
    )
    second_moment_period: LocalSteps | None = Field(
        default=None, description="local steps between two averages of Adam's second moments, Kv; null: 6 periods"
    )

    @property
    def moments(self) -> dict[str, int]:
        return {
            "exp_avg": self.first_moment_period or 3 * self.period,
            "exp_avg_sq": self.second_moment_period or 6 * self.period,
        }

    @property
    def rule(self) -> Period:
        return Constant(h=self.period)

    def exchanged(self, lengths: Sequence[int], state_vectors: int) -> Iterator[tuple[int, int]]:
        """At the end of every round the parameters, and the moments at all multiples of their periods."""
        ends = list(accumulate(lengths))
        moments = (range(period, ends[-1] + 1, period) for period in self.moments.values())
        due = Counter(chain(ends, *moments))
        for before, step in pairwise([0, *sorted(due)]):
            yield step - before, due[step]
