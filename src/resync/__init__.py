"""resync: papers on how often, and with whom, data-parallel workers synchronise, regenerated and audited.

The pure functions are modules of this package: `resync.schedules`, `resync.periods`, `resync.topology`,
`resync.mixing` and `resync.gossip`. The algorithms for a training loop of your own are `resync.AllReduce`,
`resync.LocalSGD`, `resync.QSR`, `resync.SGP`, `resync.OSGP`, `resync.DPSGD`, `resync.ADPSGD`, `resync.SlowMo`,
`resync.DiLoCo` and `resync.Lookahead`. All are imported on first use, and torch only with an algorithm.
"""

from importlib import import_module
from typing import Any

_MODULES = ("gossip", "mixing", "periods", "schedules", "topology")
_ALGORITHMS = (
    "ADPSGD",
    "AllReduce",
    "DPSGD",
    "DiLoCo",
    "LocalSGD",
    "Lookahead",
    "OSGP",
    "QSR",
    "SGP",
    "SlowMo",
)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"resync.{name}")
    if name in _ALGORITHMS:
        return getattr(import_module("resync.attach"), name)
    raise AttributeError(f"module 'resync' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES, *_ALGORITHMS])
