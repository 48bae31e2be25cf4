"""Modules through autograd on a rank's rows: batch norm, dropout and random numbers are those of the whole batch."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import ranks
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from altmin.calculus.context import LOCAL, BatchShard, Context
from altmin.calculus.whole_batch import Total, whole_batch

F64 = torch.float64
CUTS = [(0, 3), (3, 4), (4, 7)]
SHAPES = {"vectors": (7, 4), "images": (7, 4, 2, 3)}


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def second_order(norm: nn.Module, x: Tensor, v: Tensor, q: Tensor) -> tuple[Tensor, ...]:
    """y, J^T v for the input and the parameters, and the gradient of <J^T v, q> for input and v; the last is J q."""
    x, v = x.clone().requires_grad_(), v.clone().requires_grad_()
    y = norm(x)
    first = torch.autograd.grad(y, [x, *norm.parameters()], v, create_graph=True)
    second = torch.autograd.grad(first[0], [x, v], q)
    return y, *first, *second


@pytest.mark.parametrize("name", SHAPES)
def test_batch_norm_and_its_two_derivatives_see_all_rows(name: str) -> None:
    shape = SHAPES[name]
    x, v, q = (numbers(seed, *shape) for seed in range(3))

    def made() -> nn.Module:
        norm = (nn.BatchNorm1d if len(shape) == 2 else nn.BatchNorm2d)(4, momentum=0.3).to(F64)
        norm.weight.data, norm.bias.data = numbers(3, 4), numbers(4, 4)
        return norm

    whole, parts = made(), [made() for _ in CUTS]
    expected = second_order(whole, 3 + x, v, q)

    def call(of: ranks.ThreadRanks) -> tuple[Tensor, ...]:
        rows = slice(*CUTS[of.rank])
        with whole_batch(Context(of.share(CUTS[of.rank][0], len(x[rows]), 7))):
            return second_order(parts[of.rank], 3 + x[rows], v[rows], q[rows])

    found = ranks.threads(3, call)
    for i in (0, 1, 4, 5):  # these have rows
        torch.testing.assert_close(torch.cat([each[i] for each in found]), expected[i])
    for i in (2, 3):  # a rank's own part of the gradients of weight and bias
        torch.testing.assert_close(sum(each[i] for each in found), expected[i])
    for part in parts:
        torch.testing.assert_close([*part.buffers()], [*whole.buffers()])


def test_in_evaluation_batch_norm_sends_nothing() -> None:
    norm = nn.BatchNorm1d(4).eval()
    x = torch.randn(3, 4)
    with whole_batch(alone(0, 3, 7)):
        assert torch.equal(norm(x), F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias))


def test_the_gradient_of_a_sum_over_ranks_is_such_a_sum() -> None:
    def call(of: ranks.ThreadRanks) -> list[float]:
        t = torch.tensor([2.0 + of.rank], requires_grad=True)
        (grad,) = torch.autograd.grad(Total.apply(t, Context(of.share(0, 1, 2))) * (of.rank + 3.0), t)
        return grad.tolist()

    assert ranks.threads(2, call) == [[7.0], [7.0]]


def alone(start: int, own: int, of: int) -> Context:
    def begin(flat: Tensor) -> None:
        raise AssertionError("nothing is to be sent")

    return Context(BatchShard(begin, start, own, of))  # type: ignore[arg-type]


DRAWING: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda x: F.dropout(x, 0.4),
    "module": nn.Dropout(0.4),
    "whole channels": nn.Dropout1d(0.4),
    "in place": lambda x: F.dropout(x.clone(), 0.4, inplace=True),
    "another order in memory": lambda x: F.dropout(x.transpose(1, 2), 0.4).transpose(1, 2),
    "whole channels in another order": lambda x: F.dropout1d(x.transpose(0, 1).contiguous().transpose(0, 1), 0.4),
    "rand_like": lambda x: x + torch.rand_like(x),
    "rand_like in another order": lambda x: x + torch.rand_like(x.transpose(1, 2)).transpose(1, 2),
    "randn_like": lambda x: x * torch.randn_like(x),
}


@pytest.mark.parametrize("name", DRAWING)
def test_ranks_draw_together_what_one_process_draws(name: str) -> None:
    x = numbers(0, 7, 5, 6)
    torch.manual_seed(2)
    expected, after = DRAWING[name](x), torch.get_rng_state()
    found = []
    for first, end in CUTS:
        torch.manual_seed(2)
        with whole_batch(alone(first, end - first, 7)):
            found.append(DRAWING[name](x[first:end]))
        assert torch.equal(torch.get_rng_state(), after)
    torch.testing.assert_close(torch.cat(found), expected)


UNDRAWN: dict[str, Callable[[Tensor], Any]] = {
    "rand": lambda x: torch.rand(len(x), 1),
    "bernoulli": lambda x: torch.bernoulli(torch.full_like(x, 0.5)),
    "in place": lambda x: torch.empty_like(x).normal_(),
    "another name": lambda x: torch.dropout(x, 0.4, True),
    "alpha dropout": lambda x: F.alpha_dropout(x, 0.4, True),
    "before dropout": lambda x: F.dropout(x + torch.rand(()), 0.4),
    "Python": lambda x: random.random(),
    "NumPy": lambda x: np.random.rand(),  # noqa: NPY002
}


@pytest.mark.parametrize("name", UNDRAWN)
def test_numbers_that_ranks_would_draw_by_themselves_are_refused_and_not_drawn(name: str) -> None:
    before = torch.get_rng_state(), random.getstate(), str(np.random.get_state())  # noqa: NPY002
    with pytest.raises(ValueError, match="draws random numbers by itself"), whole_batch(alone(0, 2, 7)):
        UNDRAWN[name](torch.ones(2, 3))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), str(np.random.get_state())) == before[1:]  # noqa: NPY002


@pytest.mark.parametrize("draw", [lambda x: F.dropout(x, 0.4), torch.rand_like])
def test_numbers_for_samples_that_do_not_lie_one_after_the_other_in_memory_are_refused(draw: Any) -> None:
    """Torch draws by order in memory: one process would give the first rank's rows numbers between those of others."""
    with whole_batch(alone(0, 2, 7)), pytest.raises(ValueError):
        draw(torch.ones(3, 2).T)


@pytest.mark.parametrize("off", [{"p": 0.0}, {"training": False}])
def test_dropout_that_drops_nothing_draws_nothing(off: dict) -> None:
    x, before = torch.randn(2, 3), torch.get_rng_state()
    with whole_batch(alone(0, 2, 7)):
        assert torch.equal(F.dropout(x, **off), x)
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_inside_attention_is_refused_in_training_only() -> None:
    layer, q = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True), torch.randn(2, 3, 4)
    for call in (lambda: layer(q), lambda: F.scaled_dot_product_attention(q, q, q, dropout_p=0.2)):
        with pytest.raises(ValueError), whole_batch(alone(0, 2, 7)):
            call()
    layer.eval()
    with whole_batch(alone(0, 2, 7)):
        assert layer(q).shape == q.shape


def test_where_one_process_has_all_rows_torch_is_left_alone() -> None:
    assert not isinstance(whole_batch(LOCAL), TorchFunctionMode)
