"""The command line: every verb is one function, declared with its flags."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from resync.cli import configuration, results, sharing, start, training  # noqa: F401 - they declare the verbs
from resync.cli.declare import COMPLETED, VERBS
from resync.processes.exit_code import exit_code
from resync.settings.errors import not_among

__all__ = ["main", "parser"]


def main(arguments: list[str] | None = None) -> int:
    """Run one verb; return the exit code.

    0 on success; 1 for a failed check or process; 2 for a user error; 75 (EX_TEMPFAIL) for a run that was asked to
    stop and continues when it is started again, 130 if Ctrl-C asked for it.
    """
    given = sys.argv[1:] if arguments is None else arguments
    if given and not given[0].startswith("-") and given[0] not in VERBS:
        parser().error(f"verb: {not_among(given[0], VERBS)}")
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser())
    options = parser(given[:1]).parse_args(given)
    return exit_code(lambda: options.verb(options))


def parser(given: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser of all verbs, or only of the one that is `given`, which saves every job a part of its start."""
    parser = argparse.ArgumentParser(
        prog="resync",
        description="Regenerate and audit papers on how often, and with whom, data-parallel workers synchronise.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the installed version and exit")
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")
    for name in [name for name in given if name in VERBS] or VERBS:
        function, text, flags = VERBS[name]
        added = verbs.add_parser(name, help=text, description=text)
        added.set_defaults(verb=function)
        for flag, settings in flags:
            argument = added.add_argument(flag, **settings)
            if flag in COMPLETED:
                argument.completer = COMPLETED[flag]  # type: ignore[attr-defined] # argcomplete reads it
    return parser


class _Version(argparse.Action):
    """Asks for the installed version only when it is wanted: sources can run without an installation."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"resync {version('resync-suite')}")
        parser.exit()
