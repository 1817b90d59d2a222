"""Rendezvous of the launchers on all machines of a run: torch's static rendezvous, but bound to one address."""

from torch.distributed import Store
from torch.distributed.elastic.rendezvous import RendezvousInfo, RendezvousParameters, rendezvous_handler_registry
from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

from resync.processes.tcp_store import serve

BACKEND = "one_address"
"""The name under which torch's launcher finds the rendezvous once this module is imported."""


class OneAddress(StaticTCPRendezvous):
    """The first machine's store listens only on the common address; on a single machine, port 0 means a free port."""

    master_port: int
    _store: Store | None

    def get_backend(self) -> str:
        return BACKEND

    def next_rendezvous(self) -> RendezvousInfo:
        """The store for all processes, and this machine's rank. Raises ConnectionError as `serve` does."""
        if self.rank == 0 and self._store is None:
            store = serve(self.master_addr, self.master_port, self.world_size, self.timeout)
            self._store, self.master_port = store, store.port
        return super().next_rendezvous()


def _create(given: RendezvousParameters) -> OneAddress:
    address, port = parse_rendezvous_endpoint(given.endpoint, 0)
    rank, timeout = int(given.config["rank"]), int(given.config["timeout"])
    return OneAddress(address, port, rank, given.max_nodes, given.run_id, timeout)


rendezvous_handler_registry.register(BACKEND, _create)
