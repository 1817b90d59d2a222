"""Checkpoints: complete or absent, checked when read, independent of the number of processes."""

import hashlib
import io
import json
import logging
import os
import re
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from resync.base.errors import UserError
from resync.base.files import (
    clear_leftovers,
    delete_folder,
    open_regular,
    read_bytes,
    remove,
    sync_folder,
    write_bytes,
    write_text,
)
from resync.base.text_tables import one_line
from resync.runs.run.execution import Checkpoint
from resync.workers.engine.transport import Transport

State = dict[str, Any]
MODEL = "model.pt"
"""The averaged model in a checkpoint that is kept."""
FORMAT = "format2"
"""What the states of a checkpoint mean; another one when an older checkpoint cannot be continued."""
log = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of a run, in `directory`/step<steps>/.

    A checkpoint holds the shared state (`shared.pt`, written by rank 0) and one state per worker, in one file per
    process, or per worker of several processes; any number of processes can read it. The folder gets its final name
    when all files are on disk. Every file has its SHA-256 beside it, and the file `identity` lists them all. `identity`
    identifies the configuration and the data. Checkpoints after the steps `kept` stay; of the others, only the newest
    `settings.keep` do.
    """

    def __init__(
        self, directory: Path, identity: str, settings: Checkpoint, kept: Collection[int], transport: Transport
    ) -> None:
        self.directory = directory
        self.identity = identity
        self.settings = settings
        self.kept = frozenset(kept)
        self.transport = transport
        self.newest = -1
        self._damaged: set[Path] = set()
        self._saved_at = time.monotonic()

    @property
    def is_overdue(self) -> bool:
        """Whether `every_minutes` have passed since the last one; only the clock of rank 0 counts."""
        minutes = self.settings.every_minutes
        passed = (time.monotonic() - self._saved_at) / 60
        return self.transport.rank == 0 and minutes is not None and passed >= minutes

    def save(self, step: int, workers: list[State], shared: State, model: nn.Module | None = None) -> None:
        """Write a checkpoint after `step` steps; `workers` are the states of this process's workers, in order.

        `model` is saved too, if given. Collective: every process calls it.
        """
        final = self._folder(step)
        partial = final.with_suffix(".partial")
        first = self.transport.local.start
        if self.transport.members.replica_rank == 0:
            _save(partial / f"workers{first:05d}.pt", {"first": first, "states": workers})
        if self.transport.rank == 0:
            firsts = range(0, self.transport.num_workers, self.transport.num_local)
            files = [f"workers{number:05d}.pt" for number in firsts]
            _save(partial / "shared.pt", shared)
            if model is not None:
                _save(partial / MODEL, _state_of(model))
            content = {"identity": self.identity, "files": ["shared.pt", *files, *([MODEL] if model else [])]}
            write_text(partial / "identity", json.dumps(content))
        self.transport.barrier()
        if self.transport.rank == 0:
            if os.path.lexists(final):
                delete_folder(final)
            partial.rename(final)
            sync_folder(self.directory)
            self._delete_old(final)
        self.transport.barrier()
        self.newest, self._saved_at = step, time.monotonic()

    def load(self) -> tuple[list[State], State] | None:
        """The newest undamaged checkpoint with this identity, or None.

        Returns the states of this process's workers, and the shared state. Collective. Damaged checkpoints are skipped
        with a warning; those with another identity are deleted.
        """
        while (step := self.transport.broadcast(self._newest_sound() if self.transport.rank == 0 else 0)) >= 0:
            content = None
            try:
                content = self._read(self._folder(step))
            except UserError as error:
                log.warning("%s, the previous one is used", error)
            if not any(self.transport.any(content is None)):
                self.newest = step
                if self.transport.rank == 0 and not self._damaged:
                    self._delete_old(self._folder(step))  # as a killed process could not
                return content
            self._damaged.add(self._folder(step))
        return None

    def load_after(self, step: int) -> tuple[list[State], State]:
        """The checkpoint after `step` steps, which `require_sound` has found whole.

        Raises ValueError if it is missing or has another identity.
        """
        folder = self._folder(step)
        _require_identity(folder, self.identity)
        return self._read(folder)

    def _read(self, folder: Path) -> tuple[list[State], State]:
        states: dict[int, State] = {}
        with _damage_named(folder):
            for file in sorted(folder.glob("workers*.pt")):
                part = _load(file)
                states |= dict(enumerate(part["states"], start=part["first"]))
            local = self.transport.local
            return [states[worker] for worker in range(local.start, local.stop)], _load(folder / "shared.pt")

    def _newest_sound(self) -> int:
        """Step of the newest undamaged checkpoint with this identity, or -1; deletes those of another identity."""
        for leftover in self.directory.glob("*.partial"):
            remove(leftover)
        clear_leftovers(self.directory)
        for folder in reversed([path for path in _complete(self.directory) if path not in self._damaged]):
            try:
                identity, names = _identity(folder)
                _digests(folder, names)
            except UserError as error:
                log.warning("%s, the previous one is used", error)
                self._damaged.add(folder)
                continue
            if identity == self.identity:
                return _step_of(folder)
            log.warning("%s: belongs to another configuration, data or version of resync, deleted", folder)
            delete_folder(folder)
        if self._damaged:
            log.warning("%s: no checkpoint is undamaged, the training starts anew", self.directory)
        return -1

    def _delete_old(self, newest: Path) -> None:
        self._damaged.discard(newest)
        passing = [folder for folder in _complete(self.directory) if _step_of(folder) not in self.kept]
        sound = [folder for folder in passing if folder not in self._damaged]
        for old in [*sound[: -self.settings.keep], *(folder for folder in self._damaged if folder.exists())]:
            delete_folder(old)
        self._damaged.clear()

    def _folder(self, step: int) -> Path:
        return checkpoint_folder(self.directory.parent, step)


def checkpoint_folder(run_directory: Path, step: int) -> Path:
    """The folder of a run's checkpoint after `step` steps."""
    return run_directory / "checkpoint" / f"step{step:010d}"


