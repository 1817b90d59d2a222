"""A workflow's board and the table of runs on a terminal; plain lines elsewhere."""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from resync.runs.results.state import Status
from resync.runs.results.status import StatusLine
from resync.tools.progress.board import Board, cells_of

PICTURE_SECONDS = 0.5
LINE_SECONDS = 30.0
"""How often a terminal is drawn anew, and how often a pipe gets a line."""

_COLORS: dict[Status, str] = {
    "damaged": "red",
    "stale": "yellow",
    "failed": "red",
    "stopped": "yellow",
    "diverged": "magenta",
    "running": "cyan",
    "not run": "dim",
    "finished": "green",
}
_LARGEST = 12
"""Number of running jobs that are shown in lines of their own."""


class View:
    """Shows a board until it is closed: a live picture on a terminal, or a line every half a minute elsewhere."""

    def __init__(self, board: Board, file: IO[str] | None = None, color: bool = True) -> None:
        self.board = board
        self.console = Console(file=file or sys.stderr, no_color=not color or None, highlight=False, soft_wrap=True)
        self._live = (
            Live(console=self.console, auto_refresh=False, transient=True) if self.console.is_terminal else None
        )
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def start(self) -> None:
        if self._live:
            self._live.start()
        self._thread.start()

    def say(self, text: str, style: str = "") -> None:
        self.console.print(Text(text, style=style))

    def close(self) -> None:
        if self._end.is_set() or not self._thread.ident:
            return
        self._end.set()
        self._thread.join()
        if self._live:
            self._live.stop()
        self.say(self.board.totals(), "bold")
        for job, reason in self.board.failed.values():
            self.say(f"failed: {job.name}: {reason}", "red")

    def _show(self) -> None:
        while not self._end.wait(PICTURE_SECONDS if self._live else LINE_SECONDS):
            if self._live:
                self._live.update(self._picture(), refresh=True)
            else:
                self.say(self.board.sentence())

    def _picture(self) -> RenderableType:
        board = self.board
        head = Table.grid(padding=(0, 1))
        head.add_row(ProgressBar(total=max(1, board.total), completed=board.done, width=24), Text(board.totals()))
        places = board.places()
        lines = Table.grid(padding=(0, 2))
        for job, run in places[:_LARGEST]:
            lines.add_row(Text(f"  {job.name}"), *(map(Text, cells_of(run)) if run else ()))
        more = [Text(f"  and {len(places) - _LARGEST} more", style="dim")] if len(places) > _LARGEST else []
        return Group(head, lines, *more)


def colored(heading: Sequence[str], lines: Sequence[StatusLine], total: str) -> RenderableType:
    """What fits a terminal: the total, then lines of what runs or needs somebody, and a count of what has finished."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in heading:
        table.add_column(name, overflow="fold")
    shown = [line for line in lines if line.status != "finished"]
    for line in sorted(shown, key=lambda line: line.status != "running"):
        table.add_row(*(Text(cell) for cell in line.cells), style=_COLORS[line.status])
    done = [Text(f"{len(lines) - len(shown)} more have finished", style="green")] if len(shown) < len(lines) else []
    return Group(Text(total, style="bold"), *([table] if shown else []), *done)


def watch(picture: Callable[[], tuple[RenderableType, str]], seconds: float) -> None:
    """Draw the picture every so often until Ctrl-C; without a terminal, print its text where it has changed."""
    console = Console(highlight=False)
    live, before = (Live(console=console, auto_refresh=False) if console.is_terminal else None), ""
    with suppress(KeyboardInterrupt), live or nullcontext():
        while True:
            drawn, text = picture()
            if live:
                live.update(drawn, refresh=True)
            elif text != before:
                print(text, flush=True)
                before = text
            time.sleep(seconds)
