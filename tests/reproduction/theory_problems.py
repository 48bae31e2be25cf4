"""Problems at random within the theorem's limit, and what the tests of the theorem measure on them."""

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from reproduction.theory.quadratic import Quadratic
from reproduction.theory.scheme import Decay, Measured, Stack, run

SEEDS = st.integers(0, 2**32 - 1)


def random_problem(rng: np.random.Generator) -> Quadratic:
    """Curvatures, coupling of any sign, noise and radii at random, within the theorem's limit."""
    K, n = int(rng.integers(2, 9)), int(rng.integers(1, 4))
    curvatures = np.exp(rng.uniform(-2, 3, (K, n)))
    limit = 2 * curvatures.min() / (3 * (K - 1))
    G = np.triu(rng.uniform(-1, 1, (K, K)), 1)
    G *= rng.uniform(0, 0.999) * limit / np.abs(G).max()
    radius = rng.uniform(0.5, 3, K)
    way = rng.standard_normal((K, n))
    start = way / np.linalg.norm(way, axis=1, keepdims=True) * (radius * rng.uniform(0, 0.5, K))[:, None]
    return Quadratic(curvatures, G + G.T, rng.uniform(0, 3, K), radius, start)


def random_moments(rng: np.random.Generator, size: int) -> np.ndarray:
    root = rng.standard_normal((size, int(rng.integers(1, size + 1))))
    return root @ root.T


def rule_of(problems: Sequence[Quadratic]) -> Decay:
    return Decay([p.constants().terms() for p in problems])


def exact_errors(p: Quadratic, etas: Sequence[float]) -> np.ndarray:
    """e_0..e_n for the n step sizes, without projection, by exact moments."""
    M = np.outer(p.start, p.start)
    errors = [np.trace(M)]
    for eta in etas:
        M, _ = p.moments_after(M, eta)
        errors.append(np.trace(M))
    return np.array(errors)


def measure(p: Quadratic, steps: int, runs: int, **options: object) -> Measured:
    return run(Stack([p]), rule_of([p]), steps, runs, **options)  # type: ignore[arg-type]


def below(p: Quadratic, m: Measured) -> bool:
    limit = p.constants().bound(np.array(m.times, float), p.start_error)
    return bool((m.mean[0] + 3 * m.error[0] <= limit).all())
