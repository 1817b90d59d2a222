"""Snakemake's logger `resync`: its messages become the view of `resync.tools.progress` (`snakemake --logger resync`).

Snakemake finds plug-ins by the name of their package. Dry runs, and Snakemake with --verbose or --debug-dag, print what
they print without it; a dry run then says what would be trained and drawn, how long it takes, and which data are
missing. The complete log is in .snakemake/log, as ever.
"""

import re
import sys
from collections import Counter
from logging import WARNING, Handler, LogRecord
from pathlib import Path
from typing import Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

_AGAIN = re.compile(r"Trying to restart job (\d+)\.")
_NOISE = re.compile(
    r"Using shell: |Select jobs to execute|Conda environments: ignored|Elapsed time: |"
    r"Complete log\(s\): |Removing output files of failed job|Exiting because a job execution failed|\s*$"
)
"""What says nothing to whoever sees the jobs."""
_MISSING = re.compile(r"MissingRuleException.*?^No rule to produce (\S+) \(", re.MULTILINE | re.DOTALL)
_UNDECLARED = re.compile(r"\AInputFunctionException.*?^ *ConfigError: ([^\n]+)$", re.MULTILINE | re.DOTALL)
_SILENT = {
    LogEvent.WORKFLOW_STARTED,
    LogEvent.SHELLCMD,
    LogEvent.JOB_STARTED,
    LogEvent.RESOURCES_INFO,
    LogEvent.RULEGRAPH,
    LogEvent.DEBUG_DAG,
    LogEvent.PROGRESS,
}


class LogHandler(LogHandlerBase):
    """Turns each record into a call of the board or a line."""

    writes_to_stream = has_filter = has_formatter = True
    writes_to_file = needs_rulegraph = False

    def __post_init__(self) -> None:
        from snakemake.settings.enums import Quietness

        settings = self.common_settings
        self._silent = Quietness.ALL in (settings.quiet or ())
        self._view: Any = None
        self._data: set[str] = set()
        self._runs: list[dict[str, str]] = []
        self._dry: Counter[str] = Counter()
        self._plain = _snakemakes_own(settings) if settings.dryrun or settings.verbose or settings.debug_dag else None

    def emit(self, record: LogRecord) -> None:
        """Show what a record says; a defect here must not end the workflow."""
        event = getattr(record, "event", None)
        try:
            if self._plain:
                if event == LogEvent.ERROR:
                    record.msg = explained(record.getMessage())
                if self.common_settings.dryrun and event == LogEvent.JOB_INFO:
                    self._count(record)
                if event == LogEvent.ERROR or not self._silent:
                    self._plain.handle(record)
            elif not self._silent:
                self._take(event, record)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """End the view, or the dry run; Snakemake calls this at its end, also after Ctrl-C."""
        if self._view:
            self._view.close()
        if self._dry:
            self._end_dry_run()
        super().close()

    def _take(self, event: LogEvent | None, record: Any) -> None:
        if event == LogEvent.RUN_INFO:
            self._begin(record.stats["total"])
        elif event == LogEvent.JOB_INFO and self._view:
            self._view.board.starts(_job(record))
        elif event == LogEvent.JOB_FINISHED and self._view:
            self._view.board.ends(record.job_id)
        elif event == LogEvent.JOB_ERROR and self._view:
            self._say(self._view.board.fails(record.jobid), "red")
        elif event in _SILENT or (event == LogEvent.ERROR and "CalledProcessError" in record.getMessage()):
            return  # the error of the job says more
        elif self._view and (again := _AGAIN.match(record.getMessage())):
            self._say(self._view.board.again(int(again[1])), "yellow")
        elif not _NOISE.match(text := record.getMessage()):
            self._say(explained(text), "red" if record.levelno > WARNING else "")

    def _begin(self, total: int) -> None:
        # Not at the top: Snakemake imports every plug-in at every start.
        from resync.tools.progress import Board, View

        self._view = View(
            Board(), sys.stdout if self.common_settings.stdout else sys.stderr, not self.common_settings.nocolor
        )
        self._view.board.begins(total)
        self._view.start()

    def _count(self, record: Any) -> None:
        self._dry[{"figure": "drawn", "table": "drawn", "train": "trained"}.get(record.rule_name, "other")] += 1
        if record.rule_name == "train":
            self._runs.append(dict(record.wildcards.items()))
        if record.rule_name == "prepare":
            self._data.add(record.wildcards["dataset"])

    def _end_dry_run(self) -> None:
        # Not at the top: Snakemake imports every plug-in at every start.
        from resync.tasks.prepare.availability import missing

        trained, drawn = self._dry["trained"], self._dry["drawn"]
        self._say(f"would train {trained} runs and draw {drawn} figures and tables: {self._dry.total()} jobs", "")
        self._dry.clear()
        if self._runs:
            self._say(_cost_of(self._runs), "")
        for line in missing(self._data):
            self._say(f"resync: {line}", "")
        self._data.clear()

    def _say(self, text: str | None, style: str) -> None:
        if not text:
            return
        if self._view:
            self._view.say(text, style)
        else:
            print(text, file=sys.stdout if self.common_settings.stdout else sys.stderr, flush=True)


def _cost_of(wildcards: list[dict[str, str]]) -> str:
    """Hours and disk of the runs that have these names."""
    from resync.papers.paper import load_suite
    from resync.papers.plan.cost import in_a_sentence, total
    from resync.tools.cli.configuration import costs_of
    from resync.tools.workflow import RUN, Targets

    suite = load_suite(Path("paper_configs"))
    scales = {scale: Targets(suite, scale) for scale in {names["scale"] for names in wildcards}}
    runs = [scales[names["scale"]].run(RUN.format(**names)) for names in wildcards]
    return in_a_sentence(total("", costs_of(suite, runs, Path("results"))))


def explained(message: str) -> str:
    """An error in a target as one line that says what is declared instead; any other message as it is."""
    if missing := _MISSING.match(message):
        # Not at the top: Snakemake imports every plug-in at every start.
        from resync.papers.paper import load_suite
        from resync.tools.workflow import why_not_made

        return f"resync: error: {missing[1]}: {why_not_made(missing[1], load_suite(Path('paper_configs')))}"
    if declared := _UNDECLARED.search(message):
        return f"resync: error: {declared[1]}"
    return message


def _job(record: Any) -> Any:
    """The job that a record announces; the rule `train` has a folder, the first output's."""
    from resync.tools.progress import Job

    outputs = [str(file) for file in record.output or ()]
    logs = [Path(str(file)) for file in record.log or ()]
    folder = Path(outputs[0]).parent if record.rule_name == "train" and outputs else None
    return Job(record.jobid, record.rule_name, outputs[0] if outputs else "", logs[0] if logs else None, folder)


def _snakemakes_own(settings: Any) -> Handler:
    """Snakemake's own handler, for what it prints without this plug-in."""
    from snakemake import logging

    quiet, failed = settings.quiet, settings.show_failed_logs
    return logging.ColorizingTextHandler(
        settings.nocolor,
        sys.stdout if settings.stdout else sys.stderr,
        logging.DefaultFormatter(quiet, failed),
        logging.DefaultFilter(quiet, settings.debug_dag, settings.verbose, settings.dryrun, settings.printshellcmds),
    )
