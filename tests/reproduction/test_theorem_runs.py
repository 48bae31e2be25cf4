"""The scheme that the theorem speaks of, many runs of it on quadratic problems and on a small network, against exact
expectations and the bound; and what `python -m reproduction theory` makes of them."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from theory_problems import SEEDS, below, exact_errors, measure, random_problem, rule_of

import altmin
from reproduction.__main__ import run as command
from reproduction.theory import Network, study
from reproduction.theory.quadratic import Quadratic, family
from reproduction.theory.scheme import Decay, Stack, run, simulate, times_until

HELD = study.networks()[0][1]

FREE = study.networks()[-1][1]


@pytest.mark.parametrize("net", [HELD, FREE, Network(inputs=3, hidden=4, samples=5, hold=1.0)])
def test_the_mean_of_the_samples_gradients_is_autograds(net: Network) -> None:
    theta = net.points(1)
    full = torch.func.grad(net.objective)(torch.as_tensor(theta[0])).numpy()
    repeated = np.repeat(theta[0][None, :, None], net.samples, axis=2)
    for d, at in enumerate(net.rows):
        every = net.gradient(d, repeated, np.arange(net.samples))
        assert every.shape == (1, at.stop - at.start, net.samples)
        assert every[0].mean(1) == pytest.approx(full[at], abs=1e-12)


def test_the_objective_is_the_librarys_on_the_same_network() -> None:
    """Without the hold: f(W, C; mu) of `altmin.objective`, with codes in its own units."""
    net = Network(seed=5, penalty=0.7)
    theta = np.random.default_rng(0).standard_normal(18)
    W1, C, W2 = (theta[at] for at in net.rows)
    model = torch.nn.Sequential(
        torch.nn.Linear(2, 2, bias=False), torch.nn.Tanh(), torch.nn.Linear(2, 1, bias=False)
    ).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.as_tensor(W1.reshape(2, 2)))
        model[2].weight.copy_(torch.as_tensor(W2[None]))
    x, y = (torch.as_tensor(each) for each in net.data)
    codes = [torch.as_tensor(C.reshape(6, 2) * 6**0.5)]
    f = altmin.objective(altmin.split(model), codes, x, y[:, None], 0.7, torch.nn.MSELoss())
    assert float(net.objective(torch.as_tensor(theta))) == pytest.approx(f.item(), rel=1e-12)


def test_all_assumptions_hold_for_the_held_network_and_its_error_stays_below_the_bound() -> None:
    c = HELD.constants()
    assert all(a.holds for a in HELD.assumptions(c))
    m = run(HELD, Decay([c.terms()]), 1000, 400)
    assert (m.mean[0] + 3 * m.error[0] <= c.bound(np.array(m.times, float), HELD.start_error)).all()
    assert m.mean[0, -1] < 1e-3 * HELD.start_error


@pytest.mark.parametrize("K", [2, 5])
def test_without_projection_the_mean_of_the_runs_is_the_exact_expectation(K: int) -> None:
    p = family(K, 0.6, 3.0, noise=1.0)
    m = measure(p, 100, 4000, project=False)
    exact = exact_errors(p, [float(p.constants().step_size(t)) for t in range(100)])[m.times]
    assert (np.abs(m.mean[0] - exact) <= 4 * m.error[0]).all()
    assert m.runs == [4000] * len(m.times)


@pytest.mark.parametrize("K", [2, 5, 8])
def test_the_mean_plus_three_standard_errors_stays_below_the_bound(K: int) -> None:
    problems = [
        family(K, share, condition, noise) for share in (0, 0.5, 0.95) for condition, noise in ((1, 4), (10, 1))
    ]
    m = run(Stack(problems), rule_of(problems), 1000, 1000)
    for j, p in enumerate(problems):
        limit = p.constants().bound(np.array(m.times, float), p.start_error)
        assert (m.mean[j] + 3 * m.error[j] <= limit).all()


@given(SEEDS)
def test_the_bound_holds_for_any_admissible_problem_after_each_of_the_first_rounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = random_problem(rng)
    assert all(below(p, simulate(p, n, 300, seed=seed)) for n in (3, 7, 60))


def test_a_sign_flipped_gradient_breaks_the_bound() -> None:
    p = family(2, 0.5, 2.0)
    stack = Stack([p])
    stack.hessian *= -1
    assert below(p, measure(p, 1000, 500))
    assert not below(p, run(stack, rule_of([p]), 1000, 500))


def test_the_printed_recursion_and_operator_are_refuted() -> None:
    verdicts = {(c.name, c.version): c.holds for c in study.lemmas()}
    assert {version for (_, version), holds in verdicts.items() if not holds} == {"as-printed"}
    assert len([v for v in verdicts.values() if not v]) == 3


def test_rates_without_noise_and_where_noise_dominates() -> None:
    """The exact expectation, so no run is needed: t^-3/2, t^-1, and with the printed xi t^(-1.5 lambda / xi)."""
    times = times_until(5000)

    def fitted(p: Quadratic, kind: str = "corrected") -> float:
        etas = np.asarray(p.constants().step_size(np.arange(5000.0), kind))
        return study.slope(times, exact_errors(p, etas)[times]) or 0.0

    assert fitted(family(2, 0, 1, noise=0)) == pytest.approx(-1.5, abs=0.01)
    assert fitted(family(2, 0, 1, noise=2)) == pytest.approx(-1, abs=0.05)
    assert fitted(family(2, 0, 10, noise=0), "as-printed") == pytest.approx(-1.5 * 11 / 20, abs=0.01)


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    found = study.study(200, 64, 5, lambda *_: None)
    return json.loads(json.dumps(found), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_a_bound_that_is_broken_inside_the_theorem_is_an_error(monkeypatch: pytest.MonkeyPatch, result: Any) -> None:
    monkeypatch.setattr(study, "study", lambda *_: result)
    assert command(["theory", "--quick"]) == 0
    result["rows"][0]["broken"] = True
    assert command(["theory", "--quick"]) == 1
