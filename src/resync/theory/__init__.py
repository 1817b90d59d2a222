"""The slow motion of Local SGD along a manifold of minimisers, on a problem with two parameters."""

from resync.theory.figure import draw_theory

__all__ = ["draw_theory"]
