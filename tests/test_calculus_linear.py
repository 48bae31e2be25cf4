"""Linear layers and convolutions of any shape, the regression that their parameters can be found by, reshaping, average
pooling, padding, and dropout with one mask for a whole step."""

import pytest
import torch
from calculus_cases import AFFINE, LINEAR, close, contract, function, parameters, stands_at
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from altmin.calculus import Affine, AnyModule, map_of

TestMaps = contract([*AFFINE, *LINEAR])


def agrees(module: nn.Module, *shape: int) -> None:
    f, p, m = function(module), parameters(module), map_of(module)
    x = torch.randn(shape, dtype=torch.float64)
    y, saved = m.forward(p, x)
    close(y, f(x, *p))
    stands_at(m, saved, f, x, p)


GEOMETRY = {
    "stride": st.integers(1, 3),
    "padding": st.integers(0, 2),
    "dilation": st.integers(1, 2),
    "groups": st.sampled_from([1, 2]),
    "bias": st.booleans(),
}


@given(st.integers(1, 2), st.integers(1, 3), st.fixed_dictionaries(GEOMETRY), st.booleans(), st.integers(5, 8))
def test_a_convolution_of_any_geometry_agrees_with_autograd(dims, kernel, options, transposed, size):
    torch.manual_seed(0)
    kind = getattr(nn, f"Conv{'Transpose' * transposed}{dims}d")
    agrees(kind(2, 4, kernel, **options).double(), 2, 2, *[size] * dims)


@pytest.mark.parametrize(
    "make, shape",
    [
        (lambda: nn.Linear(5, 4), (3, 5)),
        (lambda: nn.Linear(5, 4, bias=False), (3, 2, 5)),
        (lambda: nn.Conv1d(3, 2, 2, stride=2, dilation=2), (2, 3, 9)),
        (lambda: nn.Conv2d(2, 3, (3, 2), stride=(1, 2), padding=(1, 0), dilation=(2, 1)), (2, 2, 7, 6)),
        (lambda: nn.Conv2d(2, 3, 3, padding="valid", bias=False), (2, 2, 5, 5)),
        (lambda: nn.Conv3d(2, 3, (1, 2, 3), stride=(1, 2, 1), padding=(0, 1, 1), dilation=(1, 1, 2)), (2, 2, 2, 4, 5)),
    ],
)
def test_the_columns_of_a_regression_give_the_output_and_the_gradients(make, shape):
    torch.manual_seed(0)
    module = make().double()
    m, p = map_of(module), parameters(module)
    assert m.is_linear
    y, saved = m.forward(p, torch.randn(shape, dtype=torch.float64))
    v = torch.randn_like(y)
    a, r = m.columns(saved, v)
    W = torch.cat([q.flatten(1) if q.ndim > 1 else q[:, None] for q in p], 1)
    rows = y.flatten(0, -2) if isinstance(module, nn.Linear) else y.flatten(2).mT.flatten(0, 1)
    close(a @ W.T, rows)
    grads = torch.cat([g.flatten(1) if g.ndim > 1 else g[:, None] for g in m.grads(p, saved, v)], 1)
    close(r.T @ a, grads)


@pytest.mark.parametrize("bias", [True, False])
def test_each_group_of_a_convolution_has_rows_of_its_own(bias):
    torch.manual_seed(0)
    module = nn.Conv2d(6, 6, (3, 2), stride=(1, 2), padding=1, groups=3, bias=bias).double()
    x = torch.randn(2, 6, 5, 4, dtype=torch.float64)
    W, m = module.weight.flatten(1).unflatten(0, (3, 2)), map_of(module)
    outputs = module(x).flatten(2).mT.flatten(0, 1) - (module.bias if bias else 0)  # places of all samples, channels
    close(torch.einsum("gri,goi->rgo", m.rows(x), W).flatten(1), outputs)
    assert m.places(x) == len(outputs) / len(x)


def test_rows_may_be_those_of_some_places_evenly_spread():
    linear = map_of(nn.Linear(5, 4))
    for shape in ((12,), (2, 6), (2, 3, 2)):
        x = torch.randn(3, *shape, 5)
        places = linear.rows(x).unflatten(0, (3, 12))
        close(linear.rows(x, 5), places[:, ::3].flatten(0, 1))  # every third: at most five of twelve
    x = torch.randn(3, 5)
    close(linear.rows(x, 5), linear.rows(x))
    x, convolution = torch.randn(2, 3, 10, 9), map_of(nn.Conv2d(3, 4, (3, 2), dilation=(1, 2)))
    places = convolution.rows(x).unflatten(0, (2, 8, 7))
    close(convolution.rows(x, 6), places[:, ::3, ::3].flatten(0, 2))  # every third one each way: nine of 56
    close(convolution.rows(x, 100), places.flatten(0, 2))


@pytest.mark.parametrize("make", [lambda: nn.Conv2d(2, 4, 2, groups=2), lambda: nn.ConvTranspose2d(2, 2, 2)])
def test_a_convolution_without_such_columns_says_so(make):
    assert not map_of(make()).is_linear


def test_padding_that_a_product_does_not_know_goes_through_autograd():
    for module in (nn.Conv2d(2, 2, 3, padding="same"), nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect")):
        assert isinstance(map_of(module), AnyModule)
    assert isinstance(map_of(nn.Conv2d(2, 2, 3, padding=1)), Affine)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(
    "kind, shape",
    [
        (nn.Dropout, (40, 50)),
        (nn.Dropout, (40, 50, 3)),
        (nn.Dropout1d, (40, 50, 3)),
        (nn.Dropout2d, (40, 50, 2, 2)),
        (nn.Dropout3d, (40, 50, 1, 2, 2)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_dropout_keeps_one_mask_for_the_whole_step(kind, shape, training):
    torch.manual_seed(0)
    m = map_of(kind(0.3).train(training))
    x, u, v = torch.rand(3, *shape, dtype=torch.float64) + 0.5
    y, saved = m.forward((), x)
    assert y.shape == x.shape
    mask = y / x
    close(m.vjp((), saved, v), v * mask)
    close(m.jvp((), saved, u), u * mask)
    close(m.replay((), saved, u)[0], u * mask)
    if not training:
        assert torch.equal(y, x)
        return
    kept = mask > 0
    close(mask[kept], torch.full_like(mask[kept], 1 / 0.7))
    assert 0.6 < kept.double().mean() < 0.8
    if len(shape) > 2:
        per_channel = kept.flatten(2).double().mean(2)
        whole = ((per_channel == 0) | (per_channel == 1)).all()
        assert whole == (kind is not nn.Dropout), "channels fall out together, and other entries by themselves"


def test_dropout_of_everything_is_zero():
    m, x = map_of(nn.Dropout(1.0)), torch.ones(3, 4)
    y, saved = m.forward((), x)
    assert not y.any()
    assert not m.vjp((), saved, x).any()
