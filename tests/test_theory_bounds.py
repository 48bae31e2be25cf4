"""The theorem's step size, recursion and bound: the paper's formulas, and how they follow from each other."""

import numpy as np
import pytest
from hypothesis import given
from theory_problems import SEEDS

from altmin.paper.theory import bounds


def test_the_step_size_and_the_bound_are_the_papers() -> None:
    xi, gamma, K, sigma2, start = 1.3, 0.1, 4, 7.0, 2.0
    for t in (0, 5):
        eta = 1.5 / ((2 * xi - 3 * gamma * 3) * (t + 2) + 1.5 * 3 * gamma)
        assert bounds.step_size(t, xi, gamma, K) == pytest.approx(eta)
        claimed = start * (2 / (t + 3)) ** 1.5 + 9 * sigma2 / ((2 * xi - 3 * gamma * 3) ** 2 * (t + 3))
        assert bounds.bound(t + 1, start, xi, gamma, K, sigma2) == pytest.approx(claimed)


@given(SEEDS)
def test_the_bound_is_never_below_the_recursion_it_expands(seed: int) -> None:
    rng = np.random.default_rng(seed)
    K, xi, start, sigma2 = int(rng.integers(2, 9)), *np.exp(rng.uniform(-3, 3, 3))
    gamma = rng.uniform(0, 0.99) * 2 * xi / (3 * (K - 1))
    errors = bounds.expanded(300, start, xi, gamma, K, sigma2)
    assert (errors <= bounds.bound(np.arange(301.0), start, xi, gamma, K, sigma2) * (1 + 1e-12)).all()
    for t in (0, 1, 17):
        eta = bounds.step_size(t, xi, gamma, K)
        assert errors[t + 1] == pytest.approx(bounds.recursion(errors[t], eta, xi, gamma, K, sigma2))


def test_past_the_limit_there_is_no_step_size() -> None:
    with pytest.raises(ValueError, match="reaches the limit"):
        bounds.step_size(0, xi=1.0, gamma=1 / 3, blocks=3)
    with pytest.raises(ValueError, match="needs"):
        bounds.recursion(1.0, 10.0, 1.0, 0.3, 2, 1.0)
