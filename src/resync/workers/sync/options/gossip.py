"""Options of gossip: algorithms that mix with some peers after every step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, PlainValidator, Strict, TypeAdapter, ValidationError, WithJsonSchema

from resync.base.settings.base import Check, Count, Items, PositiveInt, Several, checks_failed, wrong
from resync.base.settings.errors import show
from resync.base.settings.options import TrainingShape
from resync.base.settings.units import Epoch
from resync.workers.formulas.periods import in_time_checks, phase_checks
from resync.workers.formulas.topology import TopologyName, cycle, resolve
from resync.workers.sync.options.base import Look, SyncOptions, Traffic

_PeerPhases = TypeAdapter(Items[Annotated[tuple[Epoch, Count], Strict(False)]])


def _peers(value: object) -> int | tuple[tuple[float, int], ...]:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    try:
        return _PeerPhases.validate_python(value, strict=False)
    except ValidationError:
        found = wrong((), show(value), "integer >= 1, or a list of [first epoch, peers >= 0]")
        raise checks_failed("peers", [found]) from None


Peers = Annotated[
    int | Sequence[tuple[Epoch, int]],
    PlainValidator(_peers),
    PlainSerializer(lambda peers: peers),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, _PeerPhases.json_schema()]}),
]


def no_graph(topology: str, workers: int, peers: int = 1) -> str:
    """Why a topology has no graph of so many workers and peers; empty if it has one."""
    try:
        cycle(topology, workers, peers)
    except ValueError as error:
        return str(error)
    return ""


class GossipOptions(SyncOptions):
    """The options of an algorithm that mixes with peers after every step."""

    topology: TopologyName
    peers: Peers = Field(
        default=1,
        description="peers of a worker per mixing step, or [first epoch, peers] pairs; 0 peers: average over all "
        "workers",
    )

    def checks(self) -> Iterator[Check]:
        if not isinstance(self.peers, int):
            yield from phase_checks(("peers",), [first for first, _ in self.peers])

    def checks_in(self, shape: TrainingShape) -> Iterator[Check]:
        for number in [self.peers] if isinstance(self.peers, int) else [number for _, number in self.peers if number]:
            if problem := no_graph(self.topology, shape.workers, number):
                yield ("topology",), problem
        if not isinstance(self.peers, int):
            yield from in_time_checks(("peers",), self.peers, shape)

    def fitted(self, reduced: dict[str, Any], shape: TrainingShape) -> dict[str, Any]:
        """Fewer peers where the topology has fewer in a graph of so many workers."""

        def fewer(number: int) -> int:
            fitting = (each for each in range(number, 1, -1) if not no_graph(self.topology, shape.workers, each))
            return next(fitting, min(number, 1))

        peers = reduced.get("peers", 1)
        fitting = fewer(peers) if isinstance(peers, int) else [[first, fewer(number)] for first, number in peers]
        return {} if fitting == peers else {"peers": fitting}

    @property
    def phases(self) -> tuple[tuple[int, int], ...]:
        """(first step, peers) in ascending order from step 0, for options in steps; 0 peers is an average over all."""
        pairs = ((0, self.peers),) if isinstance(self.peers, int) else self.peers
        return tuple((round(first), number) for first, number in pairs)

    @property
    def traffic(self) -> Traffic:
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


class DPSGD(GossipOptions):
    """Decentralised parallel SGD, symmetric gossip after every step (Lian et al. 2017).

    Sends the parameters to each of `peers` workers after every step.

        sync = resync.attach(model, optimizer, resync.DPSGD(topology="base_graph"))
    """

    label = "D-PSGD"
    look = Look("purple", "P", "long")
    name: Literal["dpsgd"] = Field(default="dpsgd", init=False)
    topology: Literal[
        "bipartite_exponential", "bipartite_linear", "ring", "complete", "hypercube", "base_graph", "simple_base_graph",
        "u_equistatic", "ou_equidyn", "random_matching", "undirected_ring", "chain", "binary_tree", "star",
    ] = Field(
        default="bipartite_exponential",
        description="graph of the peers; ring needs 2 peers; base_graph averages any number of workers exactly",
    )  # fmt: skip
    weight: float | None = Field(
        default=None, gt=0, lt=1, description="weight of every peer in an average; null: that of the graph"
    )
    half_duplex: bool = Field(
        default=False,
        description="the workers of a pair send one after the other, like those of the SGP paper: odd (active) ones "
        "send, then receive; even (passive) ones receive, then send",
    )

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        if self.half_duplex and not resolve(self.topology).bipartite:
            yield wrong("half_duplex", f"true with topology {self.topology}", "false, or a bipartite topology")

    @property
    def traffic(self) -> Traffic:
        return replace(super().traffic, half_duplex=self.half_duplex, weight=self.weight)


class SGP(PushSumOptions):
    """Stochastic Gradient Push, synchronous push-sum gossip after every step (Assran et al. 2019, Algorithm 1).

    Sends the parameters, and each field in `average_state`, to each of `peers` workers after every step.

        sync = resync.attach(model, optimizer, resync.SGP(peers=2), seed=0)
    """

    label = "SGP"
    look = Look("green", "^", "dash-dot")
    name: Literal["sgp"] = Field(default="sgp", init=False)
    average_state: Several[str] = Field(
        default=(),
        description="fields of the optimizer's state that travel with the parameters and are mixed like them, e.g. "
        "momentum_buffer; each is one more message per peer; all others stay with their worker",
    )

    mixing_steps: PositiveInt | None = Field(
        default=None, description="mixing steps, one after the other, after every optimizer step; null: 1"
    )

    @property
    def traffic(self) -> Traffic:
        return replace(super().traffic, vectors=(1 + len(self.average_state)) * (self.mixing_steps or 1))


class OSGP(PushSumOptions):
    """Overlap SGP, push-sum gossip that overlaps with the computation of gradients (Assran et al. 2019).

    The paper's tau counts the gradient steps that are taken while a message travels: its tau = 1 is staleness 0 here.

    Sends the parameters to each of `peers` workers, in every step with `staleness` 0, else when the last message has
    arrived.

        sync = resync.attach(model, optimizer, resync.OSGP())
    """

    label = "OSGP"
    look = Look("sky", "v", "short")
    name: Literal["osgp"] = Field(default="osgp", init=False)
    staleness: Count = Field(
        default=0,
        description="largest number of iterations by which a message may be late; 0: it travels while one gradient is "
        "computed, and one is sent in every iteration (tau = 1 in the paper); above 0: the lateness of each message is "
        "drawn from 0 to this number, and a worker sends the next one when it has arrived",
    )
    biased: bool = Field(
        default=False,
        description="ignore the push-sum weights, like the paper's biased variant (unverified: its definition); "
        "gradients and evaluations are at the shares that the workers keep, without what travels",
    )

    def checks(self) -> Iterator[Check]:
        """Require that biased workers always keep the same share: without weights nothing makes up for a change."""
        yield from super().checks()
        if self.biased and self.staleness:
            yield wrong("staleness", f"{self.staleness} with biased", 0)
        if self.biased and not isinstance(self.peers, int):
            yield wrong("peers", "phases with biased", "an integer")
        if resolve(self.topology).weighted:
            for name in ("biased", "staleness"):
                if value := getattr(self, name):
                    found = f"{show(value)} with topology {self.topology}, where workers take each step together"
                    yield wrong(name, found, show(type(self).model_fields[name].default))

    @property
    def traffic(self) -> Traffic:
        return replace(super().traffic, staleness=self.staleness, overlap="bounded")
