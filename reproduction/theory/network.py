"""A small real network under the theorem: blocks W_1, the codes C and W_2, constants measured near its optimum.

    f = 1/n sum_j [ (y_j - W_2 tanh(c_j))^2 + mu |c_j - W_1 x_j|^2 ] + (hold / 2) |W - W0|^2

W0 are earlier weights of the network, say from another task; the term with `hold` keeps the weights near them. Without
it no network has the curvature that the theorem needs. The codes of all samples are one block, stored divided by
sqrt(n): in these units its curvature is comparable with that of the other blocks. A sample's gradient is that of its
own term of the sum, without the 1/n, plus that of the term with `hold`; among the codes only its own have a gradient.

The constants are measured, not proved: the optimum by Newton's method; then the extreme eigenvalues of block Hessians
over random points of the balls, half of them on the spheres, and the largest norm of the blocks between. Sampling does
not find the true extremes, so each is moved by the fraction `safety` in the unfavourable direction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reproduction.theory.quadratic import Array
from reproduction.theory.theorem import Assumption, Constants, assumptions

NAMES = ("W1", "codes", "W2")


@dataclass(frozen=True)
class Network:
    """inputs-hidden-1 with tanh on `samples` random points: like a `scheme.Stack` of one problem with three blocks."""

    inputs: int = 2
    hidden: int = 2
    samples: int = 6
    penalty: float = 1.0
    hold: float = 0.0
    scale: float = 1.0
    """standard deviation of the inputs"""
    reach: float = 0.1
    """the radius r of every block"""
    seed: int = 0
    safety: float = 0.1
    fresh: bool = True
    """True: a new sample for each block step, as the theorem needs it. False: one sample for the whole round."""

    @cached_property
    def data(self) -> tuple[Array, Array]:
        """Random x (samples, inputs), and y (samples,): the output of W0 plus noise, so that no weights fit all."""
        rng = np.random.default_rng(self.seed)
        x = self.scale * rng.standard_normal((self.samples, self.inputs))
        W1, W2 = self.before
        return x, np.tanh(x @ W1.reshape(self.hidden, self.inputs).T) @ W2 + 0.3 * rng.standard_normal(self.samples)

    @cached_property
    def before(self) -> tuple[Array, Array]:
        """W0: W_1 and W_2, flat."""
        rng = np.random.default_rng(self.seed + 4)
        return rng.standard_normal(self.sizes[0]), rng.standard_normal(self.sizes[2])

    @property
    def sizes(self) -> list[int]:
        """The number of coordinates of each block."""
        return [self.hidden * self.inputs, self.samples * self.hidden, self.hidden]

    @property
    def rows(self) -> list[slice]:
        ends = np.cumsum([0, *self.sizes])
        return [slice(int(a), int(b)) for a, b in pairwise(ends)]

    def objective(self, theta: Tensor) -> Tensor:
        """Return f of all coordinates: W_1, the codes divided by sqrt(n), W_2."""
        W1, C, W2 = (theta[at] for at in self.rows)
        x, y = (torch.as_tensor(each) for each in self.data)
        c = C.reshape(self.samples, self.hidden) * self.samples**0.5
        misfit = c - x @ W1.reshape(self.hidden, self.inputs).T
        loss = (y - torch.tanh(c) @ W2).square() + self.penalty * misfit.square().sum(1)
        left = sum((W - torch.as_tensor(W0)).square().sum() for W, W0 in zip((W1, W2), self.before, strict=True))
        return loss.mean() + self.hold / 2 * left

    @cached_property
    def best(self) -> Array:
        """theta*, by Newton's method with absolute eigenvalues and halved steps, from W0 and its codes."""
        W1, W2 = self.before
        codes = self.data[0] @ W1.reshape(self.hidden, self.inputs).T / self.samples**0.5
        theta = torch.as_tensor(np.concatenate([W1, codes.ravel(), W2]))
        for _ in range(500):
            g = torch.func.grad(self.objective)(theta)
            if float(g.norm()) < 1e-12:
                break
            values, vectors = torch.linalg.eigh(torch.func.hessian(self.objective)(theta))
            step = -vectors @ (vectors.T @ g / values.abs().clamp_min(1e-8))
            share, now = 1.0, self.objective(theta)
            while share > 1e-12 and self.objective(theta + share * step) > now + 1e-4 * share * (g @ step) + 1e-16:
                share /= 2
            theta = theta + share * step
        return theta.numpy()

    @property
    def optimum(self) -> Array:
        return self.best[None]

    @property
    def radius(self) -> Array:
        return np.full((1, 3), self.reach)

    @cached_property
    def start(self) -> Array:
        """A quarter of r away from the optimum, in every block."""
        rng = np.random.default_rng(self.seed + 2)
        moved = self.best.copy()
        for at in self.rows:
            way = rng.standard_normal(at.stop - at.start)
            moved[at] += self.reach / 4 * way / np.linalg.norm(way)
        return moved[None]

    @property
    def start_error(self) -> float:
        return float(np.square(self.start - self.optimum).sum())

    def draw(self, rng: np.random.Generator, rounds: int, order: Sequence[int], runs: int) -> Any:
        """Return numbers of samples (rounds, blocks of a round, runs)."""
        drawn = rng.integers(0, self.samples, (rounds, len(order) if self.fresh else 1, runs))
        return np.broadcast_to(drawn, (rounds, len(order), runs))

    def gradient(self, d: int, theta: Array, sample: Any) -> Array:
        """Return the gradient in block d of sample `sample[r]` in run r, in closed form: (1, coordinates of block d,
        runs)."""
        x, y = (each[sample] for each in self.data)
        every, runs = theta[0], np.arange(theta.shape[2])
        W1, C, W2 = (every[at].T for at in self.rows)
        pull1, pull2 = (self.hold * (W - W0) for W, W0 in zip((W1, W2), self.before, strict=True))
        W1, root = W1.reshape(-1, self.hidden, self.inputs), self.samples**0.5
        c = root * C.reshape(-1, self.samples, self.hidden)[runs, sample]
        misfit, a = c - (W1 @ x[:, :, None])[:, :, 0], np.tanh(c)
        wrong = (y - (a * W2).sum(1))[:, None]
        if d == 0:
            g = -2 * self.penalty * misfit[:, :, None] * x[:, None] + pull1.reshape(W1.shape)
        elif d == 1:
            g = np.zeros((len(runs), self.samples, self.hidden))
            g[runs, sample] = root * (2 * self.penalty * misfit - 2 * wrong * W2 * (1 - a * a))
        else:
            g = -2 * wrong * a + pull2
        return np.ascontiguousarray(g.reshape(len(runs), -1).T)[None]

    def points(self, count: int) -> Array:
        """Return random points (count, coordinates) of the product of the balls around the optimum, half on the
        spheres."""
        rng = np.random.default_rng(self.seed + 3)
        found = np.repeat(self.best[None], count, axis=0)
        for at in self.rows:
            way = rng.standard_normal((count, at.stop - at.start))
            way /= np.linalg.norm(way, axis=1, keepdims=True)
            depth = np.where(np.arange(count) % 2, 1.0, rng.random(count))
            found[:, at] += self.reach * depth[:, None] * way
        return found

    def constants(self, count: int = 200) -> Constants:
        """Return the constants estimated at `count` random points, each moved by `safety` in the unfavourable
        direction."""
        everywhere = self.points(count)
        hessian = torch.func.vmap(torch.func.hessian(self.objective), chunk_size=50)
        H = hessian(torch.as_tensor(everywhere))
        lows, highs, pulls, moments = [], [], [], []
        for d, at in enumerate(self.rows):
            alone = np.repeat(self.best[None], count, axis=0)
            alone[:, at] = everywhere[:, at]
            own = torch.linalg.eigvalsh(hessian(torch.as_tensor(alone))[:, at, at])
            low, high = float(own.min()), float(own.max())
            lows.append(low - self.safety * abs(low))
            highs.append(high * (1 + self.safety))
            between = [H[:, at, other] for i, other in enumerate(self.rows) if i != d]
            pulls.append((1 + self.safety) * max(float(torch.linalg.matrix_norm(B, 2).max()) for B in between))
            squares = [
                np.square(self.gradient(d, everywhere.T[None], np.full(count, j))).sum(1) for j in range(self.samples)
            ]
            moments.append((1 + self.safety) ** 2 * float(np.mean(squares, axis=0).max()))
        return Constants(tuple(lows), tuple(highs), tuple(pulls), tuple(moments), exact=False)

    def assumptions(self, constants: Constants, kind: str = "corrected") -> list[Assumption]:
        """Return the report on the assumptions for these constants."""
        slope = float(torch.func.grad(self.objective)(torch.as_tensor(self.best)).norm())
        return assumptions(constants, [self.reach / 4] * 3, [self.reach] * 3, slope, kind, NAMES)
