"""The options of every synchronisation algorithm, a module for each family, without torch.

They are also the algorithms of the library: `resync.SGP` is `SGP` here.
"""

from resync.workers.sync.options.all_reduce import GPA, AllReduce
from resync.workers.sync.options.gossip import DPSGD, OSGP, SGP
from resync.workers.sync.options.neighbours import D2, GradientTracking, RelaySum
from resync.workers.sync.options.outer import (
    PALSGD,
    SNOO,
    DiLoCo,
    DiLoCoProgress,
    Lookahead,
    NoLoCo,
    SlowMo,
    StreamingDiLoCo,
)
from resync.workers.sync.options.pairs import ADPSGD
from resync.workers.sync.options.rounds import DESLOC, QSR, LocalSGD

__all__ = [
    "ADPSGD", "D2", "DESLOC", "DPSGD", "GPA", "OSGP", "PALSGD", "QSR", "SGP", "SNOO",
    "AllReduce", "DiLoCo", "DiLoCoProgress", "GradientTracking", "LocalSGD", "Lookahead", "NoLoCo", "RelaySum",
    "SlowMo", "StreamingDiLoCo",
]  # fmt: skip
