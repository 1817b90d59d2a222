"""Options of algorithms that communicate with the neighbours of a fixed graph, and correct for what those have not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from pydantic import Field

from resync.base.settings.base import Check
from resync.base.settings.options import TrainingShape
from resync.workers.sync.options.base import Look, SyncOptions, Traffic
from resync.workers.sync.options.gossip import no_graph

Neighbours = Literal["undirected_ring", "chain", "binary_tree", "star"]


class NeighbourOptions(SyncOptions):
    """The options of an algorithm that mixes with all neighbours after every step, with Metropolis weights."""

    topology: Neighbours = Field(default="undirected_ring", description="graph of the neighbours")

    def checks_in(self, shape: TrainingShape) -> Iterator[Check]:
        if problem := no_graph(self.topology, shape.workers):
            yield ("topology",), problem

    @property
    def traffic(self) -> Traffic:
        return Traffic(topology=self.topology)


class MixingOptions(NeighbourOptions):
    """The options of an algorithm whose workers average with their neighbours."""

    weight: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="weight of every neighbour in an average; null: 1 / (1 + the larger degree of the two)",
    )

    @property
    def traffic(self) -> Traffic:
        return Traffic(topology=self.topology, weight=self.weight)


class D2(MixingOptions):
    """Gossip that takes out the differences of the workers' data (Tang et al. 2018).

    Sends the parameters to each neighbour after every step.

        sync = resync.attach(model, optimizer, resync.D2())
    """

    label = "D²"
    look = Look("teal", "s", "dash-dot")
    name: Literal["d2"] = Field(default="d2", init=False)


class GradientTracking(MixingOptions):
    """Gossip of the parameters and of an estimate of the mean gradient (Lorenzo and Scutari 2016, Nedic et al. 2017).

    Sends the parameters and the estimate to each neighbour after every step.

        sync = resync.attach(model, optimizer, resync.GradientTracking())
    """

    label = "Gradient tracking"
    look = Look("wine", "D", "short")
    name: Literal["gradient_tracking"] = Field(default="gradient_tracking", init=False)

    @property
    def traffic(self) -> Traffic:
        return replace(super().traffic, vectors=2)


class RelaySum(NeighbourOptions):
    """Sums that neighbours relay, so that every worker averages all, each as old as it is far (Vogels et al. 2021).

    Sends a vector of the length of the parameters to each neighbour in every step.

        sync = resync.attach(model, optimizer, resync.RelaySum())
    """

    label = "RelaySum"
    look = Look("vermillion", "o", "long")
    name: Literal["relaysum"] = Field(default="relaysum", init=False)
    topology: Literal["chain", "binary_tree", "star"] = Field(
        default="binary_tree", description="tree of the neighbours: there is one way from each worker to any other"
    )
    relayed: Literal["model", "gradient"] = Field(
        default="model",
        description="model: RelaySum/Model (RelaySGD), the parameters after the step of every worker's own optimizer; "
        "gradient: RelaySum/Grad, the gradients before it",
    )
