"""The closed form of attention, against autograd on torch's own function in float64."""

import pytest
import torch
import torch.nn.functional as F
from calculus_cases import close
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from altmin.calculus.attention import Attention

F64 = torch.float64


def heads(x: Tensor) -> list[Tensor]:
    """Queries, keys and values of two heads, from one tensor (samples, time, 3 x 2 x size)."""
    return list(x.unflatten(-1, (3, 2, -1)).transpose(1, 3).unbind(2))


def together(y: Tensor, *xs: Tensor) -> list[Tensor]:
    """The heads side by side, with sizes asked of the input."""
    return [y.transpose(1, 2).reshape(*xs[0].shape[:2], -1)]


def apart(*xs: Tensor) -> list[Tensor]:
    return list(xs)


def first(y: Tensor, *xs: Tensor) -> list[Tensor]:
    return [y]


KEEPS = torch.rand(4, 1, 5, 5, generator=torch.Generator().manual_seed(1)) > 0.3
SELF = [(4, 5, 12)]
CROSS = [(4, 3, 2), (4, 6, 2), (4, 6, 5)]
CASES = {
    "self": (Attention(heads, together), SELF, None),
    "causal": (Attention(heads, together, causal=True), SELF, None),
    "scaled": (Attention(heads, together, scale=0.3), SELF, None),
    "mask": (Attention(heads, together, masked=True), SELF, KEEPS | torch.eye(5, dtype=torch.bool)),
    "a query without keys": (Attention(heads, together, masked=True), SELF, KEEPS & (torch.arange(5) > 0)[:, None]),
    "added mask": (Attention(heads, together, masked=True), SELF, torch.linspace(-1, 1, 25, dtype=F64).view(5, 5)),
    "cross": (Attention(apart, first), CROSS, None),
    "cross, causal": (Attention(apart, first, causal=True), CROSS, None),
    "one set of keys for all samples": (Attention(apart, first), [(4, 3, 2), (1, 6, 2), (1, 6, 5)], None),
}


def build(case: str):
    joint, shapes, mask = CASES[case]
    torch.manual_seed(0)
    xs, us = ([torch.randn(shape, dtype=F64) for shape in shapes] for _ in range(2))

    def f(*xs: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):  # the others have no forward derivative
            y = F.scaled_dot_product_attention(
                *joint.before(*xs), mask, is_causal=joint.causal, scale=joint.given_scale
            )
        return joint.after(y, *xs)[0]

    return joint, f, xs, us, [] if mask is None else [mask]


def agree(joint, f, xs, us, more) -> None:
    y, saved = joint.forward((), [*xs, *more])
    v, still = torch.randn_like(y), [None] * len(more)
    close(y, f(*xs))
    close(joint.jvp((), saved, [*us, *still]), torch.func.jvp(f, tuple(xs), tuple(us))[1])
    found = joint.vjp((), saved, v)
    assert list(found[len(xs) :]) == still
    for g, wanted in zip(found, torch.func.vjp(f, *xs)[1](v), strict=False):
        close(g, wanted)


@pytest.mark.parametrize("case", CASES)
def test_every_operation_agrees_with_autograd_on_torchs_function(case):
    agree(*build(case))


@pytest.mark.parametrize("case", ["causal", "mask", "cross"])
def test_it_is_the_same_inside_vmap(case):
    joint, f, xs, us, more = build(case)
    v = torch.randn_like(f(*xs))

    def member(scale: Tensor) -> list[Tensor]:
        at = [scale * x for x in xs]
        _, saved = joint.functional().forward((), [*at, *more])
        return [joint.jvp((), saved, [*us, *[None] * len(more)]), *joint.vjp((), saved, v)[: len(xs)]]

    scales = torch.tensor([0.5, 2.0], dtype=F64)
    for i, scale in enumerate(scales):
        at = tuple(scale * x for x in xs)
        wanted = [torch.func.jvp(f, at, tuple(us))[1], *torch.func.vjp(f, *at)[1](v)]
        for found, each in zip(torch.func.vmap(member)(scales), wanted, strict=True):
            close(found[i], each)


def test_an_input_that_does_not_move_counts_as_one_that_moves_by_zero():
    joint, _, xs, us, _ = build("cross")
    _, saved = joint.forward((), xs)
    some, zeros = [None, us[1], None], [torch.zeros_like(xs[0]), us[1], torch.zeros_like(xs[2])]
    close(joint.jvp((), saved, some), joint.jvp((), saved, zeros))
