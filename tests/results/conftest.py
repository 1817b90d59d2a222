"""A small suite with made-up results, and wandb logs that wandb itself wrote."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
import sites
import synthetic
from hypothesis import settings

from resync.papers.audit import Audit, audit
from resync.papers.paper import Suite, load_suite
from resync.papers.render.item import render
from resync.runs.run import Run

settings.register_profile("any machine", deadline=None)  # how long a test takes depends on who else runs
settings.load_profile("any machine")

CONFIGS = Path(__file__).parent / "configs"


@pytest.fixture(scope="session")
def suite() -> Suite:
    """Paper `toy`: four series with three seeds at smoke and paper scale."""
    return load_suite(CONFIGS)


@pytest.fixture(scope="session")
def without_runs(papers: Suite, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Audit]:
    """The audits of our papers without any results at two scales: with all planned rounds, they take a while."""
    results = tmp_path_factory.mktemp("without_runs")
    return {scale: audit(papers, scale, results) for scale in ("smoke", "paper")}


@pytest.fixture(scope="session")
def finished(suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of every smoke run, for reading only."""
    results = tmp_path_factory.mktemp("finished") / "results"
    for run in suite.runs("toy", "smoke"):
        synthetic.write_run(run, results)
    return results


@pytest.fixture(scope="session")
def site(suite: Suite, finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of a scale on which everything was done but figure 6 and table 2."""
    root = tmp_path_factory.mktemp("site")
    figures, results = root / "figures", shutil.copytree(finished, root / "results")
    for item in ("fig5", "fig7", "table1"):
        render(suite, "toy", item, "smoke", results, figures)
    (figures / "smoke/toy/fig7.csv").write_text(sites.POINTS)
    return sites.written(suite, results, figures)


@pytest.fixture
def results(finished: Path, tmp_path: Path) -> Path:
    """The same results, to be damaged."""
    return shutil.copytree(finished, tmp_path / "results")


@pytest.fixture
def runs(suite: Suite) -> list[Run]:
    """The three seeds of QSR at smoke scale."""
    return suite.runs("toy", "smoke", "vit", "qsr")


@pytest.fixture(scope="session")
def logged(suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """Two wandb logs of QSR's seed 0: of the whole run, and of its second half only."""
    wandb = pytest.importorskip("wandb", reason="wandb is not installed: pip install wandb")
    folder = tmp_path_factory.mktemp("logged")
    run = suite.runs("toy", "smoke", "vit", "qsr")[0]
    rows = pd.read_csv(synthetic.write_run(run, folder) / "metrics.csv").to_dict("records")
    contents = []
    for name, part in (("whole", rows), ("half", rows[len(rows) // 2 :])):
        settings = wandb.Settings(console="off", silent=True, disable_git=True, x_disable_stats=True)
        (folder / name).mkdir()
        session = wandb.init(project="toy", mode="offline", dir=str(folder / name), settings=settings)
        for row in part:
            session.log(row, step=int(row["step"]))
        session.finish()
        wandb.teardown()  # finish() alone may return before the log is on disk
        (log,) = (folder / name).glob("wandb/offline-run-*/run-*.wandb")
        contents.append(log.read_bytes())
    return contents[0], contents[1]
