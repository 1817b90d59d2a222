"""Period rules: how many local steps H a round has."""

from typing import Annotated, Literal

from pydantic import Field

from resync.config.settings import PositiveInt, PositiveNumber, Settings


class ConstantPeriod(Settings):
    """H is the same in every round."""

    rule: Literal["constant"]
    h: PositiveInt = Field(description="local steps in a round")


class PowerPeriod(Settings):
    """H = max(h_base, floor((alpha / lr)^power)) of the round's first lr (Gu et al. 2024, equation 2)."""

    rule: Literal["power"]
    alpha: PositiveNumber = Field(description="growth coefficient, in the unit of the learning rate")
    power: PositiveNumber = Field(default=2.0, description="2 is QSR, 1 the linear rule, 3 the cubic rule")
    h_base: PositiveInt = Field(default=1, description="smallest number of local steps in a round")
    h_warmup: PositiveInt | None = Field(
        default=None,
        description="H of the rounds that start in warm-up; null: that of the first round after it",
    )


Period = Annotated[ConstantPeriod | PowerPeriod, Field(discriminator="rule")]
