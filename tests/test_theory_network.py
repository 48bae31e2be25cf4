"""The constants of a small network: gradients against autograd, the optimum, the bounds at points not sampled."""

import dataclasses

import numpy as np
import pytest
import torch

import altmin
from altmin.paper.theory import Network, rule_of, run, study

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


def test_the_optimum_is_a_strict_minimum() -> None:
    for net in (HELD, FREE):
        theta = torch.as_tensor(net.best)
        assert float(torch.func.grad(net.objective)(theta).norm()) < 1e-10
        assert float(torch.linalg.eigvalsh(torch.func.hessian(net.objective)(theta))[0]) > 0


def test_the_constants_hold_at_points_that_were_not_sampled_for_them() -> None:
    """Gradient stability and strong convexity from their definitions, at fresh points of the balls."""
    c = HELD.constants()
    fresh = dataclasses.replace(HELD)
    points = HELD.best + (np.random.default_rng(9).uniform(-1, 1, (200, len(HELD.best))) * 0.05)
    grad = torch.func.grad(fresh.objective)
    for theta in points:
        moved = [np.linalg.norm(theta[at] - HELD.best[at]) for at in HELD.rows]
        inside = HELD.best + np.concatenate(
            [(theta - HELD.best)[at] * min(1.0, HELD.reach / m) for at, m in zip(HELD.rows, moved, strict=True)]
        )
        g = grad(torch.as_tensor(inside)).numpy()
        for d, at in enumerate(HELD.rows):
            alone = HELD.best.copy()
            alone[at] = inside[at]
            own = grad(torch.as_tensor(alone)).numpy()[at]
            away = inside[at] - HELD.best[at]
            others = sum(np.linalg.norm((inside - HELD.best)[o]) for i, o in enumerate(HELD.rows) if i != d)
            assert np.linalg.norm(g[at] - own) <= c.stability[d] * others
            assert own @ away >= c.strong[d] * (away @ away)
            assert np.linalg.norm(own) <= c.smooth[d] * np.linalg.norm(away)


def test_safety_moves_every_constant_to_the_unkind_side() -> None:
    bare, safe = (dataclasses.replace(HELD, safety=s).constants(count=20) for s in (0.0, 0.2))
    assert safe.strong == pytest.approx([0.8 * v for v in bare.strong])
    assert safe.smooth == pytest.approx([1.2 * v for v in bare.smooth])
    assert safe.stability == pytest.approx([1.2 * v for v in bare.stability])
    assert safe.moments == pytest.approx([1.44 * v for v in bare.moments])
    assert not safe.exact


def test_all_assumptions_hold_for_the_held_network_and_its_error_stays_below_the_bound() -> None:
    c = HELD.constants()
    assert all(a.holds for a in HELD.assumptions(c))
    m = run(HELD, rule_of([c]), 1000, 400)
    assert (m.mean[0] + 3 * m.error[0] <= c.bound(np.array(m.times, float), HELD.start_error)).all()
    assert m.mean[0, -1] < 1e-3 * HELD.start_error


def test_of_the_free_network_the_report_says_that_gradient_stability_fails_and_where() -> None:
    c = FREE.constants()
    (failing,) = [a for a in FREE.assumptions(c) if not a.holds]
    assert failing.name == "gradient stability"
    assert failing.margin == pytest.approx(1 - c.gamma / c.limit())
    assert failing.margin < -10
    assert failing.where.startswith("W1") or failing.where.startswith("codes")


def test_one_draw_has_one_sample_for_all_blocks_or_a_fresh_one_for_each() -> None:
    """Two independent samples of n are equal with probability 1 / n, here in 500 pairs."""
    shared = dataclasses.replace(HELD, fresh=False).draw(np.random.default_rng(0), 50, [0, 1, 2], 10)
    fresh = HELD.draw(np.random.default_rng(0), 50, [0, 1, 2], 10)
    assert shared.shape == fresh.shape == (50, 3, 10)
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert (shared[:, first] == shared[:, second]).all()
        alike = (fresh[:, first] == fresh[:, second]).mean()
        assert alike == pytest.approx(1 / HELD.samples, abs=4 * (5 / 36 / 500) ** 0.5), "within four standard errors"
