"""The steps of the proof as inequalities to check, as printed and as corrected, on quadratic problems without sampling.

Each compares two numbers, left <= right, that are exact up to rounding.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from altmin.common.errors import unknown
from reproduction.theory import theorem
from reproduction.theory.quadratic import Array, Quadratic
from reproduction.theory.theorem import harmonic

ROUNDING = 1e-12


@dataclass(frozen=True)
class Check:
    """One inequality, left <= right, of the proof. version: "as-printed", "corrected" or "squared"."""

    name: str
    version: str
    left: float
    right: float
    where: str = ""

    @property
    def holds(self) -> bool:
        return self.left <= self.right + ROUNDING * (1 + abs(self.right))


def contraction(curvatures: Sequence[float], eta: float, version: str = "corrected") -> Check:
    """Check the lemma: how much a gradient step on one block, the others at the optimum, shrinks the distance to
    theta*.

    For 0 < eta <= 2 / (mu + lambda), with h = 2 mu lambda / (mu + lambda):
    as-printed  |G(theta) - theta*| <= (1 - eta h) |theta - theta*|       false unless mu = lambda
    corrected   |G(theta) - theta*| <= (1 - eta lambda) |theta - theta*|
    squared     |G(theta) - theta*|^2 <= (1 - eta h) |theta - theta*|^2   true: the printed factor is that of squares

    The left side is the largest factor of any theta. Raises ValueError for another eta or version.
    """
    lam, mu = min(curvatures), max(curvatures)
    if not 0 < eta <= 2 / (mu + lam) * (1 + 1e-12):
        raise ValueError(f"the lemma is for 0 < eta <= 2 / (mu + lambda) = {2 / (mu + lam):.4g}, given {eta:.4g}")
    factor = max(abs(1 - eta * c) for c in curvatures)  # the norm of I - eta H
    printed, corrected = 1 - eta * harmonic(lam, mu), 1 - eta * lam
    where = f"curvatures {lam:g} to {mu:g}, eta = {eta:.4g}"
    sides = {"as-printed": (factor, printed), "corrected": (factor, corrected), "squared": (factor**2, printed)}
    if version not in sides:
        raise unknown("version", version, sides)
    return Check("contraction lemma", version, *sides[version], where)


def operator(problem: Quadratic, theta: Array, d: int, eta: float, version: str = "corrected") -> Check:
    """Check the theorem on the population operator: |G_d(theta) - theta_d*| <= (1 - xi eta) |D_d| + eta gamma sum
    |D_i|.

    theta: all coordinates, (K n,); the sum is over the blocks i other than d.
    """
    constants = problem.constants()
    D = theta.reshape(problem.blocks, -1)
    distances = np.linalg.norm(D, axis=1)
    moved = D[d] - eta * (problem.hessian[problem.rows(d)] @ D.ravel())
    right = (1 - constants.xi(version) * eta) * distances[d]
    right += eta * constants.gamma * (distances.sum() - distances[d])
    return Check("population operator", version, float(np.linalg.norm(moved)), float(right), f"block {d + 1}")


def one_step(problem: Quadratic, M: Array, eta: float, version: str = "corrected", sup: bool = False) -> Check:
    """Check the recursion for one round without projection from E D D^T = M, both sides by exact expectations.

    sup=False: with the sum of E |sample's gradient_d|^2 at the points where they are taken in place of sigma^2, which
    bounds it. The proof gives this sharper inequality too. sup=True: with sigma^2.
    """
    constants = problem.constants()
    after, seen = problem.moments_after(M, eta)
    sigma2 = constants.sigma2 if sup else sum(seen)
    xi = constants.xi(version)
    right = theorem.recursion(float(np.trace(M)), eta, xi, constants.gamma, constants.blocks, sigma2)
    return Check("one-step recursion", version, float(np.trace(after)), float(right), f"eta = {eta:.4g}")


def slow_direction(t: float, lam: float, xi: float) -> float:
    """Return the remainder of |D|^2 along curvature lambda after t rounds of eta_t = (3/4) / (xi (t + 2)), without
    noise.

    The product of (1 - a / j)^2 for j = 2..t+1, a = (3/4) lambda / xi < 2, is a ratio of Gamma functions that goes like
    t^(-2a) = t^(-1.5 lambda / xi): t^-1.5 with xi = lambda, and t^-0.825 with the printed xi at curvatures 1 and 10.
    """
    a = 0.75 * lam / xi
    if not 0 < a < 2:
        raise ValueError(f"lambda / xi must be between 0 and 8/3, given {lam / xi:.4g}")
    if t < 1e6:
        ratio = math.lgamma(t + 2 - a) - math.lgamma(t + 2)
    else:  # their difference would cancel; two terms of Stirling's series are exact enough
        ratio = -a * math.log(t + 2) + a * (a + 1) / (2 * (t + 2))
    return math.exp(2 * (ratio - math.lgamma(2 - a)))


def crossing(lam: float = 1.0, mu: float = 10.0) -> float:
    """Return the rounds until the printed bound is broken: two uncoupled blocks, no noise, starts at r/2 along the slow
    direction.

    From the closed form `slow_direction`, by bisection; infinity if it is not broken within 10^60 rounds. Since sigma
    contains mu r, the bound is too high for a simulation to reach it.
    """
    xi, r = harmonic(lam, mu), 2.0
    start, sigma2 = 2 * (r / 2) ** 2, 2 * (mu * r) ** 2
    low, high = 0.0, 60.0  # log10 of t

    def broken(log_t: float) -> bool:
        t = 10**log_t
        return start * slow_direction(t, lam, xi) > float(theorem.bound(t, start, xi, 0.0, 2, sigma2))

    if not broken(high):
        return math.inf
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if broken(middle) else (middle, high)
    return 10**high
