"""Pairs on bipartite graphs: active (odd) workers ask, passive (even) ones answer, so that no two wait in a circle."""

from resync.formulas.topology import peer_list, resolve


def check_bipartite(topology: str | int, num_workers: int) -> None:
    """Raise ValueError for a topology that has no pairs of an odd and an even worker."""
    if not resolve(topology).bipartite:
        raise ValueError(f"AD-PSGD needs pairs, found topology {topology}, allowed: bipartite_exponential (1) or "
                         "bipartite_linear (3)")  # fmt: skip
    peer_list(topology, 0, num_workers)


def partner(topology: str | int, worker: int, num_workers: int, number: int) -> int | None:
    """Whom an active worker averages with in its average `number`; None for a passive worker, or a single one."""
    peers = peer_list(topology, worker, num_workers)
    return peers[number % len(peers)] if worker % 2 and peers else None
