"""Computation of gradients and steps: forward and backward passes, micro-batches, loss scale, clipping, optimizer.

The engine here, `serial`, is a plain loop over the workers of the process. Other engines override parts of it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from resync.base.errors import UserError
from resync.base.streams import stream_seed
from resync.workers.engine import optimizer_state
from resync.workers.engine.settings import Form, LossScale
from resync.workers.engine.transport import Transport
from resync.workers.engine.workers import Workers

LossFunction = Callable[[nn.Module, Any, Any], Tensor | tuple[Tensor, Tensor]]
"""(model, inputs, targets) -> mean loss of one forward pass, or that and what else is logged, a tensor.

Where a step of a worker has several passes or processes, these are m means [m], of which the mean is taken.
"""


KEPT = 2**16
"""Elements of a parameter up to which its gradient stays where autograd has made it until the backward passes end."""


class Gradients:
    """The gradients of one model, which the backward passes put into a row.

    While there is no `.grad` to add to, autograd hands over a tensor of its own. That of a large parameter is copied to
    its place in the row while it is in the cache, and its memory is free again before the next layer needs some;
    filling the row with zeros and adding to it takes twice the time, and to keep all of autograd's tensors twice the
    memory. Those of small parameters are copied at the end by one operation: a hook for each takes longer than they do.
    Outside of `collecting` each `.grad` is its part of the row.
    """

    def __init__(self, places: Sequence[tuple[nn.Parameter, Tensor]]) -> None:
        self.places = places
        self._stored: set[int] | None = None
        """Outside of `collecting` None; in it the numbers of the large parameters that a backward pass has reached."""
        for number, (parameter, place) in enumerate(places):
            if place.numel() > KEPT:
                parameter.register_post_accumulate_grad_hook(partial(self._store, number, place))

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """The backward passes of the block fill the row; the parts of parameters that they do not reach are zero."""
        for parameter, _ in self.places:
            parameter.grad = None
        stored = self._stored = set()
        yield
        self._stored = None
        kept: list[Tensor] = []
        parts: list[Tensor] = []
        for number, (parameter, place) in enumerate(self.places):
            if parameter.grad is not None:
                kept.append(parameter.grad)
                parts.append(place)
            elif number not in stored:
                place.zero_()
            parameter.grad = place
        if kept:
            torch._foreach_copy_(parts, kept)

    def _store(self, number: int, place: Tensor, parameter: nn.Parameter) -> None:
        if self._stored is None:
            return
        gradient, parameter.grad = parameter.grad, None
        assert gradient is not None
        if number in self._stored:
            place.add_(gradient)
        else:
            place.copy_(gradient)
        self._stored.add(number)


class Measured(NamedTuple):
    """What the forward passes of k workers have returned: their losses [k], and what else is logged, [k, ...]."""

    losses: Tensor
    further: Tensor | None = None

    @classmethod
    def of(cls, columns: Tensor) -> "Measured":
        """Losses [k], or losses and m further means [k, 1 + m]."""
        return cls(columns) if columns.dim() == 1 else cls(columns[:, 0], columns[:, 1:])

    def columns(self) -> Tensor:
        """The opposite."""
        return self.losses if self.further is None else torch.cat([self.losses.unsqueeze(1), self.further], 1)


def joined(measured: Sequence[Measured]) -> Measured:
    """What some groups of workers have measured, as one group."""
    if len(measured) == 1:
        return measured[0]
    losses, further = zip(*measured, strict=True)
    return Measured(torch.cat(losses), None if further[0] is None else torch.cat(further))


class LossScales:
    """One scale for each of k local workers.

    A gradient that overflows is recomputed on the same batch with a smaller scale, where torch's GradScaler would skip
    the optimizer step: if only one worker skipped a step, its rounds would no longer match those of the others
    (Gu et al. 2024, original trainer). So every worker takes every step, and workers need not agree on a scale. A scale
    grows after `interval` steps in a row without overflow; in the original, every `interval` steps whatever happened.
    """

    def __init__(self, settings: LossScale, num_local: int) -> None:
        self.settings = settings
        self.scales = torch.full((num_local,), settings.initial, dtype=torch.float64)
        self.good_steps = torch.zeros(num_local, dtype=torch.int64)

    def unscaled(self, index: int, gradient: Tensor, take: Callable[[float], Measured]) -> Measured:
        """Call `take(scale)`, which fills the gradient of local worker `index`, until it is finite, and unscale it.

        Returns what the last attempt has measured, with a loss of NaN if no scale gave a finite gradient.
        """
        for _ in range(1 + self.settings.retries):
            scale = self.scales[index].item()
            measured = take(scale)
            gradient.div_(scale)
            if gradient.isfinite().all():
                self.good_steps[index] += 1
                if self.good_steps[index] == self.settings.interval:
                    self.scales[index] *= self.settings.growth
                    self.good_steps[index] = 0
                return measured
            self.scales[index] *= self.settings.backoff
            self.good_steps[index] = 0
        return measured._replace(losses=torch.full_like(measured.losses, torch.nan))

    def state_dict(self) -> dict[str, Tensor]:
        """The scales [k] and the numbers of steps since their last overflow or growth [k]."""
        return {"loss_scale": self.scales.clone(), "good_steps": self.good_steps.clone()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.scales.copy_(state["loss_scale"])
        self.good_steps.copy_(state["good_steps"])


@dataclass(frozen=True)
class Stacking:
    """What the engine `stacked` needs to know of a model and its loss.

    Attributes:
        form: the form in which the workers' samples pass through the model (`resync.workers.engine.stacked_layers`).
        losses: (model, inputs [k, b, ...], targets [k, b, ...]) -> the mean losses of k workers [k], and what else is
            logged, [k, ...], of several passes m means [k, m].
        sample: an input [1, ...], for `auto` to see whether stacking pays; None: it was not measured for such a run.
        samples: those of a worker's pass.
    """

    form: Form
    losses: Callable[[nn.Module, Tensor, Tensor], Tensor | tuple[Tensor, Tensor]]
    sample: Tensor | None = None
    samples: int = 1


@dataclass(frozen=True)
class EngineParts:
    """What engines work on, and how they make a gradient, whichever engine it is.

    Attributes:
        transport: that of the workers, whose members share a gradient.
        workers: the workers of this process.
        optimizer: the optimizer of the workers' parameters.
        loss: the loss of a forward pass.
        may_average: whether the algorithm averages gradients, so that the engine may do it in its place.
        micro_batches: forward passes for each worker, equally many for each member.
        clip_norm: L2 norm to which the gradient of a worker with a larger one is scaled down; None: it is not.
        loss_scale: given if the forward pass is in fp16.
        dropout_seed: of the random numbers of dropout; None: torch's, as they come.
        compile: the mode of torch.compile; None: the passes are not compiled.
        stacking: None for a model that the engine `stacked` cannot compute.
    """

    transport: Transport
    workers: Workers
    optimizer: Optimizer
    loss: LossFunction
    may_average: bool = False
    micro_batches: int = 1
    clip_norm: float | None = None
    loss_scale: LossScale | None = None
    dropout_seed: int | None = None
    compile: str | None = None
    stacking: Stacking | None = None


class Engine:
    """Computes the gradient of every local worker on its own batch, and steps the optimizer over all of them.

    The gradient of a worker is the mean over its members. BatchNorm's running statistics are those of member 0, as with
    torch's DDP.
    """

    name: ClassVar[str] = "serial"
    averages_gradients = False
    """Whether the gradients are already averaged over all workers."""
    state_format = "an optimizer over the workers' rows"
    """Engines with the same format can continue from each other's state."""
    incomplete: Callable[..., AbstractContextManager[Any]] = nullcontext
    """The context of a micro-batch that is not the last one of its step."""

    def __init__(self, parts: EngineParts) -> None:
        self.workers = parts.workers
        self.optimizer = parts.optimizer
        self.loss = parts.loss
        self.members = parts.transport.members
        self.first_worker = parts.transport.local.start
        self.micro_batches = parts.micro_batches // self.members.processes
        self.clip_norm = parts.clip_norm
        self.loss_scales = LossScales(parts.loss_scale, self.workers.num_local) if parts.loss_scale else None
        layers = self.workers.models[0].modules()
        has_dropout = any(isinstance(layer, nn.Dropout) and layer.p for layer in layers)
        self.dropout_seed = parts.dropout_seed if has_dropout else None
        self.forwards: list[nn.Module] = list(parts.workers.models)

    @cached_property
    def _in_rows(self) -> list[Gradients]:
        """What puts the gradients of each local worker into its row."""
        return [Gradients(self.workers.gradient_places(index)) for index in range(self.workers.num_local)]

    def compile(self, mode: str) -> None:
        """Compile the forward and backward passes of every worker with torch.compile; evaluation is not compiled."""
        self.forwards = [torch.compile(forward, mode=mode) for forward in self.forwards]

    def gradient_of(self, index: int, inputs: Any, targets: Any, step: int) -> Measured:
        """Fill the row of one local worker, whose inputs and targets these are; returns its loss, as `gradients`."""
        gradient = self.workers.grads[index]

        def take(scale: float) -> Measured:
            with self.collecting(index):
                measured = self._backward(index, inputs, targets, scale, step)
            if self.members.processes > 1:
                self.average_in_replica(gradient)
                return Measured.of(self.members.mean_(measured.columns()))
            return measured

        return self.loss_scales.unscaled(index, gradient, take) if self.loss_scales else take(1.0)

    def gradients(self, inputs: Sequence[Any], targets: Sequence[Any], step: int = 0) -> Measured:
        """Fill `workers.grads` with the gradient of each worker's mean loss; returns these losses, and what is logged.

        The inputs and targets of a worker, of which a process has the share of its members, are tensors [b, ...], which
        go through the model in `micro_batches` equal parts, or lists with one entry per part. A loss is NaN if no loss
        scale gave a finite gradient.
        """
        batches = enumerate(zip(inputs, targets, strict=True))
        return joined([self.gradient_of(index, *batch, step) for index, batch in batches])

    def gradient_norms(self) -> Tensor:
        """The L2 norms of the local workers' gradients before clipping, [k]; NaN if unknown here."""
        return torch.linalg.vector_norm(self.workers.grads, dim=1)

    def step(self, lr: float) -> None:
        if self.clip_norm:
            self.workers.clip_gradients(self.clip_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()

    def share_buffers(self) -> None:
        """Give every process of a worker the buffers of member 0, for evaluation. Collective."""
        for model in self.workers.models:
            self.members.share_(model.buffers())

    def state_dict(self) -> dict[str, Any]:
        """The state of the optimizer and the loss scales; under "workers" tensors with one row per worker."""
        own, shared = optimizer_state.save(self.optimizer, self.workers)
        scales = self.loss_scales.state_dict() if self.loss_scales else {}
        return {"format": self.state_format, "shared": shared, "workers": own | scales}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned, after the rows. Raises ValueError for a state in another format."""
        optimizer_state.load(self.optimizer, self.workers, self._fields_of_workers(state), state["shared"])

    def collecting(self, index: int) -> AbstractContextManager[Any]:
        """The context in which the backward passes of a local worker fill its row of `workers.grads`."""
        return self._in_rows[index].collecting()

    def backpropagate(self, loss: Tensor) -> None:
        loss.backward()

    def average_in_replica(self, gradient: Tensor) -> None:
        """Average a worker's gradient over its processes, in place, after the backward passes."""
        self.members.mean_(gradient)

    def _fields_of_workers(self, state: dict[str, Any]) -> dict[str, Tensor]:
        """What a state has under "workers", without the loss scales, which are restored."""
        if state["format"] != self.state_format:
            found = f"found a state of {state['format']}, allowed: {self.state_format}"
            raise UserError(f"engine {self.name}: {found}; continue with the engine that started the run")
        own = dict(state["workers"])
        if self.loss_scales:
            self.loss_scales.load_state_dict({name: own.pop(name) for name in self.loss_scales.state_dict()})
        return own

    def _backward(self, index: int, inputs: Any, targets: Any, scale: float, step: int) -> Measured:
        """Add the gradient of `scale` times the mean loss of one worker to its row; returns the loss without scale."""
        if self.micro_batches == 1:
            x, y = (side if isinstance(side, Tensor) else side[0] for side in (inputs, targets))
            return self._pass(index, x, y, scale, step, self.members.first, 0)
        passes: list[Measured] = []
        # Equal parts of a tensor [b, ...]; a list already consists of its parts.
        parts = (side.chunk(self.micro_batches) if isinstance(side, Tensor) else side for side in (inputs, targets))
        for number, (x, y) in enumerate(zip(*parts, strict=True)):
            member, part = divmod(number, self.micro_batches // self.members.num_local)
            with nullcontext() if number + 1 == self.micro_batches else self.incomplete():
                passes.append(self._pass(index, x, y, scale, step, self.members.first + member, part))
        further = [measured.further for measured in passes if measured.further is not None]
        losses = reduce(torch.add, [measured.losses for measured in passes])
        return Measured(losses, reduce(torch.add, further) if further else None)

    def _pass(self, index: int, x: Any, y: Any, scale: float, step: int, member: int, part: int) -> Measured:
        """The same for one micro-batch, number `part` of its member."""
        if part == 0 and self.dropout_seed is not None:
            # By member and step alone: the same with any number of processes, in a repeated gradient and a resumed run.
            number = (self.first_worker + index) * self.members.number + member
            seed = stream_seed(self.dropout_seed, "dropout", worker=number, epoch=step)
            # Not torch.manual_seed, which takes milliseconds: it seeds every kind of device that there might be.
            (torch.cuda if self.workers.rows.is_cuda else torch.default_generator).manual_seed(seed)
        with nullcontext() if member == 0 else untracked(self.workers.models[index]):
            result = self.loss(self.forwards[index], x, y)
            loss, further = result if isinstance(result, tuple) else (result, None)
            if self.micro_batches > 1:
                loss, further = loss / self.micro_batches, None if further is None else further / self.micro_batches
            self.backpropagate(loss if scale == 1 else loss * scale)
        return Measured(loss.detach().view(1), None if further is None else further.unsqueeze(0))


@contextmanager
def untracked(model: nn.Module) -> Iterator[None]:
    """Within the block, training passes through the model leave BatchNorm's running statistics alone."""
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm) and layer.track_running_stats]
    for layer in layers:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in layers:
            layer.track_running_stats = True
