"""The scheme that the theorem speaks of: many runs against exact expectations, and against the bound."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from theory_problems import SEEDS, below, measure, random_problem
from torch import nn

from altmin.paper.theory import checks
from altmin.paper.theory.bounds import step_size
from altmin.paper.theory.quadratic import family
from altmin.paper.theory.scheme import Adam, Decay, Stack, rule_of, run, simulate


@pytest.mark.parametrize("K", [2, 5])
def test_without_projection_the_mean_of_the_runs_is_the_exact_expectation(K: int) -> None:
    p = family(K, 0.6, 3.0, noise=1.0)
    m = measure(p, 100, 4000, project=False)
    exact = p.exact_errors([float(p.constants().step_size(t)) for t in range(100)])[m.times]
    assert (np.abs(m.mean[0] - exact) <= 4 * m.error[0]).all()
    assert m.runs == [4000] * len(m.times)


@pytest.mark.parametrize("K", range(2, 9))
def test_the_mean_plus_three_standard_errors_stays_below_the_bound(K: int) -> None:
    problems = [
        family(K, share, condition, noise) for share in (0, 0.5, 0.95) for condition, noise in ((1, 4), (10, 1))
    ]
    m = run(Stack(problems), rule_of([p.constants() for p in problems]), 1000, 1000)
    for j, p in enumerate(problems):
        limit = p.constants().bound(np.array(m.times, float), p.start_error)
        assert (m.mean[j] + 3 * m.error[j] <= limit).all()


@given(SEEDS)
def test_the_bound_holds_for_any_admissible_problem_after_each_of_the_first_rounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = random_problem(rng)
    assert all(below(p, simulate(p, n, 300, seed=seed)) for n in (3, 7, 60))


def test_simulate_takes_the_step_size_of_the_constants_asked_for() -> None:
    p = family(2, 0.0, 4.0, noise=0)  # even enough that no step is cut short by the projection
    left = [simulate(p, 200, 2, constants=kind).mean[0, -1] for kind in ("corrected", "as-printed")]
    slow = np.square(p.start[:, 0]).sum()
    expected = [slow * checks.slow_direction(200, 1.0, xi) for xi in (1.0, 1.6)]
    assert left == pytest.approx(expected, rel=1e-3), "what is left is along the slow axis"


def test_a_sign_flipped_gradient_breaks_the_bound() -> None:
    p = family(2, 0.5, 2.0)
    stack = Stack([p])
    stack.hessian *= -1
    assert below(p, measure(p, 1000, 500))
    assert not below(p, run(stack, rule_of([p.constants()]), 1000, 500))


def test_a_start_outside_the_ball_breaks_the_bound() -> None:
    p = family(2, 0.0, 1.0)
    outside = dataclasses.replace(p, start=p.start * 3)  # 1.5 away, where r/2 is 1
    assert not all(a.holds for a in outside.assumptions())
    assert not below(outside, measure(outside, 1000, 500))


def test_every_iterate_stays_within_r_of_the_optimum_and_the_step_is_the_projection() -> None:
    p = family(2, 0.0, 1.0, noise=50.0)
    assert (measure(p, 50, 200).mean[0] <= 2 * p.radius[0] ** 2).all()
    still = dataclasses.replace(p, noise=np.zeros(2))
    far = run(Stack([still]), Decay([(0.01, 0.0, 2)]), 1, 2)  # 37.5 times the gradient: far beyond the optimum
    ends = p.start * (1 - 1 / np.linalg.norm(p.start, axis=1, keepdims=True))  # r/2 = 1 away from the start
    assert far.mean[0] == pytest.approx(np.square(ends).sum())


def test_fewer_runs_go_on_after_many_and_a_seed_gives_the_same_numbers() -> None:
    p = family(2, 0.5, 1.0)
    first, second = (measure(p, 40, 80, seed=3, many_until=20) for _ in range(2))
    assert first.runs == [80] * 5 + [20]
    assert np.array_equal(first.mean, second.mean)
    assert not np.array_equal(first.mean, measure(p, 40, 80, seed=4).mean)


def test_problems_that_run_together_are_as_if_alone_but_for_the_noise() -> None:
    still, other = family(2, 0.3, 4.0, noise=0), family(2, 0.8, 2.0, noise=0)
    both = run(Stack([still, other]), rule_of([still.constants(), other.constants()]), 20, 3)
    for j, p in enumerate((still, other)):
        assert both.mean[j] == pytest.approx(measure(p, 20, 3).mean[0], rel=1e-12)
    with pytest.raises(ValueError, match="as many blocks"):
        Stack([family(2), family(3)])


def test_decay_takes_each_problems_own_step_size() -> None:
    rule = Decay([(1.0, 0.0, 2), (2.0, 0.1, 3)])
    for t in (0, 7, 999, 1000, 2500, 3):
        expected = [step_size(t, 1.0, 0.0, 2), step_size(t, 2.0, 0.1, 3)]
        assert rule(0, t, np.ones((2, 1, 1))).ravel().tolist() == expected


def test_adam_is_torchs() -> None:
    p = family(2, 0.0, 3.0, noise=0)
    m = run(Stack([p]), Adam(0.05), 5, 2, project=False)
    w = nn.Parameter(torch.tensor(p.start[0]))
    optimizer = torch.optim.Adam([w], lr=0.05)
    for _ in range(5):
        w.grad = torch.tensor(p.curvatures[0]) * w.detach()
        optimizer.step()
    assert m.mean[0, -1] == pytest.approx(2 * float(w.detach().square().sum()))
