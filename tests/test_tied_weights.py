"""A parameter that several blocks have in common gets the gradients of all of them."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import altmin
from altmin.runners.ensemble import Ensemble
from altmin.runners.layer_parallel import LayerParallel

F64 = torch.float64


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.layer, self.last = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.layer(torch.tanh(self.layer(self.first(x))))))


class Autoencoder(nn.Module):
    """The decoder's weight is the encoder's, transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.middle, self.bias = nn.Linear(3, 4), nn.Linear(4, 4), nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(torch.tanh(self.middle(torch.tanh(self.encoder(x)))), self.encoder.weight.T, self.bias)


class Language(nn.Module):
    """The head's weight is the embedding's."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.hidden = nn.Embedding(7, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.tanh(self.hidden(self.embedding(tokens))))


def case(name: str) -> tuple[nn.Module, Tensor, Tensor, nn.Module]:
    torch.manual_seed(0)
    x = torch.randn(6, 3, dtype=F64)
    if name == "twice":
        return Twice().double(), x, torch.randint(2, (6,)), nn.CrossEntropyLoss()
    if name == "autoencoder":
        return Autoencoder().double(), x, x, nn.MSELoss()
    tokens = torch.arange(6)
    return Language().double(), tokens, (3 * tokens + 1) % 7, nn.CrossEntropyLoss()


CASES = ["twice", "autoencoder", "language"]


@pytest.mark.parametrize("name", CASES)
def test_codes_that_stay_give_autograds_gradients(name: str) -> None:
    model, x, y, loss = case(name)
    wanted = torch.autograd.grad(loss(model(x), y), list(model.parameters()))
    before = [p.detach().clone() for p in model.parameters()]
    rule = altmin.LocalSGD(1.0, momentum=0.0)
    am = altmin.AltMin(model, loss, codes=altmin.GradientCodes(share=1e-9), weights=rule)
    assert am.chain.tied, "two blocks have a parameter in common"
    am.step(x, y)
    for p, old, g in zip(model.parameters(), before, wanted, strict=True):
        torch.testing.assert_close(old - p, g, rtol=1e-5, atol=1e-8)


def test_codes_that_move_give_the_gradient_of_all_local_problems_together() -> None:
    """The weights' gradient, by autograd, of sum_l 0.5 mu |c_l - F_l(c_{l-1})|^2 / n + loss at the codes that a twin
    with a copy of the shared layer has: the sum over its two copies."""
    model, x, y, loss = case("twice")
    assert isinstance(model, Twice)
    apart = nn.Sequential(
        *(copy.deepcopy(model.first), copy.deepcopy(model.layer), nn.Tanh()),
        *(copy.deepcopy(model.layer), nn.Tanh(), copy.deepcopy(model.last)),
    )
    before = model.layer.weight.detach().clone()
    for net in (model, apart):
        altmin.AltMin(net, loss, weights=altmin.LocalSGD(1.0, momentum=0.0), penalty=0.5).step(x, y)
    twin = (before - apart[1].weight) + (before - apart[3].weight)
    torch.testing.assert_close(before - model.layer.weight, twin)
    assert not torch.allclose(apart[1].weight, apart[3].weight)


@pytest.mark.parametrize("rule", [altmin.LocalAdam(1e-2), altmin.LocalAdam(1e-2, l1=1e-4, steps=3, clip_norm=1.0)])
@pytest.mark.parametrize("name", CASES)
def test_it_is_trained_saved_and_loaded(rule: altmin.LocalAdam, name: str) -> None:
    model, x, y, loss = case(name)
    am = altmin.AltMin(model, loss, weights=copy.deepcopy(rule))
    first = float(am.step(x, y).loss)
    for _ in range(150):
        am.step(x, y)
    assert float(am.step(x, y).loss) < 0.5 * first
    other = copy.deepcopy(model)
    again = altmin.AltMin(other, loss, weights=copy.deepcopy(rule))
    again.load_state_dict(am.state_dict())
    for each in (am, again):
        each.step(x, y)
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(p, q)


def test_the_table_counts_it_once() -> None:
    model = Twice()
    assert str(altmin.split(model)).splitlines()[-1].strip() == str(sum(p.numel() for p in model.parameters()))


REFUSALS = {
    "a memory": lambda: altmin.methods.create("am-mem", Twice()),
    "gauss-newton": lambda: altmin.methods.create("gauss-newton", Twice()),
    "predictive coding": lambda: altmin.methods.create("predictive-coding", Twice()),
    "an ensemble": lambda: Ensemble([altmin.AltMin(Twice())]),
    "ranks": lambda: LayerParallel(altmin.AltMin(Twice())),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_who_needs_weights_of_each_block_refuses(name: str) -> None:
    with pytest.raises(ValueError):
        REFUSALS[name]()
