"""Optimizers over rows: `optim/<name>.py` defines `build` and `decay`.

One torch optimizer updates all workers of a process: the workers' rows are one tensor, and the update is elementwise.
"""

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any

from torch.optim import Optimizer

from resync.engine.workers import Workers


def build(name: str, options: Mapping[str, Any], workers: Workers, apart: bool = False) -> Optimizer:
    """The optimizer `name` over the rows; the learning rate is set before every step.

    `apart`: over one parameter per worker (`Workers.split`), so that some workers can make a step without the others.
    With the option `decay: matrices` only the weights of linear and convolutional layers decay.
    """
    module = import_module(f"resync.optim.{name}")
    given = dict(options)
    parameters = workers.split() if apart else [workers.rows]
    if given.pop("decay") == "all":
        optimizer: Optimizer = module.build(parameters, **given)
        return optimizer
    rate = given.pop("weight_decay") * workers.matrices
    optimizer = module.build(parameters, **given)
    for parameter in parameters:
        optimizer.register_step_pre_hook(partial(module.decay, parameter, rate))
    return optimizer
