"""The base of the options of all models."""

from __future__ import annotations

from typing import ClassVar, Literal

from resync.settings.options import Options

Form = Literal["channels", "samples"]
"""How the samples of several workers pass through a model at once, see `resync.engine.stacked_layers`."""


class ModelOptions(Options):
    """The options of a model."""

    room: ClassVar[str] = "models"
    task: ClassVar[str] = "classification"
    """The task that the model is for."""
    batch_norm: ClassVar[bool | None] = None
    """Whether the model has BatchNorm, unless an option decides; None: unknown."""
    form: ClassVar[Form | None] = None
    """The form in which the engine `stacked` can compute it: the model's layers are among those that
    `resync.engine.stacked_layers` knows, and it computes nothing else that mixes samples, nor, in the form `channels`,
    channels. None: that engine cannot."""

    @property
    def stacked_form(self) -> Form | None:
        return self.form

    @property
    def has_batch_norm(self) -> bool | None:
        """Whether the model has BatchNorm with these options; an evaluation re-estimates its statistics."""
        return self.batch_norm
