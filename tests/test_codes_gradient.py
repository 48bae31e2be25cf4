"""The code update: against a reference written from the equations, against f, and against backprop in its limit."""

import copy

import pytest
import reference
import torch
from codes_cases import F64, NETS, Residual, batch, mlp, net
from conftest import residuals_of, update_codes
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import altmin
from altmin import GradientCodes
from altmin.calculus.context import LOCAL, Context
from altmin.calculus.numbers import Scalars, Tensors
from altmin.core.step import encode

ACTIVATIONS = [nn.Identity, nn.ReLU, nn.Tanh, nn.Softplus]


def agree(model, codes: GradientCodes, x, y, mu, loss=None) -> None:
    """Moved codes and deltas are those of the reference with the same options."""
    net = reference.of(model)
    naive = reference.Codes(codes.share, codes.order)
    wanted = naive.update(net, x, y, mu, loss or reference.cross_entropy)
    _, moved, residuals = update_codes(model, codes, x, y, mu, loss and nn.MSELoss())
    torch.testing.assert_close([*moved], [*wanted.codes], rtol=1e-8, atol=1e-9)
    for residual, delta, scale in zip(residuals, wanted.deltas, wanted.scales, strict=True):
        torch.testing.assert_close(residual.delta, delta, rtol=1e-6, atol=1e-9)
        assert float(residual.scale) == pytest.approx(float(scale), rel=1e-8)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_encoding_is_the_forward_pass_of_the_equations(activation):
    model, (x, _) = mlp(activation, 3), batch()
    chain = altmin.split(model)
    with torch.no_grad():
        ours = encode(chain.blocks, chain.parameters(), x, LOCAL)[0][1:]
    torch.testing.assert_close([*ours], [*reference.encode(reference.of(model), x)])


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("mu, share", [(1e-2, 0.02), (1e-2, 1.0), (1.0, 0.3), (100.0, 0.02), (100.0, 1.0)])
def test_one_exact_step_is_that_of_the_reference(activation, mu, share):
    x, y = batch()
    for order in ("codes-first", "weights-first"):
        agree(mlp(activation, 3), GradientCodes(share=share, order=order), x, y, mu)


def test_below_kinks_at_which_a_code_has_stopped_a_smooth_block_is_left_with_its_part_of_all_that_is_asked():
    torch.manual_seed(0)
    layers = nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3)
    model, (x, y) = nn.Sequential(*layers).double(), batch()
    with torch.no_grad():
        model[6].weight.mul_(8)
    codes = GradientCodes(share=1.0)
    encoded, moved, _ = update_codes(model, codes, x, y, 1e-3)
    assert ((encoded[1] > 0) & (moved[1] < encoded[1]) & (moved[1] < 0.7 * encoded[1])).any(), "some come near a kink"
    agree(model, codes, x, y, 1e-3)


@pytest.mark.parametrize("codes", [GradientCodes(), GradientCodes(share=1.0)], ids=str)
def test_steps_on_the_squared_error_are_those_of_the_reference(codes):
    x, _ = batch()
    agree(mlp(nn.Tanh, 3), codes, x, torch.randn(len(x), 3, dtype=F64), 0.5, reference.squared_error)


@pytest.mark.parametrize("activation", [nn.Identity, nn.ReLU])
def test_with_the_full_share_no_other_length_gives_a_lower_f(activation):
    """By search over lengths of every hidden code in turn, the others held: f along the code's own direction."""
    model, (x, y), mu = mlp(activation, 3), batch(), 0.3
    encoded, moved, _ = update_codes(model, GradientCodes(share=1.0), x, y, mu)
    chain, loss = altmin.split(model), nn.CrossEntropyLoss()
    for l in (0, 1):  # the last code's line search is in the quadratic model of the loss
        done = [encoded[k] if k < l else moved[k] for k in range(3)]
        best = float(altmin.objective(chain, done, x, y, mu, loss).detach())
        for factor in (0.0, 0.5, 0.9, 0.99):
            codes = [*done]
            codes[l] = encoded[l] + factor * (moved[l] - encoded[l])
            assert float(altmin.objective(chain, codes, x, y, mu, loss)) > best
        if activation is nn.Identity:
            codes[l] = encoded[l] + 1.01 * (moved[l] - encoded[l])
            assert float(altmin.objective(chain, codes, x, y, mu, loss)) > best


@pytest.mark.parametrize("share", [0.01, 0.1])
def test_a_code_takes_at_most_its_share_of_what_is_asked(share):
    model, (x, y) = net("relu", gain=2.0), batch()
    asked = residuals_of(model, GradientCodes(share=share, order="weights-first"), x, y, 1e-3)
    left = residuals_of(model, GradientCodes(share=share), x, y, 1e-3)
    taken = float((asked[1].delta - left[1].delta).norm() / asked[1].delta.norm())
    assert taken == pytest.approx(share, rel=1e-9), "this bound is active here"


@given(
    name=st.sampled_from([n for n in NETS if n != "dropout"]),
    exponent=st.floats(-4, 3),
    share=st.sampled_from([0.0, 0.03, 0.1, 0.5, 1.0]),
    gain=st.sampled_from([0.3, 1.0, 5.0]),
    seed=st.integers(0, 1000),
)
def test_f_never_rises_over_a_code_update(name, exponent, share, gain, seed):
    model, (x, y), mu = net(name, seed, gain), batch(seed), 10.0**exponent
    encoded, moved, residuals = update_codes(model, GradientCodes(share=share), x, y, mu)
    loss = float(F.cross_entropy(encoded[-1], y))
    f = float(altmin.objective(altmin.split(model), moved, x, y, mu, nn.CrossEntropyLoss()))
    assert f <= loss * (1 + 1e-10) + 1e-13
    costs = float(residuals[-1].cost + mu / len(x) * sum(r.cost for r in residuals[:-1]))
    assert costs == pytest.approx(f, rel=1e-6)


