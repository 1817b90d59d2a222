"""Configuration values that remember where they were written, and the merging of layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from resync.base.settings.errors import KeyPath, Problem, dotted

CHOICES = ("name", "rule")
"""Keys that choose the kind of a mapping: the options of one choice mean nothing to another."""


@dataclass(frozen=True)
class Node:
    """A YAML value with its file, line (counted from 1; that of the key for an entry of a mapping) and key path."""

    value: Any  # dict[str, Node], list[Node], or a plain scalar
    file: str
    line: int
    path: KeyPath = ()

    @property
    def entries(self) -> dict[str, Node]:
        return self.value if isinstance(self.value, dict) else {}

    def plain(self) -> Any:
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def child(self, key: str | int) -> Node | None:
        if isinstance(self.value, dict) and isinstance(key, str):
            return self.value.get(key)
        if isinstance(self.value, list) and isinstance(key, int) and key < len(self.value):
            return self.value[key]
        return None

    def entries_at(self, key: str) -> dict[str, Node]:
        """The entries of the mapping at `key`; empty if there is none."""
        child = self.entries.get(key)
        return child.entries if child else {}

    def listed_at(self, key: str) -> list[Node]:
        child = self.entries.get(key)
        return child.value if child and isinstance(child.value, list) else []

    def problem(self, message: str, *keys: str | int) -> Problem:
        """A problem with this value, or with the entry at `keys` below it, which may be missing."""
        return Problem(self.file, self.line, dotted((*self.path, *keys)), message)


def leaves(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values of plain mappings within mappings by their dotted keys: `schedule.max_lr`."""
    for key, value in content.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def merge(under: Node, over: Node) -> Node:
    """Merge `over` into `under`: mappings merge key by key, everything else is replaced.

    A mapping that changes its `name` or `rule` replaces the other one as a whole, because options of the old
    choice mean nothing to the new one. Every value keeps the file and line of the layer it came from.
    """
    if not isinstance(under.value, dict) or not isinstance(over.value, dict) or _chooses_another(under, over):
        return over
    entries = dict(under.value)
    for key, child in over.value.items():
        entries[key] = merge(entries[key], child) if key in entries else child
    return replace(over, value=entries)


def without(node: Node, *keys: str) -> Node:
    """The mapping `node` without some of its entries."""
    return replace(node, value={key: child for key, child in node.entries.items() if key not in keys})


def _chooses_another(under: Node, over: Node) -> bool:
    return any(
        key in under.entries and key in over.entries and under.entries[key].value != over.entries[key].value
        for key in CHOICES
    )
