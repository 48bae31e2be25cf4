"""Quadratic problems whose constants are known exactly, and whose expected errors can be computed without sampling.

Block d has n coordinates with chosen curvatures; block i pulls at block d with strength G_di (symmetric, G_dd = 0):

    f(theta) = 1/2 D^T H D,   D = theta - theta*,   H_dd = diag(curvatures_d),   H_di = G_di I
    a sample's gradient in block d:   (H D)_d + z_d,   E z_d = 0,   E |z_d|^2 = noise_d^2

so lambda_d, mu_d are the extreme curvatures, gamma_d = max_i |G_di|, and the supremum of sigma_d^2 is attained where
every block is displaced along the steepest axis: sigma_d^2 = (mu_d r_d + sum_i |G_di| r_i)^2 + noise_d^2. The same
rotation of the axes of every block changes none of this. theta* = 0. Where the steepest axes of the blocks differ, this
sigma_d is an upper bound.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reproduction.theory.theorem import Assumption, Constants, assumptions

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Quadratic:
    """curvatures (K, n), all positive; coupling G (K, K), symmetric with diagonal 0; start (K, n); noise (K,) and
    radius r (K,)."""

    curvatures: Array
    coupling: Array
    noise: Array
    radius: Array
    start: Array

    @property
    def blocks(self) -> int:
        return len(self.curvatures)

    @property
    def hessian(self) -> Array:
        """H (K n, K n)."""
        n = self.curvatures.shape[1]
        return np.diag(self.curvatures.ravel()) + np.kron(self.coupling, np.eye(n))

    def constants(self) -> Constants:
        """Return the exact constants of the theorem."""
        pull = np.abs(self.coupling)
        steepest = self.curvatures.max(1) * self.radius + pull @ self.radius
        columns = (self.curvatures.min(1), self.curvatures.max(1), pull.max(1), steepest**2 + self.noise**2)
        strong, smooth, stability, moments = (tuple(map(float, column)) for column in columns)
        return Constants(strong, smooth, stability, moments)

    def assumptions(self, kind: str = "corrected") -> list[Assumption]:
        """Return the report on the assumptions."""
        distances = np.linalg.norm(self.start, axis=1)
        return assumptions(self.constants(), list(map(float, distances)), list(map(float, self.radius)), kind=kind)

    @property
    def start_error(self) -> float:
        """e_0."""
        return float(np.square(self.start).sum())

    def rows(self, d: int) -> slice:
        """Return the coordinates of block d."""
        n = self.curvatures.shape[1]
        return slice(d * n, (d + 1) * n)

    def moments_after(self, M: Array, eta: float) -> tuple[Array, list[float]]:
        """Return E D D^T after one round without projection, from M before it, exactly; and every E |sample's
        gradient_d|^2.

        D_d <- D_d - eta ((H D)_d + z_d) is linear, and z_d is new: M <- T M T^T + eta^2 Cov(z_d), T = I - eta P_d H.
        """
        H, n, seen = self.hessian, self.curvatures.shape[1], []
        for d in range(self.blocks):
            at = self.rows(d)
            seen.append(float(np.trace(H[at] @ M @ H[at].T)) + float(self.noise[d]) ** 2)
            T = np.eye(len(H))
            T[at] -= eta * H[at]
            M = T @ M @ T.T
            M[at, at] += eta**2 * self.noise[d] ** 2 / n * np.eye(n)
        return M, seen


def family(
    blocks: int = 2,
    coupling: float = 0.0,
    condition: float = 1.0,
    noise: float = 2.0,
    dim: int = 2,
    radius: float = 2.0,
) -> Quadratic:
    """Return a problem whose blocks have curvatures from 1 to `condition`.

    coupling: as a part of the limit, gamma = coupling * 2 / (3 (K - 1)). It has the sign that slows descent down most:
    in the direction in which all blocks move alike the curvature is 1 - gamma (K - 1). The start is r/4 away from the
    optimum.
    """
    curvatures = np.tile(np.linspace(1.0, condition, dim), (blocks, 1))
    gamma = coupling * 2 / (3 * (blocks - 1))
    G = -gamma * (np.ones((blocks, blocks)) - np.eye(blocks))
    start = np.full((blocks, dim), radius / 4 / dim**0.5)
    return Quadratic(curvatures, G, np.full(blocks, float(noise)), np.full(blocks, float(radius)), start)