def test_no_rectified_unit_of_a_hidden_code_crosses_zero():
    x, y = batch(samples=40)
    encoded, moved, _ = update_codes(net("relu", gain=3.0), GradientCodes(share=1.0), x, y, 1e-3)
    assert ((encoded[0] > 0) == (moved[0] >= 0)).all()
    assert (moved[0] == 0).any() or (moved[0] - encoded[0]).abs().max() > 0.1, "the step is long enough to reach some"


class Spike(nn.Module):
    """W x + 1000 x^2: no linear model holds far."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        return self.layer(x) + 1000 * x.square()


def test_a_step_that_would_raise_f_is_not_taken_and_the_weights_get_backprops_gradient():
    torch.manual_seed(0)
    model, (x, y) = (
        nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), Spike(), nn.Linear(6, 3)).double(),
        batch(),
    )
    encoded, moved, residuals = update_codes(model, GradientCodes(share=1.0), x, y, 1e-6)
    assert torch.equal(moved[1], encoded[1])
    loss = F.cross_entropy(model(x), y)
    wanted = torch.autograd.grad(loss, model[0].weight)[0]
    chain = altmin.split(model)
    found = chain.blocks[0].core.grads(chain.parameters()[0], residuals[0].saved, residuals[0].delta)[0]
    if float(residuals[-1].cost) == float(loss):  # the last code did not move either
        torch.testing.assert_close(found, wanted)
    assert F.cosine_similarity(found.flatten(), wanted.flatten(), 0) > 0.5


# -- the limit of small steps: backprop ------------------------------------------------------------------------------


def compare_with_backprop(model, codes, x, y, tolerance) -> None:
    """Every parameter's gradient is backprop's, in direction and size."""
    chain = altmin.split(model)
    torch.manual_seed(0)
    residuals = residuals_of(model, codes, x, y, 1.0)
    ours = [
        g
        for block, p, r in zip(chain, chain.parameters(), residuals, strict=True)
        for g in block.core.grads(p, r.saved, r.delta)
    ]
    torch.manual_seed(0)
    twin = copy.deepcopy(model)
    h = x
    for block in altmin.split(twin):
        for m in block.maps:
            h = m.module(h)
    F.cross_entropy(h, y).backward()
    theirs = [p.grad for block in altmin.split(twin).parameters() for p in block]
    for a, b in zip(ours, theirs, strict=True):
        if b.norm() > 1e-12 * max(t.norm() for t in theirs):  # not the bias that batch norm takes away
            a, b = a.double().flatten(), b.double().flatten()
            assert float(a @ b / a.norm() / b.norm()) > 1 - tolerance
            assert float(a.norm() / b.norm()) == pytest.approx(1, abs=10 * tolerance**0.5)


@pytest.mark.parametrize("name", [n for n in NETS if n != "dropout"])
@pytest.mark.parametrize("share", [0.0, 1e-6])
def test_small_steps_give_every_block_backprops_gradient(name, share):
    compare_with_backprop(net(name), GradientCodes(share=share), *batch(), 1e-8)


def test_pools_that_are_tied_hand_down_backprops_gradient():
    """On images with a constant background, where every window of it is a kink."""
    torch.manual_seed(0)
    model, y = altmin.models.lenet5().double(), torch.arange(6) % 3
    x = torch.full((6, 1, 28, 28), -0.4, dtype=F64)
    x[:, :, 10:18, 8:20] = torch.randn(6, 1, 8, 12, dtype=F64)
    for share in (0.0, 1e-6):
        compare_with_backprop(model, GradientCodes(share=share), x, y, 1e-6)


@pytest.mark.parametrize(
    "name, body, share",
    [
        ("tanh", lambda: [m for _ in range(200) for m in (nn.Tanh(), nn.Linear(12, 12))], 0.0),
        ("relu", lambda: [m for _ in range(200) for m in (nn.ReLU(), nn.Linear(12, 12))], 1e-3),
        pytest.param("own", lambda: [Residual(12, 200) for _ in range(200)], 1e-7, marks=pytest.mark.slow),
    ],
)
def test_two_hundred_layers_in_float32_get_backprops_gradients(name, body, share):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 12), *body(), nn.Linear(12, 3))
    for m in model:
        if isinstance(m, nn.Linear) and m.in_features == 12:
            nn.init.orthogonal_(m.weight, 1.0 if name == "tanh" else 2**0.5)
    x, y = batch()
    compare_with_backprop(model, GradientCodes(share=share), x.float(), y, 1e-4 + 10 * share)


# -- numbers that are not read ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETS)
def test_numbers_that_are_not_read_change_nothing(name):
    model, (x, y), codes = net(name, gain=3.0), batch(), GradientCodes()
    torch.manual_seed(0)
    wanted = residuals_of(model, codes, x, y, 0.1)
    for numbers in (Tensors, Scalars):
        torch.manual_seed(0)
        found = residuals_of(model, codes, x, y, 0.1, context=Context(numbers=numbers))
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a.delta, b.delta)
            assert float(a.cost) == pytest.approx(float(b.cost), rel=1e-9)
            assert float(a.moved) == pytest.approx(float(b.moved), rel=1e-9)


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"share": 1.1}, {"share": -0.1}, {"order": "both"}], ids=str)
def test_settings_out_of_their_range_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        GradientCodes(**options)
