"""Options that figures with lines over seeds share."""

from typing import Annotated, Literal

from pydantic import Field

Band = Annotated[
    Literal["range", "std"],
    Field(description="what the band over the seeds spans: minimum to maximum, or one standard deviation to each side"),
]
Cut = Annotated[
    float,
    Field(
        ge=0,
        lt=1,
        description="share of the training at its start whose values may lie outside the axis of the metric",
    ),
]
