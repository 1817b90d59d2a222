"""Snakemake's executor `resync`: as its executor `local`, but verbs of resync are carried out by the warm process.

A job there is a fork (`resync.base.processes.warm`), which needs neither a shell nor a Python of its own: these take
longer to start than the fork. One that has drawn a figure draws further ones, which takes two thirds of the time: it
keeps fonts, formulas and configurations. Snakemake finds plug-ins by the name of their package.
"""

import os
import select
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from snakemake.exceptions import SpawnedJobError
from snakemake.executors import local

from resync.base.processes import warm_client

common_settings = local.common_settings
STAYS = ("render", "audit", "collect")
"""Verbs that only read results and write files anew, so that nothing of one is left for the next."""


class Executor(local.Executor):
    """Asks the warm process for what it can do; anything else is done by a shell, as by `local`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._idle: list[Any] = []
        """Connections to forks that stay."""

    def run_single_job(self, job: Any) -> Any:
        verb = None if self.workflow.deployment_settings.deployment_method else parsed(job.shellcmd or "")
        idle = self._idle if verb and verb[0][0] in STAYS else None
        connection = verb and (living(idle or []) or warm_client.connected())
        if not verb or not connection:
            return super().run_single_job(job)
        self.workflow.async_run(job.prepare())
        return self.pool.submit(_carried_out, connection, idle, *verb, {"OMP_NUM_THREADS": str(job.threads)})


def living(idle: list[Any]) -> Any:
    """One of the connections, taken out, whose fork lives; None without any. That of another one has an end to read."""
    while idle:
        connection = idle.pop()
        if not select.select([connection], [], [], 0)[0]:
            return connection
        connection.close()
    return None


def parsed(command: str) -> tuple[list[str], str, str] | None:
    """The arguments of resync in a rule's command, and the files of its output and errors; None for other commands."""
    match shlex.split(command):
        case ["python", "-m", "resync", *arguments, ">", output, "2>&1"]:
            return arguments, output, output
        case ["python", "-m", "resync", *arguments, ">", output, "2>", errors]:
            return arguments, output, errors
    return None


def _carried_out(
    connection: Any, idle: list[Any] | None, arguments: Sequence[str], output: str, errors: str, environment: Any
) -> None:
    """Wait for the end of a job, whose fork joins those that are `idle`, if given.

    Raises SpawnedJobError if it fails, whose log says more.
    """
    with ExitStack() as connected, ExitStack() as files:
        connected.enter_context(connection)
        streams = [files.enter_context(open(os.devnull, "rb")), files.enter_context(open(output, "wb"))]
        streams.append(streams[1] if errors == output else files.enter_context(open(errors, "wb")))
        numbers = [stream.fileno() for stream in streams]
        warm_client.ask(connection, arguments, numbers, os.environ | environment, stays=idle is not None)
        answer = warm_client.answer(connection)
        if not answer:
            streams[2].write(warm_client.KILLED.encode())
        if answer != "0\n":
            raise SpawnedJobError()
        if idle is not None:
            connected.pop_all()
            idle.append(connection)
