"""The base of the options of all kinds of figures and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from resync.base.settings.options import Options
from resync.runs.metrics.registry import AXES, METRICS

Width = Literal["column", "text"]
"""How wide a figure or table is: a column of a page of two, or the whole block of text."""


class KindOptions(Options):
    """The options of a kind of figure or table."""

    room: ClassVar[str] = "render"
    planned: ClassVar[bool] = False
    """Whether it is computed from the configuration alone, without training."""
    of_paper_scale: ClassVar[bool] = False
    """Whether its numbers are of the published settings, so that it is the same at every scale and needs no run."""
    shows_series: ClassVar[bool] = True
    """Whether an item of this kind names series."""
    width: ClassVar[Width] = "text"
    """How wide an item of this kind is unless it says otherwise."""

    @property
    def curves(self) -> tuple[str, ...]:
        """The columns of metrics.csv whose course over the training it draws, the main one first; none by default."""
        return ()

    @property
    def shown_metrics(self) -> tuple[str, ...]:
        return tuple(name for _, value in self for name in _listed(value) if name in METRICS and name not in AXES)

    def showing(self, metrics: Mapping[str, str]) -> Self:
        def replaced(value: Any) -> Any:
            names = tuple(metrics.get(name, name) for name in _listed(value))
            return names if isinstance(value, tuple) else names[0] if names else value

        return self.model_copy(update={name: replaced(value) for name, value in self})


def _listed(value: Any) -> tuple[Any, ...]:
    """The names in the value of an option: one, several, or none."""
    return value if isinstance(value, tuple) else (value,) if isinstance(value, str) else ()
