"""The first step compares the blocks with the model, once."""

import copy

import pytest
import torch
from graph_cases import F64
from torch import Tensor, nn

import altmin
from altmin import calculus
from altmin.calculus.context import BatchShard, Context
from altmin.core import trainer
from altmin.core.first_step import check_first_step


class WrongTanh(calculus.Tanh):
    def vjp(self, p, saved, v):
        return -super().vjp(p, saved, v)


class WrongNorm(calculus.BatchNorm):
    def commit(self, kept) -> None:
        """Forgets to."""


class WrongLinear(calculus.Linear):
    def forward(self, p, x, context=calculus.context.LOCAL):
        y, saved = super().forward(p, x, context)
        return y + 1, saved


WRONG = {
    "in the gradient of '0.weight'": (nn.Tanh, WrongTanh),
    "in the buffer '1.running_mean' after a pass": (nn.BatchNorm1d, WrongNorm),
    "in the output": (nn.Linear, WrongLinear),
}


@pytest.mark.parametrize("words", WRONG)
@pytest.mark.parametrize("together", [False, True], ids=["alone", "ensemble"])
def test_the_first_step_finds_blocks_that_are_not_the_model(words, together, monkeypatch):
    kind, wrong = WRONG[words]
    monkeypatch.setitem(calculus.CLOSED_FORMS, kind, wrong)
    torch.manual_seed(0)
    layers = [nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(), nn.Linear(4, 3)]
    model, batch = nn.Sequential(*layers), (torch.randn(6, 4), torch.randint(3, (6,)))
    before, drawn = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    am = altmin.AltMin(model)
    method = altmin.Ensemble([am]) if together else am
    for _ in range(2):
        with pytest.raises(ValueError, match=rf"{words}.*check=False"):
            method.step(*batch)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), drawn)
    assert all(layer.training for layer in layers)
    altmin.AltMin(model, check=False).step(*batch)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_the_first_step_is_checked_once_and_leaves_the_numbers_as_they_are(dtype, monkeypatch):
    torch.manual_seed(0)
    layers = [nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(), nn.Linear(4, 3)]
    models = [nn.Sequential(*layers).to(dtype)]
    models.append(copy.deepcopy(models[0]))
    x, y = torch.randn(6, 4, dtype=dtype), torch.randint(3, (6,))
    calls = []
    monkeypatch.setattr(trainer, "check_first_step", lambda *args: (calls.append(args), check_first_step(*args)))
    for model, check in zip(models, (True, False), strict=True):
        am = altmin.AltMin(model, check=check)
        for seed in range(2):
            torch.manual_seed(seed)
            am.step(x, y)
    assert len(calls) == 1
    a, b = (model.state_dict() for model in models)
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_single_row_of_a_rank_waits_for_a_batch_that_can_be_checked():
    torch.manual_seed(0)
    am = altmin.AltMin(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 3)))
    rank = Context(shard=BatchShard(lambda t: lambda: t, 0, 1, 4))
    am.check_once(torch.randn(1, 4), torch.randint(3, (1,)), rank)
    assert am.unchecked
    am.check_once(torch.randn(2, 4), torch.randint(3, (2,)), rank)
    assert not am.unchecked


class Positions(nn.Module):
    """Tokens and their positions, a part of a buffer as long as the input."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.head = nn.Embedding(9, 4), nn.Embedding(6, 4), nn.Linear(4, 3)
        self.register_buffer("ids", torch.arange(6)[None])

    def forward(self, x: Tensor) -> Tensor:
        ids = self.ids[:, : x.size()[1]]
        return self.head((self.words(x) + self.places(ids)).mean(1))


def test_embedding_part_of_a_buffer_has_the_gradients_of_autograd():
    model, x, y = Positions().double(), torch.randint(9, (5, 6)), torch.arange(5) % 3
    nn.functional.cross_entropy(model(x), y).backward()
    expected = [p.detach() - p.grad for p in model.parameters()]
    altmin.AltMin(model, codes=altmin.GradientCodes(share=0.0), weights=altmin.LocalSGD(lr=1.0)).step(x, y)
    for p, after in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.detach(), after)
