"""Logs of a run during training: CSV, Weights & Biases, the terminal. Only rank 0 has a log."""

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from resync.base.errors import UserError
from resync.base.files import delete_folder, write_text
from resync.base.text_tables import csv_text, one_line
from resync.runs.metrics.registry import BEST, columns
from resync.runs.results import wandb_log
from resync.runs.results.summary import publish, values_sha256
from resync.runs.run import Run

Row = Mapping[str, float | int]

EVALUATIONS = "metrics.csv"
STEPS = "steps.csv"
_WANDB_SECONDS = 30
"""How long a server may take to answer before a run ends with an error, instead of wandb's 90 s."""


class RunLog:
    """Collects the rows of metrics.csv and steps.csv and publishes them when the run has ended.

    Until then the rows can be read in `metrics.csv.partial` and `steps.csv.partial`. The rows are part of the
    checkpoint: rows that an interrupted run logged after its last checkpoint are discarded, like the steps themselves.
    """

    def __init__(self, directory: Path, run: Run) -> None:
        self.directory = directory
        self.name = f"trial of {run.id}" if run.overrides else run.id
        self.rows: dict[str, list[Row]] = {EVALUATIONS: [], STEPS: []}
        self._files: dict[str, IO[str]] = {}
        """The partial files, open: to open one takes longer than a step of a small net."""
        self._wandb = _start_wandb(directory, run)
        self._bar: Any = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=run.total_steps, desc=run.id, unit="step", dynamic_ncols=True)

    def evaluation(self, row: Row) -> None:
        self._append(EVALUATIONS, row)
        self._record(row)
        # Before the first step nothing is known of the training; NaN would look like a divergence.
        shown = [name for name in BEST if name in row and not (row["step"] == 0 and name.startswith("train_"))]
        text = f"{self.name}: epoch {row['epoch']:g} step {row['step']} lr {row['lr']:.3g} H {row['h']} "
        text += " ".join(f"{name} {row[name]:.4f}" for name in shown)
        if self._bar is None:
            print(text, flush=True)
        else:
            self._bar.write(text)

    def step(self, row: Row) -> None:
        self._append(STEPS, row)

    def finish(self, summary: Mapping[str, Any], files: Iterable[Path] = ()) -> None:
        """Publish the CSV files, then the summary, which vouches for other `files` too: a run with one is complete."""
        self._end_wandb()
        tables = {name: _csv(rows) for name, rows in self.rows.items()}
        entries = {**summary, "values_sha256": values_sha256(tables.values())}
        publish(self.directory, tables, entries, others=files)
        done = f"{summary['status']} after {summary['steps']} steps in {summary['rounds']} rounds"
        print(f"{self.name}: {done}, {summary['bytes_sent'] / 1e6:.4g} MB sent per worker; results in {self.directory}")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        self._close_files()
        self._end_wandb()

    def state_dict(self) -> dict[str, list[Row]]:
        return self.rows

    def load_state_dict(self, state: dict[str, list[Row]]) -> None:
        self.rows = state
        self._close_files()
        for name, rows in state.items():
            write_text(_partial(self.directory, name), _csv(rows))

    def adopt(self, state: dict[str, list[Row]]) -> None:
        """Begin with the rows of another run, which this one continues, in all records."""
        self.load_state_dict(state)
        for row in state[EVALUATIONS]:
            self._record(row)

    def begin_anew(self) -> None:
        """Delete the wandb logs of a training that this one does not continue: they would be taken for its own."""
        if self._wandb:
            own = Path(self._wandb.dir).parent
            for log in wandb_log.logs(self.directory):
                if not log.parent.samefile(own):
                    delete_folder(log.parent)

    def _end_wandb(self) -> None:
        if self._wandb:
            import wandb

            self._wandb.finish()
            wandb.teardown()  # its service may still be writing, and a forked process does not wait for it at exit
            self._wandb = None

    def _record(self, row: Row) -> None:
        if self._wandb:
            self._wandb.log(dict(row), step=int(row["step"]))

    def _append(self, name: str, row: Row) -> None:
        if self._bar is not None:
            self._bar.update(row["step"] - self._bar.n)
        first = not self.rows[name]
        if first:
            declared = columns("steps" if name == STEPS else "metrics")
            if undeclared := [column for column in row if column not in declared]:  # not at the end of the training
                raise ValueError(f"{name}: resync.runs.metrics.registry declares no column {', '.join(undeclared)}")
            _partial(self.directory, name).unlink(missing_ok=True)  # not what a link of that name refers to
        self.rows[name].append(row)
        if name not in self._files:
            mode = "w" if first else "a"
            self._files[name] = _partial(self.directory, name).open(mode, newline="", encoding="utf-8")
        self._files[name].write(_csv([row], header=first))
        self._files[name].flush()

    def _close_files(self) -> None:
        while self._files:
            self._files.popitem()[1].close()


def _partial(directory: Path, name: str) -> Path:
    return directory / f"{name}.partial"


def _csv(rows: list[Row], header: bool = True) -> str:
    return csv_text(rows, list(rows[0]), header) if rows else ""


def _start_wandb(directory: Path, run: Run) -> Any:
    if run.log.wandb == "disabled":
        return None
    import wandb  # a slow import, only needed on the rank that logs

    # The service of a program around this one has another working directory, and `teardown` does not wait for it.
    os.environ.pop("WANDB_SERVICE", None)
    online = run.log.wandb == "online"
    try:
        return wandb.init(
            project=os.environ.get("WANDB_PROJECT", "resync"),  # it reads WANDB_ENTITY and WANDB_TAGS itself
            group=f"{run.scale}/{run.paper}/{run.experiment}/{run.series}",
            name=run.id,
            id=run.hash,
            resume="allow" if online else None,
            config=run.model_dump(mode="json"),
            dir=directory,
            mode=run.log.wandb,
            settings=wandb.Settings(
                silent=not online,
                console="off",
                x_disable_stats=True,
                x_disable_machine_info=True,
                disable_git=True,
                x_save_requirements=False,  # summary.json has the versions
                init_timeout=_WANDB_SECONDS,
            ),
        )
    except wandb.errors.UsageError as error:  # such as no key
        raise UserError(f"log.wandb: {run.log.wandb}: {one_line(str(error))}") from None
    except wandb.errors.CommError as error:  # its further lines are about its own settings
        raise ConnectionError(f"log.wandb: {run.log.wandb}: {one_line(str(error).partition(chr(10))[0])}") from None
