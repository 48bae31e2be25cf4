"""The constants of the theorem, and a report on its assumptions: which holds, by how much, and where.

lambda_d, mu_d   least and largest curvature of f in block d, the other blocks at the optimum
gamma_d          |grad_d f(theta) - grad_d f(theta_d, others at theta*)| <= gamma_d sum_{i != d} |theta_i - theta_i*|
sigma_d^2        the largest mean squared norm of a sample's gradient in block d, over balls of radius r around theta*
xi               min lambda_d ("corrected"); the paper has min 2 mu_d lambda_d / (mu_d + lambda_d) ("as-printed")
"""

from collections.abc import Sequence
from dataclasses import dataclass

from altmin.common.errors import unknown
from reproduction.theory import bounds
from reproduction.theory.bounds import Numbers

KINDS = ("corrected", "as-printed")


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
        """xi as corrected or "as-printed". Raises ValueError for another kind."""
        if kind == "corrected":
            return min(self.strong)
        if kind == "as-printed":
            return min(harmonic(lam, mu) for lam, mu in zip(self.strong, self.smooth, strict=True))
        raise unknown("kind of constants", kind, KINDS)

    def terms(self, kind: str = "corrected") -> tuple[float, float, int]:
        """xi, gamma and K, on which the step size depends."""
        return self.xi(kind), self.gamma, self.blocks

    def limit(self, kind: str = "corrected") -> float:
        """2 xi / (3 (K - 1)), which gamma must be below."""
        return 2 * self.xi(kind) / (3 * (self.blocks - 1))

    def step_size(self, t: Numbers, kind: str = "corrected") -> Numbers:
        """`bounds.step_size` with these constants."""
        return bounds.step_size(t, *self.terms(kind))

    def bound(self, n: Numbers, start: float, kind: str = "corrected") -> Numbers:
        """`bounds.bound` with these constants."""
        return bounds.bound(n, start, *self.terms(kind), self.sigma2)


def harmonic(lam: float, mu: float) -> float:
    """2 mu lambda / (mu + lambda), the harmonic mean; for lambda <= mu it is between lambda and 2 lambda."""
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
    """The five assumptions of the theorem, each with its margin.

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
