"""What runs train, in words, for the pages and figures that show them."""

from collections.abc import Iterable

from resync.config.run import Run


def setting_of(runs: Iterable[Run]) -> str:
    """The model, data, workers and steps of the runs behind an item, which at other scales than paper stand in."""
    runs = list(runs)
    scale = runs[0].scale
    kind = "paper scale" if scale == "paper" else f"{scale}-scale stand-in"
    models, data = (
        ", ".join(dict.fromkeys(names)) for names in zip(*((r.model.name, r.data.name) for r in runs), strict=True)
    )
    workers = counted({run.workers for run in runs}, "worker")
    return f"{kind}: {models} on {data}, {workers}, {counted({run.total_steps for run in runs}, 'step')}"


def counted(numbers: Iterable[int], noun: str) -> str:
    """`8 workers`, `1 seed`, `4, 8 workers`, `330 to 3,900 steps` for more than three numbers."""
    values = [f"{value:,}" for value in sorted(numbers)]
    listed = ", ".join(values) if len(values) <= 3 else f"{values[0]} to {values[-1]}"
    return f"{listed} {noun}{'' if values == ['1'] else 's'}"
