"""Where and with what the runs of an archive were trained, and with which packages its figures were drawn."""

import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any

from resync.papers.archive.certificates import Certificates, with_uncommitted_changes
from resync.runs.results.summary import commits

_DRAWING = ("resync-suite", "matplotlib", "numpy", "pandas", "pillow", "pyarrow", "scipy")


def environment(summaries: Iterable[Mapping[str, Any]], certificates: Certificates) -> dict[str, Any]:
    """Numbers of runs, times, commits, devices, numbers of processes and versions of the summaries of runs.

    Names of hosts are not part of it. Runs with uncommitted changes count as `certified` where a run of their
    experiment has a certificate.
    """
    listed = list(summaries)
    without, certified = with_uncommitted_changes(listed, certificates)
    launches = [summary.get("launch") or {} for summary in listed]
    gits = [git for summary in listed for git in commits(summary)]
    names = _distinct(name for summary in listed for name in summary.get("versions") or {})
    seconds = [summary["seconds"].get("wall") or 0.0 for summary in listed]
    return {
        "runs": len(listed),
        "imported": sum(bool(summary.get("imported")) for summary in listed),
        "first_started": min(filter(None, (summary.get("started") for summary in listed)), default=None),
        "last_ended": max(filter(None, (summary.get("ended") for summary in listed)), default=None),
        "hours": round(sum(seconds) / 3600, 2),
        "devices": _distinct(launch.get("device") for launch in launches),
        "processes": _distinct(launch.get("world_size") for launch in launches),
        "threads": _distinct(launch.get("threads") for launch in launches),
        "commits": _distinct(git.get("commit") for git in gits),
        "processors": _distinct(launch.get("processor") for launch in launches),
        "with_uncommitted_changes": without,
        "certified": certified,
        "versions": {
            name: _distinct((summary.get("versions") or {}).get(name) for summary in listed) for name in names
        },
        "drawn_with": drawn_with(),
    }


def drawn_with() -> dict[str, str]:
    """Versions of Python and the packages on which the bytes of figures and audits depend."""
    return {"python": platform.python_version(), **{name: version(name) for name in _DRAWING}}


def _distinct(values: Iterable[Any]) -> list[Any]:
    return sorted({value for value in values if value is not None})
