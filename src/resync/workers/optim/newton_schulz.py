"""Newton-Schulz iterations, which make the singular values of matrices nearly equal, and the constants of Muon."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Variant:
    """The constants of a published Muon.

    `coefficients` are (a, b, c) of each iteration. With `damped`, momentum is a mean: M = m M + (1 - m) g, otherwise
    M = m M + g; with `nesterov`, (1 - m) g + m M is orthogonalised, otherwise M. `eps` guards against a norm of zero.
    A step of a matrix [r, c] is scaled by (r/c)^(1/2), or by max(1, r/c)^(1/2) if it is `clamped`.
    """

    coefficients: tuple[tuple[float, float, float], ...]
    damped: bool
    nesterov: bool
    eps: float
    clamped: bool


VARIANTS = {
    "muloco": Variant(
        (
            (4.0848, -6.8946, 2.9270),
            (3.9505, -6.3029, 2.6377),
            (3.7418, -5.5913, 2.3037),
            (2.8769, -3.1427, 1.2046),
            (2.8366, -3.0525, 1.2012),
        ),
        damped=False, nesterov=False, eps=1e-8, clamped=False,
    ),
    "modded_nanogpt": Variant(((2.0, -1.5, 0.5),) * 12, damped=True, nesterov=True, eps=1e-7, clamped=True),
    "torch": Variant(((3.4445, -4.7750, 2.0315),) * 5, damped=True, nesterov=True, eps=1e-7, clamped=True),
}  # fmt: skip
"""Sources: muloco-1's muloco.py and modded-nanogpt of 2025, both as of the facts known to this project; torch 2.9."""


def orthogonalise(matrices: Tensor, variant: Variant, dtype: torch.dtype = torch.float32) -> Tensor:
    """Matrices [n, r, c] with singular values near 1 and the same singular vectors, by Newton-Schulz iterations.

        X = M / (|M| + eps), of r <= c by transposing;   A = X X^T;   X = a X + (b A + c A A) X

    Float64 matrices are iterated in float64, others in `dtype`.
    """
    x = matrices if matrices.dtype == torch.float64 else matrices.to(dtype)
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / (torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True) + variant.eps)
    for a, b, c in variant.coefficients:
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)
