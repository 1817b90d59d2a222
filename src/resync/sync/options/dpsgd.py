"""Options of decentralised parallel SGD."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from pydantic import Field

from resync.config.parts import Traffic
from resync.formulas.topology import resolve
from resync.settings.base import Check
from resync.sync.options._gossip import GossipOptions


class DPSGD(GossipOptions):
    """Decentralised parallel SGD, symmetric gossip after every step (Lian et al. 2017)."""

    label = "D-PSGD"
    name: Literal["dpsgd"] = Field(default="dpsgd", init=False)
    topology: Literal[
        "bipartite_exponential", "bipartite_linear", "ring", "complete", "hypercube", "base_graph", "simple_base_graph",
        "u_equistatic", "ou_equidyn", "random_matching",
    ] = Field(
        default="bipartite_exponential",
        description="graph of the peers; ring needs 2 peers; base_graph averages any number of workers exactly",
    )  # fmt: skip
    half_duplex: bool = Field(
        default=False,
        description="the workers of a pair send one after the other, like those of the SGP paper: odd (active) ones "
        "send, then receive; even (passive) ones receive, then send",
    )

    def checks(self) -> Iterator[Check]:
        """Require pairs for messages in turns."""
        yield from super().checks()
        if self.half_duplex and not resolve(self.topology).bipartite:
            yield ("half_duplex",), f"found true with topology {self.topology}, allowed: false, or a bipartite topology"

    @property
    def traffic(self) -> Traffic:
        """A mixing step after every step, in turns if so chosen."""
        return replace(super().traffic, half_duplex=self.half_duplex)
