"""The code solvers for discrete activations: naive references, weight gradients by autograd, learning."""

import copy
from typing import Any

import pytest
import torch
from conftest import Residual, encoded_blocks, gradients_of, residuals_of, update_codes
from torch import Tensor, nn
from torch.nn import functional as F

import altmin
from altmin.calculus.context import LOCAL
from altmin.core.codes.discrete import Search, lacks_derivative

F64 = torch.float64
close = torch.testing.assert_close


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


def asked_by(model: nn.Sequential, x: Tensor, y: Tensor, loss: Any = None) -> list[tuple[Tensor, ...]]:
    """Of each code that is searched for, the first one first: the code, the levels v and the sides e found, and what is
    asked of its own block."""
    (_, *blocks), left = encoded_blocks(model, x)[0], residuals_of(model, altmin.DiscreteCodes(), x, y, 1.0, loss)
    found = []
    for each, above, own in zip(blocks, left[1:], left, strict=False):
        if lacks_derivative(each.block):
            search = Search(each.block, each.p, each.saved, -above.upstream, 2.0, LOCAL)
            search.sweep()
            found.append((each.input, *search.target(), own))
    return found


def with_estimates(model: nn.Sequential) -> nn.Sequential:
    """The same net with activations through which autograd passes the straight-through estimate."""
    layers = [altmin.StraightThrough(m) if isinstance(m, altmin.Sign | altmin.Staircase) else m for m in model]
    return nn.Sequential(*copy.deepcopy(layers))


# -- straight-through codes -------------------------------------------------------------------------------------------


def gated(g: Tensor, c: Tensor) -> Tensor:
    return torch.where(c.abs() <= 1, g, 0)


MODULES = pytest.mark.parametrize("module", [altmin.Sign(), altmin.Staircase(4)], ids=str)


@MODULES
@pytest.mark.parametrize("mu, share", [(0.1, 1.0), (5.0, 1.0), (0.1, 0.05)])
def test_straight_through_steps_are_those_of_the_formulas(module, mu, share):
    """Below another code and below the loss: g = J^T delta with the estimate for J, its best length, its bound; the
    weights above keep the whole target."""
    model, (x, y) = net(module, module), batch()
    (c1, c2, o), moved, residuals = update_codes(model, altmin.StraightThroughCodes(share=share), x, y, mu)
    (_, (W2, _), (W3, _)), n = linears(model), len(x)
    p = o.softmax(1)
    delta = (p - F.one_hot(y, 3)) / n
    g2 = gated(delta @ W3, c2)
    Jg = gated(g2, c2) @ W3.T
    HJg = p * (Jg - (p * Jg).sum(1, keepdim=True)) / n
    a2 = min(g2.square().sum() / ((Jg * HJg).sum() + 2 * mu / n * g2.square().sum()), share * delta.norm() / HJg.norm())
    close(moved[1], c2 - a2 * g2)
    g1 = gated(g2 @ W2, c1)
    Jg = gated(g1, c1) @ W2.T
    a1 = min(g1.square().sum() / (Jg.square().sum() + g1.square().sum()), share * g2.norm() / Jg.norm())
    close(moved[0], c1 - a2 * a1 * g1)
    close([r.delta for r in residuals], [g1, g2, delta])
    squares = [(a2 * a1 * g1).square().sum(), (a2 * g2).square().sum()]  # all of it remains to be done
    close([float(r.cost) for r in residuals], [*map(float, squares), float(F.cross_entropy(o, y))])


def test_weights_of_a_net_of_signs_get_the_gradients_of_backprop_through_the_estimate():
    model, (x, y) = net(*[altmin.Sign() for _ in range(3)]), batch(30)
    wrapped = with_estimates(model)
    theirs = [*torch.autograd.grad(F.cross_entropy(wrapped(x), y), list(wrapped.parameters()))]
    close(gradients_of(model, altmin.StraightThroughCodes(), x, y, 1.0), theirs)
    assert all(g.any() for g in theirs)


