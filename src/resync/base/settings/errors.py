"""Errors in a configuration as the user sees them: one line per problem, never a traceback."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from resync.base.errors import UserError

KeyPath = tuple[str | int, ...]

_LONGEST_VALUE = 60


class ConfigError(UserError):
    """All errors of a configuration; `lines` holds one line per problem, without repetitions."""

    def __init__(self, lines: Iterable[str]):
        self.lines = tuple(dict.fromkeys(lines))
        super().__init__(self.lines)

    def __str__(self) -> str:
        return "\n".join(self.lines)


@dataclass(frozen=True, order=True)
class Problem:
    """One error, at a line (counted from 1; 0 on the command line) and a key path of a file."""

    file: str
    line: int
    path: str
    message: str

    @property
    def place(self) -> tuple[str, int, str]:
        return self.file, self.line, self.path

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.path}: {self.message}" if self.path else f"{place}: {self.message}"


def raise_if_any(problems: Iterable[Problem]) -> None:
    """Raise one ConfigError with every problem, ordered by file and line, if there are any."""
    ordered = sorted(set(problems))
    if ordered:
        raise ConfigError(str(problem) for problem in ordered)


def dotted(path: KeyPath) -> str:
    """`("decays", 0, 1)` as `decays[0][1]`, `("sync", "period")` as `sync.period`."""
    keys = (f"[{key}]" if isinstance(key, int) else f".{_printable(key)}" for key in path)
    return "".join(keys).removeprefix(".")


def show(value: Any) -> str:
    """`value` on one line, as YAML would write it, truncated if it is long."""
    text = _show(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def closest(name: Any, candidates: Iterable[str]) -> str | None:
    """The candidate most similar to `name`, if any is similar."""
    close = difflib.get_close_matches(name, list(candidates), n=1) if isinstance(name, str) else []
    return close[0] if close else None


def suggestion(name: Any, candidates: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the candidate most similar to `name`; empty if none is similar."""
    close = closest(name, candidates)
    return f"; did you mean {close!r}?" if close else ""


def not_among(name: Any, candidates: Iterable[str]) -> str:
    """The message for a name that is not one of `candidates`."""
    names = list(candidates)
    return f"found {show(name)}, allowed: {', '.join(names) or 'none exists'}{suggestion(name, names)}"


def no_choice(name: Any, candidates: Iterable[str]) -> str:
    """The message for a `name` or `rule` that chooses none of `candidates`; None means that it is missing."""
    return f"missing, allowed: {', '.join(candidates)}" if name is None else not_among(name, candidates)


def _show(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_printable(str(key))}: {_show(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_show(item) for item in value) + "]"
    return repr(value)


def _printable(key: str) -> str:
    return key if key.isprintable() else repr(key)
