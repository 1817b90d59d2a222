"""Computation and communication of workers: rows of parameters, gradients and steps, transport between processes."""
