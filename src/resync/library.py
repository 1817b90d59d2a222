"""Synchronisation in any training loop: an algorithm attached to the steps of a torch optimizer.

    sync = resync.attach(model, optimizer, resync.QSR(alpha=0.0175, h_base=4), total_steps=T, warmup_steps=W)
    for x, y in loader:
        loss(model(x), y).backward()
        optimizer.step(); scheduler.step(); optimizer.zero_grad()
    with sync.consensus():
        evaluate(model)

Each process is one worker. `torch.distributed` is used as set up by the caller; without it there is a single worker.
"""

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from hashlib import sha256
from itertools import zip_longest
from math import floor, inf, isclose
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from resync.base.errors import UserError
from resync.base.processes.meeting import StoreAllGather
from resync.base.settings.base import Count, PositiveInt, PositiveNumber, Settings
from resync.base.torch_private import is_within_a_step, time_limit
from resync.workers.engine.attached_workers import AttachedWorkers
from resync.workers.engine.clocks import Clocks
from resync.workers.engine.guard import (
    ATTACHED,
    Guard,
    check_attachable,
    description,
    process_group,
    rank_and_world_size,
    shard_of,
)
from resync.workers.engine.members import Members, ranks_of
from resync.workers.engine.sharded_workers import ShardedWorkers
from resync.workers.engine.shards import is_sharded, local, plain
from resync.workers.engine.transport import Transport
from resync.workers.engine.workers import alike, trainable
from resync.workers.formulas.periods import Constant, Period
from resync.workers.sync import build
from resync.workers.sync.algorithm import Rounds, Training
from resync.workers.sync.options.base import SyncOptions
from resync.workers.sync.outer import keep_on_cpu

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from resync.workers.formulas.advice import Advice


