"""The base of the options of all optimizers."""

from __future__ import annotations

from typing import ClassVar

from resync.base.settings.options import Options


class OptimizerOptions(Options):
    """The options of an inner optimizer."""

    room: ClassVar[str] = "optim"
    by_shape: ClassVar[bool] = False
    """Whether it updates matrices otherwise than other parameters, and so has to know where they are."""

    @property
    def state_vectors(self) -> int:
        """Number of parameter-sized vectors in the state of a worker's optimizer."""
        return 0

    @property
    def decaying(self) -> str:
        """The parameters that decay: all, or the name of their mask in `Workers`."""
        return "all"

    @property
    def decay_of_matrices(self) -> float:
        """Weight decay, of matrices or these and embeddings, that the optimizer leaves to `decay` of its module."""
        return 0.0
