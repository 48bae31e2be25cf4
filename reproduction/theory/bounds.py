"""The step size, the one-step recursion and the final bound: the theorem as functions of its constants.

    eta_t  =  (3/2) / (A (t + 2) + (3/2) (K - 1) gamma),          A = 2 xi - 3 gamma (K - 1) > 0
    e_{t+1}  <=  (1 - q_t) e_t + eta_t^2 sigma^2 / (1 - (K - 1) eta_t gamma),  q_t = eta_t A / (1 - (K - 1) eta_t gamma)
    e_n  <=  e_0 (2 / (n + 2))^(3/2) + 9 sigma^2 / (A^2 (n + 2))

with e_n = E sum_d |theta_d - theta_d*|^2 after n rounds over the K blocks. docs/theory.md has the proof. The formulas
are the paper's; what was wrong there is the value of xi (constants.py).
"""

import numpy as np
from numpy.typing import NDArray

Numbers = float | NDArray[np.float64]


def step_size(t: Numbers, xi: float, gamma: float, blocks: int) -> Numbers:
    """The step size eta_t of round t = 0, 1, ... Raises ValueError unless A > 0.

    >>> step_size(0, xi=1.0, gamma=0.0, blocks=2)
    0.375
    """
    return 1.5 / (gap(xi, gamma, blocks) * (t + 2) + 1.5 * (blocks - 1) * gamma)


def recursion(error: Numbers, eta: Numbers, xi: float, gamma: float, blocks: int, sigma2: Numbers) -> Numbers:
    """The right side of the one-step inequality, from the error e_t = `error` and the step size `eta`.

    Raises ValueError unless (K - 1) eta gamma < 1.
    """
    left = 1 - (blocks - 1) * eta * gamma
    if np.any(left <= 0):
        raise ValueError(f"the recursion needs (K - 1) eta gamma < 1, given {np.max((blocks - 1) * eta * gamma):.3g}")
    return ((1 - 2 * eta * xi + 2 * eta * gamma * (blocks - 1)) * error + eta**2 * sigma2) / left


def bound(n: Numbers, start: float, xi: float, gamma: float, blocks: int, sigma2: float) -> Numbers:
    """The bound on the error e_n after n rounds. start: e_0. Raises ValueError unless A > 0."""
    return start * (2 / (n + 2)) ** 1.5 + 9 * sigma2 / (gap(xi, gamma, blocks) ** 2 * (n + 2))


def gap(xi: float, gamma: float, blocks: int) -> float:
    """A = 2 xi - 3 gamma (K - 1). Raises ValueError unless A > 0."""
    A = 2 * xi - 3 * gamma * (blocks - 1)
    if not A > 0:
        raise ValueError(
            f"coupling gamma = {gamma:.4g} reaches the limit 2 xi / (3 (K - 1)) = {2 * xi / (3 * (blocks - 1)):.4g} "
            f"for K = {blocks}: beyond it the theorem has no step size; lower the coupling"
        )
    return A
