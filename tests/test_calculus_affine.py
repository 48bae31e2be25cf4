"""Linear layers and convolutions of any shape, and the regression that their parameters can be found by."""

import pytest
import torch
from calculus_cases import AFFINE, close, contract, function, parameters, stands_at
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from altmin.calculus import Affine, AnyModule, map_of

TestMaps = contract(AFFINE)


def agrees(module: nn.Module, *shape: int) -> None:
    f, p, m = function(module), parameters(module), map_of(module)
    x = torch.randn(shape, dtype=torch.float64)
    y, saved = m.forward(p, x)
    close(y, f(x, *p))
    stands_at(m, saved, f, x, p)


@given(
    batch=st.integers(1, 4), inputs=st.integers(1, 6), outputs=st.integers(1, 6), bias=st.booleans(), seed=st.integers()
)
def test_a_linear_map_of_any_shape_agrees_with_autograd(batch, inputs, outputs, bias, seed):
    torch.manual_seed(seed % 2**31)
    agrees(nn.Linear(inputs, outputs, bias, dtype=torch.float64), batch, inputs)


@given(
    dims=st.integers(1, 2),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 2),
    groups=st.sampled_from([1, 2]),
    transposed=st.booleans(),
    bias=st.booleans(),
    size=st.integers(5, 8),
)
def test_a_convolution_of_any_geometry_agrees_with_autograd(
    dims, kernel, stride, padding, dilation, groups, transposed, bias, size
):
    torch.manual_seed(0)
    kind = getattr(nn, f"Conv{'Transpose' * transposed}{dims}d")
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "bias": bias}
    agrees(kind(2, 4, kernel, **options).double(), 2, 2, *[size] * dims)


@pytest.mark.parametrize(
    "make, shape",
    [
        (lambda: nn.Linear(5, 4), (3, 5)),
        (lambda: nn.Linear(5, 4, bias=False), (3, 2, 5)),
        (lambda: nn.Conv1d(3, 2, 2, stride=2, dilation=2), (2, 3, 9)),
        (lambda: nn.Conv2d(2, 3, (3, 2), stride=(1, 2), padding=(1, 0), dilation=(2, 1)), (2, 2, 7, 6)),
        (lambda: nn.Conv2d(2, 3, 3, padding="valid", bias=False), (2, 2, 5, 5)),
    ],
)
def test_the_columns_of_a_regression_give_the_output_and_the_gradients(make, shape):
    torch.manual_seed(0)
    module = make().double()
    m, p = map_of(module), parameters(module)
    assert m.regresses
    y, saved = m.forward(p, torch.randn(shape, dtype=torch.float64))
    v = torch.randn_like(y)
    a, r = m.columns(saved, v)
    W = torch.cat([q.flatten(1) if q.ndim > 1 else q[:, None] for q in p], 1)
    rows = y.flatten(0, -2) if isinstance(module, nn.Linear) else y.flatten(2).mT.flatten(0, 1)
    close(a @ W.T, rows)
    grads = torch.cat([g.flatten(1) if g.ndim > 1 else g[:, None] for g in m.grads(p, saved, v)], 1)
    close(r.T @ a, grads)


@pytest.mark.parametrize(
    "make", [lambda: nn.Conv3d(2, 2, 2), lambda: nn.Conv2d(2, 4, 2, groups=2), lambda: nn.ConvTranspose2d(2, 2, 2)]
)
def test_a_convolution_without_such_columns_says_so(make):
    assert not map_of(make()).regresses


def test_padding_that_a_product_does_not_know_goes_through_autograd():
    for module in (nn.Conv2d(2, 2, 3, padding="same"), nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect")):
        assert isinstance(map_of(module), AnyModule)
    assert isinstance(map_of(nn.Conv2d(2, 2, 3, padding=1)), Affine)