def _complete(directory: Path) -> list[Path]:
    return sorted(folder for folder in directory.glob("step*") if re.fullmatch(r"step\d{10}", folder.name))


def require_sound(folder: Path, identity: str) -> dict[str, str]:
    """The SHA-256 of the files of a checkpoint, all of which are as they were written.

    Raises ValueError if it is missing or damaged, or if its identity does not start with `identity`.
    """
    return _digests(folder, _require_identity(folder, identity))


def _require_identity(folder: Path, identity: str) -> list[str]:
    """The names of the files of a checkpoint. Raises ValueError if it is missing, or of other settings or data."""
    if not folder.is_dir():
        raise UserError(f"{folder} does not exist")
    found, names = _identity(folder)
    if not found.startswith(identity):
        raise UserError(f"{folder}: found the configuration (and data) {found}, allowed: {identity}")
    return names


def _identity(folder: Path) -> tuple[str, list[str]]:
    try:
        content = json.loads(read_bytes(folder / "identity"))
        return str(content["identity"]), [str(name) for name in content["files"]]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{folder}: damaged (identity)") from None


def _digests(folder: Path, names: list[str]) -> dict[str, str]:
    """The SHA-256 of the files. Raises ValueError that names damaged ones."""
    digests, damaged = dict[str, str](), list[str]()
    for name in names:
        try:
            digests[name] = json.loads(read_bytes((folder / name).with_suffix(".sha256")))["sha256"]
            with open_regular(folder / name) as file:
                sound = hashlib.file_digest(file, "sha256").hexdigest() == digests[name]
        except (OSError, ValueError, KeyError, TypeError):
            sound = False
        if not sound:
            damaged.append(name)
    if damaged:
        raise UserError(f"{folder}: damaged ({', '.join(damaged)})")
    return digests


def save_model(path: Path, model: nn.Module) -> None:
    """Write the model's state dict as a file that `torch.load(path, weights_only=True)` reads."""
    write_bytes(path, _serialize(_state_of(model)))


def copy_to_cpu(view: torch.Tensor) -> torch.Tensor:
    """A copy on the CPU: torch saves a view together with the whole buffer behind it."""
    return view.detach().cpu().clone()


def _state_of(model: nn.Module) -> State:
    return {name: copy_to_cpu(value) for name, value in model.state_dict().items()}


def _serialize(state: State) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def _save(path: Path, state: State) -> None:
    content = _serialize(state)
    write_bytes(path, content)
    write_text(path.with_suffix(".sha256"), json.dumps({"sha256": hashlib.sha256(content).hexdigest()}))


@contextmanager
def _damage_named(folder: Path) -> Iterator[None]:
    """Raise UserError for a file of a checkpoint that torch refuses; it does not say what it then raises."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:
        raise UserError(f"{folder}: damaged ({one_line(f'{type(error).__name__}: {error}', 150)})") from error


def _load(path: Path) -> State:
    return torch.load(path, map_location="cpu", weights_only=True)


def _step_of(folder: Path) -> int:
    return int(folder.name.removeprefix("step"))
