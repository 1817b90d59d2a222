"""Strict YAML: every value means what it looks like, and carries its line number.

Scalars follow YAML 1.2: `1e-3` is a number, `on`, `yes`, `2024-01-31` and `1:30` are strings. Duplicate
keys, keys that are not text, aliases and tags are errors: a configuration holds plain data only.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from resync.base.errors import UserError
from resync.base.files import read_bytes, text_of
from resync.base.settings.errors import ConfigError, KeyPath, Problem, raise_if_any, show
from resync.base.settings.tree import Node

DEEPEST = 100
"""Most levels of nesting. They are counted first, because libyaml recurses in C: too many would end the process."""

_TAG = "tag:yaml.org,2002:"
_SCALARS = [
    (f"{_TAG}null", re.compile(r"^(?:~|null|Null|NULL|)$")),
    (f"{_TAG}bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")),
    # No leading zeros (octal in YAML 1.1), and no more digits than a 64-bit integer has.
    (f"{_TAG}int", re.compile(r"^[-+]?(?:0|[1-9][0-9]{0,17})$")),
    (
        f"{_TAG}float",
        re.compile(
            r"^[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)$"
            r"|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$"
        ),
    ),
]
_CONSTRUCTORS: dict[str, Callable[[str], Any]] = {
    f"{_TAG}null": lambda text: None,
    f"{_TAG}bool": lambda text: text.lower() == "true",
    f"{_TAG}int": int,
    f"{_TAG}float": lambda text: float(re.sub(r"\.(?=[in])", "", text.lower())),  # .inf and .nan
    f"{_TAG}str": str,
}


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers = {None: _SCALARS}  # noqa: RUF012 - PyYAML's class attribute; None = any first letter


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    # The rules of YAML 1.1 and ours: text that looks like a value to any reader is quoted.
    yaml_implicit_resolvers = {**yaml.SafeDumper.yaml_implicit_resolvers, None: _SCALARS}  # noqa: RUF012

    def ignore_aliases(self, data: Any) -> bool:
        return True


def load(path: Path) -> Node:
    """Read one YAML file. Raises ConfigError, with the line number, if the file or its YAML cannot be read."""
    return parse(_read(path), str(path))


def parse(text: str, file: str) -> Node:
    """The content of a YAML text; `file` is its name in error messages. Raises ConfigError."""
    try:
        _refuse_deep(text, file)
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        details = " ".join(filter(None, (error.problem, error.context)))
        raise ConfigError([f"{file}:{mark.line + 1 if mark else 1}: YAML syntax error: {details}"]) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError([f"{file}:{line}: YAML syntax error: {error.reason}"]) from None
    if root is None:
        raise ConfigError([f"{file}:1: the file is empty, allowed: a mapping or a list, such as {{}}"])
    reader = _Reader(file)
    node = reader.node(root, root.start_mark.line + 1, ())
    raise_if_any(reader.problems)
    return node


def dump(data: Any) -> str:
    """YAML text of plain data, with keys in their given order; `load` reads the same data back."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=110, allow_unicode=True)


def _refuse_deep(text: str, file: str) -> None:
    depth, line = 0, 1
    for event in yaml.parse(text, Loader=_Loader):
        line = event.start_mark.line + 1 if event.start_mark else line
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST:
            found = f"found lists or mappings nested more than {DEEPEST} deep"
            raise ConfigError([f"{file}:{line}: {found}, allowed: at most {DEEPEST}"])


def _read(path: Path) -> str:
    try:
        return text_of(read_bytes(path))
    except FileNotFoundError:
        raise ConfigError([f"{path}: the file does not exist"]) from None
    except UnicodeDecodeError:
        raise ConfigError([f"{path}: the file is not UTF-8 text"]) from None
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from None
    except UserError as error:
        raise ConfigError([str(error)]) from None


@dataclass
class _Reader:
    """Converts PyYAML's nodes of one file into ours and collects the problems it meets."""

    file: str
    problems: list[Problem] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def node(self, source: yaml.Node, line: int, path: KeyPath) -> Node:
        result = Node(None, self.file, line, path)
        if id(source) in self.seen:
            self.problems.append(result.problem("YAML alias found, allowed: the value itself"))
            return result
        self.seen.add(id(source))
        return Node(self._value(source, result), self.file, line, path)

    def _value(self, source: yaml.Node, place: Node) -> Any:
        if isinstance(source, yaml.MappingNode) and source.tag == f"{_TAG}map":
            return self._mapping(source, place)
        if isinstance(source, yaml.SequenceNode) and source.tag == f"{_TAG}seq":
            return [
                self.node(item, item.start_mark.line + 1, (*place.path, index))
                for index, item in enumerate(source.value)
            ]
        if isinstance(source, yaml.ScalarNode) and source.tag in _CONSTRUCTORS:
            try:
                return _CONSTRUCTORS[source.tag](source.value)
            except ValueError:  # an explicit tag that does not match the text, such as `!!int x`
                return source.value
        self.problems.append(place.problem(f"found the YAML tag {show(source.tag)}, allowed: plain values"))
        return None

    def _mapping(self, source: yaml.MappingNode, place: Node) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        for key_node, value_node in source.value:
            line = key_node.start_mark.line + 1
            if key_node.tag != f"{_TAG}str" or not isinstance(key_node, yaml.ScalarNode):
                found = key_node.value if isinstance(key_node, yaml.ScalarNode) else "a list or mapping"
                here = Node(None, self.file, line, place.path)
                self.problems.append(here.problem(f"found the key {found}, allowed: text (quote it)"))
                continue
            key = key_node.value
            child = self.node(value_node, line, (*place.path, key))
            if key in entries:
                self.problems.append(child.problem(f"duplicate key, already on line {entries[key].line}"))
            else:
                entries[key] = child
        return entries
