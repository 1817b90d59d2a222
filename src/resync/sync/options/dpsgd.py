"""Options of decentralised parallel SGD."""

from typing import Literal

from pydantic import Field

from resync.sync.options._gossip import GossipOptions


class DPSGD(GossipOptions):
    """Decentralised parallel SGD, symmetric gossip after every step (Lian et al. 2017)."""

    label = "D-PSGD"
    name: Literal["dpsgd"] = Field(default="dpsgd", init=False)
    topology: Literal["bipartite_exponential", "bipartite_linear", "ring", "complete"] = Field(
        default="bipartite_exponential", description="graph of the peers; ring needs 2 peers"
    )
