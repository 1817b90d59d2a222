"""Our methods, around a caller's loop (`library_`) and with the suite's engine (`suite_`)."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

import resync
from benchmarks.synchronising.loop import LR, MOMENTUM, H, Setting, Step, loss_of
from resync import sync
from resync.config.execution import EngineSettings
from resync.config.parts import SyncOptions
from resync.engine import choose
from resync.engine.clocks import Clocks
from resync.engine.transport import Transport
from resync.engine.workers import Workers
from resync.formulas.periods import Constant
from resync.processes.memory import keep_freed_memory
from resync.sync.algorithm import Training
from resync.sync.options.every_step import DPSGD, OSGP, SGP, AllReduce
from resync.sync.options.outer import SlowMo
from resync.sync.options.rounds import Local


def _library(attach: Callable[..., resync.Synchronised], options: dict[str, object], setting: Setting) -> Step:
    """The four calls of a caller's loop; attached once before it."""
    model, optimizer = setting.model, setting.optimizer()
    attach(model, optimizer, **options)

    def step(batch: Tensor, labels: Tensor) -> None:
        loss_of(model, batch, labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _suite(options: SyncOptions, setting: Setting) -> Step:
    """The parts that a run of the suite has, in the order of its loop."""
    keep_freed_memory()  # as a run does
    transport = Transport(setting.size, Clocks(torch.device("cpu")), setting.rank, setting.size)
    workers = Workers(setting.model, 1)
    optimizer = torch.optim.SGD([workers.rows], lr=LR, momentum=MOMENTUM, fused=True)
    engine = choose.build(EngineSettings(), options.needs.engine_may_average, transport, workers, optimizer, loss_of)
    training = Training(workers, transport, optimizer, averaged_by_engine=engine.averages_gradients)
    algorithm = sync.build(options, training)

    def step(batch: Tensor, labels: Tensor) -> None:
        algorithm.send_ahead()
        engine.gradients([batch], [labels], algorithm.steps)
        algorithm.after_backward()
        engine.step(LR)
        algorithm.after_step(LR)

    return step


PERIOD = Constant(h=H)
library_local_sgd = partial(_library, resync.LocalSGD, {"period": PERIOD})
library_sgp = partial(_library, resync.SGP, {})
library_dpsgd = partial(_library, resync.DPSGD, {})
library_osgp = partial(_library, resync.OSGP, {})
library_all_reduce = partial(_library, resync.AllReduce, {})
library_slowmo = partial(_library, resync.SlowMo, {"period": PERIOD})
suite_local_sgd = partial(_suite, Local(period=PERIOD))
suite_sgp = partial(_suite, SGP())
suite_dpsgd = partial(_suite, DPSGD())
suite_osgp = partial(_suite, OSGP())
suite_all_reduce = partial(_suite, AllReduce())
suite_slowmo = partial(_suite, SlowMo(period=PERIOD))
