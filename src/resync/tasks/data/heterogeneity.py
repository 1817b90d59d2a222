"""Heterogeneous data: every worker has training samples of its own, with other proportions of the classes."""

import numpy as np
from numpy.typing import NDArray

from resync.base.streams import stream


def dirichlet_shares(labels: NDArray[np.int64], num_workers: int, alpha: float, seed: int) -> list[NDArray[np.int64]]:
    """The samples of every worker: a partition of `labels` [n] into shares of n / num_workers samples, rounded.

    The proportions of a worker's classes are drawn from a Dirichlet distribution around those of all samples (Hsu, Qi,
    Brown 2019, "Measuring the effects of non-identical data distribution for federated visual classification"). With
    classes of equal size, its parameters are all `alpha`, as in Lin et al. 2021, "Quasi-global momentum"; Hsu et al.'s
    alpha is as many times larger as there are classes. A small alpha leaves a worker few classes; a large one makes
    the shares uniform random samples. The workers fill their shares one after the other, and where a class has no
    samples left, the worker draws from the others in proportion: so the shares are equally large, and the mean of the
    workers' losses is the loss over all samples. The partition is a function of the labels and the arguments.
    """
    _, classes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    order = stream(seed, "heterogeneity").permutation(len(labels))
    order = order[np.argsort(classes[order], kind="stable")]
    ends = sizes.cumsum()
    left = sizes.copy()
    shares = []
    for worker, size in enumerate(np.diff(np.arange(num_workers + 1) * len(labels) // num_workers)):
        generator = stream(seed, "heterogeneity-classes", worker=worker)
        proportions = generator.dirichlet(alpha * len(sizes) * sizes / len(labels))
        counts = _class_counts(generator, proportions, left, int(size))
        firsts = ends - left
        parts = [order[first : first + count] for first, count in zip(firsts, counts, strict=True)]
        shares.append(np.concatenate(parts))
        left -= counts
    return shares


def _class_counts(
    generator: np.random.Generator, proportions: NDArray[np.float64], left: NDArray[np.int64], size: int
) -> NDArray[np.int64]:
    """Numbers of samples of each class that add up to `size`, none above what is `left` of the class."""
    counts = np.zeros_like(left)
    while missing := size - int(counts.sum()):
        weights = np.where(counts < left, proportions, 0)
        if not weights.sum():  # a small alpha rounds proportions to 0
            weights = (left - counts).astype(np.float64)
        counts += np.minimum(generator.multinomial(missing, weights / weights.sum()), left - counts)
    return counts
