"""Numbers of a batch: quotients near zero, whether all are finite, and one decision for whole trees of tensors."""

import pytest
import torch
from calculus_cases import number
from torch.func import vmap

from altmin.calculus.numbers import TINY, all_finite, safe_div, select

NAN = torch.nan


@pytest.mark.parametrize(
    "a, b, expected",
    [(3.0, 4.0, 0.75), (3e-30, 0.0, 3e-30 / TINY), (1.0, NAN, NAN), (NAN, 1.0, NAN)],
)
def test_a_quotient_of_numbers_is_safe_at_zero_and_hides_no_nan(a, b, expected):
    found = safe_div(number(a), number(b))
    torch.testing.assert_close(found, number(expected), equal_nan=True)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_one_entry_that_is_not_finite_is_seen_and_so_is_a_sum_that_overflows(bad: float) -> None:
    t = torch.full((3, 4), 3e37)
    assert all_finite(t.div(100))
    assert all_finite(torch.zeros(0))
    t[1, 2] = bad
    assert not all_finite(t)
    assert not all_finite(torch.full((2,), 3e38))


class Memory:
    def either(self) -> str:
        return "of neither"


def test_one_decision_selects_whole_trees_and_takes_nothing_of_what_it_leaves():
    new, old = (([torch.full((2,), of), 3.0], (torch.full((1,), of), Memory())) for of in (1.0, NAN))
    for ok, (pair, single) in ((True, (1.0, 1.0)), (False, (NAN, NAN))):
        found = select(torch.tensor(ok), new, old)
        torch.testing.assert_close(found[0][0], torch.full((2,), pair), equal_nan=True)
        torch.testing.assert_close(found[1][0], torch.full((1,), single), equal_nan=True)
        assert (found[0][1], found[1][1]) == (3.0, "of neither")
    members = vmap(select)(torch.tensor([True, False]), torch.ones(2, 3), torch.zeros(2, 3))
    torch.testing.assert_close(members, torch.tensor([[1.0] * 3, [0.0] * 3]))
