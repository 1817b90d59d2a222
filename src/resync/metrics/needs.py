"""What a run must have for a metric to be measured."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from resync.metrics.evaluation import Evaluation


class Measuring(Protocol):
    """The settings of a run that decide which metrics it measures."""

    @property
    def task(self) -> str:
        """What its data set is for."""

    @property
    def workers(self) -> int:
        """Number of workers."""

    @property
    def clock(self) -> object | None:
        """Its simulated times."""

    @property
    def evaluation(self) -> Evaluation:
        """What is evaluated."""

    @property
    def search(self) -> object | None:
        """How its learning rate is found, if it is not given."""


@dataclass(frozen=True)
class Need:
    """What a run must have for a metric to be measured, in words and as a condition."""

    text: str
    met_by: Callable[[Measuring], bool]


def _task(name: str) -> Need:
    return Need(f"data for {name.replace('_', ' ')}", lambda run: run.task == name)


def _setting(name: str) -> Need:
    return Need(f"evaluation.{name}", lambda run: getattr(run.evaluation, name) is not None)


CLASSIFICATION, TRANSLATION, LANGUAGE_MODEL, QUADRATICS = map(
    _task, ("classification", "translation", "language_model", "quadratics")
)
SEARCH = Need("search", lambda run: run.search is not None)
BEAM_SEARCH, SHARPNESS, ESTIMATE = map(_setting, ("beam_search", "sharpness_batches", "random_batches"))
OWN_MODELS = Need("evaluation.also: workers", lambda run: run.evaluation.also == "workers")
CLOCK = Need("a virtual clock", lambda run: run.clock is not None)
SEVERAL_WORKERS = Need("more than one worker", lambda run: run.workers > 1)
