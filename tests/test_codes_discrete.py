"""The code solvers for discrete activations: naive references, weight gradients by autograd, learning."""

import copy
from typing import Any

import pytest
import torch
from conftest import residuals_of, update_codes
from torch import Tensor, nn
from torch.nn import functional as F

import altmin
from altmin.core.codes.links import Upstream

F64 = torch.float64


def net(*activations: nn.Module, width: int = 12, seed: int = 0) -> nn.Sequential:
    """4 inputs, hidden layers with the given activations, 3 outputs."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for m, activation in zip([4, *[width] * len(activations)], activations, strict=False):
        layers += [nn.Linear(m, width), activation]
    return nn.Sequential(*layers, nn.Linear(width, 3)).double()


def batch(n: int = 10) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n, 4, generator=generator, dtype=F64), torch.randint(3, (n,), generator=generator)


def linears(model: nn.Sequential) -> list[tuple[Tensor, Tensor]]:
    return [(m.weight.detach(), m.bias.detach()) for m in model if isinstance(m, nn.Linear)]


def encoded(model: nn.Sequential, x: Tensor) -> list[Tensor]:
    """The outputs of the layers with parameters."""
    values = []
    with torch.no_grad():
        for m in model:
            x = m(x)
            values += [x] if isinstance(m, nn.Linear) else []
    return values


class Asking(altmin.DiscreteCodes):
    """Keeps, for each search from the top down, the code, the levels v and sides e found, and what is asked."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.asked: list[tuple[Tensor, Tensor, Tensor, Upstream]] = []

    def wanted(self, search, code, context):
        found = super().wanted(search, code, context)
        self.asked.append((code, *search.target(), found))
        return found


def asked_by(
    model: nn.Sequential, x: Tensor, y: Tensor, **options: Any
) -> list[tuple[Tensor, Tensor, Tensor, Upstream]]:
    """What each search asks of the code below it, the first code first."""
    solver = Asking(**options)
    residuals_of(model, solver, x, y, 1.0)
    return solver.asked[::-1]


def with_estimates(model: nn.Sequential) -> nn.Sequential:
    """The same net with activations through which autograd passes the straight-through estimate."""
    layers = [altmin.StraightThrough(m) if isinstance(m, altmin.Sign | altmin.Staircase) else m for m in model]
    return nn.Sequential(*copy.deepcopy(layers))


# -- straight-through codes -------------------------------------------------------------------------------------------


def gated(g: Tensor, c: Tensor) -> Tensor:
    return torch.where(c.abs() <= 1, g, 0)


@pytest.mark.parametrize("module", [altmin.Sign(), altmin.Staircase(4)], ids=str)
@pytest.mark.parametrize("mu, share", [(0.1, 1.0), (5.0, 1.0), (0.1, 0.05)])
def test_straight_through_steps_are_those_of_the_formulas(module, mu, share):
    """Below another code and below the loss: g = J^T delta with the estimate for J, its best length, its bound."""
    model, (x, y) = net(module, module), batch()
    values, moved, residuals = update_codes(model, altmin.StraightThroughCodes(share=share), x, y, mu)
    (_, (W2, _), (W3, _)), n = linears(model), len(x)
    c1, c2, o = values
    p = o.softmax(1)
    delta = (p - F.one_hot(y, 3)) / n
    g2 = gated(delta @ W3, c2)
    Jg = gated(g2, c2) @ W3.T
    HJg = p * (Jg - (p * Jg).sum(1, keepdim=True)) / n
    a2 = min(g2.square().sum() / ((Jg * HJg).sum() + 2 * mu / n * g2.square().sum()), share * delta.norm() / HJg.norm())
    torch.testing.assert_close(moved[1], c2 - a2 * g2)
    g1 = gated(g2 @ W2, c1)
    Jg = gated(g1, c1) @ W2.T
    a1 = min(g1.square().sum() / (Jg.square().sum() + g1.square().sum()), share * g2.norm() / Jg.norm())
    torch.testing.assert_close(moved[0], c1 - a2 * a1 * g1)
    for found, expected in zip(residuals, (g1, g2, delta), strict=True):
        torch.testing.assert_close(found.delta, expected)
    assert torch.equal(residuals[1].saved[0], module(c1)), "the activation as it is"
    assert torch.equal(residuals[2].saved[0], module(c2))


