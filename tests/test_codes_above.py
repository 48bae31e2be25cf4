"""A move that rounding swallows is not made, and changes nothing but the cost of a step."""

from contextlib import ExitStack
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

import altmin
from altmin.calculus.base import shifted
from altmin.calculus.numbers import tensors
from altmin.core.codes import above, gradient
from altmin.core.codes.above import perceptible


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_move_within_the_rounding_of_a_code_cannot_be_perceived(dtype):
    torch.manual_seed(0)
    code = torch.randn(50, 20, dtype=dtype)
    u, eps = torch.randn_like(code), torch.finfo(dtype).eps
    uu = float((u * u).sum())
    assert perceptible(code, uu, 4 * eps)
    assert not perceptible(code, uu, eps / 8)
    assert not perceptible(code, uu, 0.0)
    assert (shifted(code, u, eps / 8) - code).norm() < eps * code.norm()
    with tensors():
        assert perceptible(code, uu, 0.0), "where numbers are tensors nothing is decided"


class Wave(nn.Module):
    """x + W sin(x) / 4."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layer(torch.sin(x)) / 4


def deep(blocks: int = 24) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), *[Wave() for _ in range(blocks)], nn.Linear(6, 3))


@pytest.mark.parametrize("order", ["codes-first", "weights-first"])
def test_deep_nets_train_as_if_every_move_were_made(order):
    found = []
    for always in (False, True):
        model = deep()
        am = altmin.AltMin(model, codes=altmin.GradientCodes(share=0.5, order=order))
        with ExitStack() as stack:
            for place in (above, gradient) if always else ():
                stack.enter_context(patch.object(place, "perceptible", lambda *_: True))
            for seed in range(3):
                torch.manual_seed(seed)
                metrics = am.step(torch.randn(30, 4), torch.randint(3, (30,)))
        found.append((metrics.objective, [p.detach() for p in model.parameters()]))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-6)
    for ours, theirs in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("order, jvps", [("codes-first", 24), ("weights-first", 12)])
def test_where_codes_cannot_move_passes_are_spared(order, jvps):
    """J is near I, so a |Jg| <= 0.05 |delta| leaves lengths below 1/4: after twelve blocks their product is below the
    rounding of float32, and no code further down moves. Where r needs J g all 24 blocks are differentiated, and where
    r = delta at most those whose codes can move."""
    model = deep()
    am = altmin.AltMin(model, codes=altmin.GradientCodes(share=0.05, order=order))
    calls = {"jvp": 0, "quotient": 0}
    for block in am.chain.blocks[1:-1]:
        m = block.maps[0]
        for name in calls:
            setattr(m, name, counted(getattr(m, name), calls, name))
    am.step(torch.randn(30, 4), torch.randint(3, (30,)))
    assert 0 < calls["quotient"] <= 12
    assert calls["jvp"] == jvps if order == "codes-first" else 0 < calls["jvp"] <= jvps


def test_below_a_code_that_has_not_moved_weights_first_is_backprop():
    """g = J^T delta at every code, so each delta is backprop's, and r = delta."""
    model = deep()
    x, y = torch.randn(30, 4), torch.randint(3, (30,))
    wanted = torch.autograd.grad(nn.CrossEntropyLoss()(model(x), y), list(model[:10].parameters()))
    before = [p.detach().clone() for p in model[:10].parameters()]
    codes, rule = altmin.GradientCodes(share=0.05, order="weights-first"), altmin.LocalSGD(1.0, momentum=0.0)
    am = altmin.AltMin(model, codes=codes, weights=rule)
    with patch.object(am.chain.blocks[5], "jvp", side_effect=AssertionError("not needed")):
        am.step(x, y)
    for p, old, grad in zip(model[:10].parameters(), before, wanted, strict=True):
        torch.testing.assert_close(old - p.detach(), grad, rtol=1e-4, atol=1e-6)


def test_several_steps_on_weights_below_a_code_that_has_not_moved_follow_their_own_gradients():
    """W minus the gradients of <delta, F> at W and at what the first step has made of it."""
    model, free = deep(), deep()
    x, y = torch.randn(30, 4), torch.randint(3, (30,))
    hidden = free[:5](x).detach()
    delta = torch.autograd.grad(nn.CrossEntropyLoss()(free[5:](hidden.requires_grad_()), y), hidden)[0]
    given, layer = free[:4](x).detach(), free[4]
    for _ in range(2):
        for p, grad in zip(
            layer.parameters(), torch.autograd.grad((delta * layer(given)).sum(), list(layer.parameters())), strict=True
        ):
            p.data -= 0.5 * grad
    codes = altmin.GradientCodes(share=0.05, order="weights-first")
    altmin.AltMin(model, codes=codes, weights=altmin.LocalSGD(0.5, momentum=0.0, steps=2)).step(x, y)
    for p, wanted in zip(model[4].parameters(), layer.parameters(), strict=True):
        torch.testing.assert_close(p.detach(), wanted.detach(), rtol=1e-5, atol=1e-6)


def counted(method, calls, name):
    def call(*args):
        calls[name] += 1
        return method(*args)

    return call
