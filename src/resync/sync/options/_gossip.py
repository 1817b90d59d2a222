"""The common options of gossip algorithms: topology, peers and mixing weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Self

from pydantic import Field, PlainSerializer, PlainValidator, Strict, TypeAdapter, ValidationError, WithJsonSchema

from resync.config.parts import SyncOptions, Traffic
from resync.formulas.periods import in_time_checks, pairs_in_steps, phase_checks
from resync.formulas.topology import TopologyName, cycle, resolve
from resync.settings.base import Check, Count, Items, NonNegativeNumber, Several, checks_failed
from resync.settings.errors import show
from resync.settings.options import Course

_PeerPhases = TypeAdapter(Items[Annotated[tuple[NonNegativeNumber, Count], Strict(False)]])


def _peers(value: object) -> int | tuple[tuple[float, int], ...]:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    try:
        return _PeerPhases.validate_python(value, strict=False)
    except ValidationError:
        allowed = "integer >= 1, or a list of [first epoch, peers >= 0]"
        raise checks_failed("peers", [((), f"found {show(value)}, allowed: {allowed}")]) from None


Peers = Annotated[
    int | Sequence[tuple[float, int]],
    PlainValidator(_peers),
    PlainSerializer(lambda peers: peers),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, _PeerPhases.json_schema()]}),
]


class GossipOptions(SyncOptions):
    """The options of an algorithm that mixes with peers after every step."""

    topology: TopologyName
    peers: Peers = Field(
        default=1,
        description="peers of a worker per mixing step, or [first epoch, peers] pairs; 0 peers: average over all "
        "workers",
    )

    def checks(self) -> Iterator[Check]:
        """Require phases in order."""
        if not isinstance(self.peers, int):
            yield from phase_checks(("peers",), [first for first, _ in self.peers])

    def checks_in(self, course: Course) -> Iterator[Check]:
        """Require a graph for this number of workers, and phases that start before the end of the training."""
        for number in [self.peers] if isinstance(self.peers, int) else [number for _, number in self.peers if number]:
            try:
                cycle(self.topology, course.workers, number)
            except ValueError as error:
                yield ("topology",), str(error)
        if not isinstance(self.peers, int):
            yield from in_time_checks(("peers",), self.peers, course)

    def in_steps(self, steps_per_epoch: int) -> Self:
        """The same options with first steps in place of first epochs."""
        if isinstance(self.peers, int):
            return self
        return self.model_copy(update={"peers": pairs_in_steps(self.peers, steps_per_epoch)})

    @property
    def phases(self) -> tuple[tuple[int, int], ...]:
        """(first step, peers) in ascending order from step 0, for options in steps; 0 peers is an average over all."""
        return ((0, self.peers),) if isinstance(self.peers, int) else pairs_in_steps(self.peers, 1)

    @property
    def traffic(self) -> Traffic:
        """A mixing step after every step."""
        return Traffic(topology=self.topology, peers=self.phases)


class PushSumOptions(GossipOptions):
    """The options of push-sum gossip."""

    can_be_base = True
    topology: TopologyName = Field(
        default="exponential",
        description="graph of the peers; exponential cycles through hops of 1, 2, 4, ... with one peer "
        "(topology 5 of the original code), directed_exponential with any number of peers; base_graph averages any "
        "number of workers exactly",
    )
    peers: Peers = Field(
        default=1,
        description="out-peers of a worker per mixing step, or [first epoch, peers] pairs; "
        "0 peers: average over all workers",
    )
    mixing_weights: Several[NonNegativeNumber] | None = Field(
        default=None,
        description="self weight, then the weight of each out-peer, with sum 1; null: equal weights",
    )

    def checks(self) -> Iterator[Check]:
        """Refuse mixing weights for a topology that has its own."""
        yield from super().checks()
        if self.mixing_weights is not None and resolve(self.topology).weighted:
            found = f"found {show(self.mixing_weights)} with topology {self.topology}, which has weights of its own"
            yield ("mixing_weights",), f"{found}, allowed: null"

    @property
    def weights(self) -> tuple[float, ...] | None:
        """The mixing weights in hashable form."""
        return None if self.mixing_weights is None else tuple(self.mixing_weights)

    @property
    def traffic(self) -> Traffic:
        """A weighted mixing step after every step."""
        return Traffic(topology=self.topology, peers=self.phases, mixing_weights=self.weights)
