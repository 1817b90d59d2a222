"""Options of algorithms whose workers average in pairs, and do not wait for each other."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from resync.workers.formulas.topology import TopologyName
from resync.workers.sync.options.base import EngineNeeds, Look, SyncOptions, Traffic


class ADPSGD(SyncOptions):
    """Asynchronous decentralised parallel SGD, pairs of workers average while others compute (Lian et al. 2018).

    Sends the parameters to one worker per step, for which no worker waits. If it is `asynchronous`, no two trainings
    have the same bits, and `state_dict` is a collective call. The pairs are those of the bipartite exponential graph,
    whose odd workers are active (ask) and even ones passive (answer).

        sync = resync.attach(model, optimizer, resync.ADPSGD(asynchronous=True))
    """

    label = "AD-PSGD"
    look = Look("orange", "X", "short")
    topology: ClassVar[TopologyName] = "bipartite_exponential"
    name: Literal["adpsgd"] = Field(default="adpsgd", init=False)
    asynchronous: bool = Field(
        default=False,
        description="true: asynchronous in real time, with an averaging thread in each process of one worker; "
        "false: simulated, at the times of the run's clock; without one all gradients end together, as in D-PSGD",
    )

    @property
    def needs(self) -> EngineNeeds:
        # Simulated workers have different speeds; the GPUs of a real one would wait together for its thread.
        return EngineNeeds(separate_optimizer_steps=not self.asynchronous, one_process_per_worker=self.asynchronous)

    @property
    def is_timed(self) -> bool:
        return not self.asynchronous

    @property
    def traffic(self) -> Traffic:
        return Traffic(topology=self.topology, overlap="full")
