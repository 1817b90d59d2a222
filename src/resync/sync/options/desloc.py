"""Options of DES-LOC."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Literal

from pydantic import Field

from resync.config.parts import SyncOptions, Traffic
from resync.formulas.periods import Constant, Period
from resync.settings.base import PositiveInt


class DESLOC(SyncOptions):
    """Local Adam whose parameters and moments are averaged with periods of their own (Iacob et al. 2025)."""

    label = "DES-LOC"
    name: Literal["desloc"] = Field(default="desloc", init=False)
    period: PositiveInt = Field(description="local steps between two averages of the parameters, Kx")
    first_moment_period: PositiveInt | None = Field(
        default=None, description="local steps between two averages of Adam's first moments, Ku; null: 3 periods"
    )
    second_moment_period: PositiveInt | None = Field(
        default=None, description="local steps between two averages of Adam's second moments, Kv; null: 6 periods"
    )

    @property
    def moments(self) -> dict[str, int]:
        """The periods of the fields of the optimizer's state."""
        return {
            "exp_avg": self.first_moment_period or 3 * self.period,
            "exp_avg_sq": self.second_moment_period or 6 * self.period,
        }

    @property
    def rule(self) -> Period:
        """A round ends with the average of the parameters."""
        return Constant(h=self.period)

    @property
    def traffic(self) -> Traffic:
        """Averages over all workers, of the parameters after every round."""
        return Traffic(every="round")

    def exchanged(self, lengths: Sequence[int], state_vectors: int) -> Iterator[tuple[int, int]]:
        """At the end of every round the parameters, and the moments at all multiples of their periods."""
        ends = list(accumulate(lengths))
        moments = (range(period, ends[-1] + 1, period) for period in self.moments.values())
        due = Counter(chain(ends, *moments))
        for before, step in pairwise([0, *sorted(due)]):
            yield step - before, due[step]
