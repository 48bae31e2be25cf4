"""Sums, products and concatenations of several values, with shapes that broadcast and values that do not move."""

import pytest
import torch
from calculus_cases import close
from torch import Tensor, nn

from altmin.calculus.multi_input import Aside, Concatenation, Product, Sum

F64 = torch.float64
CASES = {
    "sum": (Sum(), lambda a, b: a + b, [(4, 3), (4, 3)]),
    "sum of three": (Sum(), lambda a, b, c: a + b + c, [(4, 3), (4, 3), (4, 3)]),
    "sum, broadcast": (Sum(), lambda a, b: a + b, [(4, 3, 2), (4, 1, 2)]),
    "product": (Product(), lambda a, b: a * b, [(4, 3), (4, 3)]),
    "product, broadcast": (Product(), lambda a, b: a * b, [(4, 3, 5, 5), (4, 3, 1, 1)]),
    "concatenation": (Concatenation(1), lambda *xs: torch.cat(xs, 1), [(4, 3), (4, 2), (4, 1)]),
    "concatenation from behind": (Concatenation(-1), lambda a, b: torch.cat((a, b), -1), [(4, 3, 2), (4, 3, 5)]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_joint_agrees_with_autograd_on_its_formula(case):
    joint, f, shapes = CASES[case]
    torch.manual_seed(0)
    xs, us = ([torch.randn(shape, dtype=F64) for shape in shapes] for _ in range(2))
    y, saved = joint.forward((), xs)
    v = torch.randn_like(y)
    close(y, f(*xs))
    _, tangent = torch.func.jvp(f, tuple(xs), tuple(us))
    close(joint.jvp((), saved, us), tangent)
    close([*joint.vjp((), saved, v)], [*torch.func.vjp(f, *xs)[1](v)])
    other, moved = joint.replay((), saved, us)
    close(other, f(*us))
    close([*joint.vjp((), moved, v)], [*torch.func.vjp(f, *us)[1](v)])


@pytest.mark.parametrize("still", [0, 1])
@pytest.mark.parametrize("case", CASES)
def test_an_input_that_does_not_move_counts_as_one_that_moves_by_zero(case, still):
    joint, _, shapes = CASES[case]
    torch.manual_seed(0)
    xs, us = ([torch.randn(shape, dtype=F64) for shape in shapes] for _ in range(2))
    saved = joint.forward((), xs)[1]
    some = [None if i == still else u for i, u in enumerate(us)]
    zeros = [torch.zeros_like(u) if i == still else u for i, u in enumerate(us)]
    close(joint.jvp((), saved, some), joint.jvp((), saved, zeros))


class Mask(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x > 0


def test_a_value_aside_has_no_derivative_and_stays_while_others_move():
    joint = Aside(Mask())
    x = torch.tensor([1.0, -1.0])
    mask, saved = joint.forward((), [x])
    assert mask.tolist() == [True, False]
    assert joint.jvp((), saved, [x]) is None
