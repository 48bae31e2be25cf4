"""The step of codes below straight blocks, one block at a time and several at once, against the equations."""

import math
from collections.abc import Sequence

import pytest
import reference
import torch
from codes_cases import batch, lenet, mlp
from torch import Tensor, nn

import altmin
from altmin.core.codes.above import Ask, Residual
from altmin.core.codes.gradient import encode
from altmin.core.codes.straight import pulled, straight_step, straight_steps

Step = tuple[Residual, Ask]


def square(t: Tensor) -> float:
    return t.square().sum().item()


def asked(like: Tensor, scale: float) -> Ask:
    delta = torch.randn(like.shape, dtype=like.dtype, generator=torch.Generator().manual_seed(3))
    return Ask(delta, square(delta), scale, scale)


def one_by_one(model: nn.Module, x: Tensor, above: Ask, share: float, order: str) -> list[Step]:
    """The steps below all blocks but the first two and the last, from the top."""
    chain = altmin.split(model)
    theta, found = chain.parameters(), []
    with torch.no_grad():
        trace = encode(chain, theta, x)
        for l in range(len(chain) - 2, 0, -1):
            residual, above = straight_step(chain.blocks[l], theta[l], trace.states[l], above, share, order)
            found.append((residual, above))
    return found


def at_once(model: nn.Module, x: Tensor, above: Ask, share: float, order: str) -> list[Step]:
    chain = altmin.split(model)
    theta, run, delta = chain.parameters(), [], above.delta
    with torch.no_grad():
        trace = encode(chain, theta, x)
        for l in range(len(chain) - 2, 0, -1):
            each = pulled(chain.blocks[l], theta[l], trace.states[l], delta)
            run.append(each._replace(square=square(each.below)))
            delta = each.below
        return list(straight_steps(run, above, share, order))


@pytest.mark.parametrize("steps", [one_by_one, at_once])
@pytest.mark.parametrize("order", ["codes-first", "weights-first"])
@pytest.mark.parametrize("share, scale", [(0.05, 1e-3), (1.0, 0.5), (1.0, 20.0)])
def test_steps_below_rectifiers_are_those_of_the_equations(steps, order, share, scale):
    model, (x, _) = mlp(nn.ReLU, 5), batch(samples=20)
    net, naive = reference.of(model), reference.Codes(share=share)
    encoded = reference.encode(net, x)
    above = asked(encoded[-2], scale)
    delta = offset = above.delta
    m = longest = scale
    stopped = False
    for l, (residual, ask) in zip(range(len(net) - 3, -1, -1), steps(model, x, above, share, order), strict=True):
        u, a, g, bound = naive._straight(net, l, encoded[l], delta, offset, longest)
        Ju = reference.tangent(lambda c, l=l: net.layer(l + 1, c), encoded[l], u)
        stopped |= bool((u != g).any())
        torch.testing.assert_close(residual.saved[0], (encoded[l] - m * a * u).clamp_min(0) * (encoded[l] > 0))
        torch.testing.assert_close(residual.delta, delta - a * Ju if order == "codes-first" else delta)
        assert residual.scale == pytest.approx(m)
        assert residual.cost == pytest.approx(m * m * square(offset - a * Ju))
        assert residual.moved == pytest.approx(m * m * square(offset))
        delta, offset, m, longest = g, u, m * a, longest * bound
        torch.testing.assert_close(ask.delta, g)
        torch.testing.assert_close(ask.position, u)
        numbers = ask.square, ask.offset_square, ask.scale, ask.longest
        assert numbers == pytest.approx((square(g), square(u), m, longest))
    assert stopped or scale < 20, "the case must occur to be tested"


def numbers_of(step: Step) -> Sequence[float]:
    residual, ask = step
    return residual.cost, residual.moved, ask.square, ask.offset_square, ask.scale, ask.longest  # type: ignore[return-value]


@pytest.mark.parametrize("scale", [0.0, 0.3, 30.0, math.nan])
def test_several_blocks_at_once_with_pools_and_convolutions_move_as_one_by_one(scale):
    torch.manual_seed(0)
    model, (x, _) = lenet(), batch(samples=9)
    above = asked(torch.zeros(9, 6), scale)
    above.delta = above.delta.double()
    above.square = above.offset_square = square(above.delta)
    one, other = (steps(model, x, above, 0.7, "codes-first") for steps in (one_by_one, at_once))
    for (a, below), (b, under) in zip(one, other, strict=True):
        torch.testing.assert_close(a.saved[0], b.saved[0], equal_nan=True)
        torch.testing.assert_close(a.delta, b.delta, equal_nan=True)
        torch.testing.assert_close(below.position, under.position, equal_nan=True)
        assert numbers_of((a, below)) == pytest.approx(numbers_of((b, under)), rel=1e-12, nan_ok=True)
