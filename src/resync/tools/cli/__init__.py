"""The command line: every verb is one function, declared with its flags."""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from importlib.metadata import version
from shutil import get_terminal_size
from textwrap import wrap
from typing import NoReturn

from resync.base.processes import surroundings
from resync.base.processes.exit_code import exit_code
from resync.base.settings.errors import not_among, suggestion
from resync.tools.cli import (  # noqa: F401 - the verbs
    comparison,
    configuration,
    declared,
    results,
    running,
    sharing,
    start,
    training,
)
from resync.tools.cli.declare import COMPLETED, GROUPS, VERBS

__all__ = ["main", "overview", "parser"]


_EXAMPLES = """
examples:
  resync run qsr/fig5                       a figure, with only the runs that it shows
  resync show qsr/vit_qsr_h4_accuracy       what a claim says, and what the repository's runs say of it
  resync new paper question                 a comparison of your own, from a working example
"""


def main(arguments: list[str] | None = None) -> int:
    """Run one verb; return the exit code.

    0 on success; 1 for a failed check or process; 2 for a user error; 75 (EX_TEMPFAIL) for a run that was asked to
    stop and continues when it is started again, 130 if Ctrl-C asked for it.
    """
    surroundings.leave()
    given = _with_names(sys.argv[1:] if arguments is None else arguments)
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser())
    if not given or given[0] in ("-h", "--help"):
        return exit_code(lambda: print(overview()))
    options = parser(given[:1]).parse_args(given)
    return exit_code(lambda: options.verb(options))


def _with_names(arguments: Sequence[str]) -> list[str]:
    """The same with `PAPER/ITEM` in the place of `--paper PAPER --item ITEM`, as scripts may have it."""
    rest = [part for argument in arguments for part in re.split(r"(?<=^--paper)=|(?<=^--item)=", argument, maxsplit=1)]
    named = []
    for flag in ("--paper", "--item"):
        if flag in rest[1:-1]:
            at = rest.index(flag)
            named.append(rest[at + 1])
            del rest[at : at + 2]
    return [*rest[:1], *(["/".join(named)] if named else []), *rest[1:]]


def overview() -> str:
    """What `resync` alone says: every verb with its line, in groups, and examples."""
    wide = max(60, get_terminal_size().columns - 1)
    lines = ["usage: resync VERB ...       resync VERB --help says more of a verb"]
    for group, names in GROUPS.items():
        lines += ["", f"{group}:"]
        for name in names:
            lines += wrap(VERBS[name][1], wide, initial_indent=f"  {name:<11}", subsequent_indent=" " * 13)
    return "\n".join([*lines, _EXAMPLES]).rstrip()


def parser(given: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser of all verbs, or only of the one that is `given`, which saves every job a part of its start."""
    parser = _Parser(prog="resync")
    parser.verb = next(iter(given), "")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the installed version and exit")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    every = [name for names in GROUPS.values() for name in names]
    for name in [name for name in given if name in VERBS] or every:
        function, text, flags = VERBS[name]
        added = verbs.add_parser(name, help=text, description=text)
        added.set_defaults(verb=function)
        for flag, settings in flags:
            argument = added.add_argument(flag, **settings)
            if flag in COMPLETED:
                argument.completer = COMPLETED[flag]  # type: ignore[attr-defined] # argcomplete reads it
    return parser


def _flags(verb: str) -> list[str]:
    return [flag for flag, _ in VERBS[verb][2]] if verb in VERBS else []


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, with the most similar word that is allowed; `verb` is the one that is given."""

    verb = ""

    def error(self, message: str) -> NoReturn:
        if choice := re.match(r"argument (\S+): invalid choice: '(.*?)' \(choose from (.*)\)$", message):
            allowed = re.findall(r"[^\s,']+", choice[3])
            message = f"{choice[1].replace('VERB', 'verb')}: {not_among(choice[2], allowed)}"
        elif unknown := re.match(r"unrecognized arguments: (-\S+)", message):
            name, others = unknown[1].partition("=")[0], [verb for verb in VERBS if verb != self.verb]
            own = _flags(self.verb) if self.verb else [flag for verb in VERBS for flag in _flags(verb)]
            elsewhere = any(name in _flags(verb) for verb in others)
            message = f"{unknown[1]}: no {'flag of this verb' if elsewhere else 'such flag'}{suggestion(name, own)}"
        elif unknown := re.match(r"unrecognized arguments: (\S+)", message):
            message = f"{unknown[1]}: one argument too many, or names that are not together, allowed: names, then flags"
        self.exit(2, f"resync: error: {message}; `{self.prog} --help` says more\n")


class _Version(argparse.Action):
    """Asks for the installed version only when it is wanted: sources can run without an installation."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"resync {version('resync-suite')}")
        parser.exit()
