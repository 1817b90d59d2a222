"""Checkpoints: complete or absent, checked when read, independent of the number of processes."""

import hashlib
import io
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import nn

from resync.engine.transport import Transport
from resync.files import write_bytes, write_text

State = dict[str, Any]
log = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of a run, in `directory`/step<steps>/.

    A checkpoint holds the shared state (`shared.pt`, written by rank 0) and one state per worker, in one file per
    process, or per worker of several processes; any number of processes can read it. The folder gets its final name
    when all files are on disk. Every file has its SHA-256 beside it. `identity` identifies the configuration and the
    data.
    """

    def __init__(self, directory: Path, identity: str, keep: int, transport: Transport) -> None:
        self.directory = directory
        self.identity = identity
        self.keep = keep
        self.transport = transport

    def save(self, step: int, workers: list[State], shared: State) -> None:
        """Write a checkpoint after `step` steps; `workers` are the states of this process's workers, in order.

        Collective: every process calls it. All but the newest `keep` checkpoints are deleted.
        """
        final = self._folder(step)
        partial = final.with_suffix(".partial")
        first = self.transport.local.start
        if self.transport.members.index == 0:
            _save(partial / f"workers{first:05d}.pt", {"first": first, "states": workers})
        if self.transport.rank == 0:
            _save(partial / "shared.pt", shared)
            write_text(partial / "identity", self.identity)
        self.transport.barrier()
        if self.transport.rank == 0:
            shutil.rmtree(final, ignore_errors=True)
            partial.rename(final)
            for old in self._complete()[: -self.keep]:
                shutil.rmtree(old)
        self.transport.barrier()

    def load(self) -> tuple[list[State], State] | None:
        """The newest undamaged checkpoint with this identity, or None.

        Returns the states of this process's workers, and the shared state. Collective. Damaged checkpoints are skipped
        with a warning; those with another identity are deleted.
        """
        step = self.transport.broadcast(self._newest_sound() if self.transport.rank == 0 else 0)
        if step < 0:
            return None
        folder = self._folder(step)
        states: dict[int, State] = {}
        for file in sorted(folder.glob("workers*.pt")):
            part = _load(file)
            states |= dict(enumerate(part["states"], start=part["first"]))
        local = self.transport.local
        return [states[worker] for worker in range(local.start, local.stop)], _load(folder / "shared.pt")

    def _newest_sound(self) -> int:
        """Step of the newest undamaged checkpoint with this identity, or -1; deletes those of another identity."""
        for leftover in self.directory.glob("*.partial"):
            shutil.rmtree(leftover)
        for folder in reversed(self._complete()):
            if (folder / "identity").read_text() != self.identity:
                log.warning("%s: belongs to another configuration or other data, deleted", folder)
                shutil.rmtree(folder)
            elif damaged := [file.name for file in folder.glob("*.pt") if not _is_sound(file)]:
                log.warning("%s: damaged (%s), the previous one is used", folder, ", ".join(damaged))
            else:
                return int(folder.name.removeprefix("step"))
        return -1

    def _complete(self) -> list[Path]:
        """Finished checkpoints, oldest first."""
        return sorted(folder for folder in self.directory.glob("step*") if folder.suffix != ".partial")

    def _folder(self, step: int) -> Path:
        return self.directory / f"step{step:010d}"


def save_model(path: Path, model: nn.Module) -> None:
    """Write the model's state dict as a file that `torch.load(path, weights_only=True)` reads."""
    write_bytes(path, _serialized({name: owned(value) for name, value in model.state_dict().items()}))


def owned(view: torch.Tensor) -> torch.Tensor:
    """A copy on the CPU: torch saves a view together with the whole buffer behind it."""
    return view.detach().cpu().clone()


def parameters_sha256(row: torch.Tensor) -> str:
    """SHA-256 of the bytes of a parameter vector, for bitwise comparison of results."""
    return hashlib.sha256(row.detach().cpu().contiguous().numpy().tobytes()).hexdigest()


def _serialized(state: State) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def _save(path: Path, state: State) -> None:
    content = _serialized(state)
    write_bytes(path, content)
    write_text(_checksum_file(path), json.dumps({"sha256": hashlib.sha256(content).hexdigest()}))


def _load(path: Path) -> State:
    return torch.load(path, map_location="cpu", weights_only=True)


def _is_sound(path: Path) -> bool:
    try:
        expected = json.loads(_checksum_file(path).read_text())["sha256"]
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == expected
    except (OSError, ValueError, KeyError):
        return False


def _checksum_file(path: Path) -> Path:
    return path.with_suffix(".sha256")
