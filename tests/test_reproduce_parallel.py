"""A block's weights follow from its own residual, so that their order does not matter."""

import pytest
import torch
from commands import made_up  # noqa: F401  (a fixture)
from torch import Tensor

from altmin import methods, models
from altmin.paper.reproduce.measurement import Setting
from altmin.paper.reproduce.parallel import WeightsInParallel, difference, moved

# ruff: noqa: F811


def test_each_blocks_gradients_are_those_of_a_whole_step(made_up: tuple[Tensor, Tensor]) -> None:
    x, y = (part[:20] for part in made_up)
    torch.manual_seed(0)
    am = methods.create("am-sgd", models.create("mlp-2x4", (1, 28, 28), 10), lr=0.1, momentum=0.0)
    before = [p.clone() for p in am.model.parameters()]
    blocks = moved(am, x, y)
    grads = [g for block in reversed(blocks) for g in reversed(block())][::-1]
    am.step(x, y)
    for old, new, grad in zip(before, am.model.parameters(), grads, strict=True):
        torch.testing.assert_close(new, old - 0.1 * grad, rtol=1e-5, atol=1e-7)


def test_the_difference_is_the_largest_entry_between_ways() -> None:
    one = [[torch.tensor([1.0, 2.0])], [torch.tensor([3.0])]]
    other = [[torch.tensor([1.0, 2.5])], [torch.tensor([2.0])]]
    assert difference([one, one]) == 0.0
    assert difference([one, one, other]) == 1.0


def test_all_ways_give_the_same_bits(made_up: tuple[Tensor, Tensor]) -> None:
    measured = WeightsInParallel("w", "p", "mlp-3x4", 3, batch_size=20, repeats=2, seeds=1)
    (row,) = measured.make([0], Setting(torch.device("cpu")), lambda *_: None)
    assert (row["blocks"], row["difference"]) == (4, 0.0)
    assert measured.points({"in_turn": 3.0, "at_once": 2.0}, "layers") == [(3, 1.5)]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_streams_of_their_own_give_the_same_gradients() -> None:
    (row,) = WeightsInParallel("w", "p", "mlp-5x64", 5).make([0], Setting(torch.device("cuda")), lambda *_: None)
    assert row["blocks"] == 6
    assert row["difference"] < 1e-6
