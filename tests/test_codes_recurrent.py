"""Codes in time against a loop written from the cells' formulas, against f, and against backprop through time."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pytest
import reference_recurrent as naive
import torch
from codes_cases import cliff, steep
from conftest import elman_problem as problem
from conftest import encoded_blocks, gradients_of, outcome_of, residuals_of
from hypothesis import given
from hypothesis import strategies as st
from reference import gradient, square
from reference_recurrent import F64, KINDS
from torch import Tensor, nn
from torch.autograd.functional import jvp, vjp
from torch.nn import functional as F

import altmin
from altmin.calculus import Recurrence
from altmin.calculus.context import LOCAL
from altmin.layers import Last, Outputs
from altmin.runners.functional import FunctionalContext

MU = 0.7
SWEEPS = ["exact", "parallel"]
ORDERS = ["codes-first", "weights-first"]
close = partial(torch.testing.assert_close, rtol=1e-7, atol=1e-12)


def stack(seed: int = 3) -> tuple[nn.Sequential, Tensor, Tensor]:
    """Recurrent layers on each other and on a linear one, read out by several features."""
    torch.manual_seed(seed)
    layers = nn.Linear(2, 3), nn.Tanh(), altmin.Recurrent(3, 4), altmin.Recurrent(4, 5), altmin.Readout(5, 2)
    model = nn.Sequential(*layers, nn.Flatten(), nn.Tanh(), nn.Linear(10, 3)).double()
    return model, torch.randn(6, 5, 2, dtype=F64), torch.randint(3, (6,))


def gated(kind: type, seed: int = 0, size: float = 0.7, hidden: int = 5) -> tuple[nn.Sequential, Tensor, Tensor]:
    """One of torch's layers, and a hidden one above it; hidden = 0: the loss's block lies right above it."""
    torch.manual_seed(seed)
    head = (nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 3)) if hidden else (nn.Linear(4, 3),)
    model = nn.Sequential(Outputs(kind(3, 4, batch_first=True)), Last(), *head).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(size * torch.randn_like(p))
    return model, torch.randn(4, 6, 3, dtype=F64), torch.randint(3, (4,))


CASES = {
    "elman": lambda: problem(3, samples=4),
    "padded": lambda: problem(3, samples=4, padded=True),
    "stack": stack,
    **{kind.__name__: partial(gated, kind) for kind in KINDS},
}
WAYS = [(name, sweep) for name in CASES for sweep in SWEEPS if sweep == "exact" or name not in ("GRU", "LSTM")]


class Place(NamedTuple):
    """A recurrent block: its loop, which steps are real, and the next block's output as a function of the loop's h."""

    l: int
    layer: naive.Layer
    real: Tensor
    above: Callable[[Tensor], Tensor]


def rows(x: Tensor, real: Tensor, features: int) -> list[Tensor]:
    """The sequences of a batch, without padding and its mark."""
    return [s[on, :features] for s, on in zip(x, real, strict=True)]


def whole(h: Tensor, real: Tensor) -> Tensor:
    """The batch of sequences whose steps are the rows of h, padded with zeros."""
    return h.new_zeros(*real.shape, h.shape[1]).index_put((real,), h)


def by_modules(maps, h: Tensor) -> Tensor:
    """The output of modules in a row; of a recurrent one the part of its codes that its input gives."""
    for m in maps:
        h = h @ m.module.weight_ih_l0.detach().T if isinstance(m, Recurrence) else m.module(h)
    return h


def places(model, x) -> list[Place]:
    """The recurrent blocks, the first one first."""
    blocks, found = encoded_blocks(model, x)[0], []
    for l, (block, p, x, *_) in enumerate(blocks):
        m = block.core.maps[0]
        if isinstance(m, Recurrence):
            x = by_modules(block.prelude.maps, x)
            real = x[..., -1] == 1 if m.padded else torch.ones(x.shape[:2], dtype=torch.bool)
            p = [q.detach() for q in p]
            kind = {"RNN_TANH": nn.RNN, "GRU": nn.GRU, "LSTM": nn.LSTM}[m.module.mode]
            layer = naive.Layer(kind, [*p, *[0 * p[2]] * (4 - len(p))], rows(x, real, p[0].shape[1]))
            above = partial(lambda maps, real, h: by_modules(maps, whole(h, real)), blocks[l + 1].block.maps, real)
            found.append(Place(l, layer, real, above))
    return found


def steps_of(model, x, left, share: float, sweep: str) -> list[tuple[Place, naive.Step, Tensor]]:
    """From the top down the recurrent blocks, the steps that their codes should take, and what these leave of the move
    that the block above should make."""
    found, offset = [], None
    for place in reversed(places(model, x)):
        delta = left[place.l + 1].upstream
        offset = delta if offset is None else offset
        step = naive.CodesInTime(share, sweep == "parallel").update(place.layer, place.above, delta, offset)
        found.append((place, step, offset - step.a * step.q))
        offset = whole(step.rest, place.real)
    return found


def check(real, cell, step, m, order) -> None:
    """What is asked of the recurrent block."""
    close(float(cell.scale), m * step.a)
    close(cell.upstream[real], step.rest if order == "codes-first" else step.g)
    assert not cell.upstream[~real].any()
    close(float(cell.square), (m * step.a) ** 2 * square(step.rest))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("name, sweep", WAYS)
def test_a_step_is_that_of_the_loop(name, sweep, share, order):
    model, x, y = CASES[name]()
    codes = altmin.RecurrentCodes(sweep, share, order)
    left, same = (residuals_of(model, codes, x, y, MU, None, context) for context in (LOCAL, FunctionalContext()))
    close([r.delta for r in same], [r.delta for r in left])
    close([float(r.cost) for r in same], [float(r.cost) for r in left])
    for (l, layer, real, _), step, rest in steps_of(model, x, left, share, sweep):
        own, above = left[l], left[l + 1]
        m = float(above.scale)
        check(real, own, step, m, order)
        close(above.delta, above.upstream - step.a * step.q if order == "codes-first" else above.upstream)
        close(float(above.cost), m**2 * square(rest))
        if l == 0:
            close(own.delta, own.upstream)
            close(float(own.cost), (m * step.a) ** 2 * square(step.rest))
        p = [q.requires_grad_() for q in layer.p]
        wanted = torch.autograd.grad((layer.codes(layer.encode()[1].detach()) * own.delta[real]).sum(), p)
        block = altmin.split(model).blocks[l]
        close([*altmin.WeightRule().measure(own.block, block.parameters(), own)], [*wanted[: len(block.parameters())]])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("share", [0.1, 1.0])
def test_an_ordinary_code_below_a_recurrent_layer_is_moved_for_what_is_left_of_that_layers_move(share, order):
    model, x, y = stack()
    left = residuals_of(model, altmin.RecurrentCodes("exact", share, order), x, y, MU)
    (l, _, real, _), step, _ = steps_of(model, x, left, share, "exact")[-1]
    block, delta, offset = encoded_blocks(model, x)[0][l], left[l].upstream, whole(step.rest, real)
    layer = partial(by_modules, block.block.maps)
    g = vjp(layer, block.input, delta)[1]
    q = jvp(layer, block.input, g)[1]
    a = float((offset * q).sum()) / (square(q) + square(g))
    a = min(a, share * (square(delta) / square(q)) ** 0.5)
    m = float(left[l].scale)
    close(float(left[l - 1].scale), m * a)
    close(float(left[l].cost), m**2 * square(offset - a * q))
    close(left[l].delta, delta - a * q if order == "codes-first" else delta)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("share", [0.1, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_below_the_loss_a_step_is_that_of_the_loop_and_none_is_taken_that_would_raise_f(kind, share, order):
    model, x, y = gated(kind, hidden=0)
    ((_, layer, real, above),) = places(model, x)
    output, codes = model(x).detach(), altmin.RecurrentCodes(share=share, order=order)
    edge, lengths = float(output.min()) - 0.01, []
    for loss in (F.cross_entropy, lambda o, y: o.square().mean(), steep(edge), cliff(edge)):
        cell, top = residuals_of(model, codes, x, y, 1e-2, loss)
        step = naive.CodesInTime(share).below_loss(layer, above, lambda o, loss=loss: loss(o, y), 1e-2)
        check(real, cell, step, 1.0, order)
        moved = above(layer.encode()[1] - step.a * step.q_h)
        close(top.delta, gradient(lambda o, loss=loss: loss(o, y), moved))
        close(float(top.cost), float(loss(moved, y).detach()))
        lengths.append(step.a)
    assert max(lengths[:2]) > 0
    assert share < 1 or max(lengths[2:]) == 0


# -- f ----------------------------------------------------------------------------------------------------------------


@given(
    *(st.integers(0, 10_000), st.floats(0.05, 20), st.floats(0.1, 4), st.sampled_from(WAYS)),
    *(st.floats(0, 1), st.sampled_from(ORDERS)),
)
def test_the_reported_f_never_rises(seed, mu, size, way, share, order):
    name, sweep = way
    make = {"elman": problem, "padded": partial(problem, padded=True), "stack": stack}
    model, x, y = make[name](seed) if name in make else CASES[name]()
    with torch.no_grad():
        for p in model.parameters():
            p *= size
    found = outcome_of(model, altmin.RecurrentCodes(sweep, share, order), x, y, mu)
    assert found.objective <= found.loss * (1 + 1e-12)


def f(model, x, y, codes: list[Tensor], mu: float) -> float:
    """f of given codes, those in time as the rows of one tensor: every block is compared with what it makes of them."""
    in_time, misfit, h = {place.l: place for place in places(model, x)}, 0.0, x
    *blocks, last = altmin.split(model).blocks
    for l, (block, code) in enumerate(zip(blocks, codes, strict=True)):
        if l in in_time:
            _, layer, real, _ = in_time[l]
            given = by_modules(block.prelude.maps, h)
            layer = replace(layer, xs=rows(given, real, layer.p[0].shape[1]))
            h = layer.h(code)
            output, h = layer.codes(h), whole(h, real)
        else:
            output, h = by_modules(block.maps, h), code
        misfit += square((code - output).detach())
    return float(F.cross_entropy(by_modules(last.maps, h), y).detach()) + mu / len(x) * misfit


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name, sweep", WAYS)
def test_every_short_move_lowers_f_and_by_as_much_as_reported(name, sweep, order):
    model, x, y = CASES[name]()
    mu, solver = 1e5, altmin.RecurrentCodes(sweep, 1.0, order)  # so dear that moves are short
    left, reported = residuals_of(model, solver, x, y, mu), outcome_of(model, solver, x, y, mu).objective
    codes = [each.input for each in encoded_blocks(model, x)[0][1:]]
    in_time = {place.l: (place, step) for place, step, _ in steps_of(model, x, left, 1.0, sweep)}
    moved = [c if l in in_time else c - r.scale * r.upstream for l, (c, r) in enumerate(zip(codes, left, strict=False))]
    for l, (place, step) in in_time.items():
        codes[l] = place.layer.encode()[0]
        moved[l] = codes[l] - float(left[l].scale) * step.g
    values = [f(model, x, y, [*codes[:l], *moved[l:]], mu) for l in range(len(codes), -1, -1)]
    assert all(after < before for before, after in itertools.pairwise(values))
    assert values[0] - float(reported) == pytest.approx(values[0] - values[-1], rel=1e-2)


# -- backprop through time --------------------------------------------------------------------------------------------


def backprop(model, x, y) -> list[Tensor]:
    parameters = [p for block in altmin.split(model).parameters() for p in block]
    return list(torch.autograd.grad(F.cross_entropy(model(x), y), parameters))


@pytest.mark.parametrize("name", CASES)
def test_without_code_moves_gradients_are_those_of_backprop_through_time(name):
    model, x, y = CASES[name]()
    codes = altmin.RecurrentCodes("exact", share=0.0, order="weights-first")
    close(gradients_of(model, codes, x, y, MU), backprop(model, x, y))


def test_backprop_through_time_in_float32_over_hundreds_of_steps():
    model, x, y = problem(7, steps=300, hidden=8)
    with torch.no_grad():
        model[0].weight_hh_l0 *= 1.4 / torch.linalg.eigvals(model[0].weight_hh_l0).abs().max()
    theirs = backprop(model, x, y)
    ours = gradients_of(model.float(), altmin.RecurrentCodes("exact", 0.0, "weights-first"), x.float(), y, MU)
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).norm() <= 1e-4 * b.norm()


def test_the_parallel_sweep_is_backprop_through_time_cut_between_all_steps():
    model, x, y = problem(9, steps=6)
    cell, rest = model[0], model[1:]
    U, W, b = cell.weight_ih_l0, cell.weight_hh_l0, cell.bias_ih_l0
    before = F.pad(cell(x).detach(), (0, 0, 1, 0))[:, :-1]
    cut = F.cross_entropy(rest(torch.tanh(x @ U.T + before @ W.T + b)), y)
    ours = gradients_of(model, altmin.RecurrentCodes("parallel", 0.0, "weights-first"), x, y, MU)
    close(ours[:3], [*torch.autograd.grad(cut, (U, W, b))])
