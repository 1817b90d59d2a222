"""Optimizers over rows: `optim/<name>.py` defines `build` and `decay`.

One torch optimizer updates all workers of a process: the workers' rows are one tensor, and the update is elementwise.
"""

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any

from torch.optim import Optimizer

from resync.engine.workers import Workers


def build(name: str, options: Mapping[str, Any], workers: Workers) -> Optimizer:
    """The optimizer `name` over the rows; the learning rate is set before every step.

    With the option `decay: matrices` only the weights of linear and convolutional layers decay.
    """
    module = import_module(f"resync.optim.{name}")
    given = dict(options)
    if given.pop("decay") == "all":
        optimizer: Optimizer = module.build([workers.rows], **given)
        return optimizer
    rate = given.pop("weight_decay") * workers.matrices
    optimizer = module.build([workers.rows], **given)
    optimizer.register_step_pre_hook(partial(module.decay, workers.rows, rate))
    return optimizer
