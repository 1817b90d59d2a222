"""The machines of a hostfile, on each of which a user starts `resync launch` with the number of its line."""

import re
import socket
from pathlib import Path

from resync.base.errors import UserError
from resync.base.files import lines_of, read_bytes, text_of
from resync.runs.launch.request import PORTS, Place, Request
from resync.runs.run import Run


def read(hostfile: Path) -> dict[str, int]:
    """The slots of each host, in the order of the file: lines `host slots=n` as in DeepSpeed, # starts a comment.

    Raises UserError for any other line, and if the file cannot be read.
    """
    slots: dict[str, int] = {}
    try:
        text = text_of(read_bytes(hostfile))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{hostfile}: {error}") from None
    for number, line in enumerate(lines_of(text), start=1):
        if not (entry_text := line.partition("#")[0].strip()):
            continue
        entry = re.fullmatch(r"([^\s=-][^\s=]*)\s+slots=([1-9][0-9]*)", entry_text)
        if entry is None or not entry_text.isprintable():
            raise UserError(f"{hostfile}:{number}: found {entry_text!r}, allowed: HOST slots=NUMBER")
        if foreign := re.search(r"[@/\[\]]", entry[1]):
            allowed = "a name or address alone"
            raise UserError(f"{hostfile}:{number}: found {foreign[0]!r} in {entry[1]}, allowed: {allowed}")
        if entry[1] in slots:
            raise UserError(f"{hostfile}:{number}: found {entry[1]} again, allowed: one line for each host")
        slots[entry[1]] = int(entry[2])
    return slots


def place(run: Run, request: Request) -> Place:
    """The place of machine `node_rank` among the first hosts of the request's hostfile, one for each node.

    Raises UserError if there are too few, one has too few slots for its share of the processes, or the number is none
    of them.
    """
    assert request.hostfile
    slots = read(request.hostfile)
    nodes = request.nodes or len(slots)
    if not 0 < nodes <= len(slots):
        raise UserError(f"{request.hostfile}: found {len(slots)} hosts, allowed: at least nodes = {max(1, nodes)}")
    if run.processes % nodes:
        raise UserError(f"found {nodes} nodes, allowed: a divisor of the {run.processes} processes of {run.id}")
    share, hosts = run.processes // nodes, tuple(slots)[:nodes]
    for host in hosts:
        if slots[host] < share:
            found = f"found slots={slots[host]} of host {host}"
            raise UserError(f"{request.hostfile}: {found}, allowed: at least {share}, its share of the processes")
    rank = request.node_rank
    if rank is None or rank not in range(nodes):
        found = "missing" if rank is None else f"found {rank}"
        raise UserError(f"--node-rank: {found}, allowed: 0 to {nodes - 1}, the line of this machine in the hostfile")
    if request.max_restarts and nodes > 1:
        found = f"found {request.max_restarts} with a hostfile"
        raise UserError(f"--max-restarts: {found}, allowed: 0; start all machines again")
    try:
        socket.getaddrinfo(hosts[0], None)
    except OSError as error:
        allowed = "one at which the others can reach it"
        raise UserError(f"{request.hostfile}: host {hosts[0]}: {error.strerror}, allowed: {allowed}") from None
    # A function of the run, so that all machines know it, and two runs on a machine use different ones.
    return Place(hosts, rank, hosts[0], PORTS[int(run.hash, 16) % len(PORTS)])
