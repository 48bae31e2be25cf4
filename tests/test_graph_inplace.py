"""Operations in place, as users write them: the blocks compute what the model does, or the model is refused."""

import math

import pytest
import torch
import torch.nn.functional as F
from graph_cases import F64, Net, as_backprop
from torch import Tensor, nn

import altmin

torch.set_num_threads(1)


def identity(net: Net, h: Tensor) -> Tensor:
    """out += identity, where the activation before has changed what is added."""
    out = net.b(net.relu(h))
    out += h
    return out


def unreturned(net: Net, h: Tensor) -> Tensor:
    """Methods whose value nobody uses."""
    y = net.b(h)
    y.add_(h)
    y.relu_()
    return y * torch.sigmoid(y)


def renamed(net: Net, h: Tensor) -> Tensor:
    """A second name of a tensor that changes, and a number of its size, which does not."""
    same, n = h, math.floor(h.shape[1])
    m = n
    n += 1
    y = torch.tanh(net.b(1.5 * h))
    h += y
    F.relu(h, inplace=True)
    return same / m + y * n


def mask(net: Net, h: Tensor) -> Tensor:
    """A function whose name ends as those in place do."""
    kept = (h > 0) & (h < 1)
    return h + net.b(h) * (kept | (h < -1))


def inverted(net: Net, h: Tensor) -> Tensor:
    """A mask that is used after its inverse was taken: operator.invert begins as operator.iadd does."""
    kept = h > 0
    inverse = ~kept
    return h * kept + 2 * net.b(h) * inverse


def old_view(net: Net, h: Tensor) -> Tensor:
    v = h.view(-1, 2, 2)
    h += torch.tanh(net.b(1.5 * h))
    return h * v.flatten(1)


def base(net: Net, h: Tensor) -> Tensor:
    v = h[:, :2]
    v.mul_(2)
    return net.b(torch.tanh(h))


def inputs() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(6, 4, dtype=F64), torch.randint(3, (6,))


@pytest.mark.parametrize("at", [None, ["a"], ["b"], ["a", "b"]], ids=str)
@pytest.mark.parametrize("between", [identity, unreturned, renamed, mask, inverted])
def test_a_model_that_works_in_place_is_cut_and_has_autograds_gradients(between, at):
    (x, y), model = inputs(), Net(between).double()
    assert torch.equal(altmin.split(model, at=at)(x), model(x))
    as_backprop(model, x, y, at=at, atol=1e-7)


@pytest.mark.parametrize("between", [old_view, base])
def test_a_view_of_what_was_changed_is_refused_and_as_one_block_right(between):
    (x, y), model = inputs(), Net(between).double()
    with pytest.raises(ValueError, match=r"changes a tensor in place: .* write that out of place"):
        altmin.split(model)
    as_backprop(nn.Sequential(model), x, y, atol=1e-7)
