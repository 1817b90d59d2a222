"""resync: reproduction of papers on how often, and with whom, data-parallel workers synchronise.

Pure functions are in `resync.schedules`, `resync.periods`, `resync.topology`, `resync.mixing` and `resync.gossip`,
which are modules of `resync.formulas`. The algorithms for a training loop of your own are `resync.AllReduce`,
`resync.LocalSGD`, `resync.QSR`, `resync.SGP`, `resync.OSGP`, `resync.DPSGD`, `resync.ADPSGD`, `resync.SlowMo`,
`resync.DiLoCo`, `resync.StreamingDiLoCo`, `resync.SNOO`, `resync.GPA`, `resync.PALSGD`, `resync.DESLOC`,
`resync.NoLoCo`, `resync.Lookahead` and `resync.DiLoCoProgress`. All are imported on first use, and
torch only with an algorithm.
"""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    # Importing importlib.abc would take half the time of a client of the warm process; `import` asks for no base class.
    Loader = object

FORMULAS = {
    "gossip": "averaging",
    "mixing": "mixing",
    "periods": "periods",
    "schedules": "schedules",
    "topology": "topology",
}

__all__ = [
    "ADPSGD", "DESLOC", "DPSGD", "GPA", "OSGP", "PALSGD", "QSR", "SGP", "SNOO",
    "AllReduce", "DiLoCo", "DiLoCoProgress", "LocalSGD", "Lookahead", "NoLoCo", "SlowMo", "StreamingDiLoCo",
    "Synchronised",
    "gossip", "mixing", "periods", "schedules", "topology",
]  # fmt: skip


class _Formulas(Loader):
    """Makes `import resync.periods` import `resync.formulas.periods`: the same module, not a copy."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        package, _, module = name.partition(".")
        return ModuleSpec(name, self) if package == __name__ and module in FORMULAS else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(f"{__name__}.formulas.{FORMULAS[spec.name.partition('.')[2]]}")
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own_spec  # the import system has put the alias in its place


sys.meta_path.append(_Formulas())


def __getattr__(name: str) -> Any:
    if name in FORMULAS:
        return import_module(f"{__name__}.{name}")
    if name in __all__:
        return getattr(import_module(f"{__name__}.methods"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
