"""Local SGD on a loss of two parameters whose minimisers form a curve, simulated and predicted by the slow SDE.

The loss is L = (u v - 1 - xi)^2 / 2 with xi = +d or -d, equally likely; its minimisers are u = e^a, v = e^-a, with
sharpness lam = 2 cosh(2 a). K workers with local batch 1 (so B = K) take plain SGD steps with learning rate eta and
average every H steps. Time t is eta^2 * steps. The slow SDE of Gu et al. 2023 reduces to

    da/dt = -(d^2 / (2 B)) tanh(2 a) (1 + (K - 1) psi_H),   psi_H = (1/H) sum_{h<H} (1 - exp(-2 lam eta h))

so that longer rounds amplify the drift towards flat minimisers (a = 0) up to K times, and psi_1 = 0. Diffusion along
the curve does not depend on H.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import cumulative_trapezoid, solve_ivp

Floats = NDArray[np.float64]
START, NOISE = 1.0, 0.5
"""The position a at time 0, and d, of `simulate` and `predict`."""


def simulate(periods: list[int], num_workers: int, eta: float = 0.02, *, times: Floats, replicas: int = 256) -> Floats:
    """Positions a of the averaged model at the given times, [len(periods), len(times), replicas].

    `periods` are the H of the simulations, which share their random numbers; `times` ascend, in units of eta^2 * steps,
    and `replicas` are independent repetitions. A position is that of the workers' average at the given time, even in
    the middle of a round.
    """
    generator = np.random.default_rng(0)
    shape = (len(periods), replicas, num_workers)
    u, v = np.full(shape, np.exp(START)), np.full(shape, np.exp(-START))
    marks = np.rint(times / eta**2).astype(int)
    positions = np.empty((len(periods), len(times), replicas))
    for step in range(marks[-1] + 1):
        for index in np.flatnonzero(marks == step):
            positions[:, index] = _position(u.mean(-1), v.mean(-1))
        residual = u * v - 1 - NOISE * generator.choice((-1.0, 1.0), size=shape[1:])
        u, v = u - eta * residual * v, v - eta * residual * u
        _average(u, v, periods, step + 1)
    return positions


def predict(period: int, num_workers: int, eta: float, times: Floats) -> Floats:
    """Position a at the given times according to the slow SDE without diffusion, [len(times)]."""

    def drift(_: float, a: Floats) -> Floats:
        sharpness = 2 * np.cosh(2 * a)
        extra = (num_workers - 1) * psi(2 * sharpness * eta, period)
        return np.asarray(-(NOISE**2) / (2 * num_workers) * np.tanh(2 * a) * (1 + extra))

    solved = solve_ivp(drift, (0.0, float(times[-1])), [START], t_eval=times, rtol=1e-9, atol=1e-12)
    return np.asarray(solved.y[0])


def psi(x: Floats | float, period: int) -> Floats:
    """psi_H = (1/H) sum_{h<H} (1 - exp(-x h)): 0 for H = 1, approaching 1 for long rounds."""
    decay = np.exp(-np.asarray(x, dtype=np.float64))
    return np.asarray(1 - (1 - decay**period) / (1 - decay) / period)


def diffuse(
    periods: list[int], num_workers: int, eta: float = 0.04, *, time: float, noise: float, replicas: int
) -> Floats:
    """Variance of the arc length by which the average has moved along the curve at `time`, [len(periods)].

    The gradient is that of (u v - 1)^2 / 2 plus N(0, noise^2) in each coordinate; the starting point is the flattest
    one, where there is no drift. Expected: noise^2 * time / K for every H.
    """
    generator = np.random.default_rng(0)
    shape = (len(periods), replicas, num_workers)
    u, v = np.ones(shape), np.ones(shape)
    for step in range(round(time / eta**2)):
        residual = u * v - 1
        kicks = noise * generator.standard_normal((2, *shape[1:]))
        u, v = u - eta * (residual * v + kicks[0]), v - eta * (residual * u + kicks[1])
        _average(u, v, periods, step + 1)
    return np.asarray(_arc_length(_position(u.mean(-1), v.mean(-1))).var(axis=-1))


def _average(u: Floats, v: Floats, periods: list[int], step: int) -> None:
    for index, period in enumerate(periods):
        if step % period == 0:
            u[index] = u[index].mean(-1, keepdims=True)
            v[index] = v[index].mean(-1, keepdims=True)


def _position(u: Floats, v: Floats) -> Floats:
    """The point of the curve to which gradient flow, which conserves u^2 - v^2, moves (u, v)."""
    return np.asarray(np.arcsinh((u**2 - v**2) / 2) / 2)


def _arc_length(a: Floats) -> Floats:
    """Length of the curve from 0 to `a`; its speed is sqrt(2 cosh 2a)."""
    grid = np.linspace(-2, 2, 4001)
    speed = np.sqrt(2 * np.cosh(2 * grid))
    length = cumulative_trapezoid(speed, grid, initial=0)
    return np.asarray(np.interp(a, grid, length - np.interp(0.0, grid, length)))