def attach(
    model: nn.Module,
    optimizer: Optimizer,
    algorithm: SyncOptions,
    *,
    total_steps: int | None = None,
    warmup_steps: int | None = None,
    seed: int = 0,
    clip_norm: float | None = None,
    group: "dist.ProcessGroup | DeviceMesh | None" = None,
    offload: Literal["cpu"] | None = None,
) -> "Synchronised":
    """Let `optimizer.step()` synchronise the model with those of the other processes; a collective call.

    All workers start from the parameters, frozen ones too, and the buffers of rank 0. Buffers (BatchNorm statistics)
    and optimizer state then stay local unless the algorithm says otherwise. The learning rate of a step is the largest
    one of the optimizer's groups. A closure given to `optimizer.step` is called before the algorithm sees the gradient.

    Args:
        model: the model itself, whole in every process, or sharded by `fully_shard` within each worker of `group`.
        optimizer: a torch optimizer of all parameters of the model that require gradients, and of no others.
        algorithm: its options, such as `resync.SGP(peers=2)`; what they count in epochs is in steps here.
        total_steps: number of steps of the training, whose end truncates the last round; None: unknown. Required, as
            is `warmup_steps`, where the period follows the learning rate.
        warmup_steps: number of warm-up steps of the learning rate, 0 without a warm-up.
        seed: seed of the algorithm's random numbers.
        clip_norm: largest L2 norm of the averaged gradient, for algorithms that average gradients; clipping before
            `step()` would clip local gradients.
        group: the processes that are the workers, or a dimension of a DeviceMesh such as mesh["replicate"]; None: all.
            The model may then be wrapped in DistributedDataParallel, or sharded, over other processes, which are one
            worker together; each of them exchanges what it has with its like in other workers.
        offload: "cpu" stores there, pinned, what only ends of rounds need (the start of the round, outer momentum).

    Raises ValueError if torchrun started this process but `init_process_group` was not called, for arguments that are
    not allowed or do not fit each other, and if they differ between the ranks; TimeoutError if a rank does not come.
    """
    if not isinstance(algorithm, SyncOptions):
        raise TypeError(
            f"algorithm: found {algorithm!r}, allowed: options of an algorithm, such as resync.SGP(peers=2)"
        )
    given = _Attached(
        total_steps=total_steps, warmup_steps=warmup_steps, seed=seed, clip_norm=clip_norm, offload=offload
    )
    if algorithm.rule.follows_lr:
        for name, least in (("total_steps", 1), ("warmup_steps", 0)):
            if getattr(given, name) is None:
                allowed = f"integer >= {least}, because the period follows the learning rate"
                raise UserError(f"{name}: missing, allowed: {allowed}")
    if clip_norm and not algorithm.needs.average_gradients:
        raise UserError(f"clip_norm: found {clip_norm:g} with {algorithm!r}, which averages no gradients, "
                        "allowed: None; clip before step()")  # fmt: skip
    if algorithm.needs.virtual_clock:
        raise UserError(f"algorithm: found {algorithm.name}, which has simulated times, allowed: others, or a run")
    algorithm = algorithm.in_steps()
    group = process_group(group)
    if group is not None and algorithm.needs.one_process_per_worker:
        raise UserError(f"algorithm: found {algorithm!r} with group=, whose processes do not wait for each other and "
                        "would make different averages within a worker, allowed: others, or group=None")  # fmt: skip
    ranks = ranks_of(group)
    check_attachable(model, optimizer, algorithm.needs.average_gradients and algorithm.rule == Constant(h=1), ranks)
    rank, size = rank_and_world_size(group)
    meetings = StoreAllGather(f"attached{ranks}", rank, size, _time_limit(model, group))
    meetings.begin("attaching")
    _check_equal(meetings, [f"{algorithm!r} {given!r}", shard_of(model), *description(model)])
    with torch.inference_mode(False), torch.no_grad():
        kind = ShardedWorkers if any(map(is_sharded, model.parameters())) else AttachedWorkers
        workers = [kind(model, parameters) for parameters in alike(trainable(model)) or [[]]]
        transport = Transport(Members(size, 1, rank, size, group=group), Clocks(workers[0].rows.device))
        transport.start_like_rank_0(attached.rows for attached in workers)
        keep = keep_on_cpu if offload else torch.clone
        trainings = [
            Training(attached, transport, optimizer, total_steps or inf, warmup_steps or 0, seed, keep=keep)
            for attached in workers
        ]
        sync = Synchronised(workers, algorithm, trainings, meetings, clip_norm)
        meetings.meet("attaching", "ready")
        sync.begin()  # what could be refused has been: from here on, model and optimizer change
    return sync


class _Attached(Settings):
    """What an algorithm must know of a training."""

    total_steps: PositiveInt | None
    warmup_steps: Count | None
    seed: Count
    clip_norm: PositiveNumber | None
    offload: Literal["cpu"] | None


