"""The code update: against a reference written from the equations, against f, and against backprop in its limit."""

import copy
import itertools
from functools import partial

import pytest
import reference
import torch
from codes_cases import NETS, batch, cliff, mlp, net, steep
from conftest import encoded_blocks, gradients_of, outcome_of, update_codes
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import altmin
from altmin import GradientCodes
from altmin.calculus.context import LOCAL
from altmin.core.codes.problem import OutputLoss, Target, joined
from altmin.core.losses import adapt
from altmin.runners.functional import FunctionalContext

ACTIVATIONS = [nn.Identity, nn.ReLU, nn.Tanh]
ORDERS = ["codes-first", "weights-first"]
close = partial(torch.testing.assert_close, rtol=1e-7, atol=1e-13)


def numbers(y: Tensor) -> Tensor:
    """Targets for a regression, some far from every output."""
    return F.one_hot(y, 3).double() * 4 - 1


def agree(model, codes: GradientCodes, x, y, mu, loss, naive=None) -> reference.Result:
    """All that a step leaves is that of the reference, which is returned, whether numbers are read or stay tensors."""
    layers = reference.of(model)
    wanted = reference.Codes(codes.share, codes.order).update(layers, x, y, mu, naive or loss)
    squares = [m**2 * reference.square(g) for m, g in zip(wanted.scales, wanted.upstream, strict=True)]
    for context in (LOCAL, FunctionalContext()):
        found = outcome_of(model, codes, x, y, mu, loss, context)
        close([p.upstream for p in found.problems], wanted.upstream)
        close([p.delta for p in found.problems], wanted.deltas)
        close([float(p.scale) for p in found.problems], wanted.scales)
        close([*map(float, found.costs)], wanted.costs)
        close(float(found.objective), wanted.costs[-1] + mu / len(x) * sum(wanted.costs[:-1]))
        close([*map(float, found.squares)], [*squares[:-1], 0.0])
    inputs = [x, *reference.encode(layers, x)]
    gradients = [g for pair in reference.weight_gradients(layers, inputs, wanted) for g in pair]
    close(gradients_of(model, codes, x, y, mu, loss), gradients)
    return wanted


