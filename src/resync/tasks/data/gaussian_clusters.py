"""Points around random centres, as generated in the notebook of asynchronous Local SGD (Liu et al. 2024)."""

import random
from hashlib import sha256

import numpy as np
import torch
from numpy.typing import NDArray

from resync.tasks.data.memory import InMemory

SEED = 42
CLUSTERS, POINTS, DIMENSIONS, CLASSES, DEVIATION = 32, 4_000, 512, 4, 0.5
EVALUATED = 10_000
SHARDS = 4
"""The notebook's workers; the training samples are in the order of their shards."""


def build() -> InMemory:
    """128,000 points [512] of 4 classes, in the order of the notebook's shards.

    10,000 of these points are validated on: the notebook keeps none from training.
    """
    points, order, evaluated = draw()
    inputs, targets = torch.from_numpy(points), torch.arange(len(points)) // (len(points) // CLASSES)
    return InMemory(
        train_inputs=inputs[order],
        train_targets=targets[order],
        val_inputs=inputs[evaluated],
        val_targets=targets[evaluated],
        variant="gaussian_clusters",
        sha256=sha256(points[::1000].tobytes()).hexdigest(),
    )


def draw() -> tuple[NDArray[np.float32], list[int], list[int]]:
    """The points [128000, 512] by class, their order in the shards, and the numbers of those that are evaluated."""
    normal = np.random.RandomState(SEED).standard_normal
    centres = normal((CLUSTERS, DIMENSIONS))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    points = np.empty((CLUSTERS, POINTS, DIMENSIONS), dtype=np.float32)
    for cluster, centre in zip(points, centres, strict=True):
        cluster[:] = DEVIATION * normal((POINTS, DIMENSIONS)) + centre
    generator, order = random.Random(SEED), list(range(CLUSTERS * POINTS))
    generator.shuffle(order)
    return points.reshape(-1, DIMENSIONS), order, generator.sample(range(len(order)), EVALUATED)


def notebook_orders(seed: int, samples: int) -> list[NDArray[np.int64]]:
    """For each shard, the training samples in the order in which its batches take them; `samples` are taken of each."""
    size, generator = CLUSTERS * POINTS // SHARDS, random.Random(seed)
    orders = []
    for shard in range(SHARDS):
        order: list[int] = []
        for _ in range(max(2 * (samples // size), 1)):
            passed = list(range(size))
            generator.shuffle(passed)
            order += passed
        orders.append(shard * size + np.array(order))
    return orders
