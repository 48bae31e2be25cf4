"""A watched trainer makes the very steps of one that is not, and what it saw is what passed between its parts."""

import pytest
import torch
from explained import batch, net
from torch import nn

import altmin
from altmin.explaining.watch import Watch


def trainers(**options: object) -> tuple[altmin.AltMin, altmin.AltMin]:
    first, second = (altmin.methods.create("am-mem", net(), **options) for _ in range(2))
    assert isinstance(first, altmin.AltMin)
    assert isinstance(second, altmin.AltMin)
    return first, second


def test_a_watched_step_is_the_trainers_own() -> None:
    alone, watched = trainers(share=0.5)
    watch = Watch(watched)
    for _ in range(3):
        a, b = alone.step(*batch()), watch.step(*batch())
        assert (a.objective, a.residuals, a.movements) == (b.objective, b.residuals, b.movements)
    torch.testing.assert_close([*alone.model.parameters()], [*watched.model.parameters()], rtol=0, atol=0)


def test_it_sees_codes_deltas_and_squared_norms() -> None:
    am, _ = trainers(share=0.5)
    model, (x, y) = am.model, batch()
    codes = [model[:1](x), model[:3](x), model(x)]  # type: ignore[index]
    hidden = codes[1].detach().requires_grad_()
    top = nn.functional.cross_entropy(model[3:](hidden), y)  # type: ignore[index]
    (delta,) = torch.autograd.grad(top, hidden)
    watch = Watch(am)
    metrics = watch.step(x, y)
    for seen, code in zip(watch.values, codes, strict=True):
        assert torch.allclose(seen, code)
    assert torch.allclose(watch.upstream[1], delta, atol=1e-6), "the gradient that reaches a block is backprop's"
    assert [watch.moves[l] for l in (0, 1)] == pytest.approx(
        [m * m * c.numel() for m, c in zip(metrics.movements, codes, strict=False)], rel=1e-4
    )
    assert [watch.residuals[l] for l in (0, 1)] == pytest.approx(
        [r * r * c.numel() for r, c in zip(metrics.residuals, codes, strict=False)], rel=1e-4
    )
    assert watch.moves[1] == pytest.approx(watch.lengths[1] ** 2 * float(delta.square().sum()), rel=1e-4)


def test_the_offset_of_a_code_is_the_product_of_the_lengths_down_to_it_times_backprops_delta() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))
    x, y = batch()
    code = model[:1](x).detach().requires_grad_()
    (delta,) = torch.autograd.grad(nn.functional.cross_entropy(model[1:](code), y), code)
    am = altmin.AltMin(model, codes=altmin.GradientCodes(share=1.0))
    watch = Watch(am)
    watch.step(x, y)
    assert 0 < watch.lengths[0] < 1
    product = watch.lengths[0] * watch.lengths[1]
    assert watch.moves[0] == pytest.approx(product**2 * float(delta.square().sum()), rel=1e-4)


def test_every_part_of_every_step_is_timed() -> None:
    am, _ = trainers()
    watch = Watch(am)
    for steps in (1, 2, 3):
        watch.step(*batch())
        assert len(watch.times) == steps
        keys = {*((what, l) for what in ("forward", "codes", "weights") for l in range(3)), ("update", 0)}
        assert all(set(spent) == keys for spent in watch.times)
        assert all(watch.times[-1][key] > 0 for key in keys if key != ("codes", 0)), "no code moves below the first"
    watch.clear()
    assert watch.milliseconds(0) == (0.0, 0.0, 0.0)
    watch.times += [{("codes", 1): seconds} for seconds in (0.001, 0.009, 0.002)]
    assert watch.milliseconds(1).codes == pytest.approx(2.0)


def test_a_solver_of_ones_own_is_watched_from_outside() -> None:
    inner = altmin.GradientCodes(share=0.5)
    own, plain = (Watch(altmin.AltMin(net(), codes=codes)) for codes in (lambda *args: inner(*args), inner))
    for watch in (own, plain):
        watch.step(*batch())
    assert own.moves == plain.moves
    assert own.moves[1] > 0
    assert own.lengths == plain.lengths
