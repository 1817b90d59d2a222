"""From an experiment's layers to runs: one merged layer per series and scale, one run per seed."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

from resync.base.settings.base import is_id
from resync.base.settings.errors import Problem, not_among
from resync.base.settings.problems import Collector
from resync.base.settings.tree import Node, leaves, merge, without
from resync.papers.paper.claim import Regime
from resync.papers.paper.paper import Blocks, Experiment, ExperimentFile, Tuned
from resync.runs.run.in_words import listed
from resync.runs.run.reduction import LoadedScale, Reduced
from resync.runs.run.run import SCALES, Run, SeriesLayer

PUBLISHED = "paper"
"""The scale of the published settings."""

_Found = dict[Problem, list[tuple[str, str]]]
"""The (series, scale) pairs that have a problem."""


def expand(
    paper: str, name: str, node: Node, scale_layers: dict[str, LoadedScale], collector: Collector
) -> tuple[Experiment, list[Run]]:
    """The experiment in `node` and its runs at all of its scales; problems go to `collector`."""
    collector.validate(ExperimentFile, node, partial=True)
    collector.note(_dangling_series(node))
    collector.note(_without_effect(node, scale_layers))
    scales = _scales(node, scale_layers)
    noted = {problem.place for problem in collector.problems}
    wrong: _Found = defaultdict(list)
    labels: dict[str, str] = {}
    runs: list[Run] = []
    published: dict[str, tuple[Node, SeriesLayer]] = {}
    small: dict[str, Reduced] = {}
    # The published scale is the last one, and what is reduced comes from it.
    for scale, series in ((scale, series) for scale, existing in reversed(scales.items()) for series in existing):
        if scale in node.entries_at("scales"):
            merged = _merge_layers(node, scale_layers.get(scale), scale, series)
        elif series in published:
            if scale not in small:
                small[scale] = Reduced([layer for _, layer in published.values()], scale_layers[scale])
            merged = small[scale].of(*published[series])
        else:
            continue  # the published form has problems, which say enough
        layer, problems = collector.validated(SeriesLayer, merged)
        for problem in problems:
            if problem.place not in noted:
                wrong[problem].append((series, scale))
        if layer is not None:
            labels[series] = layer.label
            runs += layer.runs(paper, name, series, scale)
            if scale == PUBLISHED:
                published[series] = merged, layer
    collector.note(_report(wrong, node, scales))
    if not collector.found_any:
        collector.note(_unreachable_series(node, scales))
    ordered = {series: labels.get(series, series) for series in node.entries_at("series")}
    expect = node.child("expect")
    blocks, grid = node.child("blocks"), node.child("tuned")
    tuned = collector.validated(Tuned, grid)[0] if grid else None  # its problems are noted with those of the file
    by: Blocks = "start" if blocks and blocks.value == "start" else "seed"
    of_regime = node.child("regime")
    regime = collector.validated(Regime, of_regime)[0] if of_regime else None
    if of_regime and regime and regime.rates == "tuned" and not grid:
        allowed = "with tuned, which names it; shared; or compared"
        collector.note([of_regime.problem(f"found tuned without a grid, allowed: {allowed}", "rates")])
    return Experiment(name, expect.value if expect else "", ordered, scales, by, tuned, regime), runs


def _scales(node: Node, scale_layers: dict[str, LoadedScale]) -> dict[str, tuple[str, ...]]:
    """The series at each scale that the experiment declares, or to which its published form is reduced."""
    declared = node.entries_at("scales")
    scales = {}
    for scale in SCALES:
        if scale in declared:
            scales[scale] = _series_at(node, scale)
        elif PUBLISHED in declared and scale in scale_layers and scale_layers[scale].reduction:
            scales[scale] = _series_at(node, PUBLISHED)
    return scales


def _series_at(node: Node, scale: str) -> tuple[str, ...]:
    layers = node.entries_at("series").items()
    series = [name for name, layer in layers if is_id(name) and isinstance(layer.value, dict)]
    chosen = node.entries_at("scales")[scale].child("series_only")
    only = chosen.plain() if chosen else None
    return tuple(name for name in series if not isinstance(only, list) or name in only)


def _merge_layers(node: Node, scale_layer: LoadedScale | None, scale: str, series: str) -> Node:
    """All layers of a series at a scale, merged. A key that no layer gives is reported as missing in base."""
    base = node.child("base") or Node({}, node.file, node.line, ("base",))
    at_scale = node.entries_at("scales")[scale]
    of_series = node.entries_at("series")[series]
    own = at_scale.entries_at("series").get(series)
    shared = scale_layer.settings if scale_layer else None
    layers = [base, shared, without(at_scale, "series", "series_only"), of_series, own]
    present = [layer for layer in layers if layer is not None and isinstance(layer.value, dict)]
    return replace(base, value=reduce(merge, present).value)


def _dangling_series(node: Node) -> Iterator[Problem]:
    """Series that a scale names but that the experiment or the scale does not have."""
    known = node.entries_at("series")
    for scale, layer in node.entries_at("scales").items():
        for entry in layer.listed_at("series_only"):
            if isinstance(entry.value, str) and entry.value not in known:
                yield entry.problem(not_among(entry.value, known))
        for name, entry in layer.entries_at("series").items():
            if name not in known:
                yield entry.problem(not_among(name, known))
            elif name not in _series_at(node, scale):
                yield entry.problem("has no effect, allowed: series that series_only names")


def _without_effect(node: Node, scale_layers: dict[str, LoadedScale]) -> Iterator[Problem]:
    """Settings of base in place of which every scale of the experiment has those that all experiments share."""
    at = {name: layer.settings for name, layer in scale_layers.items() if name in node.entries_at("scales")}
    shared = [dict(leaves(settings.plain())) for settings in at.values()]
    base = node.child("base")
    for key, _ in leaves(base.plain()) if base and base.entries and shared else ():
        if all(key in settings for settings in shared):
            entry = reduce(lambda under, name: under.entries[name], key.split("."), base)
            files = listed(settings.file for settings in at.values())
            yield entry.problem(f"has no effect: {files} {'has' if len(at) == 1 else 'have'} it, allowed: in scales")


def _unreachable_series(node: Node, scales: dict[str, tuple[str, ...]]) -> Iterator[Problem]:
    reached = {name for existing in scales.values() for name in existing}
    for name, entry in node.entries_at("series").items():
        if name not in reached:
            yield entry.problem("exists at no scale, allowed: series that series_only names at one of them")


def _report(problems: _Found, node: Node, scales: dict[str, tuple[str, ...]]) -> Iterator[Problem]:
    """Each problem once; a key that only some series lack is reported at those series, not in base."""
    reached = {name for existing in scales.values() for name in existing}
    for problem, where in problems.items():
        affected = {name for name, _ in where}
        if _is_lacking(problem, node) and affected != reached:
            for name in affected:
                place = node.entries_at("series")[name]
                moved = replace(problem, line=place.line, path=f"series.{name}{problem.path.removeprefix('base')}")
                yield _with_scales(moved, [(n, scale) for n, scale in where if n == name], scales)
        else:
            yield _with_scales(problem, where, scales)


def _is_lacking(problem: Problem, node: Node) -> bool:
    """Whether the problem concerns a key that no layer gives, so that its place in base is only a guess."""
    head, key, *_ = [*re.split(r"[.\[]", problem.path), ""]
    return problem.file == node.file and head == "base" and key not in node.entries_at("base")


def _with_scales(problem: Problem, where: list[tuple[str, str]], scales: dict[str, tuple[str, ...]]) -> Problem:
    """The problem, with the scales at which it occurs if its series exist at other scales too."""
    affected = {name for name, _ in where}
    possible = [scale for scale, existing in scales.items() if affected & set(existing)]
    actual = [scale for scale in possible if scale in {scale for _, scale in where}]
    suffix = "" if actual == possible else f" (at scale {', '.join(actual)})"
    return replace(problem, message=problem.message + suffix)