def test_weights_of_a_net_of_signs_get_the_gradients_of_backprop_through_the_estimate():
    model, (x, y) = net(*[altmin.Sign() for _ in range(3)]), batch(30)
    wrapped = with_estimates(model)
    F.cross_entropy(wrapped(x), y).backward()
    altmin.AltMin(model, codes="straight-through", weights=altmin.LocalSGD(lr=0.0)).step(x, y)
    for ours, theirs in zip(model.parameters(), wrapped.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
        assert theirs.grad.any()


@pytest.mark.parametrize("options", [{}, {"order": "weights-first"}])
def test_wrapped_activations_give_gradient_codes_the_same_steps(options):
    model, (x, y) = net(altmin.Sign(), nn.Tanh()), batch()
    ours = residuals_of(model, altmin.StraightThroughCodes(**options), x, y, 1.0)
    theirs = residuals_of(with_estimates(model), altmin.GradientCodes(**options), x, y, 1.0)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.delta, b.delta)
        torch.testing.assert_close(a.saved, b.saved)
        assert float(a.cost) == pytest.approx(float(b.cost))
        assert a.scale == pytest.approx(b.scale)


def test_without_discrete_activations_all_solvers_are_gradient_codes():
    model, (x, y) = net(nn.Tanh(), nn.ReLU()), batch()
    expected = residuals_of(model, altmin.GradientCodes(share=0.01), x, y, 1.0)
    gradient = altmin.GradientCodes(share=0.01)
    for solver in (altmin.DiscreteCodes(gradient=gradient), altmin.StraightThroughCodes(share=0.01)):
        for a, b in zip(residuals_of(model, solver, x, y, 1.0), expected, strict=True):
            assert torch.equal(a.delta, b.delta)
            assert a.cost == b.cost


# -- discrete codes ---------------------------------------------------------------------------------------------------

MODULES = pytest.mark.parametrize("module", [altmin.Sign(), altmin.Staircase(4)], ids=str)


@MODULES
def test_what_is_asked_has_the_direction_of_its_formula_and_the_size_of_a_straight_through_gradient(module):
    model, (x, y) = net(module, nn.Tanh()), batch()
    ((code, v, e, ask),) = asked_by(model, x, y)
    leaf = code.clone().requires_grad_()
    gap = torch.relu(e * (v - leaf))
    (expected,) = torch.autograd.grad(gap.sum(), leaf)
    torch.testing.assert_close(ask.delta / ask.delta.norm(), expected / expected.norm())
    leaf = code.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(F.cross_entropy(with_estimates(model)[1:](leaf), y), leaf)
    assert float(ask.delta.norm()) == pytest.approx(float(gradient.norm()))
    assert float(ask.offset_square) == pytest.approx(float(gradient.square().sum()))


@MODULES
def test_weights_below_a_discrete_activation_get_the_gradient_of_what_is_asked(module):
    model, (x, y) = net(module, nn.Tanh()), batch()
    ((_, v, e, ask),) = asked_by(model, x, y)
    am = altmin.AltMin(model, codes=altmin.DiscreteCodes(), weights=altmin.LocalSGD(lr=0.0))
    am.step(x, y)
    gap = torch.relu(e * (v - model[0](x)))
    term = gap.sum()
    (at_code,) = torch.autograd.grad(term, gap, retain_graph=True)
    at_code = at_code * (gap > 0)
    factor = float(ask.delta.norm() / at_code.norm())
    for p, expected in zip(model[0].parameters(), torch.autograd.grad(term, list(model[0].parameters())), strict=True):
        torch.testing.assert_close(p.grad, factor * expected)
        assert expected.any()


@MODULES
def test_residuals_and_movements_are_root_mean_squares_of_the_gaps(module):
    """c - W a of the first block, whose input does not move, is the move of its code."""
    model, (x, y) = net(module, nn.Tanh()), batch()
    ((code, v, e, ask),) = asked_by(model, x, y)
    metrics = altmin.AltMin(model, codes=altmin.DiscreteCodes(), penalty=1.0).step(x, y)
    gap = float(torch.relu(e * (v - code)).square().mean().sqrt())
    assert metrics.residuals[0] == pytest.approx(gap)
    assert metrics.movements[0] == pytest.approx(gap)
    assert float((ask.scale * ask.delta).square().mean().sqrt()) == pytest.approx(gap)


def test_the_objective_is_f_of_these_codes_with_the_activation_as_it_is():
    model, (x, y) = net(altmin.Sign(), nn.Tanh()), batch()
    mu, residuals = 0.7, residuals_of(model, altmin.DiscreteCodes(), x, y, 0.7)
    metrics = altmin.AltMin(copy.deepcopy(model), weights=altmin.LocalSGD(lr=0.0), penalty=mu).step(x, y)
    c1, c2, _ = encoded(model, x)
    (_, (W2, b2), (W3, b3)) = linears(model)
    moved = [c - r.scale * r.delta for c, r in zip((c1, c2), residuals, strict=False)]
    misfit = (moved[0] - c1).square().sum() + (moved[1] - (altmin.Sign()(c1) @ W2.T + b2)).square().sum()
    expected = F.cross_entropy(moved[1].tanh() @ W3.T + b3, y) + mu / len(x) * misfit
    assert metrics.objective == pytest.approx(float(expected))


