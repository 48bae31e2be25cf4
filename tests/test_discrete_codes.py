"""The code solvers for discrete activations: naive references, weight gradients, learning, clear errors."""

import copy
from typing import Any

import pytest
import torch
from conftest import residual, update_codes
from torch import Tensor, nn
from torch.nn import functional as F

import altmin
from altmin.calculus import CLOSED_FORMS, Discrete
from altmin.codes.discrete import HingeAbove
from altmin.codes.linesearch import Doubts, FitAbove

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


# -- straight-through codes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [altmin.Sign(), altmin.Staircase(4)], ids=str)
@pytest.mark.parametrize("mu", [0.1, 5.0])
def test_a_straight_through_step_is_that_of_a_naive_loop(module, mu):
    """Below a fit and below the loss: g = gate * W^T r, its best length, and what it really does to the activation."""
    model, (x, y) = net(module, module), batch()
    encoded, codes, problems = update_codes(model, altmin.StraightThroughCodes(), x, y, mu)
    (_, (W2, _), (W3, b3)) = linears(model)
    for i in range(len(x)):
        c1, c2, o = (each[i] for each in encoded)
        p = o.softmax(0)
        gate = torch.tensor([float(abs(v) <= 1) for v in c2.tolist()], dtype=F64)
        g = gate * (W3.T @ (F.one_hot(y[i], 3) - p))
        Jg = W3 @ (gate * g)
        bend = (p * Jg * Jg).sum() - (p * Jg).sum() ** 2
        d2 = g * (g @ g) / (bend + 2 * mu * g @ g)
        torch.testing.assert_close(codes[1][i], c2 + d2)
        gate = torch.tensor([float(abs(v) <= 1) for v in c1.tolist()], dtype=F64)
        g = gate * (W2.T @ d2)
        Jg = W2 @ (gate * g)
        d1 = g * (g @ g) / (Jg @ Jg + g @ g)
        torch.testing.assert_close(codes[0][i], c1 + d1)
        change = W2 @ (module(c1 + d1) - module(c1))
        torch.testing.assert_close(residual(problems[1])[i], d2 - change)
        after = (W3 @ module(c2 + d2) + b3).softmax(0)
        torch.testing.assert_close(problems[2].at.force[i], F.one_hot(y[i], 3) - after)


def test_wrapped_activations_give_gradient_codes_the_same_steps():
    model, (x, y) = net(altmin.Sign(), nn.Tanh()), batch()
    wrapped = copy.deepcopy(model)
    wrapped[1] = altmin.StraightThrough(altmin.Sign())
    _, ours, _ = update_codes(model, altmin.StraightThroughCodes(), x, y, 1.0)
    _, theirs, _ = update_codes(wrapped, altmin.GradientCodes(), x, y, 1.0)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_without_discrete_activations_all_solvers_are_gradient_codes():
    model, (x, y) = net(nn.Tanh(), nn.ReLU()), batch()
    expected = update_codes(model, altmin.GradientCodes(), x, y, 1.0)[1]
    for solver in (altmin.DiscreteCodes(), altmin.StraightThroughCodes()):
        for a, b in zip(update_codes(model, solver, x, y, 1.0)[1], expected, strict=True):
            assert torch.equal(a, b)


# -- discrete codes ---------------------------------------------------------------------------------------------------


def test_the_term_of_a_hinge_and_its_force_are_those_of_the_formula():
    torch.manual_seed(0)
    c, v = torch.randn(5, 6, dtype=F64), torch.randn(5, 6, dtype=F64).sign()
    e = torch.randint(-1, 2, (5, 6)).double()
    step = torch.randn(5, 6, dtype=F64)
    above = HingeAbove(c, v, e, Doubts())
    for at, code in ((above.start, c), (above.shift(above.start, step), c + step)):
        leaf = code.clone().requires_grad_()
        hinge = torch.relu(e * (v - leaf)).sum(1)
        torch.testing.assert_close(at.values, hinge.detach())
        hinge.sum().backward()
        torch.testing.assert_close(-2 * at.force, leaf.grad)
    torch.testing.assert_close(above.moved, torch.relu(e * (v - c)).square().sum(1))


