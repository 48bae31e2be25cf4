"""Embeddings as the first layer: backprop's gradients, ensembles, and integers out of range."""

import copy

import pytest
import torch
from torch import Tensor, nn

import altmin

ROWS = 7


def bag(**options) -> nn.Module:
    return nn.EmbeddingBag(ROWS, 12, **options)


def rows(**options) -> nn.Module:
    return nn.Sequential(nn.Embedding(ROWS, 4, **options), nn.Flatten())


FIRST = {
    "rows": rows,
    "padded rows": lambda: rows(padding_idx=2),
    "padded from the end": lambda: rows(padding_idx=-1),
    "scaled by frequency": lambda: rows(scale_grad_by_freq=True),
    "means": bag,
    "padded means": lambda: bag(padding_idx=2),
    "padded sums": lambda: bag(mode="sum", padding_idx=2),
    "largest": lambda: bag(mode="max"),
}


def net(first: nn.Module) -> nn.Sequential:
    return nn.Sequential(*(first if isinstance(first, nn.Sequential) else [first]), nn.ReLU(), nn.Linear(12, 3))


def batch() -> tuple[Tensor, Tensor]:
    """Integers below 6, of which the first sample's are all 2."""
    x = torch.randint(ROWS - 1, (10, 3))
    x[0] = 2
    return x, torch.randint(3, (10,))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("name", FIRST)
def test_gradients_are_backprops_where_codes_do_not_move(name, dtype):
    torch.manual_seed(0)
    model, (x, y) = net(FIRST[name]()).double(), batch()
    nn.init.normal_(model[0].weight)
    wanted = torch.autograd.grad(nn.CrossEntropyLoss()(model(x), y), list(model.parameters()))
    before = [p.detach().clone() for p in model.parameters()]
    am = altmin.AltMin(model, codes=altmin.GradientCodes(share=0.0), weights=altmin.LocalSGD(1.0, momentum=0.0))
    am.step(x.to(dtype), y)
    for p, old, grad in zip(model.parameters(), before, wanted, strict=True):
        torch.testing.assert_close(old - p.detach(), grad)
    assert torch.equal(model[0].weight[6], before[0][6]), "a row that does not occur stays as it is"
    padding = model[0].padding_idx
    assert padding is None or torch.equal(model[0].weight[padding], before[0][padding])


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("each", [False, True], ids=["one batch", "a batch each"])
@pytest.mark.parametrize("name", ["rows", "padded rows", "padded means", "padded sums"])
def test_members_of_an_ensemble_are_trained_as_alone(name, each):
    torch.manual_seed(0)
    alone, (x, y) = [net(FIRST[name]()).double() for _ in range(2)], batch()
    together = copy.deepcopy(alone)
    batches = [(x, y), (x.flip(0), y)] if each else [(x, y)] * 2
    given = [torch.stack(tensors) for tensors in zip(*batches, strict=True)] if each else (x, y)
    altmin.Ensemble([altmin.AltMin(model) for model in together]).step(*given, each=each)
    for model, member, one in zip(alone, together, batches, strict=True):
        altmin.AltMin(model).step(*one)
        torch.testing.assert_close([*member.parameters()], [*model.parameters()])


WRONG = {
    "above": (rows, torch.tensor([[0, 7, 1]])),
    "below": (rows, torch.tensor([[0, -1, 1]])),
    "in a bag": (bag, torch.tensor([[9, 6, 1]])),
    "floats": (rows, torch.ones(1, 3)),
    "no bag": (bag, torch.tensor([3])),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("together", [False, True], ids=["alone", "ensemble"])
@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_row_of_the_table_is_refused_and_changes_nothing(name, together):
    first, x = WRONG[name]
    trainer = altmin.AltMin(net(first()))
    method = altmin.Ensemble([trainer, altmin.AltMin(net(first()))]) if together else trainer
    before = copy.deepcopy(method.model.state_dict())
    with pytest.raises(ValueError):
        method.step(x, torch.tensor([1]))
    assert all(torch.equal(value, before[key]) for key, value in method.model.state_dict().items())
