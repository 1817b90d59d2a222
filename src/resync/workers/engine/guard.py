"""What a model and an optimizer must be to be attached to, and must remain: an average must not silently not happen."""

import gc
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from math import isnan
from typing import Any
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from resync.base.errors import UserError
from resync.base.torch_private import calls_hooks, is_shard
from resync.workers.engine.attached_workers import AttachedWorkers
from resync.workers.engine.members import ranks_of
from resync.workers.engine.optimizer_state import parameters_of
from resync.workers.engine.shards import is_sharded, local, plain, reshard
from resync.workers.engine.workers import trainable

ATTACHED: "WeakSet[nn.Module]" = WeakSet()
"""The models that an algorithm is attached to."""


def rank_and_world_size(group: dist.ProcessGroup | None = None) -> tuple[int, int]:
    """Those in `group`, or of torch.distributed as it is set up now; without it there is a single process."""
    return (dist.get_rank(group), dist.get_world_size(group)) if dist.is_initialized() else (0, 1)


def process_group(group: Any) -> dist.ProcessGroup | None:
    """The process group that is given as such or as a dimension of a DeviceMesh; None stands for all processes.

    Raises ValueError or TypeError for anything else, and for a group without this process.
    """
    allowed = 'a ProcessGroup that this rank is in, or one dimension of a DeviceMesh, such as mesh["replicate"]'
    if hasattr(group, "get_group"):
        if group.ndim != 1:
            raise UserError(f"group: found a mesh with the dimensions {group.mesh_dim_names}, allowed: {allowed}")
        group = group.get_group()
    if group is not None and not isinstance(group, dist.ProcessGroup):
        raise TypeError(f"group: found {group!r}, allowed: {allowed}")
    if group is not None and dist.get_rank(group) < 0:
        raise UserError(f"group: found one without rank {dist.get_rank()}, allowed: {allowed}")
    return group


def check_attachable(model: nn.Module, optimizer: Optimizer, keeps_equal: bool, ranks: Collection[int]) -> None:
    """Raise ValueError or TypeError with the reason why an algorithm cannot be attached to this model and optimizer.

    `keeps_equal` says whether the algorithm averages the gradients of every step and does nothing else to workers,
    which have these ranks.
    """
    for name, found, allowed in (("model", model, nn.Module), ("optimizer", optimizer, Optimizer)):
        if not isinstance(found, allowed):
            raise TypeError(f"{name}: found {type(found).__name__}, allowed: a torch {allowed.__name__}, as in "
                            "resync.attach(model, optimizer, algorithm)")  # fmt: skip
    if not calls_hooks(optimizer):
        raise UserError(
            f"optimizer: found {type(optimizer).__name__}, of whose steps torch calls no hooks, since its __init__ "
            f"does not call that of torch.optim.Optimizer, allowed: {_inside(optimizer)}"
        )
    reshard(model)
    if not dist.is_initialized() and dist.is_torchelastic_launched():
        raise UserError("torchrun started this process, but torch.distributed is not set up: "
                         "call torch.distributed.init_process_group first")  # fmt: skip
    if model in ATTACHED:
        raise UserError(
            "an algorithm is attached to this model already: end it with finish(), or after an error with detach()"
        )
    # By its name: importing it takes half a second.
    if not keeps_equal and "ZeroRedundancyOptimizer" in [base.__name__ for base in type(optimizer).__mro__]:
        raise UserError("ZeroRedundancyOptimizer copies parameters between the workers in every step, allowed with it: "
                        "AllReduce of gradients, GPA")  # fmt: skip
    for name, module in model.named_modules():
        if isinstance(module, DistributedDataParallel):
            where = f"{name} of the model" if name else "the model"
            raise UserError(f"{where} is wrapped in DistributedDataParallel, allowed: the model itself")
    for name, tensor in _tensors(model):
        _check_tensor(name, tensor, ranks)
    _check_shards(model)
    _check_storages(model)
    _check_owners(model, optimizer)