@pytest.mark.parametrize("kind", ["hinge", "squared"])
@pytest.mark.parametrize("module", [altmin.Sign(), altmin.Staircase(4)], ids=str)
def test_weights_below_a_discrete_activation_get_the_gradient_of_what_is_asked(kind, module):
    """mu times the hinge, or the squared distance from the level asked for, by autograd from the formula."""
    model, (x, y) = net(module, nn.Tanh()), batch()
    seen: dict[str, Tensor] = {}

    class Spy(altmin.DiscreteCodes):
        def give_way(self, chain, theta, trace, l, above, mu):
            code = trace.values[-1]
            problem, asks = super().give_way(chain, theta, trace, l, above, mu)
            if isinstance(asks, HingeAbove):
                seen.update(v=asks.v, e=asks.e)
            elif any(isinstance(m, Discrete) for m in chain.blocks[l].maps):
                t = asks.start.force.clone()
                seen.update(v=code + t, e=t.sign())
            return problem, asks

    mu = 3.0
    am = altmin.AltMin(model, codes=Spy(residual=kind), weights=altmin.LocalSGD(lr=0.0), penalty=mu)
    movements = am.step(x, y).movements
    ours = [p.grad.clone() for p in model[0].parameters()]
    c = model[0](x)
    gap = torch.relu(seen["e"] * (seen["v"] - c))
    term = gap.sum() if kind == "hinge" else gap.square().sum()
    theirs = torch.autograd.grad(mu * term / len(x), list(model[0].parameters()))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)
    assert all(float(g.norm()) > 0 for g in ours)
    assert movements[0] == pytest.approx(float(gap.detach().square().mean().sqrt()))


def test_the_block_above_goes_on_with_the_activation_as_it_is():
    """It keeps all of its wish, and the objective says so."""
    model, (x, y) = net(altmin.Sign(), nn.Tanh()), batch()
    encoded, codes, problems = update_codes(model, altmin.DiscreteCodes(), x, y, 1.0)
    torch.testing.assert_close(residual(problems[1]), codes[1] - encoded[1])
    assert torch.equal(problems[1].core[0], altmin.Sign()(encoded[0]))
    am = altmin.AltMin(copy.deepcopy(model), weights=altmin.LocalSGD(lr=0.0), penalty=1.0)
    terms = [float(problem.at.values.sum()) for problem in problems]
    assert am.step(x, y).objective == pytest.approx((terms[2] + terms[1] + terms[0]) / len(x))


def test_in_a_net_of_signs_what_one_code_is_asked_is_the_wish_of_the_search_below():
    """The pull of the hinge's force of ±1/2 through each layer, from the top down."""
    model, (x, y) = net(*[altmin.Sign() for _ in range(3)]), batch(40)
    encoded, _, problems = update_codes(model, altmin.DiscreteCodes(), x, y, 1.0)
    weights = [W for W, _ in linears(model)]
    wish = F.one_hot(y, 3) - encoded[-1].softmax(1)
    for l in (2, 1, 0):
        asks, W = problems[l].above, weights[l + 1]
        assert isinstance(asks, HingeAbove)
        q, size, c = wish @ W, W.square().sum(0), encoded[l]
        q = q * 2 * size.mean() / q.square().mean().sqrt()
        held = (c.abs() <= 1) & (c.sign() * q > size)
        flips = (asks.e != 0) & (asks.v * c < 0)
        assert torch.equal((asks.e != 0) & ~flips, held)
        assert flips.any()
        alone = (c.abs() <= 1) & (-4 * c.sign() * q - 4 * size - c * c > 0)
        assert (alone | ~flips).all(), "only what gains may flip"
        wish = problems[l].at.force
        torch.testing.assert_close(wish, asks.v / 2 * (asks.e != 0))


def test_a_hinge_above_a_gradient_code_never_raises_its_objective():
    """tanh below sign: the code under the tanh gives way to the hinge, at the price of its own move."""
    model, (x, y) = net(nn.Tanh(), altmin.Sign()), batch()
    encoded, codes, problems = update_codes(model, altmin.DiscreteCodes(), x, y, 1.0)
    asks = problems[1].above
    assert isinstance(asks, HingeAbove)
    W, b = linears(model)[1]
    before = torch.relu(asks.e * (asks.v - encoded[1])).sum(1)
    after = torch.relu(asks.e * (asks.v - (codes[0].tanh() @ W.T + b))).sum(1)
    cost = (codes[0] - encoded[0]).square().sum(1)
    assert (after + cost <= before + 1e-12).all()
    assert (after + cost < before - 1e-6).any()
    torch.testing.assert_close(problems[1].at.values, after)


