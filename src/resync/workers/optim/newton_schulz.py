"""The Newton-Schulz iteration of Muon, which makes the singular values of matrices nearly equal."""

import torch
from torch import Tensor

_COEFFICIENTS = (
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
)
"""(a, b, c) of each iteration. Source: muloco-1's muloco.py."""
_EPS = 1e-8


def orthogonalise(matrices: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Matrices [n, r, c] with singular values near 1 and the same singular vectors, by Newton-Schulz iterations.

        X = M / (|M| + eps), of r <= c by transposing;   A = X X^T;   X = a X + (b A + c A A) X

    Float64 matrices are iterated in float64, others in `dtype`.
    """
    x = matrices if matrices.dtype == torch.float64 else matrices.to(dtype)
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / (torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True) + _EPS)
    for a, b, c in _COEFFICIENTS:
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)
