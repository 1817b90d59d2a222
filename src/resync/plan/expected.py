"""The GPU-hours that runs are expected to take: as rehearsed, or as the paper says of its own machines."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from resync.metrics.registry import SECONDS_PER_HOUR
from resync.paper.published import PublishedValue
from resync.plan.cost import Cost
from resync.plan.forecast import published_time, seconds_per_step
from resync.plan.rehearsed import Rates, shape_id
from resync.run import Run


def with_expected_hours(
    runs: Sequence[Run],
    costs: Sequence[Cost],
    rates: Mapping[str, Rates],
    published: Mapping[str, Sequence[PublishedValue]],
) -> list[Cost]:
    """The costs of these runs with the GPU-hours expected and what these follow from.

    `rates` are those of rehearsals by shape, `published` the values of every paper.
    """
    found = []
    for run, item in zip(runs, costs, strict=True):
        gpus = run.resources.nodes * run.resources.gpus_per_node
        if rehearsed := rates.get(shape_id(run)):
            hours, source = rehearsed.hours(run, item.bytes_per_worker), rehearsed.source
        elif time := published_time(run, published[run.paper]):
            hours, source = run.total_steps * seconds_per_step(time, run.total_steps) / SECONDS_PER_HOUR, "published"
        else:
            found.append(item)
            continue
        found.append(replace(item, expected_gpu_hours=gpus * hours, rate_from=source))
    return found
