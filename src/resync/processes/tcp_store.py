"""The TCP store through which the processes of a run find each other, bound to one address of one machine.

Anyone who can reach torch's store can read and write it, and torch makes it listen on all interfaces of its machine
unless it is given a socket.
"""

import os
import socket
import sys
from datetime import timedelta
from ipaddress import ip_address

import torch.distributed as dist

SERVED = "RESYNC_STORE_SERVED"
"""The environment variable that tells the ranks of a run that their launcher serves the store."""


def meet(rank: int, world_size: int, timeout: timedelta) -> dist.TCPStore:
    """The store of all processes at MASTER_ADDR and MASTER_PORT, which the launcher serves, or else rank 0.

    Raises as `serve` and `join` do.
    """
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank == 0 and SERVED not in os.environ:
        return serve(address, port, world_size, timeout)
    return join(address, port, world_size, timeout)


def join(address: str, port: int, world_size: int, timeout: timedelta) -> dist.TCPStore:
    """The store that another process serves. Raises ConnectionError if nobody does within the timeout."""
    try:
        return dist.TCPStore(address, port, world_size, False, timeout)
    except (dist.DistNetworkError, dist.DistStoreError) as error:
        within = f"within {timeout.total_seconds():g} s"
        raise ConnectionError(f"no process of the run has answered at {address}:{port} {within}") from error


def serve(address: str, port: int, world_size: int, timeout: timedelta) -> dist.TCPStore:
    """A store that listens on `address` of this machine; waits until `world_size` processes have joined.

    Port 0 means a free port. Raises ConnectionError if it cannot listen there, as another port may be free, and if not
    all processes join within the timeout.
    """
    try:
        listener = _bound(address, port)
    except OSError as error:
        raise ConnectionError(f"the processes of a run cannot meet at {address}:{port}: {error.strerror}") from error
    port = listener.getsockname()[1]
    try:
        return dist.TCPStore(address, port, world_size, True, timeout, master_listen_fd=listener.detach())
    except dist.DistStoreError as error:
        within = f"within {timeout.total_seconds():g} s"
        raise ConnectionError(f"not all {world_size} processes have joined at {address}:{port} {within}") from error


def _bound(address: str, port: int) -> socket.socket:
    family, _, _, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    if ip_address(place[0]).is_loopback and address not in (place[0], "localhost"):
        # Debian's installer maps the host name to loopback; other machines know the name by another address.
        print(f"resync: warning: {address} is {place[0]} on this machine: the processes of the run meet on all its "
              "interfaces", file=sys.stderr)  # fmt: skip
        place = ("", port)
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(place)
    return listener
