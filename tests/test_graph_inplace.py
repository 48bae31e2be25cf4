"""Operations in place, as users write them: the blocks compute what the model does, or the model is refused."""

import math

import pytest
import torch
import torch.nn.functional as F
from graph_cases import F64, as_backprop
from torch import Tensor, nn

import altmin

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.layer, self.last = nn.Linear(5, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.relu = nn.ReLU(inplace=True)


class Identity(Net):
    """out += identity, where the activation before has changed what is added."""

    def forward(self, x: Tensor) -> Tensor:
        identity = self.first(x)
        out = self.layer(self.relu(identity))
        out += identity
        return self.last(out)


class Unreturned(Net):
    """Methods whose value nobody uses."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        y = self.layer(h)
        y.add_(h)
        y.relu_()
        return self.last(y * torch.sigmoid(y))


class Renamed(Net):
    """A second name of a tensor that changes, and a number of its size, which does not."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        same, n = h, math.floor(h.shape[1])
        m = n
        n += 1
        y = torch.tanh(self.layer(1.5 * h))
        h += y
        F.relu(h, inplace=True)
        return self.last(same / m + y * n)


class Mask(Net):
    """A function whose name ends as those in place do."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        mask = (h > 0) & (h < 1)
        return self.last(h + self.layer(h) * (mask | (h < -1)))


class Inverted(Net):
    """A mask that is used after its inverse was taken: operator.invert begins as operator.iadd does."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        mask = h > 0
        inverse = ~mask
        return self.last(h * mask + 2 * self.layer(h) * inverse)


def test_the_inverse_of_a_mask_has_its_name_in_the_table():
    assert "invert" in str(altmin.split(Inverted()))
    assert "nvert" not in str(altmin.split(Inverted())).replace("invert", "")


@pytest.mark.parametrize("at", [None, ["first"], ["layer"], ["first", "layer"]], ids=str)
@pytest.mark.parametrize("make", [Identity, Unreturned, Renamed, Mask, Inverted])
def test_a_model_that_works_in_place_is_cut_and_has_autograds_gradients(make, at):
    torch.manual_seed(0)
    model, x, y = make().double(), torch.randn(6, 5, dtype=F64), torch.randint(3, (6,))
    assert torch.equal(altmin.split(model, at=at)(x), model(x))
    as_backprop(model, x, y, at=at)


class OldView(Net):
    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        v = h.view(-1, 2, 2)
        h += torch.tanh(self.layer(1.5 * h))
        return self.last(h * v.flatten(1))


class Base(Net):
    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        v = h[:, :2]
        v.mul_(2)
        return self.last(self.layer(torch.tanh(h)))


@pytest.mark.parametrize("make", [OldView, Base])
def test_a_view_of_what_was_changed_is_refused_and_as_one_block_right(make):
    torch.manual_seed(0)
    model, x = make().double(), torch.randn(6, 5, dtype=F64)
    with pytest.raises(ValueError, match=r"changes a tensor in place: .* write that out of place"):
        altmin.split(model)
    whole = nn.Sequential(model)
    with torch.no_grad():
        wanted = F.cross_entropy(model(x), torch.zeros(6, dtype=torch.long))
    metrics = altmin.AltMin(whole).step(x, torch.zeros(6, dtype=torch.long))
    assert float(metrics.loss) == pytest.approx(float(wanted), rel=1e-12)
