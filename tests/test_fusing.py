"""Marked functions compute the same whether compiled or not, for one and for many members; and are compiled when asked.

A function can tell: while torch compiles it, `torch.compiler.is_compiling()` is true.
"""

import shutil

import pytest
import torch
from torch import Tensor

from altmin.common.fusing import can_fuse, fusible, fusible_alone, fusing

COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")


def how(x: Tensor) -> Tensor:
    """1 where it is compiled, 0 where it is not."""
    return x * 0 + (1 if torch.compiler.is_compiling() else 0)


marked, alone = fusible(how), fusible_alone(how)
ONE, MANY = torch.zeros(2), torch.zeros(3, 2)


@COMPILER
def test_a_function_is_compiled_within_fusing_and_nowhere_else() -> None:
    assert not marked(ONE).any()
    with fusing():
        assert marked(ONE).all()
        with fusing(False):
            assert not marked(ONE).any()
        assert marked(ONE).all(), "the outer choice holds again"
    assert not marked(ONE).any()


@COMPILER
def test_members_are_compiled_together_unless_the_function_stands_alone() -> None:
    every = torch.func.vmap(lambda x: (marked(x), alone(x)))
    assert not alone(ONE).any()
    with fusing():
        assert alone(ONE).all()
        compiled, plain = every(MANY)
    assert compiled.all()
    assert not plain.any()
    assert not any(t.any() for t in every(MANY))


def test_an_error_ends_fusing() -> None:
    with pytest.raises(KeyError), fusing():
        raise KeyError
    assert not marked(ONE).any()


@fusible
def formula(pair: tuple[Tensor, Tensor], factor: float, shift: Tensor | None) -> tuple[Tensor, Tensor]:
    """(factor a b + shift, the sum of (a - b)^2)."""
    a, b = pair
    product = factor * a * b
    return product if shift is None else product + shift, (a - b).square().sum()


def by_hand(a: Tensor, b: Tensor, factor: float, shift: Tensor | None) -> tuple[Tensor, Tensor]:
    return a * b * factor + (0 if shift is None else shift), a @ a - 2 * a @ b + b @ b


@COMPILER
@pytest.mark.parametrize("factor", [2.0, -0.5])
@pytest.mark.parametrize("shift", [None, torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)])
def test_one_call_gives_the_formula_compiled_or_not(factor: float, shift: Tensor | None) -> None:
    a, b = torch.randn(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = by_hand(a, b, factor, shift)
    torch.testing.assert_close(formula((a, b), factor, shift), expected)
    with fusing():
        torch.testing.assert_close(formula((a, b), factor, shift), expected)


@COMPILER
@pytest.mark.parametrize("factor", [2.0, -0.5])
@pytest.mark.parametrize("axes", [(0, 0), (0, 1), (1, None)])
def test_many_members_give_each_its_own_formula(axes: tuple[int | None, int | None], factor: float) -> None:
    """Members along any axis, and a tensor that all of them share."""
    generator = torch.Generator().manual_seed(0)
    a, b, shift = torch.randn(3, 4, 3, dtype=torch.float64, generator=generator)
    shapes = [t if axis == 0 else t.mT if axis == 1 else t[0] for t, axis in zip((a, b), axes, strict=True)]
    with fusing():
        found = torch.func.vmap(lambda a, b, s: formula((a, b), factor, s), in_dims=(*axes, 0))(*shapes, shift)
    for i in range(4):
        expected = by_hand(a[i], b[0] if axes[1] is None else b[i], factor, shift[i])
        torch.testing.assert_close(tuple(t[i] for t in found), expected)


@COMPILER
def test_a_function_that_writes_into_its_arguments_does_so_compiled_too() -> None:
    @fusible_alone
    def halve(x: Tensor, by: float) -> None:
        x.mul_(by)

    for wanted in (False, True):
        x = torch.tensor([4.0, -6.0])
        with fusing(wanted):
            halve(x, 0.5)
        assert x.tolist() == [2.0, -3.0]


def test_a_marked_function_keeps_its_name_and_its_docstring() -> None:
    for call in (marked, alone):
        assert (call.__name__, call.__doc__) == (how.__name__, how.__doc__)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_nothing_is_fused_by_default() -> None:
    assert not can_fuse()
