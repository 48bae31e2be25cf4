"""The residual net computes its formula, keeps sizes at any depth when it starts, and can be cut at every block."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import altmin
from altmin.layers import Residual
from altmin.models import residual_mlp


def test_it_is_its_formula_on_flattened_samples() -> None:
    torch.manual_seed(0)
    model, x = residual_mlp(5, 3, 6, 4), torch.randn(2, 1, 2, 3)
    first, *blocks, last = [m.weight for m in model if not isinstance(m, nn.Flatten)]
    assert (first.shape, [W.shape for W in blocks], last.shape) == ((5, 6), [(5, 5)] * 3, (4, 5))
    h = x.flatten(1) @ first.T
    for W in blocks:
        h = h + F.relu(h) @ W.T / 3**0.5
    torch.testing.assert_close(model(x), h @ last.T)
    assert sum(p.numel() for p in model.parameters()) == 5 * 6 + 3 * 25 + 4 * 5, "no biases"


@pytest.mark.parametrize("depth", [1, 8, 64])
def test_at_any_depth_the_stream_grows_by_at_most_the_root_of_e(depth: int) -> None:
    """E |x + W relu(x) / sqrt(L)|^2 = (1 + 1 / 2L) |x|^2 for weights N(0, 1 / width) and half of the units at work."""
    torch.manual_seed(0)
    model, x = residual_mlp(400, depth, 300), torch.randn(200, 300)
    stream = model[:-1](x)
    first = model[:2](x)
    assert first.var().item() == pytest.approx(1.0, rel=0.1)
    growth = (1 + 0.5 / depth) ** depth
    assert (stream.square().mean() / first.square().mean()).item() == pytest.approx(growth, rel=0.15)
    assert model(x).var().item() == pytest.approx(growth / 400, rel=0.3)


def test_every_residual_block_has_a_code() -> None:
    chain = altmin.split(residual_mlp(5, 3, 6, 4))
    assert [str(block) for block in chain] == ["Flatten, Linear", "Residual", "Residual", "Residual", "Linear"]


def test_alternating_minimization_trains_it() -> None:
    torch.manual_seed(0)
    x = torch.randn(200, 4)
    y = (x[:, 0] * x[:, 1] > 0).long()
    model = residual_mlp(20, 6, 4, 2)
    am = altmin.AltMin(model, weights=altmin.LocalAdam(lr=0.01))
    for _ in range(150):
        am.step(x, y)
    assert (model(x).argmax(1) == y).double().mean() > 0.95


@pytest.mark.parametrize("option", ["width", "depth", "inputs", "outputs"])
def test_a_size_that_is_none_is_refused_by_name(option: str) -> None:
    for wrong in (0, 2.5, -1):
        with pytest.raises(ValueError, match=f"{option} of residual_mlp"):
            residual_mlp(**{"width": 3, "depth": 2, option: wrong})


def test_a_layer_shows_its_width_and_its_scale() -> None:
    assert repr(Residual(3, 0.25)) == "Residual(width=3, scale=0.25)"