def test_the_block_above_goes_on_with_the_activation_as_it_is_and_gets_the_gradient_of_backprop():
    """All that is asked of it is left to its weights."""
    model, (x, y) = net(altmin.Sign(), nn.Tanh()), batch()
    found = residuals_of(model, altmin.DiscreteCodes(), x, y, 1.0)[1]
    assert torch.equal(found.saved[0], altmin.Sign()(encoded(model, x)[0]))
    altmin.AltMin(model, weights=altmin.LocalSGD(lr=0.0), penalty=1.0).step(x, y)
    ours = [p.grad.clone() for p in model[2].parameters()]
    theirs = torch.autograd.grad(F.cross_entropy(model(x), y), list(model[2].parameters()))
    torch.testing.assert_close(ours, theirs)


def test_a_loss_that_counts_a_thousand_times_asks_for_the_same_levels_a_thousand_times_as_hard():
    model, (x, y) = net(altmin.Sign(), altmin.Staircase(4)), batch(30)
    plain, loud = Asking(), Asking()
    ours = residuals_of(model, plain, x, y, 1.0)
    theirs = residuals_of(model, loud, x, y, 1.0, loss=lambda o, y: 1000 * F.cross_entropy(o, y))
    for (_, v, e, _), (_, v_loud, e_loud, _) in zip(plain.asked, loud.asked, strict=True):
        assert torch.equal(v, v_loud)
        assert torch.equal(e, e_loud)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(1000 * a.delta, b.delta)
    assert float(ours[0].cost) == pytest.approx(float(theirs[0].cost))


def test_in_a_net_of_signs_what_one_code_asks_is_the_wish_of_the_search_below():
    """From the top down: minus the gradient of the loss, then the levels asked for."""
    model, (x, y) = net(*[altmin.Sign() for _ in range(3)]), batch(40)
    asked, values = asked_by(model, x, y), encoded(model, x)
    weights = [W for W, _ in linears(model)]
    wish = F.one_hot(y, 3) - values[-1].softmax(1)
    for l in (2, 1, 0):
        (code, v, e, ask), W = asked[l], weights[l + 1]
        q, size, c = wish @ W, W.square().sum(0), values[l]
        q = q * 2 * size.mean() / q.square().mean().sqrt()
        held = (c.abs() <= 1) & (c.sign() * q > size)
        flips = (e != 0) & (v * c < 0)
        assert torch.equal(code, c)
        assert torch.equal((e != 0) & ~flips, held)
        assert flips.any()
        alone = (c.abs() <= 1) & (-4 * c.sign() * q - 4 * size - c * c > 0)
        assert (alone | ~flips).all(), "only what gains may flip"
        torch.testing.assert_close(ask.delta / ask.delta.norm(), -e / e.norm())
        wish = e


@pytest.mark.parametrize("below", [nn.Tanh(), nn.ReLU()], ids=str)
def test_a_gradient_code_below_a_code_that_was_searched_for_leaves_what_f_says(below):
    """Tanh or ReLU below sign: |c - W a|^2 at the moved input a, c being where its search has asked it to be."""
    model, (x, y) = net(below, altmin.Sign()), batch()
    solver = Asking()
    first, second, _ = residuals_of(model, solver, x, y, 1.0)
    ((code, _, _, ask),) = solver.asked
    W, b = linears(model)[1]
    left = code - ask.scale * ask.delta - (second.saved[0] @ W.T + b)
    torch.testing.assert_close(-second.scale * second.delta, left)
    assert float(second.cost) == pytest.approx(float(left.square().sum()))
    assert float(second.cost + first.moved) < float(second.moved) * (1 - 1e-6), "the move pays"


