"""Generated points whose labels no linear model explains: where local steps beat large batches (Woodworth et al.)."""

import hashlib

import numpy as np
import torch

from resync.tasks.data.memory import InMemory

POINTS, DIMENSIONS = 50_000, 25


def build() -> InMemory:
    """50,000 points [25] with two labels; the loss on all of them is the objective, so that they validate too.

    Coordinate i = 1..25 is normal with variance 10 / i^2, and P[label = 1] = sigmoid(min(w1 x + b1, w2 x + b2)) with
    standard normal w1, w2, b1, b2: the recipe of a study of Woodworth et al. 2020 ("Is Local SGD Better than Minibatch
    SGD?"). The draw is that of NumPy's `default_rng(0)`: points, w1, w2, b1, b2, then uniforms for the labels.
    """
    random = np.random.default_rng(0)
    points = random.standard_normal((POINTS, DIMENSIONS)) * np.sqrt(10) / np.arange(1, DIMENSIONS + 1)
    first, second, *offsets = (random.standard_normal(size) for size in (DIMENSIONS, DIMENSIONS, None, None))
    logits = np.minimum(points @ first + offsets[0], points @ second + offsets[1])
    labels = (random.random(POINTS) < 1 / (1 + np.exp(-logits))).astype(np.int64)
    inputs, targets = torch.from_numpy(points.astype(np.float32)), torch.from_numpy(labels)
    return InMemory(
        train_inputs=inputs,
        train_targets=targets,
        val_inputs=inputs,
        val_targets=targets,
        variant="mixed_logits",
        sha256=hashlib.sha256(points.tobytes() + labels.tobytes()).hexdigest(),
    )
