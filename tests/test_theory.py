"""The theorem: its constants, every step of its proof with exact expectations, and its bound against many runs."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import altmin
from altmin import theory
from altmin.theory import bounds, checks, study
from altmin.theory.quadratic import Quadratic, family
from altmin.theory.scheme import Decay, Measured, Stack, rule_of, run, times_until

SEEDS = st.integers(0, 2**32 - 1)


def random_problem(rng: np.random.Generator, share: float | None = None) -> Quadratic:
    """Curvatures, coupling of any sign, noise and radii at random, within the theorem's limit."""
    K, n = int(rng.integers(2, 9)), int(rng.integers(1, 4))
    curvatures = np.exp(rng.uniform(-2, 3, (K, n)))
    limit = 2 * curvatures.min() / (3 * (K - 1))
    G = np.triu(rng.uniform(-1, 1, (K, K)), 1)
    G *= (rng.uniform(0, 0.999) if share is None else share) * limit / np.abs(G).max()
    radius = rng.uniform(0.5, 3, K)
    way = rng.standard_normal((K, n))
    start = way / np.linalg.norm(way, axis=1, keepdims=True) * (radius * rng.uniform(0, 0.5, K))[:, None]
    return Quadratic(curvatures, G + G.T, rng.uniform(0, 3, K), radius, start)


def random_moments(rng: np.random.Generator, size: int) -> np.ndarray:
    root = rng.standard_normal((size, int(rng.integers(1, size + 1))))
    return root @ root.T


# The constants


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


def test_both_values_of_xi() -> None:
    c = family(2, 0.0, 10.0).constants()
    assert c.xi() == 1
    assert c.xi("as-printed") == pytest.approx(20 / 11)
    with pytest.raises(ValueError, match="did you mean 'as-printed'"):
        c.xi("printed")


@pytest.mark.parametrize(
    "change, name, margin",
    [
        ({"coupling": 1.3}, "gradient stability", -0.3),
        ({"start": 1.25}, "a start within r/2 of it", -0.25),
    ],
)
def test_the_report_names_the_assumption_that_fails_and_by_how_much(
    change: dict[str, float], name: str, margin: float
) -> None:
    p = family(3, change.get("coupling", 0.5), 4.0)
    if "start" in change:
        start = p.start.copy()
        start[1] *= change["start"] / np.linalg.norm(start[1])
        p = dataclasses.replace(p, start=start)
    (failing,) = [a for a in p.assumptions() if not a.holds]
    assert (failing.name, failing.margin) == (name, pytest.approx(margin))
    assert "start" not in change or failing.where.startswith("block 2")


@pytest.mark.parametrize(
    "given", [{"blocks": 9}, {"blocks": 1}, {"coupling": -0.1}, {"condition": 0.5}, {"noise": -1.0}]
)
def test_the_family_refuses_what_it_does_not_have(given: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(given.values())))):
        family(**given)  # type: ignore[arg-type]


# The steps of the proof


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


def test_the_printed_recursion_and_operator_are_refuted() -> None:
    verdicts = {(c.name, c.version): c.holds for c in study.lemmas()}
    assert {version for (_, version), holds in verdicts.items() if not holds} == {"as-printed"}
    assert len([v for v in verdicts.values() if not v]) == 3


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
    assert p.exact_errors([0.1])[1] == pytest.approx(np.mean(squares))


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


def test_the_step_size_and_the_bound_are_the_papers() -> None:
    xi, gamma, K, sigma2, start = 1.3, 0.1, 4, 7.0, 2.0
    for t in (0, 5):
        eta = 1.5 / ((2 * xi - 3 * gamma * 3) * (t + 2) + 1.5 * 3 * gamma)
        assert bounds.step_size(t, xi, gamma, K) == pytest.approx(eta)
        claimed = start * (2 / (t + 3)) ** 1.5 + 9 * sigma2 / ((2 * xi - 3 * gamma * 3) ** 2 * (t + 3))
        assert bounds.bound(t + 1, start, xi, gamma, K, sigma2) == pytest.approx(claimed)


def test_past_the_limit_there_is_no_step_size() -> None:
    with pytest.raises(ValueError, match="reaches the limit"):
        theory.step_size(0, xi=1.0, gamma=1 / 3, blocks=3)
    with pytest.raises(ValueError, match="needs"):
        theory.recursion(1.0, 10.0, 1.0, 0.3, 2, 1.0)


@pytest.mark.parametrize("lam, xi", [(1.0, 1.0), (1.0, 20 / 11), (1.5, 1.0)])
def test_the_slow_direction_in_closed_form_is_the_product_it_stands_for(lam: float, xi: float) -> None:
    product = np.prod([(1 - 0.75 * lam / xi / j) ** 2 for j in range(2, 502)])
    assert theory.slow_direction(500, lam, xi) == pytest.approx(product)
    both_sides = theory.slow_direction(1e6 - 1, lam, xi), theory.slow_direction(1e6 + 1, lam, xi)
    assert both_sides[0] == pytest.approx(both_sides[1], rel=1e-5)
    decade = theory.slow_direction(1e5, lam, xi) / theory.slow_direction(1e4, lam, xi)
    assert math.log10(decade) == pytest.approx(-1.5 * lam / xi, abs=1e-3)


