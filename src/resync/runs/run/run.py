"""A run: one training job with every setting resolved, and the layers that declare it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, PrivateAttr

from resync.base.errors import UserError
from resync.base.settings.base import PACKAGE, Check, Count, Id, Items, PositiveInt, Settings, wrong
from resync.base.settings.loader import dump, load
from resync.base.settings.overrides import override_settings
from resync.base.settings.validation import validated
from resync.runs.run.execution import Execution
from resync.runs.run.training import RunSettings
from resync.tasks.data_sets.readers import EXECUTION

SCALES = ("smoke", "mini", "gpu", "paper")
Scale = Literal["smoke", "mini", "gpu", "paper"]


class Resources(Settings):
    """The resources that a run requests from the machine or cluster; they affect no result and are not hashed."""

    nodes: PositiveInt = Field(default=1, description="machines")
    gpus_per_node: Count = Field(default=0, description="GPUs on each machine")
    cpus: PositiveInt = Field(default=1, description="CPU cores on each machine")
    memory_mb: PositiveInt = Field(default=4000, description="main memory on each machine, in megabytes")
    minutes: PositiveInt = Field(
        default=60, description="wall-clock limit of a job; a run that needs longer continues in the next job"
    )
    launcher: Literal["auto", "fork", "torchrun", "deepspeed"] = Field(
        default="auto",
        description="what starts the processes of the run: torchrun; deepspeed, that of DeepSpeed; fork: forks of one "
        "process, on the CPU of one machine only; auto: fork there, else torchrun",
    )
    max_restarts: Count = Field(
        default=1, description="number of times that all processes are restarted within a job after one has failed"
    )
    timeout_seconds: PositiveInt = Field(
        default=900,
        description="seconds without a completed step after which a process reports where it hangs and ends",
    )


REMOVED: dict[str, dict[str, dict[str, Any]]] = {
    "sync": {
        "adpsgd": {"compute_times": "constant", "slowdown": 5.0, "topology": "bipartite_exponential"},
        "noloco": {"topology": "random_matching"},
        "palsgd": {"coins": "own"},
        "slowmo": {"nesterov": False, "scale_by_lr": True},
        "snoo": {"at": "end"},
        "streaming_diloco": {"nesterov": True},
    },
    "optimizer": {"muon": {"eps": 1e-8, "variant": "muloco"}},
    "model": {"gpt": {"bias": False}},
    "plateau": {"": {"threshold": 1e-4}},
    "checkpoint": {"": {"keep_at_decays": False}},
    "log": {"": {"wandb_project": "resync", "wandb_tags": [], "wandb_resume": True, "tensorboard": False}},
}
"""Settings that runs of earlier versions have, by group and component, with the only value that they had in declared
runs. They stay in the hash, so that older results keep it.
"""


def _removed(group: str, settings: Any) -> dict[str, Any]:
    """The removed settings of the component that this group chooses by its name, or of a group without components."""
    of_group = REMOVED.get(group, {})
    return of_group.get(str(settings.get("name", "")), {}) if isinstance(settings, dict) else {}


class _Names(Settings):
    paper: Id = Field(description="paper that declares the run")
    experiment: Id = Field(description="experiment of the paper")
    series: Id = Field(description="series of the experiment")
    scale: Scale = Field(description="scale at which the experiment is resolved")
    seed: Count = Field(description="seed of the initial weights and of every random stream")


@dataclass
class _Series:
    """The settings of the first run of a series, made plain data and YAML once: its other runs share most of them."""

    settings: dict[str, Any]
    first: Run = field(compare=False)

    @cached_property
    def content(self) -> dict[str, Any]:
        return self.first._dumped()

    @cached_property
    def yaml(self) -> str:
        return dump(self.content)


_SEED = re.compile(r"^seed: \d+$", re.MULTILINE)
"""The line of a run.yaml; nothing else can stand in it."""


class Run(RunSettings, _Names):
    """One training job: the content of `run.yaml`, names first."""

    start_hash: str | None = Field(default=None, description="hash of the run that start_from names")
    overrides: Items[str] | None = Field(
        default=None,
        description="settings changed on the command line (--set) for a trial, which belongs to no declared series",
    )
    _label: str = PrivateAttr("")
    _resources: Resources = PrivateAttr(default_factory=Resources)
    _is_pilot: bool = PrivateAttr(default=False)
    _start: Run | None = PrivateAttr(default=None)
    _series: _Series | None = PrivateAttr(default=None)

    @classmethod
    def from_file(cls, path: Path, package: Path = PACKAGE, overrides: Sequence[str] = ()) -> Run:
        """Read and validate a `run.yaml` with overrides such as `optimizer.weight_decay=0.05`. Raises ConfigError."""
        settings = load(path)
        for group, tree in settings.entries.items():
            for key, default in _removed(group, tree.plain()).items():
                if key in tree.entries and tree.entries[key].plain() == default:
                    del tree.entries[key]
        run = validated(cls, override_settings(settings, overrides), package)
        return run.model_copy(update={"overrides": (*(run.overrides or ()), *overrides)}) if overrides else run

    def refuse_declared_folder(self, out: Path) -> None:
        """Raise ValueError if a trial would be written to the folder of a declared run."""
        if self.overrides and out.resolve().parts[-len(self.directory.parts) :] == self.directory.parts:
            changed = ", ".join(self.overrides)
            raise UserError(
                f"--out {out}: found the folder of the declared run {self.id} for one with --set {changed}, allowed: "
                "another folder, since a trial is no result of a paper"
            )

    @property
    def label(self) -> str:
        """The series' name in figures; for a run read from its file, its id."""
        return self._label or self.series

    @property
    def resources(self) -> Resources:
        """Resources that the run requests from the machine; the defaults for a run read from its file."""
        return self._resources

    @property
    def is_pilot(self) -> bool:
        return self._is_pilot

    @property
    def id(self) -> str:
        return f"{self.paper}/{self.experiment}/{self.series}/seed{self.seed}"

    @property
    def directory(self) -> Path:
        return Path(self.scale) / self.id

    @property
    def hash_file(self) -> Path:
        """The file below `results/` whose name tells to which configuration the results beside it belong."""
        return self.directory / f"{self.hash}.hash"

    @property
    def start_directory(self) -> Path | None:
        return Path(self.scale, self.paper, self._start_run) if self._start_run else None

    @property
    def start_step(self) -> int | None:
        """The step of the checkpoint that `start_from` names; None for the end of a run."""
        _, at_step, step = (self.start_from or "").partition("@step")
        return int(step) if at_step else None

    def start_folder(self, out: Path) -> Path:
        """The folder of the run that `start_from` names, beside the folder `out` of this run."""
        assert self._start_run
        return out.parents[2] / self._start_run

    @property
    def continued(self) -> Run | None:
        """The run that this one continues from `start_step` on; None for a run read from its file."""
        return self._start if self.start_state == "all" else None

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        run = super().model_copy(update=update, deep=deep)
        run.__dict__.pop("hash", None)  # it may be known, and is that of other settings
        return run

    def with_start(self, start: Run) -> Run:
        run = self.model_copy(update={"start_hash": start.hash})
        run._start = start
        return run

    @property
    def _start_run(self) -> str | None:
        """The run that `start_from` names, as experiment/series/seed<k>."""
        if self.start_from is None:
            return None
        name, _, seed = self.start_from.partition("@")[0].partition("/seed")
        if seed.startswith("%"):
            seed = str(self.seed % int(seed[1:]))
        return f"{name}/seed{seed or self.seed}"

    @cached_property
    def hash(self) -> str:
        """16 hex digits that change exactly when a setting that affects the result does: all but `Execution`."""
        deciding = {name: value for name, value in self._content().items() if name not in Execution.model_fields}
        deciding["data"] = {name: value for name, value in deciding["data"].items() if name not in EXECUTION}
        for group in REMOVED.keys() & deciding.keys():
            deciding[group] = _removed(group, deciding[group]) | deciding[group]
        canonical = json.dumps(deciding, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def to_yaml(self) -> str:
        if self._series and self._own <= {"seed"}:
            return _SEED.sub(f"seed: {self.seed}", self._series.yaml, count=1)
        return dump(self._content())

    @property
    def _own(self) -> set[str]:
        """The settings that are not those of the first run of the series, whatever this run was copied from."""
        settings = self._series.settings if self._series else {}
        return {name for name in Run.model_fields if name not in settings or getattr(self, name) is not settings[name]}

    def _content(self) -> dict[str, Any]:
        """The settings as plain data; it may belong to several runs."""
        if self._series is None:
            return self._dumped()
        own = self._own
        content = {name: value for name, value in self._series.content.items() if name not in own} | self._dumped(own)
        return {name: content[name] for name in Run.model_fields if name in content}

    def _dumped(self, names: set[str] | None = None) -> dict[str, Any]:
        # Without nulls and the usual one GPU per worker: a setting that a run does not use leaves its hash alone.
        unused = {"gpus_per_worker"} if self.gpus_per_worker == 1 else set()
        return self.model_dump(mode="json", include=names, exclude_none=True, exclude=unused)


class RunLayer(RunSettings):
    """Run settings with seeds and resources, of which a layer of an experiment may hold any part."""

    seeds: Items[Count] = Field(min_length=1, description="seeds, with one run for each")
    pilot_seeds: Items[Count] = Field(
        default=(),
        description="further seeds, whose runs only `resync power` reads: from their spread it computes how many seeds "
        "a claim needs, so that none of those that decide it was used to choose their number",
    )
    resources: Resources = Field(default=Resources(), description="what a run requests from the machine")

    def checks(self) -> Iterator[Check]:
        """Require processes that can be spread evenly over the machines and their GPUs, and different seeds."""
        yield from super().checks()
        nodes, gpus = self.resources.nodes, self.resources.gpus_per_node
        if self.processes % nodes:
            yield wrong(("resources", "nodes"), nodes, f"a divisor of processes = {self.processes}")
        elif 0 < gpus < self.processes // nodes:
            allowed = f"one for each of a machine's processes, processes / nodes = {self.processes // nodes}; or 0"
            yield wrong(("resources", "gpus_per_node"), gpus, allowed)
        for key in ("seeds", "pilot_seeds"):
            seeds = getattr(self, key)
            if len(set(seeds)) < len(seeds):
                yield wrong(key, list(seeds), "different seeds")
        if both := sorted(set(self.seeds) & set(self.pilot_seeds)):
            yield wrong("pilot_seeds", f"{both[0]}, which is one of the seeds {list(self.seeds)}", "others")


class SeriesLayer(RunLayer):
    """The layer of one series: settings and its name in figures."""

    label: str = Field(min_length=1, description="name of the series in figures and tables")

    def runs(self, paper: str, experiment: str, series: str, scale: str) -> Iterator[Run]:
        """One run per seed and pilot seed of this layer, which must be merged with all layers below it."""
        content = {name: getattr(self, name) for name in RunSettings.model_fields}
        content |= {"paper": paper, "experiment": experiment, "series": series, "scale": scale}
        first = Run(**content, seed=self.seeds[0])
        first._label, first._resources = self.label, self.resources
        first._series = _Series({name: getattr(first, name) for name in Run.model_fields}, first)
        for seed in (*self.seeds, *self.pilot_seeds):
            run = first.model_copy(update={"seed": seed})  # valid without another look at all settings
            run._is_pilot = seed in self.pilot_seeds
            yield run