def _inside(optimizer: Any, path: str = "optimizer") -> str:
    """What to attach to instead of an optimizer that wraps another one, or is none of torch's."""
    for name, value in vars(optimizer).items():
        if isinstance(value, Optimizer):
            inside = f"{path}.{name}"
            if not calls_hooks(value):
                return _inside(value, inside)
            return f"the {type(value).__name__} in it, {inside}, stepped by itself if the wrapper averages parameters"
    return "a torch optimizer that does"


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """All parameters and buffers, as `parameter weight` and `buffer mask`."""
    yield from ((f"parameter {name}", parameter) for name, parameter in model.named_parameters())
    yield from ((f"buffer {name}", buffer) for name, buffer in model.named_buffers())


def _check_shards(model: nn.Module) -> None:
    """Require that all parameters are sharded, or none."""
    whole = [name for name, parameter in model.named_parameters() if not is_sharded(parameter)]
    if whole and len(whole) < len(list(model.parameters())):
        raise UserError(f"parameter {whole[0]} is whole and others are sharded, allowed: fully_shard of all or of none")


def _check_tensor(name: str, tensor: Tensor, ranks: Collection[int]) -> None:
    if nn.parameter.is_lazy(tensor):
        raise UserError("the model has parameters without a shape yet: run one forward pass first")
    if is_shard(tensor):
        raise UserError(f"{name} is a shard of FullyShardedDataParallel, allowed: fully_shard, or whole parameters")
    if is_sharded(tensor):
        _check_mesh(name, tensor, ranks)
    elif type(tensor.data) is not Tensor and (tensor.requires_grad or not hasattr(tensor, "__tensor_flatten__")):
        raise UserError(f"{name} is a {type(tensor.data).__name__}, allowed: plain tensors, DTensors of fully_shard, "
                        "or frozen ones that consist of plain tensors (__tensor_flatten__)")  # fmt: skip
    if tensor.is_quantized:
        raise UserError(f"{name} is of {tensor.dtype}, whose scales are not shared, allowed: tensors of torchao, or "
                        "integers and scales as tensors of their own")  # fmt: skip
    if tensor.is_meta:
        raise UserError(f"{name} is on the meta device and has no values, allowed: a device that stores it")
    if tensor.layout is not torch.strided:
        raise UserError(f"{name} is sparse or packed ({tensor.layout}), allowed: dense tensors")
    if tensor.is_inference():
        raise UserError(f"{name} was made in torch.inference_mode(), which forbids changing it later, allowed: tensors "
                        "made outside, also by copy.deepcopy(model)")  # fmt: skip
    if tensor.requires_grad and not is_sharded(tensor):
        _check_movable(name, tensor)


def _check_movable(name: str, tensor: Tensor) -> None:
    """Require that a trained parameter can have its values elsewhere, among those of the others."""
    if tensor.dtype is torch.float16:
        raise UserError(f"{name} is trained in float16, in which sums over workers overflow, allowed: bfloat16, or "
                        "float32 with torch.autocast")  # fmt: skip
    if any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
        raise UserError(f"{name} is expanded: its elements share memory, which attaching would part, allowed: "
                        "a parameter of the smaller shape, expanded in forward()")  # fmt: skip
    if tensor.device.type == "cpu" and tensor.is_shared():
        raise UserError(f"{name} is in shared memory, which attaching would leave, so that other processes would see "
                        "no step, allowed: a copy of the model, by copy.deepcopy(model)")  # fmt: skip


def _check_storages(model: nn.Module) -> None:
    """Require that no trained parameter shares memory with another parameter or a buffer: attaching would part them.

    Parts of one storage side by side, as the weights of a recurrent layer on a GPU, are none of another's business.
    """
    spans = []
    for name, whole in _tensors(model):
        moves = whole.requires_grad and not is_sharded(whole)
        for tensor in plain(whole.detach()):
            if tensor.numel():
                sizes = zip(tensor.shape, tensor.stride(), strict=True)
                elements = 1 + sum((size - 1) * stride for size, stride in sizes)
                start = tensor.data_ptr()
                spans.append((str(tensor.device), start, start + elements * tensor.element_size(), moves, name))
    before: list[tuple[str, int, int, bool, str]] = []
    for own in sorted(spans, key=lambda span: span[:2]):
        device, start, _, moves, name = own
        before = [span for span in before if span[0] == device and span[2] > start]
        for *_, other_moves, other in before:
            if moves or other_moves:
                raise UserError(f"{other} and {name} share memory, and attaching would part them, allowed: one "
                                "parameter that both modules have (a.weight = b.weight), or copies")  # fmt: skip
        before.append(own)


