"""The wall clock of a run: computation, waiting for other workers, and exposed communication.

    seconds = steps * (compute + mean delay) + waiting + exposed communication

A step of a worker of several GPUs includes the average of their gradients inside the node, which is taken to be as
exposed as an average over all workers; between nodes such a worker sends as much as one of a single GPU.

An average over all workers waits for the slowest one. It is hidden by the steps that are computed while it travels, if
there are any, which are taken to last their mean time. When a worker waits for a message from a peer depends on the
algorithm (`ExchangeKind.overlap`): immediately; before the next message, so that only the time beyond the steps in
between is exposed; or never. Evaluation, checkpoints and slow input pipelines are not counted.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from resync.base.errors import UserError
from resync.papers.plan.cost import FLOAT32_BYTES
from resync.papers.plan.network import Network, halving_doubling, ring
from resync.papers.plan.stragglers import gossip_waiting, longest_delay
from resync.runs.exchanges import ExchangeKind, exchanges
from resync.runs.run import Run


@dataclass(frozen=True)
class Machine:
    """The hardware that a run is timed on.

    Attributes:
        network: the network that connects the workers.
        compute: seconds per local step of one GPU, without delays: data, forward, backward, optimizer.
        delay: mean of the exponential delay of every step in seconds, see resync.papers.plan.stragglers.
        backward: seconds of `compute` in which averages of gradients travel, as with DDP; 0: they travel afterwards.
    """

    network: Network
    compute: float
    delay: float = 0.0
    backward: float = 0.0

    def __post_init__(self) -> None:
        for name, seconds in (("compute", self.compute), ("delay", self.delay), ("backward", self.backward)):
            if not seconds >= 0:
                raise UserError(f"{name}: found {seconds} s, allowed: seconds >= 0")
        if self.backward > self.compute:
            raise UserError(f"backward: found {self.backward} s, allowed: at most the {self.compute} s of a step")


@dataclass(frozen=True)
class RunTime:
    """The time of a run by its parts, in seconds.

    Attributes:
        run: id of the run.
        workers: number of workers.
        steps: local steps of each worker.
        compute: time of local steps, including their mean delay and averages of gradients inside workers.
        waiting: time of waiting for slower workers.
        communication: time of exposed communication.
        hidden: time of communication that overlaps with computation; not part of `total`.
        limits: reasons why the model should not be trusted here, one sentence each; empty if there are none.
    """

    run: str
    workers: int
    steps: float
    compute: float
    waiting: float
    communication: float
    hidden: float
    limits: tuple[str, ...]

    @property
    def total(self) -> float:
        return self.compute + self.waiting + self.communication

    @property
    def per_step(self) -> float:
        return self.total / self.steps


def wall_clock(run: Run, machine: Machine, num_parameters: int, workers: int | None = None) -> RunTime:
    """Return the wall clock of `run`, whose model has `num_parameters` parameters of four bytes each.

    With `workers`, it is that of the same training on this number of workers: the samples per step and worker, the
    total number of samples and the fraction of steps that end in an exchange stay the same, so that the number of
    steps changes.

    Raises ValueError for a number of workers that does not fit the network or the topology.
    """
    count = run.workers if workers is None else workers
    if count < 1:
        raise UserError(f"workers: found {count}, allowed: integer >= 1")
    num_bytes = num_parameters * FLOAT32_BYTES
    inside = machine.network.inside_seconds(num_bytes, run.gpus_per_worker)
    machine = replace(machine, compute=machine.compute + inside)
    kinds = exchanges(run.model_copy(update={"workers": count}))
    parts = [_price(exchange, machine, num_bytes, count) for exchange in kinds]
    fewer = run.workers / count
    waiting, communication, hidden = (fewer * sum(part) for part in zip(*parts, strict=True))
    return RunTime(
        run=run.id,
        workers=count,
        steps=run.total_steps * fewer,
        compute=run.total_steps * fewer * (machine.compute + machine.delay),
        waiting=waiting,
        communication=communication,
        hidden=hidden,
        limits=tuple(_limits(run, kinds, machine, num_bytes, count)),
    )


def _price(exchange: ExchangeKind, machine: Machine, num_bytes: int, workers: int) -> tuple[float, float, float]:
    """Seconds of waiting, of exposed and of hidden communication in all exchanges of one kind."""
    network, delay = machine.network, machine.delay
    if exchange.vectors == 0:
        return 0.0, 0.0, 0.0
    if exchange.to == "all":
        return _average(exchange, machine, num_bytes, workers)
    message = _message(exchange, network, num_bytes, workers)
    if exchange.overlap == "full":
        return 0.0, 0.0, exchange.count * message
    waiting = exposed = hidden = 0.0
    for steps, count in exchange.after.items():
        work = steps * (machine.compute + delay)
        shown = max(0.0, message - work) if exchange.overlap == "bounded" else message
        late = gossip_waiting(
            exchange.topology, workers, exchange.peers,
            steps=steps, compute=machine.compute, delay=delay, message=message, overlap=exchange.overlap,
        )  # fmt: skip
        waiting, exposed, hidden = waiting + count * late, exposed + count * shown, hidden + count * (message - shown)
    return waiting, exposed, hidden


def _average(exchange: ExchangeKind, machine: Machine, num_bytes: int, workers: int) -> tuple[float, float, float]:
    """The same for averages over all workers, which travel during the last steps before them, or a backward pass."""
    delay = machine.delay
    average = machine.network.average_seconds(float(exchange.vectors * num_bytes), workers, exchange.all_reduce)
    waiting = exposed = hidden = 0.0
    for steps, count in exchange.after.items():
        overlapped = min(exchange.overlapped, steps - 1)
        before, work = steps - overlapped, overlapped * (machine.compute + delay)
        if exchange.of_gradients:
            work = machine.backward
        late = longest_delay(delay, workers, before) - before * delay
        shown = max(0.0, average - work)
        waiting += count * (max(0.0, late + average - work) - shown)
        exposed += count * shown
        hidden += count * (average - shown)
    return waiting, exposed, hidden


def _message(exchange: ExchangeKind, network: Network, num_bytes: int, workers: int) -> float:
    """Seconds until every worker has sent to its peers; twice as long if the workers of a pair take turns."""
    return network.exchange_seconds(num_bytes, workers, exchange.longest) * (1 + exchange.half_duplex)


def _limits(run: Run, kinds: list[ExchangeKind], machine: Machine, num_bytes: int, workers: int) -> Iterator[str]:
    """Effects that the model ignores but that the run would be subject to."""
    network = machine.network
    for exchange in kinds:
        sent = float(exchange.vectors * num_bytes)
        if exchange.to == "all" and sent and network.latency_bound(sent, workers, exchange.all_reduce):
            nodes = workers // network.node_size
            other = halving_doubling(network.link, sent, nodes)
            yield (
                f"latency: a ring of {nodes:,} nodes sends {sent / nodes:,.0f} bytes at a time, fewer than the "
                f"{network.link.bytes_in_latency:,.0f} that fit into the link's latency; halving-doubling would take "
                f"{other:.3g} s instead of {ring(network.link, sent, nodes):.3g} s"
            )
        if exchange.overlap == "full":
            message = _message(exchange, network, num_bytes, workers)
            step = machine.compute + machine.delay
            if message > step:
                yield (
                    f"mixing: a message takes {message:.3g} s and a step {step:.3g} s, so that workers average less "
                    "often than modelled"
                )
    samples, batch = run.facts["train_samples"], run.local_batch_size * workers
    if batch > samples:
        yield f"batch: {batch:,} samples per step, but the training set has {samples:,}"
