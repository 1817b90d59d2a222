"""The slow SDE against the simulated problem (Gu et al. 2023; the reference rows of the fact sheet)."""

from itertools import pairwise

import numpy as np
import pytest

from resync.papers.render import slow_sde
from resync.papers.render.item import load, render
from resync.tools.workflow import FIGURE_FILES
from resync.workers.formulas.slow_sde import predict, psi, simulate

END = np.array([0.0, 4.0])


def test_psi_is_its_sum():
    for x in (0.01, 1.0, 3.0):
        for period in (1, 7):
            expected = np.mean([1 - np.exp(-x * h) for h in range(period)])
            assert psi(x, period) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize(("period", "simulated", "ode"), [(1, 0.9355, 0.9400), (200, 0.5390, 0.5596)])
def test_the_reference_rows(period, simulated, ode):
    assert predict(period, 8, 0.02, END)[-1] == pytest.approx(ode, abs=1e-4)
    found = simulate([period], 8, times=END, replicas=64)[0, -1]
    assert found.mean() == pytest.approx(simulated, abs=5 * found.std(ddof=1) / 8)


def test_the_figure_shows_drift_and_diffusion_as_predicted_and_needs_no_results(papers, tmp_path, monkeypatch):
    """Drift grows with the period, diffusion does not depend on it."""
    monkeypatch.setattr(slow_sde, "LR", 0.04)
    panels = slow_sde.prepare(load(papers, "local_sgd", "slow_sde", "mini", tmp_path))
    assert list(panels.drift) == slow_sde.WORKERS
    for drifts in panels.drift.values():
        assert [drift.period for drift in drifts] == slow_sde.PERIODS
        assert all(longer.mean[-1] < shorter.mean[-1] for shorter, longer in pairwise(drifts))
        for drift in drifts:
            # The gap is of the order of eta * sharpness and halves with eta.
            assert drift.predicted[-1] == pytest.approx(drift.mean[-1], rel=0.1)
            assert (drift.standard_error < 0.05).all()
    assert panels.diffusion.predicted == pytest.approx(panels.diffusion.variance.mean(), rel=0.03)
    np.testing.assert_allclose(panels.diffusion.variance, panels.diffusion.variance.mean(), rtol=0.03)
    monkeypatch.setattr(slow_sde, "prepare", lambda data: panels)
    assert all("slow_sde" in papers.items("local_sgd", scale) for scale in papers.scales)
    files = render(papers, "local_sgd", "slow_sde", "smoke", tmp_path, tmp_path)
    assert files == [tmp_path / f"smoke/local_sgd/slow_sde{suffix}" for suffix in FIGURE_FILES]
