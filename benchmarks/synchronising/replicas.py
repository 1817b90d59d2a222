"""Two workers of two processes, FSDP2 inside, and our algorithms between them."""

from functools import partial

import resync
from benchmarks.synchronising.loop import H, Setting, Step
from benchmarks.synchronising.sharded import mesh_of, sharded, step_of
from resync.workers.sync.options.base import SyncOptions


def _ours(algorithm: SyncOptions, setting: Setting) -> Step:
    mesh = mesh_of(setting)
    optimizer = sharded(setting, mesh["shard"])
    resync.attach(setting.model, optimizer, algorithm, group=mesh["replicate"])
    return step_of(setting, optimizer)


ours_all_reduce = partial(_ours, resync.AllReduce())
ours_local_sgd = partial(_ours, resync.LocalSGD(period=H))
ours_diloco = partial(_ours, resync.DiLoCo(period=H))
ours_sgp = partial(_ours, resync.SGP())
