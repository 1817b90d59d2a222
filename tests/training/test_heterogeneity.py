"""Training samples divided by class over the workers: the partition, its distribution, and runs that draw from it."""

from pathlib import Path

import numpy as np
import pytest
from runs import assert_runs_agree

from resync.tasks.data.heterogeneity import dirichlet_shares
from resync.tasks.data.sampling import Sampler

LABELS = np.arange(6000) % 10


def proportions(alpha: float, seed: int, workers: int = 60, labels: np.ndarray = LABELS) -> np.ndarray:
    """Proportions of the classes in every share, [workers, classes]."""
    shares = dirichlet_shares(labels, workers, alpha, seed)
    return np.stack([np.bincount(labels[share], minlength=10) / len(share) for share in shares])


@pytest.mark.parametrize("alpha", [1e-6, 0.1, 1.0, 1e6])
@pytest.mark.parametrize("number", [6000, 5997, 61])
def test_every_sample_belongs_to_exactly_one_worker(alpha: float, number: int):
    shares = dirichlet_shares(LABELS[:number], 16, alpha, seed=3)
    assert sorted(np.concatenate(shares).tolist()) == list(range(number))
    assert {len(share) for share in shares} <= {number // 16, number // 16 + 1}


@pytest.mark.parametrize("alpha", [0.1, 1.0, 10.0])
def test_proportions_are_those_of_a_dirichlet_distribution(alpha: float):
    """Of the first workers, to whom all classes are open: the moments of Dirichlet(alpha, ...) and a sample of it.

    A proportion has the variance p (1 - p) / (10 alpha + 1) with p = 1 / 10; drawing a share of 100 from it adds a
    hundredth of what is left of p (1 - p).
    """
    found = np.concatenate([proportions(alpha, seed)[:4] for seed in range(100)])
    spread = 0.09 / (10 * alpha + 1)
    assert found.mean() == pytest.approx(0.1)
    assert found.mean(axis=0) == pytest.approx(10 * [0.1], abs=5 * (spread / len(found)) ** 0.5)
    assert found.var() == pytest.approx(spread + (0.09 - spread) / 100, rel=0.1)
    independent = np.random.default_rng(0).dirichlet(10 * [alpha], size=400)
    assert np.sort(found).mean(axis=0) == pytest.approx(np.sort(independent).mean(axis=0), abs=0.03)


def test_unequal_classes_keep_their_proportions():
    labels = np.repeat(np.arange(3), [4000, 1500, 500])
    found = np.concatenate([proportions(1.0, seed, labels=labels)[:4, :3] for seed in range(100)])
    assert found.mean(axis=0) == pytest.approx([2 / 3, 1 / 4, 1 / 12], abs=0.04)


def test_shares_follow_from_the_seed():
    one, again, other = (dirichlet_shares(LABELS, 8, 0.5, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(*pair) for pair in zip(one, again, strict=True))
    assert not all(np.array_equal(*pair) for pair in zip(one, other, strict=True))


@pytest.mark.parametrize("replacement", [False, True])
def test_workers_draw_from_their_own_share(replacement: bool):
    shares = dirichlet_shares(LABELS[:400], 4, 0.1, seed=5)
    sampler = Sampler(400, 4, local_batch=10, steps=10, seed=5, replacement=replacement, of_workers=shares)
    first, second = sampler.epoch(0), sampler.epoch(1)
    assert first.shape == (10, 4, 10)
    for worker, share in enumerate(shares):
        drawn = [epoch[:, worker].flatten() for epoch in (first, second)]
        assert not np.array_equal(*drawn)
        for indices in drawn:
            assert set(indices) <= set(share)
            # Without replacement an epoch has every sample of the share once.
            assert (sorted(indices) == sorted(share)) != replacement


def test_runs_agree_over_processes_and_after_an_interruption(tmp_path: Path):
    assert_runs_agree(tmp_path, {"sync": {"name": "sgp"}, "heterogeneity": {"alpha": 0.1}}, stop=5)
