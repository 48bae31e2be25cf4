"""The arithmetic of the code update against the minima that it is to find."""

import pytest
import torch

from altmin.core.codes.linesearch import best_length, clipped, judged, line_search, straight_move

F64 = torch.float64


def draw(*shapes: tuple[int, ...], seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, dtype=F64, generator=generator) for shape in shapes]


def square(t: torch.Tensor) -> float:
    return t.square().sum().item()


@pytest.mark.parametrize("along_gradient", [True, False])
def test_the_best_length_is_the_minimum_of_the_quadratic_model(along_gradient):
    """Of -a <g, w> + a^2 (<Jw, H Jw> + kappa |w|^2) / 2, found by differentiating it."""
    g, w, Jw, root = draw((4, 5), (4, 5), (4, 3), (3, 3))
    w = g if along_gradient else g + 0.1 * w
    HJw = Jw @ (root @ root.mT)
    a = torch.zeros((), dtype=F64, requires_grad=True)
    model = -a * (g * w).sum() + a * a * ((Jw * HJw).sum() + 0.7 * w.square().sum()) / 2
    (slope,) = torch.autograd.grad(model, a, create_graph=True)
    (curvature,) = torch.autograd.grad(slope, a)
    found, ww = best_length(None if along_gradient else g, w, Jw, HJw, 1e12, 0.7, 1.0)
    assert found == pytest.approx((-slope / curvature).item(), rel=1e-12)
    assert ww == pytest.approx(square(w))


def test_a_share_bounds_how_much_is_taken_away():
    g, Jw = draw((4, 5), (4, 3))
    found, _ = best_length(None, g, Jw, Jw, 0.25, 1.0, 0.1)
    assert found * square(Jw) ** 0.5 == pytest.approx(0.1 * 0.5)


def test_a_clipped_step_ends_at_the_kinks_and_is_a_multiple_of_the_gradient_elsewhere():
    g, x = draw((6, 7), (6, 7))
    g, x = 100 * g, x.clamp_min(0)  # some kinks are near
    dd, longest = 1e5, 0.5
    handed, gg, u, uu, bound = clipped(g, x, x, dd, longest, 0.3)
    gated = g * (x > 0)
    torch.testing.assert_close(handed, gated)
    assert gg == pytest.approx(square(gated))
    assert bound == pytest.approx(min(dd / (square(gated) + dd), 0.3 * dd / square(gated)))
    reach = x / (longest * bound)
    assert ((gated > reach) & (x > 0)).any(), "the case must occur to be tested"
    torch.testing.assert_close(u, torch.where(gated > reach, reach, gated))
    assert uu == pytest.approx(square(u))


@pytest.mark.parametrize("bound, share", [(1e9, 1e9), (0.01, 1e9), (1e9, 0.05)])
def test_the_line_search_lowers_what_is_left_and_the_price_together(bound, share):
    delta, q, u, cut = draw((4, 3), (4, 3), (4, 5), (4, 3))
    q, uu = 0.3 * delta + 0.1 * q, square(u)
    offset = delta - 0.1 * cut.abs()
    a, r, rr = line_search(delta, offset, q, uu, square(delta), square(offset), bound, share)
    free = (offset * q).sum().item() / (square(q) + uu)
    assert a == pytest.approx(min(free, bound, share * (square(delta) / square(q)) ** 0.5))
    torch.testing.assert_close(r, delta - a * q)
    assert rr == pytest.approx(square(offset - a * q))
    assert line_search(delta, None, q, uu, square(delta), square(delta), bound, share)[2] == pytest.approx(
        square(line_search(delta, delta, q, uu, square(delta), square(delta), bound, share)[1])
    )


def test_a_straight_move_scales_costs_by_the_lengths_above():
    x, u, delta, offset, q = draw((4, 5), (4, 5), (4, 3), (4, 3), (4, 3))
    q = offset + 0.3 * q
    numbers = square(u), square(delta), square(offset), 0.2
    a, r, rr = line_search(delta, offset, q, *numbers, 0.5)
    assert a > 0
    moved, left, cost, d, scale, longest = straight_move(x, u, delta, offset, q, *numbers, 0.1, 0.4, 0.5)
    assert scale == pytest.approx(0.1 * a)
    assert longest == pytest.approx(0.4 * 0.2)
    torch.testing.assert_close(moved, x - 0.1 * a * u)
    torch.testing.assert_close(left, r)
    assert cost == pytest.approx(0.1**2 * rr)
    assert d == pytest.approx(0.1**2 * square(offset))


@pytest.mark.parametrize("kind", [float, lambda n: torch.tensor(n, dtype=F64)], ids=["numbers", "tensors"])
def test_a_value_may_rise_by_rounding_only(kind):
    value = kind(2.0)
    for at, accepted in ((1.0, True), (1.25 + 0.9e-3, True), (1.25 + 2.1e-3, False), (float("nan"), True)):
        ok, new = judged(value, kind(at), 0.5, kind(2.0), 0.25, 1e-3, 0.5e-3)
        assert bool(ok) is accepted
        assert float(new) == pytest.approx(at + 0.75, nan_ok=True)
