"""Times of messages in seconds: links, networks of nodes, and averages over them, as pure functions.

A message of b bytes takes latency + b / bandwidth (Hockney 1994), and links are full duplex. Nothing else uses the
link, and no switch is a bottleneck (full bisection bandwidth): on a shared or oversubscribed network these times are
lower bounds. The arithmetic of reductions is assumed to be free.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from resync.base.errors import UserError

_TCP = 1448 / 1538
"""Fraction of an Ethernet link's bits that TCP delivers: 1500-byte packets less 52 bytes of IP and TCP headers with
timestamps, plus 38 bytes of preamble, header, checksum and gap (IEEE 802.3, RFC 791, RFC 7323)."""
_INFINIBAND = 4096 / 4122
"""The same for InfiniBand packets of 4096 bytes with 26 bytes of headers and checksums (IBTA specification 1.3)."""
_NCCL = "NVIDIA NCCL, src/graph/tuning.cc at commit 01afd20, hwLat of a step of a ring, protocol Simple"


@dataclass(frozen=True)
class Link:
    """A link between two workers or nodes.

    Attributes:
        name: name of the link.
        latency: seconds from the start of an empty message to its arrival.
        bandwidth: bytes/s in each direction, without protocol overhead.
        source: source of the two numbers.
        title: the link in words, for figures.
    """

    name: str
    latency: float
    bandwidth: float
    source: str
    title: str = ""

    @property
    def bytes_in_latency(self) -> float:
        """The bandwidth-delay product: a message of this size takes twice as long as an empty one."""
        return self.latency * self.bandwidth

    def message(self, num_bytes: float) -> float:
        return self.latency + num_bytes / self.bandwidth


LINKS = {
    link.name: link
    for link in (
        Link(
            "ethernet_10g", 20e-6, 10e9 / 8 * _TCP,
            "10 Gbit/s (IEEE 802.3ae) as TCP with 1500-byte packets delivers it; latency between two applications: "
            "Hurwitz and Feng, Hot Interconnects 11 (2003), abstract",
            "10 Gbit/s Ethernet",
        ),
        Link(
            "ethernet_25g", 20e-6, 25e9 / 8 * _TCP,
            "25 Gbit/s (IEEE 802.3by) as TCP with 1500-byte packets delivers it; latency as at 10 Gbit/s, an "
            "assumption: software causes most of it",
            "25 Gbit/s Ethernet",
        ),
        Link(
            "infiniband_100g", 9.6e-6, 100e9 / 8 * _INFINIBAND,
            f"EDR, 100 Gbit/s of data (IBTA specification 1.3) with 4096-byte packets; latency: {_NCCL}, network",
            "100 Gbit/s InfiniBand",
        ),
        Link(
            "nvlink_v100", 3.4e-6, 143.7e9,
            "six links of 25 GB/s; 143.7 GB/s measured by p2pBandwidthLatencyTest (Dell HPC engineering on V100-SXM2, "
            f"configuration K of C4130); latency: {_NCCL}, NVLink",
            "NVLink of a V100",
        ),
        Link(
            "pcie_3_x16", 5.7e-6, 16 * 8e9 / 8 * 128 / 130,
            f"16 lanes of 8 GT/s with 128b/130b coding (PCI Express 3.0); latency: {_NCCL}, PCI",
            "PCI Express 3.0 x16",
        ),
    )
}  # fmt: skip
"""Presets by name. Rates are those of the standards less framing, which are upper bounds for a link."""


def ring(link: Link, num_bytes: float, workers: int) -> float:
    """Seconds for an all-reduce of `num_bytes` on a ring: 2 (n - 1) messages of 1/n of the bytes each.

    Bandwidth-optimal (Patarasuk and Yuan 2009); its latency grows with the number of workers.
    """
    return 2 * (workers - 1) * link.message(num_bytes / workers)


def halving_doubling(link: Link, num_bytes: float, workers: int) -> float:
    """Seconds for an all-reduce of `num_bytes` by recursive halving and doubling (Thakur et al. 2005, Rabenseifner).

    It sends 2 log2 n messages of 1/2, 1/4, ... of the bytes; workers beyond a power of two send all of their bytes to
    another worker first, and receive the result at the end.
    """
    steps, beyond = _doublings(workers)
    halves = 2 * (steps * link.latency + (1 - 2**-steps) * num_bytes / link.bandwidth)
    return halves + beyond * link.message(num_bytes)


def recursive_doubling(link: Link, num_bytes: float, workers: int) -> float:
    """Seconds for an all-reduce of `num_bytes` by recursive doubling (Thakur et al. 2005).

    It sends log2 n messages of all bytes. This is the algorithm of the TCP back end of PyTorch 0.4 (THD,
    DataChannelTCP::allReduce), with which Assran et al. (2019) measured AllReduce on Ethernet. Workers beyond a power
    of two are treated as in `halving_doubling`.
    """
    steps, beyond = _doublings(workers)
    return (steps + beyond) * link.message(num_bytes)


def all_gather(link: Link, num_bytes: float, workers: int) -> float:
    """Seconds until all workers have the `num_bytes` of each, on a ring of n - 1 messages."""
    return (workers - 1) * link.message(num_bytes)


ALL_REDUCES: dict[str, Callable[[Link, float, int], float]] = {
    "ring": ring,
    "halving_doubling": halving_doubling,
    "recursive_doubling": recursive_doubling,
    "all_gather": all_gather,
}


@dataclass(frozen=True)
class Network:
    """Nodes of `node_size` workers: a link between nodes, which the workers of a node share, and links inside.

    Attributes:
        link: between nodes.
        inside: between the workers of a node, and between the GPUs of a worker; not used where a node is one GPU.
        node_size: workers of a node.
        all_reduce: name of the all-reduce between nodes for averages that do not choose one; inside of a node it is a
            ring.
        slowdown: time of an all-reduce relative to its formula, from a calibration. Messages between peers take the
            time of the link, independent of the quality of the all-reduce implementation.

    Raises ValueError for an unknown all-reduce or a node size below 1.
    """

    link: Link
    inside: Link = LINKS["pcie_3_x16"]
    node_size: int = 1
    all_reduce: str = "ring"
    slowdown: float = 1.0

    def __post_init__(self) -> None:
        if self.all_reduce not in ALL_REDUCES:
            raise UserError(f"all-reduce: found {self.all_reduce!r}, allowed: {', '.join(ALL_REDUCES)}")
        if self.node_size < 1:
            raise UserError(f"node size: found {self.node_size}, allowed: integer >= 1")

    def linked_by(self, link: Link) -> "Network":
        """The same nodes with another link between them, and inside of workers that are several nodes."""
        return replace(self, link=link, inside=link if self.inside is self.link else self.inside)

    def average_seconds(self, num_bytes: float, workers: int, all_reduce: str = "default") -> float:
        """Seconds until all workers have the average of `num_bytes` each, in a hierarchical all-reduce.

        `all_reduce` is the algorithm between nodes; `default`: that of the network.

        It is a reduce-scatter within nodes, an all-reduce between nodes and an all-gather within nodes. Each worker of
        a node is responsible for one shard of the bytes; all shards use the node's link at the same time, which then
        carries as much as one worker would send. A single worker needs no time.

        Raises ValueError if there are several nodes that are not all full.
        """
        nodes, members = self._nodes(workers)
        inside = ring(self.inside, num_bytes, members)
        return self.slowdown * (inside + ALL_REDUCES[self._choose(all_reduce)](self.link, num_bytes, nodes))

    def exchange_seconds(self, num_bytes: float, workers: int, peers: int) -> float:
        """Seconds until every worker has sent `num_bytes` to each of its peers, one after the other.

        If there are several nodes, all peers of a worker are assumed to be in other nodes: an upper bound for small
        offsets.
        """
        nodes, members = self._nodes(workers)
        if nodes > 1:
            return peers * self.link.message(num_bytes * members)
        return peers * self.inside.message(num_bytes) if members > 1 else 0.0

    def inside_seconds(self, num_bytes: float, gpus: int) -> float:
        """Seconds for an average of `num_bytes` over the GPUs of a worker, a ring inside the node."""
        return ring(self.inside, num_bytes, gpus)

    def latency_bound(self, num_bytes: float, workers: int, all_reduce: str = "default") -> bool:
        """Whether the messages of an all-reduce between nodes are shorter than the link's bandwidth-delay product."""
        nodes, _ = self._nodes(workers)
        return nodes > 1 and self._choose(all_reduce) == "ring" and num_bytes / nodes < self.link.bytes_in_latency

    def _choose(self, all_reduce: str) -> str:
        return self.all_reduce if all_reduce == "default" else all_reduce

    def _nodes(self, workers: int) -> tuple[int, int]:
        if workers <= self.node_size:
            return 1, workers
        if workers % self.node_size:
            raise UserError(f"workers: found {workers}, allowed: a multiple of the node size {self.node_size}")
        return workers // self.node_size, self.node_size


def _doublings(workers: int) -> tuple[int, int]:
    """log2 of the largest power of two up to `workers`, and the messages for the workers beyond it: 0 or 2."""
    steps = workers.bit_length() - 1
    return steps, 0 if workers == 1 << steps else 2