def test_below_a_normalisation_the_wish_is_taken_back_through_it():
    """The batch as a whole: J^T t of batch norm by autograd, then W^T of the layer below it."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 8), altmin.Sign(), nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3)
    )
    model, (x, y) = model.double(), batch(30)
    ((c, v, e, _),) = asked_by(model, x, y)
    output = model[2](altmin.Sign()(c)).detach().requires_grad_()
    (wish,) = torch.autograd.grad(-F.cross_entropy(model[3:](output), y), output)
    W = model[2].weight.detach()
    q, size = wish @ W, W.square().sum(0)
    q = q * 2 * size.mean() / q.square().mean().sqrt()
    held = (e != 0) & (v * c >= 0)
    assert torch.equal(held, (c.abs() <= 1) & (c.sign() * q > size))
    assert held.any()
    assert ((e != 0) & ~held).any()


def test_below_max_pooling_the_winners_are_asked():
    torch.manual_seed(0)
    layers = [
        nn.Unflatten(1, (1, 2, 2)),
        nn.Conv2d(1, 6, 1),
        nn.MaxPool2d(2),
        altmin.Sign(),
        nn.Flatten(),
        nn.Linear(6, 3),
    ]
    model, (x, y) = nn.Sequential(*layers).double(), batch(30)
    ((code, v, e, ask),) = asked_by(model, x, y)
    winners = code == code.amax((2, 3), keepdim=True)
    assert not e[~winners].any()
    plain = nn.Sequential(nn.Linear(6, 6), altmin.Sign(), copy.deepcopy(layers[-1])).double()
    with torch.no_grad():
        plain[0].weight.copy_(torch.eye(6))
        plain[0].bias.zero_()
    ((_, v_plain, e_plain, ask_plain),) = asked_by(plain, code.amax((2, 3)), y)
    torch.testing.assert_close(e.sum((2, 3)), e_plain)
    torch.testing.assert_close((v * e.abs()).sum((2, 3)), v_plain * e_plain.abs())
    torch.testing.assert_close(ask.delta.sum((2, 3)), ask_plain.delta)
    assert e_plain.any()


def test_without_a_gradient_nothing_is_asked():
    model, (x, y) = net(nn.Tanh(), altmin.Sign()), batch()
    metrics = altmin.AltMin(model, loss=lambda o, y: 0 * o.sum()).step(x, y)
    assert metrics.residuals == metrics.movements == [0, 0]
    assert all(not p.grad.any() for p in model.parameters())


def test_the_output_block_takes_inner_weight_steps_on_the_loss():
    """Below the loss, too, the search leaves the block its own problem: two steps are those of gradient descent."""
    model, (x, y) = net(altmin.Sign()), batch()
    theirs = copy.deepcopy(model)
    altmin.AltMin(model, weights=altmin.LocalSGD(lr=0.1, momentum=0.0, steps=2)).step(x, y)
    s = theirs[1](theirs[0](x)).detach()
    optimizer = torch.optim.SGD(theirs[2].parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(theirs[2](s), y).backward()
        optimizer.step()
    torch.testing.assert_close([*model[2].parameters()], [*theirs[2].parameters()])


def test_inner_weight_steps_lower_the_hinge():
    model, (x, y) = net(altmin.Sign(), nn.Tanh()), batch()
    one, ten = (copy.deepcopy(model) for _ in range(2))
    ((code, v, e, _),) = asked_by(model, x, y)
    values = []
    for each, steps in ((one, 1), (ten, 10)):
        altmin.AltMin(each, weights=altmin.LocalSGD(lr=0.02, steps=steps), penalty=1.0).step(x, y)
        values.append(float(torch.relu(e * (v - each[0](x).detach())).sum()))
    assert values[1] < values[0] < float(torch.relu(e * (v - code)).sum())


# -- learning ---------------------------------------------------------------------------------------------------------


def accuracy_on_new_samples(activations: Any, frozen: bool = False) -> float:
    """Four quadrants of two inputs, hidden among twenty-eight of noise: the first layer has to find the two."""
    torch.manual_seed(0)
    x = torch.randn(2000, 30)
    y = 2 * (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    model = altmin.models.binary_mlp(30, (16,) * len(activations), 4, activations)
    if frozen:
        altmin.models.freeze_first(model)
    am = altmin.methods.create("am-adam", model, lr=0.01, codes="discrete")
    for _ in range(150):
        rows = torch.randint(1500, (100,))
        am.step(x[rows], y[rows])
    with torch.no_grad():
        return float((model(x[1500:]).argmax(1) == y[1500:]).float().mean())


@pytest.mark.parametrize("activations", [(altmin.Sign,), (altmin.Sign, altmin.Sign), (altmin.Staircase, nn.Tanh)])
def test_a_discrete_layer_that_is_trained_beats_the_same_layer_frozen(activations):
    assert accuracy_on_new_samples(activations) > accuracy_on_new_samples(activations, frozen=True) + 0.25


def test_an_amplification_that_is_not_positive_is_refused():
    with pytest.raises(ValueError):
        altmin.DiscreteCodes(amplify=0)