def _check_mesh(name: str, tensor: Any, ranks: Collection[int]) -> None:
    """Require that a worker is sharded over its own processes, by the first dimension of its parameters."""
    mesh, placements = tensor.device_mesh, tensor.placements
    common = sorted(set(mesh.mesh.flatten().tolist()) & set(ranks))
    if mesh.ndim != 1 or len(common) > 1:
        found = f"{name} is sharded over the ranks {mesh.mesh.tolist()}, of which {common} are workers"
        allowed = 'fully_shard(model, mesh=mesh["shard"]) and group=mesh["replicate"] of a mesh with both dimensions'
        raise UserError(f"{found}, allowed: {allowed}")
    if not placements[0].is_shard(0):
        raise UserError(f"{name} has the placement {placements[0]}, allowed: Shard(dim=0), as of fully_shard")


def _check_owners(model: nn.Module, optimizer: Optimizer) -> None:
    """Require that the optimizer trains all that is trainable in the model, and nothing else."""
    held = parameters_of(optimizer)
    ids = set(map(id, held))
    missing = [
        name for name, parameter in model.named_parameters() if parameter.requires_grad and id(parameter) not in ids
    ]
    if missing:
        raise UserError(f"the optimizer does not have these parameters of the model: {', '.join(missing)}; "
                         "freeze them (requires_grad_(False)) or add them")  # fmt: skip
    own = set(map(id, model.parameters()))
    strange = [tuple(parameter.shape) for parameter in held if parameter.requires_grad and id(parameter) not in own]
    if strange:
        raise UserError(f"the optimizer has parameters that the model does not have, of shape {strange[0]}: they "
                         "would not be averaged; attach to a module that has them all")  # fmt: skip


def description(model: nn.Module) -> list[str]:
    """A line for every parameter and buffer, by which ranks and saved states compare their models.

    Where trained parameters are on several devices it says on which: not on all ranks the same, but equally spread.
    """
    devices = list(dict.fromkeys(parameter.device for parameter in trainable(model)))
    lines = []
    for name, tensor in _tensors(model):
        line = f"{name}: {str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
        if name.startswith("parameter") and not tensor.requires_grad:
            line += ", frozen"
        elif name.startswith("parameter") and len(devices) > 1:
            line += f", on device {devices.index(tensor.device) + 1} of {len(devices)}"
        lines.append(line)
    return lines


def shard_of(model: nn.Module) -> str:
    """Which part of a model this process has, by which ranks compare their models."""
    sharded: Any = next((tensor for _, tensor in _tensors(model) if is_sharded(tensor)), None)
    return (
        "whole" if sharded is None else f"shard {sharded.device_mesh.get_local_rank()} of {sharded.device_mesh.size()}"
    )


