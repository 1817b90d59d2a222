"""Our methods, around a caller's loop (`library_`) and with the suite's engine (`suite_`)."""

from functools import partial

import torch
from torch import Tensor

import resync
from benchmarks.synchronising.loop import LR, MOMENTUM, H, Setting, Step, loss_of
from resync.workers import sync
from resync.workers.engine.choose import engine_of
from resync.workers.engine.clocks import Clocks
from resync.workers.engine.engine import EngineParts
from resync.workers.engine.members import Members
from resync.workers.engine.settings import EngineSettings
from resync.workers.engine.transport import Transport
from resync.workers.engine.workers import Workers
from resync.workers.sync.algorithm import Training
from resync.workers.sync.options.base import SyncOptions


def _library(algorithm: SyncOptions, setting: Setting) -> Step:
    """The four calls of a caller's loop; attached once before it."""
    model, optimizer = setting.model, setting.optimizer()
    resync.attach(model, optimizer, algorithm)

    def step(batch: Tensor, labels: Tensor) -> None:
        loss_of(model, batch, labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _suite(options: SyncOptions, setting: Setting) -> Step:
    """The parts that a run of the suite has, in the order of its loop."""
    transport = Transport(Members(setting.size, 1, setting.rank, setting.size), Clocks(torch.device("cpu")))
    workers = Workers(setting.model, 1)
    optimizer = torch.optim.SGD([workers.rows], lr=LR, momentum=MOMENTUM, fused=True)
    parts = EngineParts(transport, workers, optimizer, loss_of, options.needs.engine_may_average)
    engine = engine_of(EngineSettings(), parts)
    training = Training(workers, transport, optimizer, averaged_by_engine=engine.averages_gradients)
    algorithm = sync.build(options, training)

    def step(batch: Tensor, labels: Tensor) -> None:
        algorithm.send_ahead()
        engine.gradients([batch], [labels], algorithm.steps)
        algorithm.after_backward()
        engine.step(LR)
        algorithm.after_step(LR)

    return step


library_local_sgd = partial(_library, resync.LocalSGD(period=H))
library_sgp = partial(_library, resync.SGP())
library_dpsgd = partial(_library, resync.DPSGD())
library_osgp = partial(_library, resync.OSGP())
library_all_reduce = partial(_library, resync.AllReduce())
library_slowmo = partial(_library, resync.SlowMo(period=H))
suite_local_sgd = partial(_suite, resync.LocalSGD(period=H))
suite_sgp = partial(_suite, resync.SGP())
suite_dpsgd = partial(_suite, resync.DPSGD())
suite_osgp = partial(_suite, resync.OSGP())
suite_all_reduce = partial(_suite, resync.AllReduce())
suite_slowmo = partial(_suite, resync.SlowMo(period=H))