def test_the_printed_xi_leaves_9e_5_at_t_100_000_and_in_the_end_breaks_its_bound() -> None:
    assert theory.slow_direction(1e5, 1.0, 20 / 11) == pytest.approx(9.4e-5, rel=0.01)
    after, xi = theory.crossing(), 20 / 11
    for t, broken in ((after / 2, False), (after * 2, True)):
        assert (2 * theory.slow_direction(t, 1.0, xi) > theory.bound(t, 2.0, xi, 0.0, 2, 800.0)) == broken
    assert theory.crossing(1.0, 2.0) == math.inf, "below a condition of 3 the rate is still faster than 1 / t"


# The scheme


def measure(p: Quadratic, steps: int, runs: int, **options: object) -> Measured:
    return run(Stack([p]), rule_of([p.constants()]), steps, runs, **options)  # type: ignore[arg-type]


def below(p: Quadratic, m: Measured) -> bool:
    limit = p.constants().bound(np.array(m.times, float), p.start_error)
    return bool((m.mean[0] + 3 * m.error[0] <= limit).all())


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
    assert all(below(p, theory.simulate(p, n, 300, seed=seed)) for n in (3, 7, 60))


def test_simulate_takes_the_step_size_of_the_constants_asked_for() -> None:
    p = family(2, 0.0, 4.0, noise=0)  # even enough that no step is cut short by the projection
    left = [theory.simulate(p, 200, 2, constants=kind).mean[0, -1] for kind in ("corrected", "as-printed")]
    slow = np.square(p.start[:, 0]).sum()
    expected = [slow * theory.slow_direction(200, 1.0, xi) for xi in (1.0, 1.6)]
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


def test_rates_without_noise_and_where_noise_dominates() -> None:
    """The exact expectation, so no run is needed: t^-3/2, t^-1, and with the printed xi t^(-1.5 lambda / xi)."""
    times = times_until(20_000)

    def fitted(p: Quadratic, kind: str = "corrected") -> float:
        etas = np.asarray(p.constants().step_size(np.arange(20_000.0), kind))
        return study.slope(times, p.exact_errors([float(e) for e in etas])[times]) or 0.0

    assert fitted(family(2, 0, 1, noise=0)) == pytest.approx(-1.5, abs=0.01)
    assert fitted(family(2, 0, 1, noise=2)) == pytest.approx(-1, abs=0.05)
    assert fitted(family(2, 0, 10, noise=0), "as-printed") == pytest.approx(-1.5 * 11 / 20, abs=0.01)


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


def test_adam_is_torchs() -> None:
    p = family(2, 0.0, 3.0, noise=0)
    m = run(Stack([p]), theory.Adam(0.05), 5, 2, project=False)
    w = nn.Parameter(torch.tensor(p.start[0]))
    optimizer = torch.optim.Adam([w], lr=0.05)
    for _ in range(5):
        w.grad = torch.tensor(p.curvatures[0]) * w.detach()
        optimizer.step()
    assert m.mean[0, -1] == pytest.approx(2 * float(w.detach().square().sum()))


# The step size for weights


def test_the_schedule_gives_local_sgd_the_theorems_step_sizes_and_resumes() -> None:
    model = altmin.models.mlp(3, (4,), 2, nn.Tanh)
    am = altmin.AltMin(model, nn.MSELoss(), weights=altmin.LocalSGD(lr=0.1), penalty=1.0)
    schedule = theory.step_size_schedule(am.optimizer, xi=2.0, gamma=0.1, blocks=3)
    x, y = torch.randn(8, 3), torch.randn(8, 2)
    for t in range(3):
        rates = {group["lr"] for group in am.optimizer.param_groups}
        assert rates == {theory.step_size(t, 2.0, 0.1, 3)}
        am.step(x, y)
        schedule.step()
    again = theory.step_size_schedule(am.optimizer, xi=2.0, gamma=0.1, blocks=3)
    again.load_state_dict(schedule.state_dict())
    am.step(x, y)
    again.step()
    assert am.optimizer.param_groups[0]["lr"] == theory.step_size(4, 2.0, 0.1, 3)
    with pytest.raises(ValueError, match="reaches the limit"):
        theory.step_size_schedule(am.optimizer, xi=1.0, gamma=0.5, blocks=3)
    with pytest.raises(ValueError, match="xi > 0"):
        theory.step_size_schedule(am.optimizer, xi=0.0, gamma=0.5, blocks=3)


def test_decay_takes_each_problems_own_step_size() -> None:
    rule = Decay([(1.0, 0.0, 2), (2.0, 0.1, 3)])
    for t in (0, 7, 999, 1000, 2500, 3):
        expected = [theory.step_size(t, 1.0, 0.0, 2), theory.step_size(t, 2.0, 0.1, 3)]
        assert rule(0, t, np.ones((2, 1, 1))).ravel().tolist() == expected
