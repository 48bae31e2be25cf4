"""The scheme of the theorem, many independent runs at once.

    theta_d  <-  Pi_d( theta_d - eta_t grad_d f_sample(newest values) ),      d = 1..K, again and again,

Pi_d the projection onto the ball of radius r_d / 2 around the start of block d. Every block step has a fresh sample.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from reproduction.theory.network import Network
from reproduction.theory.quadratic import Array, Quadratic
from reproduction.theory.theorem import step_size

PIECE = 1_000_000  # numbers drawn at once: few enough to stay in the cache
MANY_UNTIL = 1_000
"""Rounds of all runs; after them only 1 in 2K goes on: with more blocks fewer runs give the same precision."""


class Stack:
    """Quadratic problems of one shape, each with all its runs: theta is (problems, coordinates, runs).

    The noise of each coordinate is + or - noise_d / sqrt(n). start, optimum: (problems, coordinates). radius:
    (problems, blocks). rows: the coordinates of each block.
    """

    def __init__(self, problems: Sequence[Quadratic]):
        n = problems[0].curvatures.shape[1]
        self.rows = [problems[0].rows(d) for d in range(problems[0].blocks)]
        self.hessian = np.stack([p.hessian for p in problems])
        self.start = np.stack([p.start.ravel() for p in problems])
        self.optimum = np.zeros_like(self.start)
        self.radius = np.stack([p.radius for p in problems])
        self.size = np.stack([p.noise for p in problems]) / n**0.5
        self.dim = n

    def draw(self, rng: np.random.Generator, rounds: int, order: Sequence[int], runs: int) -> Array:
        """Return samples, to be indexed by the round and by the place in `order`."""
        shape = (rounds, len(order), len(self.start), self.dim, runs)
        count = int(np.prod(shape))
        signs = np.unpackbits(rng.integers(0, 256, -(-count // 8), dtype=np.uint8), count=count).reshape(shape)
        size = self.size.T[list(order), :, None, None]
        noise = signs * (2 * size)
        noise -= size
        return noise

    def gradient(self, d: int, theta: Array, sample: Array) -> Array:
        """Return the sample's gradient in block d at theta: (problems, coordinates of block d, runs), a new array."""
        g: Array = self.hessian[:, self.rows[d]] @ theta
        g += sample
        return g


Rule = Callable[[int, int, Array], Array]
"""(d, t, g) -> the step of block d in round t, to be subtracted, from the gradient g, which it may overwrite."""


class Decay:
    """The theorem's rule, eta_t g. terms: xi, gamma and K of each problem."""

    def __init__(self, terms: Sequence[tuple[float, float, int]]):
        self.terms = terms
        self._tabulate(0)

    def _tabulate(self, first: int) -> None:
        t = np.arange(first, first + 1000.0)
        etas = [np.asarray(step_size(t, *each)) for each in self.terms]
        self.first, self.etas = first, np.stack(etas, 1)[..., None, None]

    def __call__(self, d: int, t: int, g: Array) -> Array:
        if not 0 <= t - self.first < len(self.etas):
            self._tabulate(t)
        g *= self.etas[t - self.first]
        return g


class Adam:
    """torch's Adam with its default betas and eps and a constant rate; its moments are kept for each block."""

    def __init__(self, lr: float = 0.01):
        self.lr, self.state = lr, dict[int, tuple[Array, Array, int]]()

    def __call__(self, d: int, t: int, g: Array) -> Array:
        m, v, steps = self.state.get(d, (np.zeros_like(g), np.zeros_like(g), 0))
        runs, steps = g.shape[-1], steps + 1
        m, v = 0.9 * m[..., :runs] + 0.1 * g, 0.999 * v[..., :runs] + 0.001 * g * g
        self.state[d] = m, v, steps
        return self.lr * (m / (1 - 0.9**steps)) / (np.sqrt(v / (1 - 0.999**steps)) + 1e-8)


@dataclass(frozen=True)
class Measured:
    """The squared distance to the optimum after `times` rounds.

    mean, and its standard error, over the runs: (problems, times). runs: the number of runs at each time.
    """

    times: list[int]
    mean: Array
    error: Array
    runs: list[int]


def times_until(steps: int) -> list[int]:
    """1, 2, 5, 10, ... up to `steps`, and `steps` itself.

    >>> times_until(100)
    [1, 2, 5, 10, 20, 50, 100]
    """
    marks = [m * 10**e for e in range(9) for m in (1, 2, 5)]
    return sorted({m for m in marks if m <= steps} | {steps})


def run(
    problem: Stack | Network,
    rule: Rule,
    steps: int,
    runs: int,
    seed: int = 0,
    project: bool = True,
    order: Sequence[int] | None = None,
    report: Callable[[int], None] | None = None,
) -> Measured:
    """`steps` rounds of `runs` independent runs from the start.

    project: project each block onto its ball. order: the blocks of a round, by default each once. report: called
    with the number of rounds done, now and then. After round MANY_UNTIL only 1 in 2K runs goes on.
    """
    rng = np.random.default_rng(seed)
    order = list(order) if order is not None else list(range(len(problem.rows)))
    theta = np.repeat(problem.start[:, :, None], runs, axis=2)
    start = problem.start[:, :, None]
    reach = np.square(problem.radius / 2)[:, :, None]
    times, counts = times_until(steps), list[int]()
    means, errors = list[Array](), list[Array]()
    t, fewer = 0, max(2, runs // (2 * len(problem.rows)))
    while t < steps:
        if t >= MANY_UNTIL and theta.shape[2] > fewer:
            theta = np.ascontiguousarray(theta[:, :, :fewer])
        limit = min(steps, MANY_UNTIL) if t < MANY_UNTIL else steps
        piece = max(1, min(limit - t, PIECE // (theta.size * len(order) // len(problem.rows))))
        samples = problem.draw(rng, piece, order, theta.shape[2])
        for sample in samples:
            for place, d in enumerate(order):
                at = problem.rows[d]
                block = theta[:, at]
                block -= rule(d, t, problem.gradient(d, theta, sample[place]))
                if project:
                    away = block - start[:, at]
                    far = np.einsum("pnr,pnr->pr", away, away)
                    if (far.max(1) > reach[:, d, 0]).any():
                        shrink = np.sqrt(reach[:, d] / np.maximum(far, reach[:, d]))
                        block[:] = start[:, at] + away * shrink[:, None]
            t += 1
            if t == times[len(means)]:
                squares = np.square(theta - problem.optimum[:, :, None]).sum(1)
                means.append(squares.mean(1))
                errors.append(squares.std(1, ddof=1) / squares.shape[1] ** 0.5)
                counts.append(squares.shape[1])
        if report is not None:
            report(t)
    return Measured(times, np.stack(means, 1), np.stack(errors, 1), counts)


def simulate(
    problem: Quadratic, steps: int = 1_000, runs: int = 2_000, seed: int = 0, constants: str = "corrected"
) -> Measured:
    """One quadratic problem by the theorem's scheme.

    constants: "corrected" or "as-printed", for the step size.
    """
    return run(Stack([problem]), Decay([problem.constants().terms(constants)]), steps, runs, seed)
