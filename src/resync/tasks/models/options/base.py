"""The base of the options of all models."""

from __future__ import annotations

from typing import ClassVar

from resync.base.settings.options import Options
from resync.workers.engine.settings import Form


class ModelOptions(Options):
    """The options of a model."""

    room: ClassVar[str] = "models"
    task: ClassVar[str] = "classification"
    """The task that the model is for."""
    batch_norm: ClassVar[bool | None] = None
    """Whether the model has BatchNorm, unless an option decides; None: unknown."""
    form: ClassVar[Form | None] = None
    """The form in which the engine `stacked` can compute it: the model's layers are among those that
    `resync.workers.engine.stacked_layers` knows, and it computes nothing else that mixes samples, nor, in the form
    `channels`, channels. None: that engine cannot."""

    @property
    def stacked_form(self) -> Form | None:
        return self.form

    @property
    def has_batch_norm(self) -> bool | None:
        """Whether the model has BatchNorm with these options; an evaluation re-estimates its statistics."""
        return self.batch_norm
