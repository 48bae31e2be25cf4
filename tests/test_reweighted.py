"""Losses of weighted samples, and of samples that are spread over ranks: those of the whole mini-batch."""

from typing import Any

import pytest
import ranks
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from altmin.calculus.context import LOCAL, Context
from altmin.core.losses import Loss, adapt
from altmin.core.reweighted import Shared, Weighted, of_batch

F64 = torch.float64
W = torch.tensor([1.0, 2.0, 0.0, 3.0, 1.0, 4.0, 0.5], dtype=F64)
CLASSES = torch.tensor([0.5, 2.0, 1.0], dtype=F64)
CUTS = [(0, 2), (2, 3), (3, 7)]
"""The rows of three ranks."""


def problem() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Outputs, labels, numbers to compare with, and a direction."""
    g = torch.Generator().manual_seed(1)
    numbers = [torch.randn(7, 3, dtype=F64, generator=g) for _ in range(3)]
    return numbers[0], torch.tensor([0, 1, -100, 0, -100, 2, 1]), numbers[1], numbers[2]


def counted(y: Tensor) -> Tensor:
    return y.clamp_min(0)


LOSSES: dict[str, Any] = {
    "cross-entropy": (nn.CrossEntropyLoss(), counted),
    "ignored labels": (nn.CrossEntropyLoss(), lambda y: y),
    "ignored labels and class weights": (nn.CrossEntropyLoss(CLASSES), lambda y: y),
    "class weights and smoothing": (nn.CrossEntropyLoss(CLASSES, label_smoothing=0.2), lambda y: y),
    "a label that is ignored": (nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1), counted),
    "sum": (nn.CrossEntropyLoss(reduction="sum"), lambda y: y),
    "squared error": (nn.MSELoss(), None),
    "sum of squares": (nn.MSELoss(reduction="sum"), None),
    "one's own": (lambda o, y: F.smooth_l1_loss(o, y, beta=0.3), None),
}


def multiplied(t: Tensor, w: Tensor) -> Tensor:
    return t * w.unsqueeze(1)


def evaluated(loss: Loss, o: Tensor, y: Tensor, q: Tensor, context: Context = LOCAL) -> list[Tensor]:
    prepared = loss.prepare(o, y, context)
    at = loss.at(o, prepared)
    return [at.value, at.delta, at.hessian(q), loss.delta(o, prepared), loss.at(o, prepared).value]


@pytest.mark.parametrize("name", LOSSES)
def test_ranks_have_the_value_of_all_samples_and_their_own_rows_of_its_derivatives(name: str) -> None:
    """Autograd's, of the loss over the whole batch. In two cases no label of the second rank counts."""
    function, targets = LOSSES[name]
    o, labels, numbers, q = problem()
    y = numbers if targets is None else targets(labels)
    whole = o.clone().requires_grad_()
    value = function(whole, y)
    (gradient,) = torch.autograd.grad(value, whole, create_graph=True)
    (hessian,) = torch.autograd.grad((gradient * q).sum(), whole)

    def call(of: ranks.ThreadRanks) -> tuple[list[Tensor], Any, int]:
        first, end = CUTS[of.rank]
        context = Context(of.share(first, end - first, 7))
        loss = of_batch(adapt(function), context)
        assert isinstance(loss, Shared)
        found = evaluated(loss, o[first:end], y[first:end], q[first:end], context)
        return found, loss.samples(o[first:end]), of.messages

    for (first, end), (found, samples, messages) in zip(CUTS, ranks.threads(3, call), strict=True):
        expected = [value, gradient[first:end], hessian[first:end], gradient[first:end], value]
        torch.testing.assert_close(found, [t.detach() for t in expected])
        assert samples == (1 if getattr(function, "reduction", "") == "sum" else 7)
        assert messages == 2, "the gradient alone needs no message, once the loss is known"


def test_a_gradient_before_any_value_is_that_of_all_samples_too() -> None:
    o, y, _, _ = problem()
    expected = adapt(nn.CrossEntropyLoss())

    def call(of: ranks.ThreadRanks) -> Tensor:
        first, end = CUTS[of.rank]
        context = Context(of.share(first, end - first, 7))
        loss = of_batch(adapt(nn.CrossEntropyLoss()), context)
        return loss.delta(o[first:end], loss.prepare(o[first:end], y[first:end], context))

    found = torch.cat(ranks.threads(3, call))
    torch.testing.assert_close(found, expected.delta(o, expected.prepare(o, y)))


def test_weighted_samples_of_all_ranks_make_one_weighted_mean() -> None:
    """The weight of the second rank's sample is zero."""
    o, y, _, q = problem()
    y = counted(y)
    expected = evaluated(Weighted(adapt(nn.CrossEntropyLoss()), W), o, y, q)

    def call(of: ranks.ThreadRanks) -> tuple[list[Tensor], float]:
        first, end = CUTS[of.rank]
        w = W[first:end]
        context = Context(of.share(first, end - first, 7), weights=w)
        loss = of_batch(adapt(nn.CrossEntropyLoss()), context)
        found = evaluated(loss, o[first:end], y[first:end], q[first:end], context)
        return [found[0], *(multiplied(t, w) for t in found[1:4])], loss.samples(o[first:end])

    for (first, end), (found, samples) in zip(CUTS, ranks.threads(3, call), strict=True):
        torch.testing.assert_close(found[0], expected[0])
        each = [multiplied(t, W)[first:end] for t in expected[1:4]]
        torch.testing.assert_close(found[1:], each)
        assert samples == pytest.approx(11.5)


def test_a_batch_in_which_nothing_counts_on_any_rank_is_refused() -> None:
    def call(of: ranks.ThreadRanks) -> None:
        loss = of_batch(adapt(nn.CrossEntropyLoss(CLASSES)), Context(of.share(of.rank, 1, 2)))
        with pytest.raises(ValueError, match="no sample of the mini-batch counts"):
            loss(torch.zeros(1, 3, dtype=F64), torch.tensor([-100]))

    ranks.threads(2, call)


def test_the_gradient_of_a_weighted_loss_is_that_of_one_copy_of_each_sample() -> None:
    """Times the weights it is autograd's gradient of the weighted mean, and H q that of <gradient, q>."""
    o, y, numbers, q = problem()
    output, y = o.requires_grad_(), counted(y)
    for loss, targets in ((nn.CrossEntropyLoss(), y), (nn.MSELoss(), numbers)):
        known = adapt(loss)
        found = Weighted(known, W).at(output.detach(), known.prepare(output.detach(), targets))
        each = nn.functional.cross_entropy(output, y, reduction="none")
        if targets is numbers:
            each = (output - targets).square().mean(1)
        value = (W * each).sum() / W.sum()
        (gradient,) = torch.autograd.grad(value, output, create_graph=True)
        (Hq,) = torch.autograd.grad((gradient * q).sum(), output)
        torch.testing.assert_close(found.value, value.detach())
        torch.testing.assert_close(multiplied(found.delta, W), gradient.detach())
        torch.testing.assert_close(multiplied(found.hessian(q), W), Hq)
