"""The log of a run as TensorBoard shows it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resync.base.errors import UserError


class TensorBoard:
    """Event files in `directory` with the numbers of rows, each under its column's name.

    Of an interrupted run that continues, TensorBoard shows each step once: the first row of a job replaces those that
    earlier jobs have written for its step and later ones.

    Raises ValueError if the package tensorboard is not installed.
    """

    def __init__(self, directory: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            found = "found true, but the package tensorboard is not installed"
            raise UserError(f"log.tensorboard: {found}: pip install tensorboard") from None
        self._open = SummaryWriter
        self._directory = directory
        self._writer: Any = None

    def add(self, group: str, row: Mapping[str, float]) -> None:
        step = int(row["step"])
        if self._writer is None:
            self._writer = self._open(str(self._directory), purge_step=step)
        for column, value in row.items():
            if column != "step":
                self._writer.add_scalar(f"{group}/{column}", value, step)

    def close(self) -> None:
        """Write what is left; a failure to do so, as on a full disk, is an OSError."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
