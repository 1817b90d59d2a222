"""Settings given on the command line, as one more layer over those of a file."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from resync.base.settings.errors import ConfigError
from resync.base.settings.loader import parse
from resync.base.settings.tree import Node, merge


def override_settings(node: Node, overrides: Sequence[str]) -> Node:
    """`node` with overrides such as `optimizer.weight_decay=0.05`, whose values are YAML.

    Like any layer, one that changes a `name` or `rule` replaces the options of the former choice. Raises ConfigError
    for text that is no override, and for a key given twice.
    """
    keys = [override.partition("=")[0] for override in overrides]
    if repeated := {key for key in keys if keys.count(key) > 1}:
        raise ConfigError([f"--set {key}: found more than once, allowed: once" for key in sorted(repeated)])
    for override in overrides:
        node = merge(node, _layer(override))
    return node


def _layer(override: str) -> Node:
    key, equals, value = override.partition("=")
    keys = key.split(".")
    if not (equals and all(keys)):
        raise ConfigError([f"--set {override}: allowed: KEY=VALUE, such as optimizer.weight_decay=0.05"])
    lines = [f"{'  ' * depth}{json.dumps(name)}:" for depth, name in enumerate(keys)]
    try:
        return _without_lines(parse("\n".join(lines) + f" {value}", f"--set {override}"))
    except ConfigError as error:
        said = str(error).partition("YAML")
        raise ConfigError([f"--set {override}: {said[1]}{said[2]}"]) from None


def _without_lines(node: Node) -> Node:
    """The same node; what is on a command line has no line number."""
    value: Any = node.value
    if isinstance(value, dict):
        value = {key: _without_lines(child) for key, child in value.items()}
    elif isinstance(value, list):
        value = [_without_lines(child) for child in value]
    return replace(node, value=value, line=0)
