"""The command line: every verb is one function, declared with its flags."""

import argparse

from resync.cli import configuration, results, training  # noqa: F401 - they declare the verbs
from resync.cli.declare import VERBS
from resync.processes.exit_code import exit_code


def main(arguments: list[str] | None = None) -> int:
    """Run one verb; return the exit code.

    0 on success; 1 for a failed check or process; 2 for a user error; 75 (EX_TEMPFAIL) for a run that was asked to
    stop and continues when it is started again.
    """
    options = _parser().parse_args(arguments)
    return exit_code(lambda: options.verb(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="resync",
        description="Regenerate and audit papers on how often, and with whom, data-parallel workers synchronise.",
    )
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")
    for name, (function, text, flags) in VERBS.items():
        added = verbs.add_parser(name, help=text, description=text)
        added.set_defaults(verb=function)
        for flag in flags:
            added.add_argument(flag.name, **flag.settings)
    return parser
