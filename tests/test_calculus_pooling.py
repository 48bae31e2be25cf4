"""Max-pooling: which windows are separate, ties, and how far a winner may fall."""

import pytest
import torch
from calculus_cases import POOLING, TRACED, close, contract, names
from torch import nn

from altmin.calculus import MaxPool, SeparatePool, map_of
from altmin.calculus.pooling import gathered

TestMaps = contract(POOLING)
SEPARATE = [1, 1, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0]
"""Of each case, whether its windows neither overlap nor reach beyond the input, and have 2 to 256 places."""


@pytest.mark.parametrize("case, separate", [*zip(POOLING, SEPARATE, strict=True)], ids=names(POOLING))
def test_windows_that_neither_overlap_nor_overhang_are_separate(case, separate):
    assert type(map_of(case[0]())) is (SeparatePool if separate else MaxPool)


def test_a_step_may_change_the_winner():
    x = torch.tensor([[[3.0, 1.0, 2.0, 2.5]]])
    u = torch.tensor([[[2.0, -2.0, 0.0, -1.0]]])
    for pool in (nn.MaxPool1d(2), nn.MaxPool1d(2, padding=0, dilation=1, stride=2, ceil_mode=True)):
        m = map_of(pool)
        saved = m.forward((), x)[1]
        quotient, moved = m.quotient((), saved, u, torch.tensor(1.0))
        close(quotient, torch.tensor([[[0.0, -1.0]]]))  # 3 -> 3 by the other unit, 2.5 -> 3.5
        close(m.vjp((), moved, torch.tensor([[[5.0, 7.0]]])), torch.tensor([[[0.0, 5.0, 0.0, 7.0]]]))


def test_of_equal_values_the_first_wins_as_in_torch():
    x = torch.zeros(1, 1, 2, 4, requires_grad=True)
    nn.MaxPool2d(2)(x).sum().backward()
    m = map_of(nn.MaxPool2d(2))
    y, saved = m.forward((), x.detach())
    close(m.vjp((), saved, torch.ones_like(y)), x.grad)


def test_a_winner_may_fall_to_the_second_and_no_further_than_what_lies_below():
    m = map_of(nn.MaxPool1d(3))
    saved = m.forward((), torch.tensor([[[1.0, 5.0, 3.0, 9.0, 2.0, 8.5]]]))[1]
    close(m.kink_distance(saved, None), torch.tensor([[[2.0, 0.5]]]))
    close(m.kink_distance(saved, torch.tensor([[[0.0, 1.0, 0.0, 7.0, 0.0, 0.0]]])), torch.tensor([[[1.0, 0.5]]]))


@pytest.mark.filterwarnings("error")  # torch warns where it has to take the members one after the other
@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.MaxPool2d((1, 3), stride=(2, 3))], ids=str)
def test_many_members_are_pooled_at_once(pool):
    torch.manual_seed(0)
    m, members = map_of(pool), torch.randn(3, 4, 2, 6, 7)

    def everything(x):
        y, saved = m.forward((), x, TRACED)
        q = m.quotient((), saved, x, torch.tensor(0.1))[0]
        return y, m.vjp((), saved, y), m.jvp((), saved, x), m.kink_distance(saved, None), q

    expected = [torch.stack(own) for own in zip(*(everything(x) for x in members), strict=True)]
    torch.testing.assert_close(list(torch.func.vmap(everything)(members)), expected)


@pytest.mark.parametrize(
    "options", [{}, {"stride": 1}, {"padding": 1}, {"dilation": 2, "stride": 3}, {"ceil_mode": True}], ids=str
)
def test_the_vjp_of_a_gpu_is_that_of_the_processor(options) -> None:
    torch.manual_seed(0)
    module, x = nn.MaxPool2d((2, 3), **options), torch.randn(2, 3, 7, 8, dtype=torch.float64)
    m = MaxPool(module)
    y, saved = m.forward((), x)
    v = torch.randn_like(y)
    torch.testing.assert_close(gathered(module, *saved[:2], v), m.vjp((), saved, v))
