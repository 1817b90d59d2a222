"""What runs train, in words, for the pages and figures that show them."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from resync.runs.run.run import Run


def setting_of(runs: Iterable[Run], references: Iterable[Run]) -> str:
    """The scale, model, data, workers and steps of the runs behind an item; see `scale_of`."""
    references = list(references)
    runs = list(runs) or list(references)
    models, data = (
        listed(dict.fromkeys(names)) for names in zip(*((r.model.name, r.data.name) for r in runs), strict=True)
    )
    workers, steps = (
        counted({run.workers for run in runs}, "worker"),
        counted({run.total_steps for run in runs}, "step"),
    )
    return f"{scale_of(runs, references)}: {models} on {data}, {workers}, {steps}"


def scale_of(runs: Iterable[Run], references: Iterable[Run]) -> str:
    """`mini scale`; `mini-scale stand-in` if any run trains something else than its series does at paper scale."""
    references = list(references)
    runs = list(runs) or references
    published = {(run.experiment, run.series): _trained(run) for run in references}
    stand_in = any(published.get((run.experiment, run.series), _trained(run)) != _trained(run) for run in runs)
    return f"{runs[0].scale}{'-scale stand-in' if stand_in else ' scale'}"


def title_of(title: str, runs: Iterable[Run], references: Iterable[Run]) -> str:
    """The title of an item; of stand-ins first what was trained, then what it stands for.

    `ViT-B/16 on ImageNet: H of QSR` is `Small ViT on CIFAR-10 averaged to 16x16 pixels: H of QSR, in place of ViT-B/16
    on ImageNet`.
    """
    runs, references = list(runs), list(references)
    if not runs or title.startswith("Small ") or not scale_of(runs, references).endswith("stand-in"):
        return title
    models = listed(dict.fromkeys(map(_model_of, runs)))
    published, _, subject = title.partition(": ")
    if published.startswith("The "):
        published = published.replace("The", "the", 1)
    return f"Small {models} on {_data_of(runs)}{': ' if subject else ''}{subject}, in place of {published}"


def trained_here(runs: Iterable[Run], sizes: Mapping[str, int]) -> str:
    """What runs train, be it less than their paper does or the same, with the parameters of models by their names.

    `Here (CNN of 6,418 parameters on CIFAR-10 averaged to 16x16 pixels, 8 workers, 6 epochs)`.
    """
    runs = list(runs)
    of = {name: f" of {size:,} parameters" for name, size in sizes.items()}
    models = listed(dict.fromkeys(f"{_model_of(run)}{of.get(run.model.name, '')}" for run in runs))
    workers = counted({run.workers for run in runs}, "worker")
    epochs = listed(dict.fromkeys(f"{run.epochs:g}" for run in runs))
    return f"Here ({models} on {_data_of(runs)}, {workers}, {epochs} epoch{'' if epochs == '1' else 's'})"


def _model_of(run: Run) -> str:
    return _OF_A_DATA_SET.sub("", type(run.model).__name__)


def _data_of(runs: Iterable[Run]) -> str:
    return listed(dict.fromkeys(_END_OF_NAME.split(run.data.component.description)[0] for run in runs))


_OF_A_DATA_SET, _END_OF_NAME = re.compile("^(Cifar|Mnist)"), re.compile("[;,(]")


def counted(numbers: Iterable[int], noun: str) -> str:
    """`8 workers`, `1 seed`, `4 and 8 workers`, `330 to 3,900 steps` for more than three numbers."""
    values = [f"{value:,}" for value in sorted(numbers)]
    shown = listed(values) if len(values) <= 3 else f"{values[0]} to {values[-1]}"
    return f"{shown} {noun}{'' if values == ['1'] else 's'}"


def tallied(counts: Mapping[str, int]) -> str:
    """`3 finished, 1 failed`."""
    return ", ".join(f"{count} {word}" for word, count in counts.items())


def listed(texts: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last


def _trained(run: Run) -> tuple[Any, ...]:
    return run.model, run.data, run.workers, run.batch_size, run.total_steps