LOSSES = {
    "cross-entropy": (nn.CrossEntropyLoss(), reference.cross_entropy, lambda y: y),
    "squared error": (nn.MSELoss(), reference.squared_error, numbers),
    "linear": (nn.L1Loss(), None, numbers),
    "linear in part": (nn.SmoothL1Loss(), None, numbers),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_step_is_that_of_the_reference(loss, share, order):
    (ours, theirs, targets), (x, y) = LOSSES[loss], batch()
    for model in (*(mlp(activation, 3) for activation in ACTIVATIONS), net("mixed", gain=2.0), mlp(depth=1)):
        for mu in (1e-2, 1.0, 100.0):
            agree(model, GradientCodes(share, order), x, targets(y), mu, ours, theirs)


@pytest.mark.parametrize("reduction", ["sum", "scaled"])
def test_a_loss_that_counts_more_moves_the_same_codes_and_leaves_larger_residuals(reduction):
    """A sum over n samples as their mean; k times the loss at k times the price."""
    x, y = batch()
    k = len(x) if reduction == "sum" else 1e-3
    loss = nn.CrossEntropyLoss(reduction="sum") if reduction == "sum" else lambda o, y: k * F.cross_entropy(o, y)
    for model in (mlp(nn.Tanh, 3), net("convolutional")):
        for share in (0.1, 1.0):
            found = outcome_of(model, GradientCodes(share), x, y, 0.1 if reduction == "sum" else 0.1 * k, loss)
            wanted = outcome_of(model, GradientCodes(share), x, y, 0.1)
            close([*map(float, found.squares)], [*map(float, wanted.squares)])
            close(float(found.objective), k * float(wanted.objective))
            close([p.delta for p in found.problems], [k * p.delta for p in wanted.problems])


@pytest.mark.parametrize("make", [lambda: mlp(nn.Tanh, 3), lambda: net("lenet")])
def test_where_squares_vanish_no_code_moves_and_gradients_are_backprops(make):
    model, (x, y) = make(), batch()
    found = gradients_of(model, GradientCodes(1.0), x, y, 1.0, lambda o, y: 1e-20 * F.cross_entropy(o, y))
    wanted = gradients_of(model, GradientCodes(0.0), x, y, 1.0)
    close([1e20 * g for g in found], wanted)


@pytest.mark.parametrize("dead", [0, 2, 4])
def test_below_units_that_are_all_silent_nothing_moves_and_nothing_is_learned(dead):
    model, (x, y) = mlp(nn.ReLU, 3), batch()
    nn.init.constant_(model[dead].bias, -100.0)
    wanted = agree(model, GradientCodes(1.0), x, y, 0.1, nn.CrossEntropyLoss(), reference.cross_entropy)
    moves = [bool(m * g.any()) for m, g in zip(wanted.scales, wanted.upstream, strict=True)]
    assert moves == [2 * l > dead for l in range(4)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("wall", [steep, cliff])
def test_a_step_that_would_raise_f_below_the_loss_is_not_taken_and_no_code_moves(wall, order):
    (x, y), model = batch(), mlp(nn.Identity, 3)
    edge = float(model(x).detach().min()) - 0.01
    wanted = agree(model, GradientCodes(1.0, order), x, y, 1e-2, wall(edge))
    assert wanted.scales == [0.0, 0.0, 0.0, 1.0]
    assert wanted.costs[:-1] == [0.0, 0.0, 0.0]
    free = agree(model, GradientCodes(1.0, order), x, y, 1e-2, wall(-1e9))
    assert min(free.scales) > 0


# -- what f says ------------------------------------------------------------------------------------------------------


def f_of(model, codes, x, y, mu, loss=None) -> float:
    return float(altmin.objective(altmin.split(model), codes, x, y, mu, loss or nn.CrossEntropyLoss()).detach())


@pytest.mark.parametrize("mu", [0.01, 1.0])
def test_in_a_linear_net_f_is_as_reported_and_no_other_length_gives_a_lower_one(mu):
    """With a quadratic loss and the full share; of each code in turn, those above it moved and those below encoded."""
    model, (x, y), loss = mlp(nn.Identity, 3), batch(), nn.MSELoss()
    encoded, moved, _ = update_codes(model, GradientCodes(1.0), x, numbers(y), mu, loss)
    reported = outcome_of(model, GradientCodes(1.0), x, numbers(y), mu, loss).objective
    assert float(reported) == pytest.approx(f_of(model, moved, x, numbers(y), mu, loss), rel=1e-12)
    for l in range(3):
        codes = [*encoded[:l], *moved[l:]]
        best = f_of(model, codes, x, numbers(y), mu, loss)
        for factor in (0.0, 0.9, 1.1):
            codes[l] = encoded[l] + factor * (moved[l] - encoded[l])
            assert f_of(model, codes, x, numbers(y), mu, loss) > best


SMOOTH = [name for name in NETS if name != "dropout"]


@given(
    name=st.sampled_from(list(NETS)),
    exponent=st.floats(-4, 3),
    share=st.sampled_from([0.0, 0.03, 0.1, 0.5, 1.0]),
    gain=st.sampled_from([0.3, 1.0, 5.0]),
    seed=st.integers(0, 1000),
)
def test_f_never_rises_below_the_loss_nor_where_blocks_are_linear(name, exponent, share, gain, seed):
    model, (x, y), mu = net(name, seed, gain), batch(seed), 10.0**exponent
    found = outcome_of(model, GradientCodes(share), x, y, mu)
    assert found.objective <= found.loss * (1 + 1e-12) + 1e-13
    if share == 0:
        assert float(found.objective) == float(found.loss)
    if name != "dropout":  # f would draw another mask
        encoded, moved, _ = update_codes(model, GradientCodes(share), x, y, mu)
        assert f_of(model, [*encoded[:-2], moved[-1]], x, y, mu) <= found.loss * (1 + 1e-12) + 1e-13


@pytest.mark.parametrize("name", SMOOTH)
def test_every_short_move_lowers_f_and_by_as_much_as_reported(name):
    model, (x, y), mu = net(name), batch(), 1e5  # so dear that moves are short
    encoded, moved, _ = update_codes(model, GradientCodes(1.0), x, y, mu)
    values = [f_of(model, [*encoded[:l], *moved[l:]], x, y, mu) for l in range(len(moved), -1, -1)]
    assert all(after < before for before, after in itertools.pairwise(values))
    reported = float(outcome_of(model, GradientCodes(1.0), x, y, mu).objective)
    assert values[0] - reported == pytest.approx(values[0] - values[-1], rel=1e-2)


# -- groups of blocks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ["tanh", "mixed", "lenet", "transformer"])
def test_blocks_that_move_group_by_group_move_as_all_at_once(name, order):
    model, (x, y), codes = net(name), batch(), GradientCodes(0.3, order)
    blocks, output = encoded_blocks(model, x)
    loss = OutputLoss(adapt(nn.CrossEntropyLoss()), output, y, 0.1, LOCAL)
    top = Target(loss.delta, 1.0, loss)
    whole = codes(blocks, top, LOCAL)
    for cut in range(1, len(blocks)):
        upper = codes(blocks[cut:], top, LOCAL)
        lower = codes(blocks[:cut], upper.below, LOCAL)
        assert (upper.below.loss, lower.below) == (None, None)
        close(upper.below.delta, whole.problems[cut - 1].upstream)
        both = joined([upper, lower])
        for a, b in zip(both.problems, whole.problems, strict=True):
            close([a.delta, a.upstream, float(a.scale)], [b.delta, b.upstream, float(b.scale)])
        close([*map(float, (*both.costs, *both.squares))], [*map(float, (*whole.costs, *whole.squares))])


# -- the limit of small steps: backprop -------------------------------------------------------------------------------


def backprop(model, x, y) -> list[Tensor]:
    """The gradients of all parameters, by blocks; the model is left as it was."""
    chain, h = altmin.split(copy.deepcopy(model)), x
    for block in chain:
        for m in block.maps:
            h = m.module(h)
    return list(torch.autograd.grad(F.cross_entropy(h, y), [p for block in chain.parameters() for p in block]))


@pytest.mark.parametrize("name", NETS)
def test_without_code_moves_every_gradient_is_backprops(name):
    model, (x, y) = net(name), batch()
    torch.manual_seed(0)
    ours = gradients_of(model, GradientCodes(0.0), x, y, 1.0)
    torch.manual_seed(0)
    close(ours, backprop(model, x, y))


@pytest.mark.parametrize("activation, share", [(nn.Tanh, 0.0), (nn.ReLU, 1e-3)])
def test_two_hundred_layers_in_float32_get_backprops_gradients(activation, share):
    torch.manual_seed(0)
    body = [m for _ in range(200) for m in (activation(), nn.Linear(12, 12))]
    model, (x, y) = nn.Sequential(nn.Linear(4, 12), *body, nn.Linear(12, 3)), batch()
    for m in body[1::2]:
        nn.init.orthogonal_(m.weight, 1.0 if activation is nn.Tanh else 2**0.5)
    ours = gradients_of(model, GradientCodes(share), x.float(), y, 1.0)
    for a, b in zip(ours, backprop(model, x.float(), y), strict=True):
        assert (a - b).norm() <= (1e-3 + 30 * share) * b.norm()


@pytest.mark.parametrize("options", [{"share": 1.1}, {"share": -0.1}, {"order": "both"}], ids=str)
def test_settings_out_of_their_range_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        GradientCodes(**options)


def test_after_a_weight_step_each_problem_is_that_of_the_same_codes():
    """Hidden: of mu |c - F|^2, in the scale of its code. Output: of the loss, at the moved output and the change of it
    that the new weights make."""
    (x, y), model = batch(), mlp(nn.Tanh, 2)
    chain, found = altmin.split(model), outcome_of(model, GradientCodes(0.5), x, y, 1.0)
    *encoded, _ = reference.encode(reference.of(model), x)
    old = [[p.detach() for p in block] for block in chain.parameters()]
    new = [[p + 0.1 * torch.ones_like(p) for p in block] for block in old]
    inputs = [x, *(c.tanh() for c in encoded)]
    for l, problem in enumerate(found.problems):
        change = inputs[l] @ (new[l][0] - old[l][0]).T + new[l][1] - old[l][1]
        if l < len(chain) - 1:
            wanted = problem.delta + change / problem.scale
        else:
            moved = encoded[-1] - found.problems[-2].scale * found.problems[-2].upstream
            output = moved.tanh() @ old[l][0].T + old[l][1] + change
            wanted = reference.gradient(lambda o: reference.cross_entropy(o, y), output)
        close(problem.after(old[l], new[l]).delta, wanted)
