"""Snakemake's executor `resync`: as its executor `local`, but verbs of resync are carried out by the warm process.

A job there is a fork (`resync.base.processes.warm`), which needs neither a shell nor a Python of its own: these take
longer to start than the fork. Snakemake finds plug-ins by the name of their package.
"""

import os
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from snakemake.exceptions import SpawnedJobError
from snakemake.executors import local

from resync.base.processes import warm_client

common_settings = local.common_settings


class Executor(local.Executor):
    """Asks the warm process for what it can do; anything else is done by a shell, as by `local`."""

    def run_single_job(self, job: Any) -> Any:
        verb = None if self.workflow.deployment_settings.deployment_method else parsed(job.shellcmd or "")
        connection = verb and warm_client.connected()
        if not verb or not connection:
            return super().run_single_job(job)
        self.workflow.async_run(job.prepare())
        return self.pool.submit(_carried_out, connection, *verb, {"OMP_NUM_THREADS": str(job.threads)})


def parsed(command: str) -> tuple[list[str], str, str] | None:
    """The arguments of resync in a rule's command, and the files of its output and errors; None for other commands."""
    match shlex.split(command):
        case ["python", "-m", "resync", *arguments, ">", output, "2>&1"]:
            return arguments, output, output
        case ["python", "-m", "resync", *arguments, ">", output, "2>", errors]:
            return arguments, output, errors
    return None


def _carried_out(connection: Any, arguments: Sequence[str], output: str, errors: str, environment: Any) -> None:
    """Wait for the end of a job. Raises SpawnedJobError if it fails, whose log says more."""
    with connection, ExitStack() as files:
        streams = [files.enter_context(open(os.devnull, "rb")), files.enter_context(open(output, "wb"))]
        streams.append(streams[1] if errors == output else files.enter_context(open(errors, "wb")))
        warm_client.ask(connection, arguments, [stream.fileno() for stream in streams], os.environ | environment)
        answer = warm_client.answer(connection)
        if not answer:
            streams[2].write(warm_client.KILLED.encode())
    if answer != "0\n":
        raise SpawnedJobError()
