"""The common options of algorithms with rounds of local steps."""

from __future__ import annotations

from pydantic import Field

from resync.config.parts import SyncOptions, Traffic
from resync.formulas.periods import Period, PeriodRule, rule_of


class RoundsOptions(SyncOptions):
    """The options of an algorithm that averages after every round of local steps."""

    period: PeriodRule = Field(description="rule for H, the number of local steps per round")

    @property
    def rule(self) -> Period:
        """The rule for the number of local steps per round."""
        return rule_of(self.period)

    @property
    def traffic(self) -> Traffic:
        """An average over all workers after every round."""
        return Traffic(every="round")