def test_below_a_normalisation_the_wish_is_pulled_back_through_it():
    """The batch as a whole: J^T t of batch norm by autograd, then the pull of the layer below it."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 8), altmin.Sign(), nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3)
    )
    model, (x, y) = model.double(), batch(30)
    encoded, codes, problems = update_codes(model, altmin.DiscreteCodes(), x, y, 1.0)
    asks, c = problems[0].above, encoded[0]
    with torch.no_grad():
        inner = model[2](altmin.Sign()(c))
    inner.requires_grad_()
    (wish,) = torch.autograd.grad(model[3](inner), inner, codes[1] - encoded[1])
    W = model[2].weight.detach()
    q, size = wish @ W, W.square().sum(0)
    q = q * 2 * size.mean() / q.square().mean().sqrt()
    held = (asks.e != 0) & (asks.v * c >= 0)
    assert torch.equal(held, (c.abs() <= 1) & (c.sign() * q > size))
    assert held.any()
    assert ((asks.e != 0) & ~held).any()


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
    encoded, _, problems = update_codes(model, altmin.DiscreteCodes(), x, y, 1.0)
    asks, code = problems[0].above, encoded[0]
    winners = code == code.amax((2, 3), keepdim=True)
    assert not asks.e[~winners].any()
    inputs = code.amax((2, 3))
    plain = nn.Sequential(nn.Linear(6, 6), altmin.Sign(), copy.deepcopy(layers[-1])).double()
    with torch.no_grad():
        plain[0].weight.copy_(torch.eye(6))
        plain[0].bias.zero_()
    expected = update_codes(plain, altmin.DiscreteCodes(), inputs, y, 1.0)[2][0].above
    torch.testing.assert_close(asks.e.sum((2, 3)), expected.e)
    torch.testing.assert_close((asks.v * asks.e.abs()).sum((2, 3)), expected.v * expected.e.abs())
    assert expected.e.any()


def test_inner_weight_steps_lower_the_hinge():
    model, (x, y) = net(altmin.Sign(), nn.Tanh()), batch()
    one, ten = (copy.deepcopy(model) for _ in range(2))
    asks = update_codes(model, altmin.DiscreteCodes(), x, y, 1.0)[2][0].above
    values = []
    for each, steps in ((one, 1), (ten, 10)):
        altmin.AltMin(each, weights=altmin.LocalSGD(lr=0.02, steps=steps), penalty=1.0).step(x, y)
        values.append(float(torch.relu(asks.e * (asks.v - each[0](x).detach())).sum()))
    assert values[1] < values[0] < float(asks.start.values.sum())


def test_a_squared_residual_is_a_fit():
    model, (x, y) = net(altmin.Sign()), batch()
    asks = update_codes(model, altmin.DiscreteCodes(residual="squared"), x, y, 1.0)[2][0].above
    hinge = update_codes(model, altmin.DiscreteCodes(), x, y, 1.0)
    assert type(asks) is FitAbove
    expected = (hinge[2][0].above.v - hinge[0][0]) * hinge[2][0].above.e.abs()
    torch.testing.assert_close(asks.start.force, expected)


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


def test_the_other_methods_train_discrete_layers_too():
    x, y = batch()
    for name in ("am-sgd", "am-mem", "am-adam-offline", "am-mem-offline"):
        for codes in ("discrete", "straight-through", None):
            model = net(altmin.Sign(), nn.Tanh())
            before = [p.detach().clone() for p in model.parameters()]
            method = altmin.methods.create(name, model, codes=codes)
            method.step(x, y)
            method.end_epoch()
            assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)), (name, codes)


# -- the choice of a solver, and clear errors -------------------------------------------------------------------------


def test_a_chain_gets_the_solver_that_fits_it():
    smooth, signs = net(nn.Tanh()), net(altmin.Sign())
    assert type(altmin.AltMin(smooth).codes) is altmin.GradientCodes
    assert type(altmin.AltMin(signs).codes) is altmin.DiscreteCodes
    assert type(altmin.AltMin(net(altmin.StraightThrough(altmin.Sign()))).codes) is altmin.GradientCodes
    assert type(altmin.AltMin(signs, codes="straight-through").codes) is altmin.StraightThroughCodes
    assert altmin.AltMin(smooth, codes=0.25).codes.lr == 0.25
    binarised_input = nn.Sequential(altmin.Sign(), nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    assert type(altmin.AltMin(binarised_input).codes) is altmin.GradientCodes, "no code lies below this sign"
    altmin.AltMin(binarised_input).step(*batch())


@pytest.mark.parametrize("codes", [altmin.GradientCodes(), "gradient", 0.1])
def test_gradient_codes_on_a_sign_are_refused_and_both_solvers_named(codes):
    with pytest.raises(TypeError, match=r"Sign has no derivative.*DiscreteCodes\(\).*StraightThroughCodes\(\)"):
        altmin.AltMin(net(altmin.Sign(), nn.Tanh()), codes=codes)


UNFIT = {
    "an unknown layer": [nn.Linear(4, 5), altmin.Sign(), nn.PReLU(5)],
    "pooling between": [nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 5, 1), altmin.Sign(), nn.AvgPool1d(4), nn.Flatten()],
    "two at once": [nn.Linear(4, 5), altmin.Sign(), altmin.Staircase(4)],
}


@pytest.mark.parametrize("kind", UNFIT)
def test_what_the_search_cannot_serve_is_refused_before_training(kind):
    model = nn.Sequential(*UNFIT[kind], nn.Linear(5, 3)).double()
    with pytest.raises(ValueError, match=r"DiscreteCodes needs a Linear or convolution right after Sign.*given \("):
        altmin.AltMin(model, codes="discrete")
    altmin.AltMin(model, codes="straight-through").step(*batch())


def test_a_sign_above_the_last_layer_is_refused():
    with pytest.raises(ValueError, match=r"Sign lies above the last layer.*leave it out"):
        altmin.AltMin(nn.Sequential(nn.Linear(4, 3), altmin.Sign()))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"amplify": 0}, "amplify of DiscreteCodes must be above 0, given 0"),
        ({"sweeps": 0}, "sweeps of DiscreteCodes must be at least 1, given 0"),
        ({"residual": "hing"}, "unknown residual of DiscreteCodes, 'hing'; did you mean 'hinge'?"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError) as caught:
        altmin.DiscreteCodes(**options)
    assert message in str(caught.value)


def test_unknown_solvers_and_wrong_numbers_of_activations_are_named():
    with pytest.raises(ValueError, match="unknown code solver 'discret'; did you mean 'discrete'"):
        altmin.AltMin(net(altmin.Sign()), codes="discret")
    with pytest.raises(ValueError, match="activations has 1 entries for 2 hidden layers"):
        altmin.models.binary_mlp(activations=[altmin.Sign])


# -- models and audit --------------------------------------------------------------------------------------------------


def test_the_models_are_those_of_their_names():
    kinds = [type(m) for m in altmin.models.create("binary-7", (1, 28, 28), 10)]
    assert kinds == [nn.Flatten, nn.Linear, altmin.Sign, nn.Linear, nn.Tanh, nn.Linear]
    staircase = altmin.models.create("staircase-7", (1, 28, 28), 10)
    assert isinstance(staircase[2], altmin.Staircase)
    assert staircase[2].levels == 4
    deep = altmin.models.binary_mlp(6, (5, 4, 3), 2, altmin.Sign, dropout=0.2)
    assert [type(m) for m in deep][1:] == [nn.Linear, altmin.Sign, nn.Dropout] * 3 + [nn.Linear]
    assert [m.in_features for m in deep if isinstance(m, nn.Linear)] == [6, 5, 4, 3]


def test_the_audit_tells_a_search_from_an_estimate():
    x, y = batch()
    model = net(altmin.Sign(), nn.Tanh())
    searched = altmin.audit(altmin.AltMin(model, codes="discrete"), x, y).findings[1]
    estimated = altmin.audit(altmin.AltMin(model, codes="straight-through"), x, y).findings[1]
    assert (searched.discrete, searched.estimates, searched.derivatives) == (["Sign"], 0, 0)
    assert "no derivative of Sign exists and none was used" in str(searched)
    assert (estimated.discrete, estimated.estimates, estimated.derivatives) == (["Sign"], 2, 0)
    assert "a straight-through estimate stood in for the derivative of Sign 2 times" in str(estimated)


def test_the_audit_would_notice_a_derivative(monkeypatch):
    class Cheat(Discrete):
        def pull(self, p, saved, v):
            return v

        push = pull

    class Flawed(altmin.GradientCodes):
        """A solver that takes what it should not."""

    monkeypatch.setitem(CLOSED_FORMS, altmin.Sign, Cheat)
    found = altmin.audit(altmin.AltMin(net(altmin.Sign()), codes=Flawed()), *batch()).findings[1]
    assert found.derivatives > 0
    assert "A DERIVATIVE OF Sign WAS USED" in str(found)


def test_a_frozen_layer_keeps_its_weights_with_every_method():
    for name in altmin.methods.names():
        model = net(nn.Tanh(), nn.Tanh())
        altmin.models.freeze_first(model)
        before = [p.detach().clone() for p in model.parameters()]
        method = altmin.methods.create(name, model)
        method.step(*batch())
        method.end_epoch()
        same = [torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)]
        assert same == [True, True, False, False, False, False], name
