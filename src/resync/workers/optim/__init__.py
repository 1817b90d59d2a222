"""Optimizers over rows, one file each.

`optim/<name>.py` defines `build(parameters, options) -> Optimizer`, and `decay` if its options include weight decay of
matrices only; `optim/options` has the options. One torch optimizer updates all workers of a process: the
workers' rows are one tensor, and the update is elementwise, except for an optimizer `by_shape`, whose `build` also gets
the workers, which know where each parameter is in their rows. Importing this package does not import torch.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from resync.workers.engine.workers import Workers
    from resync.workers.optim.options.base import OptimizerOptions


def build(options: OptimizerOptions, workers: Workers, apart: bool = False) -> Optimizer:
    """The optimizer of these options over the rows; the learning rate is set before every step.

    With `apart` it has one parameter per worker (`Workers.split`), so that some workers can step without the others.
    """
    module = import_module(f"resync.workers.optim.{options.name}")
    parameters = workers.split() if apart else [workers.rows]
    layout = [workers] if options.by_shape else []
    optimizer: Optimizer = module.build(parameters, options, *layout)
    if options.decay_of_matrices:
        rate = options.decay_of_matrices * getattr(workers, options.decaying)
        optimizer.param_groups[0]["decay_rates"] = rate
        for parameter in parameters:
            optimizer.register_step_pre_hook(partial(module.decay, parameter, rate))
    return optimizer
