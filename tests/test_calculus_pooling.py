"""Max-pooling: which windows are separate, and ties."""

import pytest
import torch
from calculus_cases import POOLING, close, contract, names
from torch import nn

from altmin.calculus import MaxPool, SeparatePool, map_of

TestMaps = contract(POOLING)
SEPARATE = [1, 1, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0]
"""Of each case, whether its windows neither overlap nor reach beyond the input, and have 2 to 256 places."""


@pytest.mark.parametrize("case, separate", [*zip(POOLING, SEPARATE, strict=True)], ids=names(POOLING))
def test_windows_that_neither_overlap_nor_overhang_are_separate(case, separate):
    assert type(map_of(case[0]())) is (SeparatePool if separate else MaxPool)


def test_of_equal_values_the_first_wins_as_in_torch():
    x = torch.zeros(1, 1, 2, 4, requires_grad=True)
    nn.MaxPool2d(2)(x).sum().backward()
    m = map_of(nn.MaxPool2d(2))
    y, saved = m.forward((), x.detach())
    close(m.vjp((), saved, torch.ones_like(y)), x.grad)


@pytest.mark.filterwarnings("error")  # torch warns where it has to take the members one after the other
@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.MaxPool2d((1, 3), stride=(2, 3))], ids=str)
def test_many_members_are_pooled_at_once(pool):
    torch.manual_seed(0)
    m, members = map_of(pool), torch.randn(3, 4, 2, 6, 7)

    def everything(x):
        y, saved = m.functional().forward((), x)
        return y, m.vjp((), saved, y), m.jvp((), saved, x)

    expected = [torch.stack(own) for own in zip(*(everything(x) for x in members), strict=True)]
    torch.testing.assert_close(list(torch.func.vmap(everything)(members)), expected)