class Synchronised:
    """A model and its optimizer, synchronised with the other processes by `optimizer.step()`; what `attach` returns.

    `optimizer.step`, `consensus`, `finish` and `state_dict` raise RuntimeError where an average would not be that of
    what is trained (see docs/robustness.md), and TimeoutError, with their ranks, if others do not come to `consensus`
    or to `finish` within the time limit of the process group.
    """

    def __init__(
        self,
        workers: Sequence[AttachedWorkers],
        options: SyncOptions,
        trainings: Sequence[Training],
        meetings: StoreAllGather,
        clip_norm: float | None,
    ) -> None:
        training = trainings[0]
        self.model, self.options, self.optimizer = workers[0].models[0], options, training.optimizer
        self.workers, self.transport, self._meetings = workers, training.transport, meetings
        self._guard = Guard(self.workers, self.optimizer, ranks_of(self.transport.group))
        # Parameters of each dtype and device have a row, and an algorithm, of their own; all do the same in each step.
        self.algorithms = [build(options, of_row) for of_row in trainings]
        self.algorithm = self.algorithms[0]
        self.synced = False
        self._unproven = options.rule if options.rule.follows_lr else None
        self._packs_gradients = options.needs.average_gradients or self.algorithm.changes_gradients
        self._clip_norm = clip_norm
        worker = f"rank {self.transport.rank} of {self.transport.world_size}"
        self._identity = [worker, f"{options!r} with seed {training.seed}", *description(self.model)]
        self._lr = 0.0
        self._in_consensus = self._has_gradient = self._stepping = self._overflowed = False
        self._inner_steps = 0
        self._begun = ""
        self._hooks: list[Any] = []
        self._rates: _Rates | None = None
        if isinstance(self.algorithm, Rounds) and (options.rule.follows_lr or self.algorithm.outer_step_follows_lr):
            self._rates = _Rates(meetings, options.rule.follows_lr)
            self.algorithm.before_end_of_round = self._compare_rates

    def begin(self) -> None:
        """Give the model the start of all workers, and attach to the optimizer; `attach` has done so."""
        frozen = [parameter for parameter in self.model.parameters() if not parameter.requires_grad]
        self.transport.start_like_rank_0(part for tensor in [*frozen, *self.model.buffers()] for part in plain(tensor))
        for workers in self.workers:
            workers.bind()
        self._hooks = [
            self.optimizer.register_step_pre_hook(self._before_step),
            self.optimizer.register_step_post_hook(self._after_step),
        ]
        ATTACHED.add(self.model)
        for algorithm in self.algorithms:
            algorithm.send_ahead()
        self._write_back()
        self._guard.remember(0)

    def __repr__(self) -> str:
        transport, algorithm = self.transport, self.algorithm
        of = f" of {algorithm.total_steps}" if algorithm.total_steps < inf else ""
        text = f"{self.options!r}, worker {transport.rank} of {transport.num_workers}: step {self.steps}{of}"
        if self.steps == algorithm.total_steps:
            text += f", finished after {self.rounds} rounds"
        elif not algorithm.asynchronous:
            begun = getattr(algorithm, "local_steps", 0)
            h = self.h if begun else self._next_h()
            text += f", round {self.rounds + 1} of H = {h}, next average in step {self.steps - begun + h}"
        if (rate := self.options.effective_outer_lr) is not None:
            text += f", effective outer rate {rate:.3g}"
        return f"{text}, {self.bytes_sent:,} bytes sent"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("an attached algorithm cannot be copied or pickled, since no copy of its optimizer would call "
                        "it: attach another one, and load state_dict()")  # fmt: skip

    def _next_h(self) -> float:
        """H of the round that begins now, if the learning rate stays; infinite if its end is unknown."""
        algorithm, step = self.algorithm, self.steps
        h = self.options.rule.local_steps(self._largest_lr(), step, step < algorithm.warmup_steps)
        h = min(h, algorithm.total_steps - step)
        return max(1, floor(h)) if h < inf else inf

    def _largest_lr(self) -> float:
        return max(float(group["lr"]) for group in self.optimizer.param_groups)

    @property
    def steps(self) -> int:
        """Number of completed optimizer steps."""
        return self.algorithm.steps

    @property
    def rounds(self) -> int:
        """Number of completed rounds."""
        return self.algorithm.rounds

    @property
    def h(self) -> int:
        """Number of local steps in the current round."""
        return self.algorithm.h

    @property
    def bytes_sent(self) -> int:
        """Bytes that each worker has sent so far."""
        return self.transport.bytes_sent

    def advise(self) -> "Advice":
        """What longer rounds, or gossip, would save on this network; a collective call between steps.

            print(sync.advise())  # a table: H, seconds of a step, part of the time in which workers compute

        Measured, over at most the last 500 steps of the worker that computes longest: c, the seconds of a step without
        communication (data, passes, optimizer), as a median; and those of the exchanges that this algorithm makes, of
        averages over all workers or of messages, as a mean, in proportion to the bytes of all parameters. Modelled:
        the other one of the two, as a ring would take it, where the algorithm makes only one; and efficiency =
        H c / (H c + x), with x of an average (gossip: H = 1, x of a message). So waiting for others counts as exchange,
        although longer rounds even it out, and nothing is known of overlap and of an algorithm's own arithmetic. On a
        GPU these are times of the device. A process of a worker of several is told of the exchanges of its shard.

        Raises ValueError for one worker, before anything has been exchanged, and for algorithms whose messages travel
        while workers compute, or are rounded to fewer bits.
        """
        from resync.workers.engine.advising import advise

        parts = [self.options, *([self.options.inner] if self.options.inner else [])]
        if self.algorithm.asynchronous or not all(part.traffic and part.traffic.is_waited_for for part in parts):
            raise UserError(f"advise(): found {self.options!r}, whose messages travel while workers compute or are "
                            "rounded, allowed: a method whose steps wait for whole ones, as AllReduce")  # fmt: skip
        self._meet("advise()")
        trained = (parameter for workers in self.workers for parameter in workers.parameters[0])
        return advise(self.transport, sum(local(parameter).nbytes for parameter in trained))

    @contextmanager
    def consensus(self) -> Iterator[nn.Module]:
        """The model with the average of all workers' parameters, for evaluation; a collective call between steps.

        What is done to the parameters in the block is undone at its end.
        """
        self._meet("consensus()")
        try:
            with ExitStack() as stack:
                with torch.inference_mode(False), torch.no_grad():
                    for algorithm, workers in zip(self.algorithms, self.workers, strict=True):
                        stack.enter_context(algorithm.consensus())
                        stack.enter_context(workers.shown())
                self._in_consensus = True
                try:
                    yield self.model
                finally:
                    self._in_consensus = False
        finally:
            self._write_back()
            self._guard.remember(self.steps)

    @torch.inference_mode(False)
    @torch.no_grad()
    def finish(self) -> None:
        """Give every worker the final average and detach from the optimizer; a collective call after the last step."""
        self._meet("finish()")
        with self._changing("finish()"):
            for algorithm in self.algorithms:
                algorithm.close()
                algorithm.synchronise()
        self.detach()

    def take_parameters(self) -> None:
        """Take the parameters as they are for this worker's own, where they were set in place between two steps."""
        self._guard.remember(self.steps)

    def detach(self) -> None:
        """Detach from the optimizer and leave this worker as it is: after an error, where the ranks cannot `finish`.

        Messages on their way are lost. The thread of asynchronous AD-PSGD lives on, and does nothing. Warns if a step
        was interrupted: the parameters may be those that the algorithm has given to the optimizer.
        """
        for hook in self._hooks:
            hook.remove()
        ATTACHED.discard(self.model)
        if self._begun:
            warnings.warn(f"rank {self.transport.rank}, detach(): {self._interruption}", RuntimeWarning, stacklevel=2)

    @torch.inference_mode(False)
    @torch.no_grad()
    def state_dict(self) -> dict[str, Any]:
        """State of the algorithm; with those of the model and the optimizer, training continues exactly."""
        with self._located("state_dict()"):
            self._check_whole()
            self._guard.check_model()
            self._guard.check_still(self.steps)
        own = {"identity": self._full_identity(), "transport": self.transport.state_dict()}
        pairs = zip(self.workers, self.algorithms, strict=True)
        states = [workers.spread(algorithm.state_dict()) for workers, algorithm in pairs]
        state = own | (states[0] if len(states) == 1 else {f"row {number}": row for number, row in enumerate(states)})
        self._write_back()
        self._guard.remember(self.steps)
        return state

    @torch.inference_mode(False)
    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict` on all ranks, after the states of the model and the optimizer have been restored.

        Raises ValueError for the state of another rank, number of workers, algorithm, option, seed or model, if the
        model does not have the parameters with which the state was saved, and for a damaged state, of which a part may
        have been loaded then.
        """
        with self._located("load_state_dict()"):
            self._check_outside()
            self._guard.check_model()
        identity = state.get("identity", []) if isinstance(state, dict) else None
        if not isinstance(identity, (list, tuple)):
            raise UserError(f"rank {self.transport.rank}, load_state_dict(): found {_short(state)}, allowed: what "
                            "state_dict() returned")  # fmt: skip
        for found, own in zip_longest(identity, self._full_identity(), fillvalue="nothing"):
            if found != own:
                hint = "load the model's state first, after attaching, which overwrites the parameters with rank 0's"
                raise UserError(
                    f"rank {self.transport.rank}, load_state_dict(): found the state of {found}, allowed: {own}"
                    + (f"; {hint}" if own.startswith("parameters") else "")
                )
        self._unproven = None
        try:
            with self._changing("load_state_dict()"):
                for number, (workers, algorithm) in enumerate(zip(self.workers, self.algorithms, strict=True)):
                    of_row = state if len(self.workers) == 1 else state[f"row {number}"]
                    algorithm.load_state_dict(workers.gathered(of_row))
                self.transport.load_state_dict(state["transport"])
        except (AttributeError, IndexError, KeyError, TypeError, UserError) as error:
            raise UserError(f"rank {self.transport.rank}, load_state_dict(): the state is damaged or of another "
                            f"version: {type(error).__name__}: {error}") from error  # fmt: skip
        self._guard.remember(self.steps)
        if self._rates:
            self._rates.seen.clear()

    def _full_identity(self) -> list[str]:
        """What a state belongs to, a line each, down to the values of the parameters."""
        digests = " ".join(workers.sha256() for workers in self.workers)
        self._write_back()
        return [*self._identity, f"parameters with SHA-256 {digests}"]

    def _meet(self, call: str) -> None:
        """Before a call of all ranks: raise an error if it cannot be an average, or if the ranks are not in step."""
        with self._located(call):
            self._check_whole()
            self._guard.check_model()
            self._guard.check_still(self.steps)
            counts = "" if self.algorithm.asynchronous else f" after {self.steps} steps in {self.rounds} rounds"
            said = self._meetings.meet(f"{call} after {self.steps} steps", call + counts)
            if len(set(said)) > 1:
                raise RuntimeError(
                    f"the ranks are not in step: {_by_rank(said)}; each must make the same steps and calls"
                )

    def _check_outside(self) -> None:
        if self._in_consensus:
            raise RuntimeError("called inside `with consensus()`, whose end undoes it: end the block first")

    def _check_whole(self) -> None:
        self._check_outside()
        if self._begun:
            raise RuntimeError(self._interruption)

    @property
    def _interruption(self) -> str:
        return (
            f"{self._begun} was interrupted by an error or Ctrl-C, and parameters and algorithm do not fit each other: "
            "load the states of model, optimizer and algorithm on all ranks, in this order, or detach() and begin anew"
        )

    @contextmanager
    def _changing(self, call: str) -> Iterator[None]:
        """Remember a call that changes parameters and algorithm until it has ended."""
        self._begun = call
        yield
        self._write_back()
        self._begun = ""

    @contextmanager
    def _located(self, call: str) -> Iterator[None]:
        """Name the rank and the call or step in the errors of the block."""
        try:
            yield
        except RuntimeError as error:
            raise RuntimeError(f"rank {self.transport.rank}, {call}: {error}") from error

    @contextmanager
    def _explained(self, step: int) -> Iterator[None]:
        """Say of the back end's errors, which are about sockets, when they came."""
        try:
            yield
        except RuntimeError as error:
            error.add_note(f"resync: rank {self.transport.rank} was in the synchronisation of step {step}; if a "
                           "message did not come, another rank has ended or made fewer steps")  # fmt: skip
            raise

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        if self._stepping and is_within_a_step(optimizer):
            self._inner_steps += 1
            return None
        self._stepping, self._inner_steps = True, 0
        with self._located(f"step {self.steps + 1}"):
            self._check_whole()
            self._guard.check()
            self._overflowed = _has_overflowed(optimizer)
        if self._overflowed:
            return None
        self._lr = self._largest_lr()
        self._has_gradient = False
        if len(args) > 1 and callable(args[1]):
            return (args[0], self._closure(args[1]), *args[2:]), kwargs
        if callable(closure := kwargs.get("closure")):
            return args, kwargs | {"closure": self._closure(closure)}
        self._synchronise_gradient()
        return None

    def _closure(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """The closure of a step, whose gradient the algorithm sees before the optimizer does."""

        def synchronised() -> Any:
            if self._has_gradient and self.algorithm.one_gradient:
                raise RuntimeError(f"rank {self.transport.rank}, step {self.steps + 1}: the optimizer calls its "
                                   "closure more than once in a step, and this algorithm synchronises one gradient, "
                                   "allowed: a local method, as LocalSGD")  # fmt: skip
            loss = closure()
            if not self._has_gradient:
                self._synchronise_gradient()
            return loss

        return synchronised

    @torch.inference_mode(False)
    @torch.no_grad()
    def _synchronise_gradient(self) -> None:
        self._has_gradient = True
        if self._packs_gradients:
            for workers in self.workers:
                workers.pack_gradients()
        if self.algorithm.one_gradient:
            self._begun = f"step {self.steps + 1}"
        with self._explained(self.steps + 1):
            for algorithm in self.algorithms:
                algorithm.after_backward()
        self._write_back()
        if self._packs_gradients:
            if self._clip_norm:
                self._clip_gradients(self._clip_norm)
            with self._located(f"step {self.steps + 1}"):
                for workers in self.workers:
                    workers.unpack_gradients()

    def _clip_gradients(self, max_norm: float) -> None:
        """Clip the gradient of all rows by its norm."""
        norms = [attached.gradient_norms() for attached in self.workers]
        if len(norms) > 1:
            norm = torch.linalg.vector_norm(torch.tensor([of_row.item() for of_row in norms], dtype=torch.float64))
            norms = [norm.to(of_row) for of_row in norms]
        for workers, norm in zip(self.workers, norms, strict=True):
            workers.clip_gradients(max_norm, norm)

    def _write_back(self) -> None:
        for workers in self.workers:
            workers.write_back()

    @torch.inference_mode(False)
    @torch.no_grad()
    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._inner_steps:
            self._inner_steps -= 1
            return
        self._stepping = False
        if self._overflowed:
            return
        if not self._has_gradient:
            raise RuntimeError(f"rank {self.transport.rank}, step {self.steps + 1}: the optimizer has not called its "
                               "closure, so that the algorithm has seen no gradient")  # fmt: skip
        first, begins_round = self.algorithm.steps, self.synced or self.algorithm.steps == 0
        if self._rates:
            self._rates.add(self._lr, first, begins_round, first >= self.algorithm.warmup_steps)
        with self._changing(f"step {first + 1}"), self._explained(first + 1):
            for algorithm in self.algorithms:
                self.synced = algorithm.after_step(self._lr)
                algorithm.send_ahead()
        self.transport.end_step()
        if first == self.algorithm.total_steps:
            warnings.warn(f"step {first + 1} is beyond total_steps = {first}: every step is now a round of its own; "
                          "finish(), or attach with more total_steps", RuntimeWarning, stacklevel=2)  # fmt: skip
        if self._unproven and begins_round and first >= self.algorithm.warmup_steps:
            self._prove(self._unproven, first)

    def _compare_rates(self) -> None:
        assert self._rates
        with self._located(f"step {self.steps}"):
            self._rates.compare(self.h)

    def _prove(self, period: Period, first: int) -> None:
        """Raise ValueError if the first round after the warm-up, whose step `first` is complete, is never to end."""
        self._unproven = None
        algorithm = self.algorithm
        h, shortest = algorithm.h, period.local_steps(lr=inf, step=first, warming_up=False)
        if first + h >= algorithm.total_steps and h > max(1, shortest):
            raise UserError(
                f"the period of the first round after the warm-up, H = {h} at step {first} with learning rate "
                f"{self._lr:g}, is all that is left of total_steps = {algorithm.total_steps}: workers would be "
                f"averaged only once, at the end; is warmup_steps = {algorithm.warmup_steps} the whole warm-up of the "
                "learning rate?"
            )


class _Rates:
    """The learning rates of the steps of a round, from which follows what all workers do together.

    `seen` are those since the round began or a state was loaded.
    """

    def __init__(self, meetings: StoreAllGather, decide_h: bool) -> None:
        self._meetings, self._decide_h = meetings, decide_h
        self.seen: list[float] = []
        self._first = 0
        self._warned = False

    def add(self, lr: float, step: int, begins_round: bool, warm: bool) -> None:
        """Add that of a step; warn once of one that rises in a round whose H it does not decide any more."""
        if begins_round or not self.seen:
            self.seen, self._first = [], step
        self.seen.append(lr)
        if self._decide_h and warm and not self._warned and lr > self.seen[0] * (1 + _SAME):
            self._warned = True
            warnings.warn(f"the learning rate rises from {self.seen[0]:g} in step {self._first + 1} to {lr:g} in step "
                          f"{step + 1}, within a round whose length follows from the former: H is too long for the "
                          "new rate", RuntimeWarning, stacklevel=5)  # fmt: skip

    def compare(self, h: int) -> None:
        """Raise RuntimeError if those of other ranks differ, or if these do something else; a collective call."""
        last = self._first + len(self.seen)
        said = (
            f"the end of a round of H = {h}, learning rate {self.seen[0]!r} in step {self._first + 1} "
            f"and {self.seen[-1]!r} in step {last}, in sum {sum(self.seen)!r}"
        )
        heard = self._meetings.meet(f"the end of a round in step {last}", said)
        numbers = [[float(text) for text in _NUMBER.findall(message)] for message in heard]
        if [_NUMBER.sub("", message) for message in heard] == [_NUMBER.sub("", said)] * len(heard) and all(
            isclose(one, other, rel_tol=_SAME) for own in numbers for one, other in zip(own, numbers[0], strict=True)
        ):
            return
        raise RuntimeError(f"the ranks are not in step, or have different learning rates: {_by_rank(heard)}; H or the "
                           "outer step follows from the rate, which must be the same on all ranks")  # fmt: skip


_SAME = 1e-9
"""Relative difference up to which learning rates of different machines are the same."""
_NUMBER = re.compile(r"[0-9][0-9.]*(?:e[-+]?[0-9]+)?")


def _short(value: Any) -> str:
    return f"{type(value).__name__} {str(value)[:60]}"


def _has_overflowed(optimizer: Optimizer) -> bool:
    """Whether this step of a fused optimizer is one that it skips; a GradScaler does not call that of another one.

    Raises RuntimeError if the gradients still have the loss scale, which the scaler leaves to a fused optimizer.
    """
    if getattr(optimizer, "grad_scale", None) is not None:
        raise RuntimeError("the gradients still have the loss scale, and each worker would decide alone whether to "
                           "skip the step: call scaler.unscale_(optimizer) before scaler.step(optimizer), or make the "
                           "optimizer with fused=False")  # fmt: skip
    return bool(getattr(optimizer, "found_inf", 0.0))


def _time_limit(model: nn.Module, group: dist.ProcessGroup | None) -> timedelta:
    """How long a rank waits for the others: the limit of the process group."""
    if not dist.is_initialized():
        return timedelta()
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    return time_limit(device, group)


def _check_equal(meetings: StoreAllGather, lines: list[str]) -> None:
    """Raise ValueError on every rank, with the first line that differs, if `lines` are not the same on all ranks."""
    digests = meetings.meet("attaching", sha256("\n".join(lines).encode()).hexdigest())
    if len(set(digests)) == 1:
        return
    texts = [text.split("\n") for text in meetings.meet("attaching", "\n".join(lines))]
    other = next(rank for rank, digest in enumerate(digests) if digest != digests[0])
    ours, theirs = next(pair for pair in zip_longest(texts[0], texts[other], fillvalue="nothing") if len(set(pair)) > 1)
    raise UserError(f"the ranks attach different things: rank 0 has {ours}, rank {other} has {theirs}")


def _by_rank(said: list[str]) -> str:
    """What was said, with the ranks that said it: `rank 0, 2: finish() after 4 steps`."""
    ranks = {text: [str(rank) for rank, other in enumerate(said) if other == text] for text in said}
    return "; ".join(f"rank {', '.join(who)}: {text}" for text, who in ranks.items())
