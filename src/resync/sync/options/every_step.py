"""Options of algorithms that communicate in every step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, PlainValidator, Strict, TypeAdapter, ValidationError, WithJsonSchema

from resync.formulas.periods import in_time_checks, phase_checks
from resync.formulas.topology import TopologyName, cycle, resolve
from resync.run.parts import EngineNeeds, Look, SyncOptions, Traffic
from resync.settings.base import Check, Count, Items, NonNegativeNumber, PositiveInt, Several, checks_failed, wrong
from resync.settings.errors import show
from resync.settings.options import TrainingShape
from resync.settings.units import Epoch, LocalSteps


class AllReduce(SyncOptions):
    """Synchronous data-parallel training, gradients or parameters averaged over all workers in every step.

    Sends an all-reduce of the gradients in every step, or of the parameters, as Assran et al. (2019) did.

        sync = resync.attach(model, optimizer, resync.AllReduce(), clip_norm=1.0)
        for x, y in loader:
            loss(model(x), y).backward(); optimizer.step(); optimizer.zero_grad()
    """

    can_be_base = True
    label = "AR-SGD"
    look = Look("black", "o", "solid")
    name: Literal["allreduce"] = Field(default="allreduce", init=False)
    average: Literal["gradients", "parameters"] = Field(
        default="gradients",
        description="gradients: before the optimizer step; parameters: after the step of every worker's own optimizer, "
        "like the baselines of the SGP paper",
    )
    all_reduce: Literal["default", "ring", "recursive_doubling"] = Field(
        default="default",
        description="default: that of the communication library; ring, recursive_doubling: made of messages between "
        "two processes, each of which sends 2 (W - 1) messages of 1/W of a vector, or log2 W whole vectors",
    )

    @property
    def needs(self) -> EngineNeeds:
        gradients = self.average == "gradients"
        return EngineNeeds(average_gradients=gradients, engine_may_average=gradients and self.all_reduce == "default")

    @property
    def traffic(self) -> Traffic:
        return Traffic(all_reduce=self.all_reduce)


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
        """Require a graph for this number of workers, and phases that start before the end of the training."""
        for number in [self.peers] if isinstance(self.peers, int) else [number for _, number in self.peers if number]:
            if problem := no_graph(self.topology, shape.workers, number):
                yield ("topology",), problem
        if not isinstance(self.peers, int):
            yield from in_time_checks(("peers",), self.peers, shape)

    def fitted(self, reduced: dict[str, Any], shape: TrainingShape) -> dict[str, Any]:
        """Fewer peers, with equal weights, where the topology has fewer in a graph of so many workers."""

        def fewer(number: int) -> int:
            fitting = (each for each in range(number, 1, -1) if not no_graph(self.topology, shape.workers, each))
            return next(fitting, min(number, 1))

        peers = reduced.get("peers", 1)
        fitting = fewer(peers) if isinstance(peers, int) else [[first, fewer(number)] for first, number in peers]
        if fitting == peers:
            return {}
        return {"peers": fitting} | ({"mixing_weights": None} if "mixing_weights" in reduced else {})

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
    mixing_weights: Several[NonNegativeNumber] | None = Field(
        default=None, description="self weight, then the weight of each out-peer, with sum 1; null: equal weights"
    )

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        if self.mixing_weights is not None and resolve(self.topology).weighted:
            found = f"{show(self.mixing_weights)} with topology {self.topology}, which has weights of its own"
            yield wrong("mixing_weights", found, "null")

    @property
    def weights(self) -> tuple[float, ...] | None:
        return None if self.mixing_weights is None else tuple(self.mixing_weights)

    @property
    def traffic(self) -> Traffic:
        return Traffic(topology=self.topology, peers=self.phases, mixing_weights=self.weights)


class DPSGD(GossipOptions):
    """Decentralised parallel SGD, symmetric gossip after every step (Lian et al. 2017).

    Sends the parameters to each of `peers` workers after every step.

        sync = resync.attach(model, optimizer, resync.DPSGD(topology="base_graph"))
        for x, y in loader:
            loss(model(x), y).backward(); optimizer.step(); optimizer.zero_grad()
    """

    label = "D-PSGD"
    look = Look("purple", "P", "long")
    name: Literal["dpsgd"] = Field(default="dpsgd", init=False)
    topology: Literal[
        "bipartite_exponential", "bipartite_linear", "ring", "complete", "hypercube", "base_graph", "simple_base_graph",
        "u_equistatic", "ou_equidyn", "random_matching", "undirected_ring", "chain", "binary_tree",
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
        yield from super().checks()
        if self.half_duplex and not resolve(self.topology).bipartite:
            yield wrong("half_duplex", f"true with topology {self.topology}", "false, or a bipartite topology")

    @property
    def traffic(self) -> Traffic:
        return replace(super().traffic, half_duplex=self.half_duplex)


class SGP(PushSumOptions):
    """Stochastic Gradient Push, synchronous push-sum gossip after every step (Assran et al. 2019, Algorithm 1).

    Sends the parameters, and each field in `average_state`, to each of `peers` workers after every step.

        sync = resync.attach(model, optimizer, resync.SGP(peers=2), seed=0)
        for x, y in loader:
            loss(model(x), y).backward(); optimizer.step(); optimizer.zero_grad()
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
        for x, y in loader:
            loss(model(x), y).backward(); optimizer.step(); optimizer.zero_grad()
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


