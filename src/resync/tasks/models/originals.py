"""Checkpoints of the original Local SGD repository (Gu et al. 2023), from which its experiments start."""

import re
from collections.abc import Collection
from pathlib import Path
from pickle import UnpicklingError
from zipfile import is_zipfile

import torch
from torch import Tensor, nn

from resync.base.errors import UserError


def load_original(model: nn.Module, file: Path) -> None:
    """Copy the parameters and buffers of a checkpoint of the original repository into the model that it is of.

    docs/data.md lists the files and their models. A file does not reveal groups and activation, which the caller must
    choose correctly.

    Raises ValueError if the file does not exist or is not such a checkpoint, and for a tensor that the model or the
    file lacks or that has a different shape; the model is then unchanged.
    """
    wanted = model.state_dict()
    state = {_name_in(wanted, name): value for name, value in _read(file).items()}
    problems = [
        *(f"lacks {name}" for name in wanted if name not in state),
        *(f"has {name}, which the model lacks" for name in state if name not in wanted),
        *(
            f"has {name} of shape {list(state[name].shape)}, the model's is {list(value.shape)}"
            for name, value in wanted.items()
            if name in state and state[name].shape != value.shape
        ),
    ]
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise UserError(f"{file}: does not fit the model: {problems[0]}{more}")
    model.load_state_dict(state)


def _read(file: Path) -> dict[str, Tensor]:
    if not file.is_file():
        raise UserError(f"{file}: no such file, allowed: a checkpoint (docs/data.md)")
    with file.open("rb") as opened:
        if not is_zipfile(opened):
            raise UserError(f"{file}: not a file that torch.save wrote, or only a part of it")
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except (UnpicklingError, RuntimeError) as error:
        raise UserError(f"{file}: not only tensors, which alone are safe to load") from error
    if not (isinstance(content, dict) and all(isinstance(value, Tensor) for value in content.values())):
        raise UserError(f"{file}: found no state dict, allowed: names of tensors with their values")
    return content


def _name_in(wanted: Collection[str], name: str) -> str:
    """The name of a tensor in a model that has the names `wanted`.

    The original's CIFAR networks call every normalisation `bn`, even GroupNorm, and those here `norm`. All other names
    are the same, also those of torchvision's ResNets, which have `bn` here too.
    """
    renamed = re.sub(r"\bbn(?=\d)", "norm", name)
    return renamed if renamed in wanted and name not in wanted else name
