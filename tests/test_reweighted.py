"""Losses of a mini-batch that is spread over ranks (`calculus/sample_weight.py` has the tests of weighted ones)."""

import in_threads
import pytest
import torch
from codes_cases import F64
from torch import Tensor, nn
from torch.nn import functional as F

from altmin.losses import adapt
from altmin.reweighted import Shared, of_batch

LABELS = torch.tensor([0, -100, 2, 1, 1, -100, 0])
OUTPUTS = torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=F64)
LOSSES = [
    (nn.CrossEntropyLoss(), LABELS),
    (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5], dtype=F64)), LABELS),
    (nn.CrossEntropyLoss(reduction="sum"), LABELS),
    (nn.MSELoss(), torch.ones(7, 3, dtype=F64)),
]


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("function, y", LOSSES, ids=["ignored", "weighted", "sum", "squared"])
def test_value_gradient_and_hessian_over_ranks_are_those_of_the_whole_batch(function, y, size):
    def loss(o: Tensor) -> Tensor:
        return function(o, y)

    def evaluate(rows: slice) -> list[tuple[Tensor, ...]]:
        shared = of_batch(adapt(function))
        given, found = shared.prepare(OUTPUTS[rows], y[rows]), []
        for o in (OUTPUTS[rows], 2 * OUTPUTS[rows]):
            at = shared.at(o, given)
            found.append((at.value, at.delta, at.hessian(o)))
        assert shared.samples(OUTPUTS[rows]) == (1 if function.reduction == "sum" else 7)
        return found

    ranks, sent = in_threads.run(size, 7, evaluate)
    assert sent == ([1, 1] if function.reduction == "sum" else [3, 1]), "counts travel once, with the first value"
    for i, o in enumerate((OUTPUTS, 2 * OUTPUTS)):
        for rank in ranks:
            torch.testing.assert_close(rank[i][0], loss(o))
        torch.testing.assert_close(torch.cat([rank[i][1] for rank in ranks]), torch.func.grad(loss)(o))
        bent = torch.autograd.functional.vhp(loss, o, o)[1]
        torch.testing.assert_close(torch.cat([rank[i][2] for rank in ranks]), bent)


def test_the_number_of_samples_can_be_asked_for_before_any_value():
    found, sent = in_threads.run(2, 7, lambda rows: of_batch(adapt(nn.MSELoss())).samples(OUTPUTS[rows]))
    assert (found, sent) == ([7, 7], [1])


def test_a_batch_of_which_no_label_counts_is_refused_on_all_ranks():
    def evaluate(rows: slice) -> None:
        shared = of_batch(adapt(nn.CrossEntropyLoss()))
        with pytest.raises(ValueError, match="no sample of the mini-batch counts"):
            shared.at(OUTPUTS[rows], shared.prepare(OUTPUTS[rows], torch.full((7,), -100)[rows]))

    in_threads.run(2, 7, evaluate)


def test_a_loss_of_one_process_stays_itself():
    loss = adapt(nn.MSELoss())
    assert of_batch(loss) is loss
    assert not isinstance(of_batch(loss), Shared)
    torch.testing.assert_close(of_batch(loss)(OUTPUTS, 2 * OUTPUTS), F.mse_loss(OUTPUTS, 2 * OUTPUTS))
