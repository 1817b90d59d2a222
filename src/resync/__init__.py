"""resync: reproduction of papers on how often, and with whom, data-parallel workers synchronise.

    sync = resync.attach(model, optimizer, resync.SGP(peers=2))

`resync.SGP` and the other names in `resync.workers.sync.options` are the algorithms: objects that have their options,
as in the configuration of a run. The papers' formulas are in `resync.periods`, `.schedules`, `.topology` and `.mixing`.
`read_results` has results as data frames. All are imported on first use: options need pydantic, only `attach` needs
torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from resync.base.processes.memory import keep_freed_memory as keep_freed_memory
    from resync.library import Synchronised as Synchronised
    from resync.library import attach as attach
    from resync.papers.archive.frames import read_results as read_results
    from resync.workers.formulas import mixing as mixing
    from resync.workers.formulas import periods as periods
    from resync.workers.formulas import schedules as schedules
    from resync.workers.formulas import topology as topology
    from resync.workers.sync.options import *  # noqa: F403
else:
    FORMULAS = ("mixing", "periods", "schedules", "topology")
    PARTS = {
        "read_results": "resync.papers.archive.frames",
        "Synchronised": "resync.library",
        "attach": "resync.library",
        "keep_freed_memory": "resync.base.processes.memory",
    }

    def __getattr__(name: str) -> Any:
        if name in FORMULAS:
            return import_module(f"resync.workers.formulas.{name}")
        if name in PARTS:
            return getattr(import_module(PARTS[name]), name)
        if name in (algorithms := import_module("resync.workers.sync.options")).__all__:
            return getattr(algorithms, name)
        raise AttributeError(f"module 'resync' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *FORMULAS, *PARTS, *import_module("resync.workers.sync.options").__all__})
