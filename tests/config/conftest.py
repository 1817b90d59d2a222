"""A small suite with components of its own, so that these tests depend on no real paper or algorithm."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from resync.base.settings.errors import ConfigError
from resync.papers.paper import Suite, load_suite

FILES = {
    "package/tasks/data/toy.yaml": """\
        description: toy data
        facts: {train_samples: 64, val_samples: 16}
        """,
    "package/tasks/models/options/net.py": """\
        from typing import Literal

        from pydantic import Field

        from resync.tasks.models.options.base import ModelOptions
        from resync.base.settings.base import PositiveInt, Several


        class Net(ModelOptions):
            '''toy net'''

            name: Literal["net"] = "net"
            widths: Several[PositiveInt] = Field(default=(4,), min_length=1, description="w")
            norm: Literal["group", "batch", "none"] = Field(default="group", description="normalisation")

            @property
            def has_batch_norm(self):
                return self.norm == "batch"
        """,
    "package/workers/optim/options/sgd.py": """\
        from typing import Annotated, Literal

        from pydantic import Field

        from resync.workers.optim.options.base import OptimizerOptions


        class SGD(OptimizerOptions):
            '''gradient descent'''

            name: Literal["sgd"] = "sgd"
            momentum: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.0, description="momentum")
            nesterov: bool = Field(default=False, description="look ahead")

            def checks(self):
                if self.nesterov and not self.momentum:
                    yield ("nesterov",), "found true without momentum, allowed: with momentum > 0"
        """,
    "package/workers/sync/options/allreduce.py": """\
        from typing import ClassVar, Literal

        from resync.workers.sync.options.base import SyncOptions, Traffic


        class AllReduce(SyncOptions):
            '''all together in every step'''

            name: Literal["allreduce"] = "allreduce"
            traffic: ClassVar = Traffic()
        """,
    "package/workers/sync/options/local.py": """\
        from typing import ClassVar, Literal

        from pydantic import Field

        from resync.workers.sync.options.base import SyncOptions, Traffic
        from resync.workers.formulas.periods import PeriodRule


        class Local(SyncOptions):
            '''periodic averaging'''

            name: Literal["local"] = "local"
            period: PeriodRule = Field(description="period rule")
            traffic: ClassVar = Traffic(every="round")

            @property
            def rule(self):
                return self.period
        """,
    "package/papers/render/options/curve.py": """\
        from typing import Literal

        from pydantic import Field

        from resync.papers.render.options.base import KindOptions


        class Curve(KindOptions):
            '''a curve'''

            name: Literal["curve"] = "curve"
            metric: Literal["val_top1", "val_loss"] = Field(default="val_top1", description="what is drawn")
        """,
    "package/papers/render/options/law.py": """\
        from typing import Literal

        from resync.papers.render.options.base import KindOptions


        class Law(KindOptions):
            '''A law of nature, without series.'''

            planned = True
            shows_series = False
            name: Literal["law"] = "law"
    """,
    "configs/scales/smoke.yaml": """\
        seeds: [0, 1]
        device: cpu
        """,
    "configs/scales/mini.yaml": """\
        seeds: [0]
        """,
    "configs/scales/gpu.yaml": """\
        seeds: [0]
        """,
    "configs/scales/paper.yaml": """\
        seeds: [7]
        device: cuda
        """,
    "configs/qsr/paper.yaml": """\
        title: A rule
        authors: [One, Two]
        venue: ICLR 2024
        arxiv: "2310.14423"
        figures:
          - id: fig1
            kind: curve
            title: A figure
            series: [vit/qsr, vit/parallel]
        tables:
          - id: table1
            kind: curve
            title: A table
            series: [vit]
            options: {metric: val_loss}
        """,
    "configs/qsr/published.yaml": """\
        - id: qsr_top1
          item: table1
          experiment: vit
          series: qsr
          metric: val_top1
          value: 80.98
          std: 0.05
          n: 3
          unit: "%"
          status: verified
          source: caption
        """,
    "configs/qsr/experiments/vit.yaml": """\
        expect: QSR wins
        base:
          data: {name: toy}
          model: {name: net, widths: [4, 8]}
          workers: 4
          batch_size: 8
          epochs: 5
          optimizer: {name: sgd, momentum: 0.9, nesterov: true}
          schedule: {name: cosine, max_lr: 0.8, min_lr: 1e-6, warmup_epochs: 1}
        series:
          parallel:
            label: Parallel
            sync: {name: allreduce}
          h4:
            label: Local
            sync: {name: local, period: {rule: constant, h: 4}}
          qsr:
            label: QSR
            sync: {name: local, period: {rule: power, alpha: 0.2, h_base: 2}}
        scales:
          smoke:
            series_only: [parallel, qsr]
            epochs: 2
            series:
              qsr: {sync: {period: {alpha: 0.1}}}
          paper:
            processes: 2
            resources: {nodes: 2}
        """,
}


class Workspace:
    """The folder of a small suite, `configs`, and the folder of its components, `package`."""

    def __init__(self, root: Path, package: Path):
        self.root = root
        self.configs = root / "configs"
        self.package = package
        write_files(root, "configs/")

    def own_package(self) -> None:
        """Components of this suite alone, to be changed."""
        write_files(self.root, "package/")
        self.package = self.root.resolve() / "package"

    def write(self, name: str, text: str) -> Path:
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def change(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {name}"
        self.write(name, text.replace(old, new))

    def load(self) -> Suite:
        return load_suite(self.configs, self.package)


def write_files(root: Path, prefix: str) -> None:
    for name, text in FILES.items():
        if name.startswith(prefix):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(dedent(text), encoding="utf-8")


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("components")
    write_files(root, "package/")
    return root / "package"


@pytest.fixture(scope="session")
def suite(papers: Suite) -> Suite:
    """The declared papers."""
    return papers


@pytest.fixture
def workspace(tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.chdir(tmp_path)
    return Workspace(Path("."), package)


@pytest.fixture
def lines_of() -> Callable[[Callable[[], object]], list[str]]:
    """The lines of the ConfigError that a call raises."""

    def lines(call: Callable[[], object]) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            call()
        assert str(caught.value).splitlines() == list(caught.value.lines)
        return list(caught.value.lines)

    return lines
