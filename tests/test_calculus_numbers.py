"""Numbers of a batch are the same as floats, as tensors, and inside torch.func."""

import math

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from altmin.calculus.numbers import (
    TINY,
    all_finite,
    along,
    at_least,
    eager,
    inner,
    least,
    not_above,
    number,
    over,
    root,
    select,
    tensors,
    vectorised,
)

NAN = math.nan
F64 = torch.float64


def tensor(value: float) -> Tensor:
    return torch.tensor(value, dtype=F64)


def three_ways(function, *numbers: float) -> list[float]:
    """What a function of numbers gives for floats, for tensors, and for each member of a batch of two."""
    as_tensors = function(*map(tensor, numbers))
    members = vmap(function)(*(tensor(n).expand(2) for n in numbers))
    return [float(function(*numbers)), float(as_tensors), *map(float, members)]


@pytest.mark.parametrize(
    "function, numbers, expected",
    [
        (over, (3.0, 4.0), 0.75),
        (over, (3e-30, 0.0), 3e-30 / TINY),
        (over, (1.0, NAN), NAN),
        (over, (NAN, 1.0), NAN),
        (root, (9.0,), 3.0),
        (least, (3.0, 1.0, 2.0), 1.0),
        (least, (1.0,), 1.0),
        (least, (1.0, NAN, 2.0), NAN),
        (least, (NAN, 1.0), NAN),
        (least, (2.0, math.inf), 2.0),
        (lambda a: at_least(a, 2.0), (1.0,), 2.0),
        (lambda a: at_least(a, 2.0), (3.0,), 3.0),
        (lambda a: at_least(a, 2.0), (NAN,), NAN),
        (not_above, (1.0, 2.0), True),
        (not_above, (2.0, 2.0), True),
        (not_above, (3.0, 2.0), False),
        (not_above, (NAN, 2.0), True),
        (not_above, (1.0, NAN), True),
    ],
)
def test_floats_tensors_and_members_agree(function, numbers, expected):
    for found in three_ways(function, *numbers):
        assert found == expected or (math.isnan(expected) and math.isnan(found))


@pytest.mark.parametrize("values", [(3.0, 1.0), (1.0, 3.0), (NAN, 1.0), (1.0, NAN)])
def test_the_least_of_floats_and_tensors_together_is_a_tensor(values):
    expected = min(values) if not any(map(math.isnan, values)) else NAN
    for mixed in ((tensor(values[0]), values[1]), (values[0], tensor(values[1]))):
        found = least(*mixed)
        assert isinstance(found, Tensor)
        torch.testing.assert_close(found, tensor(expected), equal_nan=True)


def test_inner_products_are_floats_on_a_cpu_and_tensors_where_nothing_may_be_read():
    torch.manual_seed(0)
    u, v = torch.randn(2, 3, 4, 5, dtype=F64)
    expected = sum(a * b for a, b in zip(u.flatten().tolist(), v.flatten().tolist(), strict=True))
    at_once = inner(u, v)
    assert isinstance(at_once, float)
    with tensors():
        later = inner(u, v)
    assert isinstance(later, Tensor)
    members = vmap(inner)(torch.stack([u, 2 * u]), torch.stack([v, v]))
    for found, factor in ((at_once, 1), (later, 1), (members[0], 1), (members[1], 2)):
        assert math.isclose(float(found), factor * expected, rel_tol=1e-12)
    assert math.isclose(inner(u.mT, v.mT), expected, rel_tol=1e-12), "whatever the layout in memory"


def test_a_number_is_read_only_where_that_is_allowed():
    assert number(tensor(2.5)) == 2.5
    assert isinstance(number(tensor(2.5)), float)
    with tensors():
        assert isinstance(number(tensor(2.5)), Tensor)
    torch.testing.assert_close(vmap(number)(torch.tensor([1.0, 2.0])), torch.tensor([1.0, 2.0]))


def test_numbers_are_read_again_once_nobody_forbids_it():
    def inside() -> None:
        with tensors():
            with tensors():
                assert not eager()
            assert not eager(), "the inner one must not end the outer one"
            raise ZeroDivisionError

    assert eager()
    with pytest.raises(ZeroDivisionError):
        inside()
    assert eager()


def test_inside_torch_func_nothing_is_read():
    seen = []
    vmap(lambda a: seen.append((eager(), vectorised())) or a)(torch.zeros(2))
    torch.func.grad(lambda a: seen.append((eager(), vectorised())) or a)(torch.tensor(0.0))
    assert seen == [(False, True)] * 2
    assert not vectorised()


def test_one_decision_selects_whole_trees():
    new, old = (
        ([torch.ones(2), 3.0], (torch.ones(1),), torch.ones(3)),
        ([torch.zeros(2), 3.0], (torch.zeros(1),), torch.zeros(3)),
    )
    for ok, expected in ((True, new), (False, old)):
        assert select(ok, new, old) is expected
        found = select(torch.tensor(ok), new, old)
        torch.testing.assert_close(found[0][0], expected[0][0])
        torch.testing.assert_close(found[1][0], expected[1][0])
        torch.testing.assert_close(found[2], expected[2])
        assert found[0][1] == 3.0
    members = vmap(select)(torch.tensor([True, False]), torch.ones(2, 3), torch.zeros(2, 3))
    torch.testing.assert_close(members, torch.tensor([[1.0] * 3, [0.0] * 3]))


def test_what_belongs_to_one_point_alone_is_left_out_where_a_tensor_decides():
    class Of:
        def either(self):
            return "of neither"

    new, old = (torch.ones(1), Of()), (torch.zeros(1), Of())
    assert select(True, new, old) is new
    assert select(torch.tensor(True), new, old)[1] == "of neither"


def test_a_selection_takes_nothing_of_what_it_leaves():
    bad = torch.tensor([NAN, 1.0])
    torch.testing.assert_close(select(torch.tensor(False), bad, torch.zeros(2)), torch.zeros(2))


def test_a_step_along_a_direction_is_the_same_for_floats_and_tensors():
    x, u = torch.tensor([1.0, 2.0]), torch.tensor([3.0, -1.0])
    for a in (0.5, tensor(0.5)):
        found = along(x, a, u)
        assert found.dtype == torch.float32, "a number does not change the type"
        torch.testing.assert_close(found, torch.tensor([2.5, 1.5]))
    members = vmap(along, in_dims=(None, 0, None))(x, torch.tensor([0.5, -1.0]), u)
    torch.testing.assert_close(members, torch.tensor([[2.5, 1.5], [-2.0, 3.0]]))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_all_finite_is_told_by_every_entry_and_not_by_a_sum_that_overflows(bad: float) -> None:
    t = torch.full((3, 4), 3e38)
    assert all_finite(t)
    assert all_finite(torch.zeros(0))
    t[1, 2] = bad
    assert not all_finite(t)
    assert not all_finite(torch.tensor([torch.inf, -torch.inf]))