def same(ours: list[Residual], theirs: list[Residual]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        close([a.delta, a.upstream], [b.delta, b.upstream])
        close([float(n) for n in (a.scale, a.cost, a.square)], [float(n) for n in (b.scale, b.cost, b.square)])


@pytest.mark.parametrize("options", [{}, {"order": "weights-first"}])
def test_wrapped_activations_give_gradient_codes_the_same_steps(options):
    model, (x, y) = net(altmin.Sign(), nn.Tanh()), batch()
    ours = residuals_of(model, altmin.StraightThroughCodes(**options), x, y, 1.0)
    same(ours, residuals_of(with_estimates(model), altmin.GradientCodes(**options), x, y, 1.0))


def test_without_discrete_activations_all_solvers_are_gradient_codes():
    model, (x, y) = net(nn.Tanh(), nn.ReLU()), batch()
    gradient = altmin.GradientCodes(share=0.01)
    expected = residuals_of(model, gradient, x, y, 1.0)
    for solver in (altmin.DiscreteCodes(gradient=gradient), altmin.StraightThroughCodes(share=0.01)):
        same(residuals_of(model, solver, x, y, 1.0), expected)


# -- discrete codes ---------------------------------------------------------------------------------------------------


@MODULES
def test_what_is_asked_is_the_gradient_of_the_gaps_with_the_size_of_a_straight_through_gradient(module):
    """And so are the weights' gradients; the block is left with a move of the root mean square of the gaps. The block
    above gets the gradient of backprop: all that is asked of it is left to its weights."""
    model, (x, y) = net(module, nn.Tanh()), batch()
    ((code, v, e, own),) = asked_by(model, x, y)
    leaf = code.clone().requires_grad_()
    (estimate,) = torch.autograd.grad(F.cross_entropy(with_estimates(model)[1:](leaf), y), leaf)
    gap = torch.relu(e * (v - model[0](x)))
    expected = torch.autograd.grad(gap.sum(), [*model[0].parameters()])
    size = estimate.norm() / (gap > 0).sum().sqrt()
    ours = gradients_of(model, altmin.DiscreteCodes(), x, y, 1.0)
    close(ours[:2], [size * g for g in expected])
    close(ours[2:4], [*torch.autograd.grad(F.cross_entropy(model(x), y), list(model[2].parameters()))])
    close(own.delta, -size * e * (gap > 0))
    squares = [float(n) for n in (own.cost, own.square, (own.scale * own.delta).square().sum())]
    close(squares, [float(gap.detach().square().sum())] * 3)


def test_a_loss_that_counts_a_thousand_times_asks_for_the_same_levels_a_thousand_times_as_hard():
    model, (x, y) = net(altmin.Sign(), altmin.Staircase(4)), batch(30)
    plain, loud = asked_by(model, x, y), asked_by(model, x, y, lambda o, y: 1000 * F.cross_entropy(o, y))
    for (_, v, e, own), (_, v_loud, e_loud, own_loud) in zip(plain, loud, strict=True):
        assert torch.equal(v, v_loud)
        assert torch.equal(e, e_loud)
        close(1000 * own.delta, own_loud.delta)
        close(float(own.cost), float(own_loud.cost))


def test_in_a_net_of_signs_what_one_code_asks_is_the_wish_of_the_search_below():
    """From the top down: minus the gradient of the loss, then the levels asked for."""
    model, (x, y) = net(*[altmin.Sign() for _ in range(3)]), batch(40)
    asked, weights = asked_by(model, x, y), [W for W, _ in linears(model)]
    wish = F.one_hot(y, 3) - model(x).detach().softmax(1)
    for l in (2, 1, 0):
        (c, v, e, own), W = asked[l], weights[l + 1]
        q, size = wish @ W, W.square().sum(0)
        q = q * 2 * size.mean() / q.square().mean().sqrt()
        held = (c.abs() <= 1) & (c.sign() * q > size)
        flips = (e != 0) & (v * c < 0)
        assert torch.equal((e != 0) & ~flips, held)
        assert flips.any()
        alone = (c.abs() <= 1) & (-4 * c.sign() * q - 4 * size - c * c > 0)
        assert (alone | ~flips).all(), "only what gains may flip"
        close(own.delta / own.delta.norm(), -e / e.norm())
        wish = e


@pytest.mark.parametrize("below", [nn.Tanh(), nn.ReLU()], ids=str)
def test_the_move_of_a_gradient_code_below_a_code_that_was_searched_for_pays(below):
    model, (x, y) = net(below, altmin.Sign()), batch()
    first, second, _ = residuals_of(model, altmin.DiscreteCodes(), x, y, 1.0)
    ((*_, own),) = asked_by(model, x, y)
    close(second.upstream, own.upstream)
    assert float(second.cost) == pytest.approx(float((second.scale * second.delta).square().sum()))
    assert float(second.cost + first.square) < float(second.square) * (1 - 1e-6)


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


def test_below_max_pooling_the_winners_are_asked_as_they_are_without_it():
    torch.manual_seed(0)
    layers = (
        nn.Unflatten(1, (1, 2, 2)),
        nn.Conv2d(1, 6, 1),
        nn.MaxPool2d(2),
        altmin.Sign(),
        nn.Flatten(),
        nn.Linear(6, 3),
    )
    model, (x, y) = nn.Sequential(*layers).double(), batch(30)
    ((code, v, e, own),) = asked_by(model, x, y)
    assert not e[code < code.amax((2, 3), keepdim=True)].any()
    plain = nn.Sequential(nn.Linear(6, 6), altmin.Sign(), model[-1]).double()
    with torch.no_grad():
        plain[0].weight.copy_(torch.eye(6))
        plain[0].bias.zero_()
    ((_, *wanted, below),) = asked_by(plain, code.amax((2, 3)), y)
    close([(v * e.abs()).sum((2, 3)), e.sum((2, 3))], [wanted[0] * wanted[1].abs(), wanted[1]])
    close(own.delta.sum((2, 3)), below.delta)
    assert e.any()


def test_without_a_gradient_nothing_is_asked():
    model, (x, y) = net(nn.Tanh(), altmin.Sign()), batch()
    nothing = lambda o, y: 0 * o.sum()  # noqa: E731
    left = residuals_of(model, altmin.DiscreteCodes(), x, y, 1.0, nothing)
    assert not any(float(n) for r in left for n in (r.cost, r.square))
    assert not any(g.any() for g in gradients_of(model, altmin.DiscreteCodes(), x, y, 1.0, nothing))


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
    close([*model[2].parameters()], [*theirs[2].parameters()])


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
