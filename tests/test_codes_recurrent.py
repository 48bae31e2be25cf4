"""Codes in time against a loop written from the cells' formulas, against f, and against backprop through time."""

from functools import partial

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
from torch.nn import functional as F

import altmin
from altmin.calculus import Recurrence
from altmin.layers import Last, Outputs

MU = 0.7
SWEEPS = ["exact", "parallel"]
ORDERS = ["codes-first", "weights-first"]
close = partial(torch.testing.assert_close, rtol=1e-7, atol=1e-12)


def wide() -> tuple[nn.Sequential, Tensor, Tensor]:
    """A readout of two features."""
    model, x, y = problem(3, samples=4)
    model[1], model[-1] = altmin.Readout(4, 2).double(), nn.Linear(10, 3).double()
    return model, x, y


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
    "wide": wide,
    "stack": stack,
    **{kind.__name__: partial(gated, kind) for kind in KINDS},
}
WAYS = [(name, sweep) for name in CASES for sweep in SWEEPS if sweep == "exact" or name not in ("GRU", "LSTM")]


def loops(model, x) -> list[tuple[int, naive.Layer, Tensor, object]]:
    """Every recurrent block: its place, its loop, which steps are real, and the next block's output as a function of
    the loop's h; all but a recurrent block is called as a module."""
    blocks, found = encoded_blocks(model, x)[0], []
    for l, (block, p, x, *_) in enumerate(blocks):
        if not isinstance(block.core.maps[0], Recurrence):
            continue
        module, padded = block.core.maps[0].module, block.core.maps[0].padded
        for m in block.prelude.maps:
            x = m.module(x)
        real = x[..., -1] == 1 if padded else torch.ones(x.shape[:2], dtype=torch.bool)
        xs = [s[on][:, : s.shape[1] - padded] for s, on in zip(x, real, strict=True)]
        p = [q.detach() for q in p]
        p = p if len(p) == 4 else [*p, torch.zeros_like(p[2])]
        kind = {"RNN_TANH": nn.RNN, "GRU": nn.GRU, "LSTM": nn.LSTM}[module.mode]

        def above(h: Tensor, block=blocks[l + 1].block, real=real) -> Tensor:
            h = h.new_zeros(*real.shape, h.shape[1]).index_put((real,), h)
            for m in block.maps:
                h = h @ m.module.weight_ih_l0.T if isinstance(m, Recurrence) else m.module(h)
            return h

        found.append((l, naive.Layer(kind, p, xs), real, above))
    return found


def check(real, cell, step, m, order) -> None:
    """What is asked of the recurrent block."""
    close(float(cell.scale), m * step.a)
    close(cell.upstream[real], step.rest if order == "codes-first" else step.g)
    assert not cell.upstream[~real].any()
    close(float(cell.square), (m * step.a) ** 2 * square(step.g))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("name, sweep", WAYS)
def test_a_step_is_that_of_the_loop(name, sweep, share, order):
    model, x, y = CASES[name]()
    codes = altmin.RecurrentCodes(sweep, share, order)
    left = residuals_of(model, codes, x, y, MU)
    offset = None  # of a recurrent block: what is left for its weights
    for l, layer, real, above in reversed(loops(model, x)):
        delta, m = left[l + 1].upstream, float(left[l + 1].scale)
        step = naive.CodesInTime(share, sweep == "parallel").update(layer, above, delta, offset)
        check(real, left[l], step, m, order)
        close(left[l + 1].delta, delta - step.a * step.q if order == "codes-first" else delta)
        close(float(left[l + 1].cost), m**2 * square((delta if offset is None else offset) - step.a * step.q))
        offset = step.rest.view_as(left[l].upstream) if real.all() else None
        if l == 0:
            close(left[l].delta, left[l].upstream)
            close(float(left[l].cost), (m * step.a) ** 2 * square(step.rest))
        p = [q.requires_grad_() for q in layer.p]
        h = layer.encode()[1].detach()
        wanted = torch.autograd.grad((layer.codes(h) * left[l].delta[real]).sum(), p)
        block = altmin.split(model).blocks[l]
        close([*left[l].grads(block, block.parameters())], [*wanted[: len(block.parameters())]])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("share", [0.1, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_below_the_loss_a_step_is_that_of_the_loop_and_none_is_taken_that_would_raise_f(kind, share, order):
    model, x, y = gated(kind, hidden=0)
    ((_, layer, real, above),) = loops(model, x)
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
    assert min(lengths[:2]) > 0
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


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name, sweep", [way for way in WAYS if way[0] in ("elman", "padded", "wide")])
def test_short_moves_lower_f_by_as_much_as_reported(name, sweep, order):
    model, x, y = CASES[name]()
    mu, codes = 1e5, altmin.RecurrentCodes(sweep, 1.0, order)  # so dear that moves are short
    left = residuals_of(model, codes, x, y, mu)
    ((_, layer, _, above),) = loops(model, x)
    step = naive.CodesInTime(1.0, sweep == "parallel").update(layer, above, left[1].upstream)
    encoded, h = layer.encode()
    z, rest = above(h).detach(), model[2:]

    def f(c: Tensor, z: Tensor) -> float:
        h = layer.h(c)
        misfit = square(c - layer.codes(h)) + square((z - above(h)).detach())
        return float(F.cross_entropy(rest(z), y).detach()) + mu / len(x) * misfit

    still, half = f(encoded, z), f(encoded, moved := z - left[1].scale * left[1].upstream)
    end = f(encoded - float(left[0].scale) * step.g, moved)
    assert end < half < still
    reported = float(outcome_of(model, codes, x, y, mu).objective)
    assert still - reported == pytest.approx(still - end, rel=1e-2)


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


@pytest.mark.parametrize("sweep", SWEEPS)
def test_without_code_moves_readout_and_classifier_have_the_gradients_of_backprop_in_either_order(sweep):
    model, x, y = problem(8, steps=7)
    ours = gradients_of(model, altmin.RecurrentCodes(sweep, 0.0, "codes-first"), x, y, MU)
    close(ours[3:], backprop(model, x, y)[3:])


def test_the_parallel_sweep_is_backprop_through_time_cut_between_all_steps():
    model, x, y = problem(9, steps=6)
    cell, rest = model[0], model[1:]
    U, W, b = cell.weight_ih_l0, cell.weight_hh_l0, cell.bias_ih_l0
    before = F.pad(cell(x).detach(), (0, 0, 1, 0))[:, :-1]
    cut = F.cross_entropy(rest(torch.tanh(x @ U.T + before @ W.T + b)), y)
    ours = gradients_of(model, altmin.RecurrentCodes("parallel", 0.0, "weights-first"), x, y, MU)
    close(ours[:3], [*torch.autograd.grad(cut, (U, W, b))])
