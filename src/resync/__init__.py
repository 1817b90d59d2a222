"""resync: papers on how often, and with whom, data-parallel workers synchronise, regenerated and audited.

The pure functions are modules of this package: `resync.schedules`, `resync.periods`, `resync.topology`,
`resync.mixing` and `resync.gossip`. They are imported on first use, and torch only where something trains.
"""

from importlib import import_module
from types import ModuleType

_MODULES = ("gossip", "mixing", "periods", "schedules", "topology")


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return import_module(f"resync.{name}")
    raise AttributeError(f"module 'resync' has no attribute {name!r}")
