"""The theorem: its constants, step size and bound are the paper's, the steps of its proof hold as corrected and not as
printed, and its quadratic problems have the constants of the definitions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from theory_problems import SEEDS, exact_errors, random_moments, random_problem

from reproduction.theory import checks, theorem
from reproduction.theory.quadratic import Quadratic, family


def test_the_step_size_and_the_bound_are_the_papers() -> None:
    xi, gamma, K, sigma2, start = 1.3, 0.1, 4, 7.0, 2.0
    for t in (0, 5):
        eta = 1.5 / ((2 * xi - 3 * gamma * 3) * (t + 2) + 1.5 * 3 * gamma)
        assert theorem.step_size(t, xi, gamma, K) == pytest.approx(eta)
        claimed = start * (2 / (t + 3)) ** 1.5 + 9 * sigma2 / ((2 * xi - 3 * gamma * 3) ** 2 * (t + 3))
        assert theorem.bound(t + 1, start, xi, gamma, K, sigma2) == pytest.approx(claimed)


@given(SEEDS)
def test_the_bound_is_never_below_the_recursion_it_expands(seed: int) -> None:
    rng = np.random.default_rng(seed)
    K, xi, start, sigma2 = int(rng.integers(2, 9)), *np.exp(rng.uniform(-3, 3, 3))
    gamma = rng.uniform(0, 0.99) * 2 * xi / (3 * (K - 1))
    error = start
    for t in range(300):
        assert error <= theorem.bound(t, start, xi, gamma, K, sigma2) * (1 + 1e-12)
        error = theorem.recursion(error, theorem.step_size(t, xi, gamma, K), xi, gamma, K, sigma2)


@given(st.floats(0.01, 10), st.floats(1, 1e4), st.floats(0.001, 1))
def test_the_corrected_lemma_holds_and_the_printed_factor_belongs_to_the_square(
    lam: float, condition: float, part: float
) -> None:
    mu = lam * condition
    eta = part * 2 / (mu + lam)
    assert checks.contraction([lam, mu], eta).holds
    assert checks.contraction([lam, mu], eta, "squared").holds


def test_the_printed_lemma_is_refuted_by_curvatures_1_and_10() -> None:
    check = checks.contraction([1.0, 10.0], 2 / 11, "as-printed")
    assert not check.holds
    assert (check.left, check.right) == (pytest.approx(0.818, abs=5e-4), pytest.approx(0.669, abs=5e-4))
    assert checks.contraction([1.0, 4.0], 0.1).left == pytest.approx(0.9)
    assert checks.contraction([3.0, 3.0], 0.2, "as-printed").holds, "with equal curvatures it is true"
    with pytest.raises(ValueError):
        checks.contraction([1.0, 10.0], 0.2)


@given(SEEDS)
def test_the_theorem_on_the_population_operator_holds_as_corrected(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = random_problem(rng)
    theta = rng.standard_normal(p.start.size)
    c = p.constants()
    eta = rng.uniform(0, 1) * min(2 / (a + b) for a, b in zip(c.strong, c.smooth, strict=True))
    assert all(checks.operator(p, theta, d, eta).holds for d in range(p.blocks))


@pytest.mark.parametrize("lam, xi", [(1.0, 1.0), (1.0, 20 / 11), (1.5, 1.0)])
def test_the_slow_direction_in_closed_form_is_the_product_it_stands_for(lam: float, xi: float) -> None:
    product = np.prod([(1 - 0.75 * lam / xi / j) ** 2 for j in range(2, 502)])
    assert checks.slow_direction(500, lam, xi) == pytest.approx(product)
    both_sides = checks.slow_direction(1e6 - 1, lam, xi), checks.slow_direction(1e6 + 1, lam, xi)
    assert both_sides[0] == pytest.approx(both_sides[1], rel=1e-5)
    decade = checks.slow_direction(1e5, lam, xi) / checks.slow_direction(1e4, lam, xi)
    assert math.log10(decade) == pytest.approx(-1.5 * lam / xi, abs=1e-3)


@given(SEEDS)
def test_the_corrected_recursion_holds_with_exact_expectations(seed: int) -> None:
    """At any step below 1 / ((K - 1) gamma), from any moments: no smoothness and no 2 / (mu + lambda) is needed."""
    rng = np.random.default_rng(seed)
    p = random_problem(rng)
    largest = 0.999 / ((p.blocks - 1) * p.constants().gamma)
    for eta in (float(p.constants().step_size(rng.integers(0, 1000))), min(3.0, largest) * rng.uniform()):
        assert checks.one_step(p, random_moments(rng, p.start.size), eta).holds


def test_the_printed_xi_leaves_9e_5_at_t_100_000_and_in_the_end_breaks_its_bound() -> None:
    assert checks.slow_direction(1e5, 1.0, 20 / 11) == pytest.approx(9.4e-5, rel=0.01)
    after, xi = checks.crossing(), 20 / 11
    for t, broken in ((after / 2, False), (after * 2, True)):
        assert (2 * checks.slow_direction(t, 1.0, xi) > theorem.bound(t, 2.0, xi, 0.0, 2, 800.0)) == broken
    assert checks.crossing(1.0, 2.0) == math.inf, "below a condition of 3 the rate is still faster than 1 / t"


@given(SEEDS)
def test_the_constants_of_a_quadratic_are_those_of_its_hessian(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = random_problem(rng)
    c, H = p.constants(), p.hessian
    for d in range(p.blocks):
        own = np.linalg.eigvalsh(H[p.rows(d), p.rows(d)])
        assert (c.strong[d], c.smooth[d]) == pytest.approx((own[0], own[-1]))
        others = [np.linalg.norm(H[p.rows(d), p.rows(i)], 2) for i in range(p.blocks) if i != d]
        assert c.stability[d] == pytest.approx(max(others))
    assert all(a.holds for a in p.assumptions())


def test_sigma_is_attained_in_the_family_and_never_passed() -> None:
    p = family(3, 0.7, 5.0, noise=1.5)
    c, rng = p.constants(), np.random.default_rng(0)
    way = rng.standard_normal((20_000, 3, 2))
    points = p.radius[:, None] * way / np.linalg.norm(way, axis=2, keepdims=True)
    for d in range(3):
        seen = np.square(points.reshape(-1, 6) @ p.hessian[p.rows(d)].T).sum(1) + p.noise[d] ** 2
        assert seen.max() <= c.moments[d] * (1 + 1e-12)
        lean = np.zeros((3, 2))
        lean[:, 1] = -p.radius  # the steep axis; coupling is negative, so block d leans the other way
        lean[d] *= -1
        attained = np.square(p.hessian[p.rows(d)] @ lean.ravel()).sum() + p.noise[d] ** 2
        assert attained == pytest.approx(c.moments[d])


def test_exact_moments_are_those_of_all_samples() -> None:
    """Signs as noise, one coordinate in each of two blocks: four equally likely outcomes of a round."""
    p = Quadratic(
        np.array([[2.0], [3.0]]), np.array([[0, 0.5], [0.5, 0]]), np.array([0.7, 0.3]), np.ones(2), np.ones((2, 1)) / 2
    )
    squares = []
    for z1 in (0.7, -0.7):
        for z2 in (0.3, -0.3):
            a = 0.5 - 0.1 * (2 * 0.5 + 0.5 * 0.5 + z1)
            b = 0.5 - 0.1 * (3 * 0.5 + 0.5 * a + z2)
            squares.append(a**2 + b**2)
    assert exact_errors(p, [0.1])[1] == pytest.approx(np.mean(squares))
