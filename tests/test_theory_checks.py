"""The steps of the proof with exact expectations: true as corrected, refuted as printed."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from theory_problems import SEEDS, random_moments, random_problem

from altmin.paper.theory import bounds, checks


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
    with pytest.raises(ValueError, match="eta"):
        checks.contraction([1.0, 10.0], 0.2)


@given(SEEDS)
def test_the_theorem_on_the_population_operator_holds_as_corrected(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = random_problem(rng)
    theta = rng.standard_normal(p.start.size)
    c = p.constants()
    eta = rng.uniform(0, 1) * min(2 / (a + b) for a, b in zip(c.strong, c.smooth, strict=True))
    assert all(checks.operator(p, theta, d, eta).holds for d in range(p.blocks))


@given(SEEDS)
def test_the_corrected_recursion_holds_with_exact_expectations(seed: int) -> None:
    """At any step below 1 / ((K - 1) gamma), from any moments: no smoothness and no 2 / (mu + lambda) is needed."""
    rng = np.random.default_rng(seed)
    p = random_problem(rng)
    largest = 0.999 / ((p.blocks - 1) * p.constants().gamma)
    for eta in (float(p.constants().step_size(rng.integers(0, 1000))), min(3.0, largest) * rng.uniform()):
        assert checks.one_step(p, random_moments(rng, p.start.size), eta).holds


@given(SEEDS)
def test_from_a_point_of_the_balls_the_recursion_holds_with_sigma_itself(seed: int) -> None:
    """Only as far as the newest values stay in the balls, which for a small step they do."""
    rng = np.random.default_rng(seed)
    p = random_problem(rng)
    eta = 1e-3 / max(p.constants().smooth)
    assert checks.one_step(p, np.outer(p.start, p.start), eta, sup=True).holds


@pytest.mark.parametrize("lam, xi", [(1.0, 1.0), (1.0, 20 / 11), (1.5, 1.0)])
def test_the_slow_direction_in_closed_form_is_the_product_it_stands_for(lam: float, xi: float) -> None:
    product = np.prod([(1 - 0.75 * lam / xi / j) ** 2 for j in range(2, 502)])
    assert checks.slow_direction(500, lam, xi) == pytest.approx(product)
    both_sides = checks.slow_direction(1e6 - 1, lam, xi), checks.slow_direction(1e6 + 1, lam, xi)
    assert both_sides[0] == pytest.approx(both_sides[1], rel=1e-5)
    decade = checks.slow_direction(1e5, lam, xi) / checks.slow_direction(1e4, lam, xi)
    assert math.log10(decade) == pytest.approx(-1.5 * lam / xi, abs=1e-3)


def test_the_printed_xi_leaves_9e_5_at_t_100_000_and_in_the_end_breaks_its_bound() -> None:
    assert checks.slow_direction(1e5, 1.0, 20 / 11) == pytest.approx(9.4e-5, rel=0.01)
    after, xi = checks.crossing(), 20 / 11
    for t, broken in ((after / 2, False), (after * 2, True)):
        assert (2 * checks.slow_direction(t, 1.0, xi) > bounds.bound(t, 2.0, xi, 0.0, 2, 800.0)) == broken
    assert checks.crossing(1.0, 2.0) == math.inf, "below a condition of 3 the rate is still faster than 1 / t"


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="unknown version 'printed'; did you mean 'as-printed'"):
        checks.contraction([1.0, 2.0], 0.1, "printed")
    with pytest.raises(ValueError, match="lambda / xi must be between 0 and 8/3, given 3"):
        checks.slow_direction(10, lam=3.0, xi=1.0)
