"""The theorem as functions of its constants: the step size, the one-step recursion, the final bound and the
assumptions.

    eta_t  =  (3/2) / (A (t + 2) + (3/2) (K - 1) gamma),          A = 2 xi - 3 gamma (K - 1) > 0
    e_{t+1}  <=  (1 - q_t) e_t + eta_t^2 sigma^2 / (1 - (K - 1) eta_t gamma),  q_t = eta_t A / (1 - (K - 1) eta_t gamma)
    e_n  <=  e_0 (2 / (n + 2))^(3/2) + 9 sigma^2 / (A^2 (n + 2))

with e_n = E sum_d |theta_d - theta_d*|^2 after n rounds over the K blocks, and the constants

    lambda_d, mu_d   least and largest curvature of f in block d, the other blocks at the optimum gamma_d |grad_d
    f(theta) - grad_d f(theta_d, others at theta*)| <= gamma_d sum_{i != d} |theta_i - theta_i*| sigma_d^2 the largest
    mean squared norm of a sample's gradient in block d, over balls of radius r around theta* xi min lambda_d
    ("corrected"); the paper has min 2 mu_d lambda_d / (mu_d + lambda_d) ("as-printed")

docs/theory.md has the proof. The formulas are the paper's; what was wrong there is the value of xi.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from altmin.common.errors import unknown

Numbers = float | NDArray[np.float64]
KINDS = ("corrected", "as-printed")


def step_size(t: Numbers, xi: float, gamma: float, blocks: int) -> Numbers:
    """Return the step size eta_t of round t = 0, 1, ... Raises ValueError unless A > 0.

    >>> step_size(0, xi=1.0, gamma=0.0, blocks=2)
    0.375
    """
    return 1.5 / (gap(xi, gamma, blocks) * (t + 2) + 1.5 * (blocks - 1) * gamma)


def recursion(error: Numbers, eta: Numbers, xi: float, gamma: float, blocks: int, sigma2: Numbers) -> Numbers:
    """Return the right side of the one-step inequality, from the error e_t = `error` and the step size `eta`.

    Raises ValueError unless (K - 1) eta gamma < 1.
    """
    left = 1 - (blocks - 1) * eta * gamma
    if np.any(left <= 0):
        raise ValueError(f"the recursion needs (K - 1) eta gamma < 1, given {np.max((blocks - 1) * eta * gamma):.3g}")
    return ((1 - 2 * eta * xi + 2 * eta * gamma * (blocks - 1)) * error + eta**2 * sigma2) / left


def bound(n: Numbers, start: float, xi: float, gamma: float, blocks: int, sigma2: float) -> Numbers:
    """Return the bound on the error e_n after n rounds. start: e_0. Raises ValueError unless A > 0."""
    return start * (2 / (n + 2)) ** 1.5 + 9 * sigma2 / (gap(xi, gamma, blocks) ** 2 * (n + 2))


def gap(xi: float, gamma: float, blocks: int) -> float:
    """Return A = 2 xi - 3 gamma (K - 1). Raises ValueError unless A > 0."""
    A = 2 * xi - 3 * gamma * (blocks - 1)
    if not A > 0:
        raise ValueError(
            f"coupling gamma = {gamma:.4g} reaches the limit 2 xi / (3 (K - 1)) = {2 * xi / (3 * (blocks - 1)):.4g} "
            f"for K = {blocks}: beyond it the theorem has no step size; lower the coupling"
        )
    return A


@dataclass(frozen=True)
class Constants:
    """The constants of each block. exact: whether they are known; otherwise they are estimates."""

    strong: tuple[float, ...]
    """lambda_d"""
    smooth: tuple[float, ...]
    """mu_d"""
    stability: tuple[float, ...]
    """gamma_d"""
    moments: tuple[float, ...]
    """sigma_d^2"""
    exact: bool = True

    @property
    def blocks(self) -> int:
        return len(self.strong)

    @property
    def gamma(self) -> float:
        """The largest gamma_d."""
        return max(self.stability)

    @property
    def sigma2(self) -> float:
        """sigma^2, the sum of the sigma_d^2."""
        return sum(self.moments)

    @property
    def condition(self) -> float:
        """The largest mu_d / lambda_d."""
        return max(mu / lam if lam > 0 else float("inf") for mu, lam in zip(self.smooth, self.strong, strict=True))

    def xi(self, kind: str = "corrected") -> float:
        """Return xi as corrected or "as-printed". Raises ValueError for another kind."""
        if kind == "corrected":
            return min(self.strong)
        if kind == "as-printed":
            return min(harmonic(lam, mu) for lam, mu in zip(self.strong, self.smooth, strict=True))
        raise unknown("kind of constants", kind, KINDS)

    def terms(self, kind: str = "corrected") -> tuple[float, float, int]:
        """Return xi, gamma and K, on which the step size depends."""
        return self.xi(kind), self.gamma, self.blocks

    def limit(self, kind: str = "corrected") -> float:
        """Return 2 xi / (3 (K - 1)), which gamma must be below."""
        return 2 * self.xi(kind) / (3 * (self.blocks - 1))

    def step_size(self, t: Numbers, kind: str = "corrected") -> Numbers:
        """Return `step_size` with these constants."""
        return step_size(t, *self.terms(kind))

    def bound(self, n: Numbers, start: float, kind: str = "corrected") -> Numbers:
        """Return `bound` with these constants."""
        return bound(n, start, *self.terms(kind), self.sigma2)


def harmonic(lam: float, mu: float) -> float:
    """Return 2 mu lambda / (mu + lambda), the harmonic mean; for lambda <= mu it is between lambda and 2 lambda."""
    return 2 * mu * lam / (mu + lam)


@dataclass(frozen=True)
class Assumption:
    """One assumption of the theorem, and whether it holds.

    margin: the distance from the limit as a part of the limit; negative where the assumption fails, -1 at twice the
    limit. where: the block that is nearest to the limit, with its numbers.
    """

    name: str
    holds: bool
    margin: float
    where: str


def assumptions(
    constants: Constants,
    distances: Sequence[float],
    radii: Sequence[float],
    slope: float = 0.0,
    kind: str = "corrected",
    names: Sequence[str] = (),
) -> list[Assumption]:
    """Return the five assumptions of the theorem, each with its margin.

    distances: of each block's start from its optimum. radii: r_d. slope: |grad f| at the optimum. names: of the blocks.
    """
    names = names or [f"block {d + 1}" for d in range(constants.blocks)]
    weakest = min(range(constants.blocks), key=lambda d: constants.strong[d])
    tied = max(range(constants.blocks), key=lambda d: constants.stability[d])
    far = max(range(constants.blocks), key=lambda d: distances[d] / radii[d])
    lam, steepest, limit = constants.strong[weakest], max(constants.smooth), constants.limit(kind)
    stable = 1 - constants.gamma / limit if limit > 0 else float("-inf")
    inside = 1 - 2 * distances[far] / radii[far]
    still = slope <= 1e-8 * steepest
    return [
        Assumption("strong convexity", lam > 0, lam / steepest, f"{names[weakest]}: lambda = {lam:.4g}"),
        Assumption("smoothness", steepest < float("inf"), 1.0, f"largest mu = {steepest:.4g}"),
        Assumption(
            "gradient stability",
            limit > 0 and constants.gamma < limit,
            stable,
            f"{names[tied]}: gamma = {constants.gamma:.4g}, limit {limit:.4g}",
        ),
        Assumption("a stationary optimum", still, 1.0 if still else -slope / steepest, f"|grad f| = {slope:.2g}"),
        Assumption(
            "a start within r/2 of it",
            inside >= -1e-12,  # a start on the sphere counts as inside
            inside,
            f"{names[far]}: distance {distances[far]:.4g}, r/2 = {radii[far] / 2:.4g}",
        ),
    ]


class TheoremSchedule(torch.optim.lr_scheduler.LRScheduler):
    """The theorem's step size as a torch scheduler: lr = eta_t in every group, where t counts the calls of `step`, one
    after each batch.

    xi: the least curvature of any block. gamma: the largest coupling. blocks: K, codes counted too. ValueError if gamma
    reaches its limit.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, xi: float, gamma: float, blocks: int, last_epoch: int = -1):
        self.xi, self.gamma, self.blocks = xi, gamma, blocks
        step_size(0, xi, gamma, blocks)  # a coupling past the limit is refused now
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | torch.Tensor]:
        eta = step_size(self.last_epoch, self.xi, self.gamma, self.blocks)
        return [float(eta) for _ in self.optimizer.param_groups]
