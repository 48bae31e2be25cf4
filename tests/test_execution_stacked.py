"""The codes of equal blocks, moved together, are those of one block after the other."""

import pytest
import torch
from capture_cases import F64, batches, mlp, unequal
from torch import nn

import altmin
from altmin.calculus.numbers import tensors
from altmin.core.codes.above import Residual
from altmin.core.losses import adapt
from altmin.core.step import move_codes
from altmin.runners.stacked import StackedCodes, runs, stack_weights


def residuals(model: nn.Module, codes, x, y, mu: float = 0.7, loss=None) -> list[Residual]:
    chain = altmin.split(model)
    loss = adapt(loss or nn.CrossEntropyLoss())
    with torch.no_grad(), tensors():
        return move_codes(chain, chain.parameters(), codes, loss, x, y, mu, lambda l, r: r).found


def number(n) -> torch.Tensor:
    return torch.as_tensor(n, dtype=F64)


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("order", ["codes-first", "weights-first"])
def test_the_residuals_of_stacked_blocks_are_those_of_one_after_the_other(order, share):
    torch.manual_seed(0)
    model, solver = unequal(), altmin.GradientCodes(share=share, order=order)
    x, y = next(batches(1))
    expected = residuals(model, solver, x, y)
    found = residuals(model, StackedCodes(solver, stack_weights(altmin.split(model))), x, y)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.saved[0], b.saved[0], rtol=1e-12, atol=1e-15)
        torch.testing.assert_close(a.delta, b.delta, rtol=1e-10, atol=1e-16)
        for name in ("cost", "moved", "scale"):
            one, other = getattr(a, name), getattr(b, name)
            if other is not None:
                torch.testing.assert_close(number(one), number(other), rtol=1e-10, atol=1e-30)
        change = torch.randn_like(b.delta)
        torch.testing.assert_close(a.after(change), b.after(change), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shape", [(7,), (5, 7)], ids=["samples", "samples and places"])
def test_the_gradients_of_a_run_are_those_of_each_block(shape):
    torch.manual_seed(0)
    model, solver = mlp(8, 8, 8, 8), altmin.GradientCodes()
    (x, _), chain = next(batches(1, shape)), altmin.split(model)
    codes = StackedCodes(solver, stack_weights(chain))
    found = residuals(model, codes, x, x[..., :3].sin(), loss=nn.MSELoss())
    assert sorted(codes.grads) == [1, 2, 3]
    for l, grads in codes.grads.items():
        expected = chain.blocks[l].core.grads(chain.parameters()[l], found[l].saved, found[l].delta)
        for g, e in zip(grads, expected, strict=True):
            torch.testing.assert_close(g, e, rtol=1e-12, atol=1e-16)


def test_twenty_layers_in_single_precision():
    torch.manual_seed(0)
    model, solver = mlp(*[16] * 20).float(), altmin.GradientCodes()
    x, y = next(batches(1))
    expected = residuals(model, solver, x.float(), y)
    found = residuals(model, StackedCodes(solver, stack_weights(altmin.split(model))), x.float(), y)
    for a, b in zip(found, expected, strict=True):
        size = b.delta.abs().max().item()
        torch.testing.assert_close(a.delta, b.delta, rtol=1e-4, atol=1e-5 * size)
        torch.testing.assert_close(a.saved[0], b.saved[0], rtol=1e-5, atol=1e-6)


def test_runs_are_rows_of_rectified_linear_layers_of_one_shape():
    assert runs(altmin.split(mlp(8, 8, 8, 5))) == [(1, 2)]
    assert runs(altmin.split(unequal())) == [(1, 3), (5, 6)]
    assert runs(altmin.split(mlp(8, 8, 8, activation=nn.Tanh))) == []
    assert runs(altmin.split(mlp(8, 8))) == []
    rectified = nn.Sequential(nn.ReLU(), nn.Linear(7, 7), *(m for _ in range(3) for m in (nn.ReLU(), nn.Linear(7, 7))))
    assert runs(altmin.split(rectified)) == [(1, 2)], "below the first block there is no code"
    transposed = mlp(8, 8, 8, 8)
    transposed[4].weight.data = transposed[4].weight.data.mT.contiguous().mT
    assert runs(altmin.split(transposed)) == [], "moments lie as their weights do, and stay where they are"


def test_stacked_weights_keep_their_values_and_the_modules_parameters_are_views():
    torch.manual_seed(0)
    model = unequal()
    before = [p.clone() for p in model.parameters()]
    stacks = stack_weights(altmin.split(model))
    for p, q in zip(model.parameters(), before, strict=True):
        assert torch.equal(p, q)
    assert [(run.first, run.last) for run in stacks] == [(1, 3), (5, 6)]
    for run in stacks:
        for i, l in enumerate(range(run.first, run.last + 1)):
            run.W[i].zero_()
            assert not model[2 * l].weight.any()
    again = stack_weights(altmin.split(model))
    assert [run.W.data_ptr() for run in again] == [run.W.data_ptr() for run in stacks], "what is stacked stays there"


@pytest.mark.parametrize("options", [{"steps": 2}, {"lr": 0.3}, {"l1": 0.1}], ids=str)
def test_only_single_exact_steps_are_stacked(options):
    with pytest.raises(ValueError, match="only single exact steps are taken together"):
        StackedCodes(altmin.GradientCodes(**options), [])