class Guard:
    """Notices when what the optimizer trains is no longer what the algorithm averages."""

    def __init__(self, workers: Sequence[AttachedWorkers], optimizer: Optimizer, ranks: Collection[int]) -> None:
        self.workers, self.optimizer = workers, optimizer
        self._ranks = set(ranks)
        self.model = workers[0].models[0]
        self._names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        self._rows = [attached.parameters[0] for attached in workers]
        self._averaged = {id(parameter) for parameters in self._rows for parameter in parameters}
        held = parameters_of(optimizer)
        self._held = list(map(id, held))
        self._world_size = rank_and_world_size()[1]
        self._frozen = [parameter for parameter in held if id(parameter) not in self._averaged]
        self._alone = False
        self._known: tuple[int, list[float]] = -1, []

    def remember(self, steps: int) -> None:
        """Take the parameters after so many steps for those that the algorithm knows."""
        self._known = steps, self._norms()

    def check_still(self, steps: int) -> None:
        """Raise RuntimeError if parameters have changed and the number of steps that were seen has not."""
        before, norms = self._known
        if before != steps:
            return
        for parameter, was, now in zip(chain(*self._rows), norms, self._norms(), strict=True):
            if was != now and not (isnan(was) and isnan(now)):
                raise RuntimeError(
                    f"{self._name(parameter)} has changed and sync.steps, {steps}, has not: another optimizer took "
                    "steps, or this one without torch's hooks, or values were set or loaded; load them before "
                    "attaching, or with sync.load_state_dict() after them, or sync.take_parameters()"
                )

    def _norms(self) -> list[float]:
        """A number for each parameter that a step would hardly leave as it is."""
        numbers: list[float] = []
        for parameters in self._rows:
            norms = [torch.linalg.vector_norm(local(parameter.detach())) for parameter in parameters]
            numbers += torch.stack(norms).tolist()
        return numbers

    def check(self) -> None:
        """Raise RuntimeError if other processes take part, or parameters were moved, cast, added, replaced or unfrozen.

        For every step.
        """
        if (now := rank_and_world_size()[1]) != self._world_size:
            raise RuntimeError(f"torch.distributed has {now} processes, {self._world_size} when the algorithm was "
                               "attached, which averages among those: call init_process_group before attaching, and "
                               "destroy_process_group after finish()")  # fmt: skip
        held = list(map(id, parameters_of(self.optimizer)))
        unfrozen = any([parameter.requires_grad for parameter in self._frozen])
        if held != self._held or unfrozen or not all(attached.are_bound() for attached in self.workers):
            raise RuntimeError(self._change(held))
        if not self._alone:
            self._check_wrappers()
            self._alone = True

    def check_model(self) -> None:
        """As `check`, and that the model has no trainable parameter that is not averaged; for rare calls."""
        self.check()
        reshard(self.model)
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad and id(parameter) not in self._averaged:
                raise RuntimeError(_new(name))

    def _change(self, held: list[int]) -> str:
        if moved := [parameter for attached in self.workers for parameter in attached.unbound()]:
            return (
                f"{len(moved)} parameters, the first of which is {self._name(moved[0])}, are stored elsewhere than "
                "when the algorithm was attached, and would not be averaged: cast, move or re-bind (.data = ...) them "
                "before attaching, and attach once"
            )
        unfrozen = [parameter for parameter in self._frozen if parameter.requires_grad]
        if new := [
            *unfrozen,
            *(parameter for parameter in parameters_of(self.optimizer) if id(parameter) not in self._held),
        ]:
            return _new(self._name(new[0]))
        return (
            f"the optimizer has {len(held)} parameters, {len(self._held)} when the algorithm was attached, or has them "
            "in another order: finish() and attach again"
        )

    def _name(self, parameter: nn.Parameter) -> str:
        names = {id(named): name for name, named in self.model.named_parameters()} | self._names
        return names.get(id(parameter), f"a parameter of shape {tuple(parameter.shape)}")

    def _check_wrappers(self) -> None:
        """Raise RuntimeError if DistributedDataParallel wraps the model, which nothing in the model shows."""
        modules = set(map(id, self.model.modules()))
        if _wrapped(modules, self._ranks):
            gc.collect()
            if _wrapped(modules, self._ranks):
                raise RuntimeError("the model is wrapped in DistributedDataParallel, which averages gradients over "
                                   "workers too, allowed: the model itself, or DistributedDataParallel within a "
                                   "worker of several processes, of which group= has one")  # fmt: skip


def _wrapped(modules: set[int], workers: set[int]) -> bool:
    """Whether DistributedDataParallel averages one of these modules over more than one of these ranks."""
    wrappers = [candidate for candidate in gc.get_objects() if issubclass(type(candidate), DistributedDataParallel)]
    return any(
        id(getattr(wrapper, "module", None)) in modules and len(workers & set(ranks_of(wrapper.process_group))) > 1
        for wrapper in wrappers
    )


def _new(name: str) -> str:
    return (
        f"{name} is trained and not averaged: it was added, replaced or unfrozen after the algorithm was attached; "
        "finish() and attach again"
    )
