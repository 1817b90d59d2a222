"""Common options of figures whose lines summarise seeds."""

from typing import Annotated, Literal

from pydantic import Field

Band = Annotated[
    Literal["range", "std"],
    Field(description="band over the seeds: minimum to maximum, or ± one standard deviation"),
]
Cut = Annotated[
    float,
    Field(
        ge=0,
        lt=1,
        description="initial fraction of the training whose values may lie outside the metric axis",
    ),
]