class ADPSGD(SyncOptions):
    """Asynchronous decentralised parallel SGD, pairs of workers average while others compute (Lian et al. 2018).

    Sends the parameters to one worker per step, for which no worker waits. If it is `asynchronous`, no two trainings
    have the same bits, and `state_dict` is a collective call.

        sync = resync.attach(model, optimizer, resync.ADPSGD(asynchronous=True))
        for x, y in loader:
            loss(model(x), y).backward(); optimizer.step(); optimizer.zero_grad()
    """

    label = "AD-PSGD"
    look = Look("orange", "X", "short")
    name: Literal["adpsgd"] = Field(default="adpsgd", init=False)
    topology: Literal["bipartite_exponential", "bipartite_linear"] = Field(
        default="bipartite_exponential",
        description="graph of the pairs; odd workers are active (ask), even ones passive (answer)",
    )
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


class GPA(SyncOptions):
    """Generalised primal averaging, gradients between the optimizer's iterate and its average (Defazio et al. 2025).

    It smooths the outer steps of DiLoCo with one worker over all steps, so that there are no rounds.

    Sends an all-reduce of the gradients in every step. `consensus()` gives the average of the iterates.

        sync = resync.attach(model, optimizer, resync.GPA(h=32))
        for x, y in loader:
            loss(model(x), y).backward(); optimizer.step(); optimizer.zero_grad()
    """

    label = "GPA"
    look = Look("purple", "<", "dash-dot")
    name: Literal["gpa"] = Field(default="gpa", init=False)
    mu_y: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.7, description="weight of the average in the point at which gradients are taken"
    )
    mu_x: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.9967, description="weight of the previous average in the average"
    )
    h: LocalSteps | None = Field(
        default=None,
        description="the H of the DiLoCo that is smoothed, from which mu_x = 0.9^(1/H) follows, as in the authors' "
        "table; null: mu_x itself",
    )

    def checks(self) -> Iterator[Check]:
        if self.h is not None and self.mu_x != type(self).model_fields["mu_x"].default:
            yield wrong("mu_x", f"{self.mu_x:g} beside h", "one of the two")

    @property
    def weight(self) -> float:
        return self.mu_x if self.h is None else 0.9 ** (1 / self.h)

    @property
    def needs(self) -> EngineNeeds:
        return EngineNeeds(average_gradients=True, engine_may_average=True)

    @property
    def traffic(self) -> Traffic:
        return Traffic()
