"""Codes in time against a naive loop written from the objective, and against backprop through time."""

import pytest
import reference_recurrent as naive
import torch
from conftest import Residual, residuals_of
from conftest import elman_problem as problem
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import altmin
from altmin.calculus import Recurrence
from altmin.calculus.context import LOCAL, Context
from altmin.calculus.numbers import Floats, Tensors
from altmin.core.codes.links import Segment, Upstream, unmoved
from altmin.core.losses import adapt
from altmin.core.step import encode, move_codes

MU = 0.7
close = torch.testing.assert_close

SWEEPS = ["exact", "parallel"]
SHARES = {"default": {}, "full share": {"share": 1.0}, "small share": {"share": 0.02}}


def sequences(x: Tensor, padded: bool) -> list[Tensor]:
    """The real steps of every sample."""
    return [s[: int(s[:, -1].sum()), :-1] if padded else s for s in x]


def expected(model, x, y, sweep, padded, mu=MU, **options):
    """The codes in time of the loop, and the m and delta of z, which comes before them: with order "weights-first" the
    readout is handed all that is asked of it."""
    net, xs = naive.of(model), sequences(x, padded)
    codes = altmin.RecurrentCodes(sweep, order="weights-first", **options)
    z = residuals_of(model, codes, x, y, mu)[1]
    deltas = [d[: len(s)] for d, s in zip(z.delta, xs, strict=True)]
    home = [net.encode(s)[0] for s in xs]
    how = naive.CodesInTime(1 if sweep == "parallel" else None, **options)
    return net, xs, home, deltas, float(z.scale), how.update(net, home, deltas, float(z.scale))


def wide(model: nn.Sequential, outputs: int) -> nn.Sequential:
    """The same with a readout of several features."""
    model[1] = altmin.Readout(4, outputs, bias=False).double()
    model[-1] = nn.Linear(5 * outputs, 3).double()
    return model


# -- the sweeps -------------------------------------------------------------------------------------------------------


FORMS = [(*form, order) for form in ((1, False), (1, True), (2, False)) for order in ("codes-first", "weights-first")]
"""Outputs of the readout, whether sequences are padded, and the order of codes and weights."""


@pytest.mark.parametrize(
    "sweep, options, outputs, padded, order",
    [
        (sweep, options, *FORMS[(i + j + k) % 6])  # three of the six for each way to move, others for each
        for i, sweep in enumerate(SWEEPS)
        for j, options in enumerate(SHARES.values())
        for k in (0, 2, 3)
    ],
)
def test_codes_move_as_in_the_loop_written_from_the_objective(sweep, options, outputs, padded, order):
    model, x, y = problem(seed=3, samples=4, padded=padded)
    model = wide(model, outputs) if outputs > 1 else model
    cell, readout, _ = residuals_of(model, altmin.RecurrentCodes(sweep, order=order, **options), x, y, MU)
    net, _, home, deltas, m, moved = expected(model, x, y, sweep, padded, **options)
    h = cell.saved[0].h.transpose(0, 1)
    close(float(cell.scale), m * moved.a)
    for i, (c, delta, v, left) in enumerate(zip(home, deltas, moved.v, moved.left, strict=True)):
        length = len(c)
        close(h[i, :length], torch.tanh(c - m * v))
        close(readout.saved[0][i], h[i])
        above = naive.parts(net, c, m, v, delta)[0]
        close(readout.delta[i, :length], above if order == "codes-first" else delta)
        close(cell.delta[i, :length], (left if order == "codes-first" else v) / moved.a)
        assert not cell.delta[i, length:].any()
    assert naive.norm(moved.v) * m > 1e-3
    close(float(cell.cost), (m * naive.norm(moved.left)) ** 2)
    close(float(cell.moved), (m * naive.norm(moved.v)) ** 2)


@pytest.mark.parametrize("sweep", SWEEPS)
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_the_step_reports_f_of_the_codes_it_chose(sweep, padded):
    model, x, y = problem(seed=2, samples=4, padded=padded)
    net, xs, home, deltas, m, moved = expected(model, x, y, sweep, padded)
    codes = [c - m * v for c, v in zip(home, moved.v, strict=True)]
    zs = [net.encode(s)[1] - m * d for s, d in zip(xs, deltas, strict=True)]
    metrics = altmin.AltMin(model, codes=altmin.RecurrentCodes(sweep), penalty=MU).step(x, y)
    assert metrics.objective == pytest.approx(float(net.f(xs, y, codes, zs, MU)))
    far = (m * naive.norm(moved.v)) ** 2 / (x.shape[0] * x.shape[1] * 4)
    assert metrics.movements[0] == pytest.approx(far**0.5)


def segment_of(model, x, context=LOCAL) -> Segment:
    """The blocks of a model after a forward pass."""
    chain = altmin.split(model)
    values, states = encode(chain.blocks, chain.parameters(), x, context)
    return Segment(chain.blocks, chain.parameters(), values[:-1], states, context)


def wanting(delta, m) -> Upstream:
    """What a code wants that is to move by -m delta."""
    scale = torch.as_tensor(m, dtype=delta.dtype)
    return Upstream(delta, scale, scale, delta, delta.square().sum())


@torch.no_grad()
def left_below(model, codes, x, delta, m, context):
    """What the recurrent layer is left with, and a readout that is to move by -m delta."""
    moves = codes(segment_of(model, x, context).part(0, 2), wanting(delta, m))
    return [Residual(*each) for each in zip(moves.problems, moves.costs, moves.moved, strict=True)]


SATURATED = {"bias": 3.0, "V": 20.0, "W": 1.0, "m": 10.0}  # on its way tanh grows steeper
AGAINST = {"bias": 0.0, "V": 1.0, "W": 4.0, "m": 0.1}  # what later steps ask for, of what each step's own z does


@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("how, make", [*((how, SATURATED) for how in SWEEPS), (SWEEPS[0], AGAINST)])
def test_a_step_that_would_raise_the_objective_is_not_taken(how, make, eager):
    """The codes stay, and what is left for the weights is that of an infinitely short step, g_t - W s_{t-1} g_{t-1}."""
    codes = altmin.RecurrentCodes(how, share=1.0, order="codes-first")
    loop = naive.CodesInTime(1 if how == "parallel" else None, share=1.0)
    m, stayed = make["m"], 0
    for seed in range(20):
        model, x, _ = problem(seed)
        with torch.no_grad():
            model[0].bias_ih_l0 += make["bias"]
            model[0].weight_hh_l0 *= make["W"]
            model[1].weight *= make["V"]
        net, delta = naive.of(model), torch.randn(3, 5, 1, dtype=torch.float64)
        home = [net.encode(s)[0] for s in x]
        moved = loop.update(net, home, list(delta), m)
        cell, readout = left_below(model, codes, x, delta, m, Context(numbers=Floats if eager else Tensors))
        close(float(cell.scale), m * moved.a)
        if moved.a == 0:
            stayed += 1
            assert float(cell.cost) == float(cell.moved) == 0
            close(readout.delta, delta)
            for i, (c, g) in enumerate(zip(home, moved.first, strict=True)):
                close(cell.saved[0].h[:, i], torch.tanh(c))
                before = F.pad((1 - torch.tanh(c) ** 2) * g, (0, 0, 1, 0))[:-1]
                close(cell.delta[i], g - before @ net.W.T)
    assert 0 < stayed < 20


@given(
    *(st.integers(0, 10_000), st.floats(0.05, 20), st.floats(0.1, 4), st.sampled_from(SWEEPS), st.booleans()),
    *(st.floats(0, 1), st.sampled_from(["codes-first", "weights-first"])),
)
def test_no_sweep_ever_raises_the_objective(seed, mu, size, how, padded, share, order):
    for model, x, y in (problem(seed, samples=4, padded=padded), stack(seed)):
        with torch.no_grad():
            for p in model.parameters():
                p *= size
        codes = altmin.RecurrentCodes(how, share=share, order=order)
        metrics = altmin.AltMin(model, codes=codes, penalty=mu).step(x, y)
        assert metrics.objective <= float(metrics.loss) * (1 + 1e-12)


def test_in_a_parallel_sweep_an_error_stays_in_its_step():
    model, x, y = problem(seed=3, steps=6)
    with torch.no_grad():
        model[-1].weight[:, :-1] = 0  # only the last z matters to the loss
    h = residuals_of(model, altmin.RecurrentCodes("parallel"), x, y, MU)[0].saved[0].h
    changed = (h - model[0](x).detach().transpose(0, 1)).abs().amax((1, 2)) > 0
    assert changed.tolist() == [t == 5 for t in range(6)]


def test_saturated_units_do_not_move():
    """Where h is 1 to the last digit nothing is known of its argument: it stays, however far it is asked to go."""
    model, x, y = problem(seed=5)
    with torch.no_grad():
        model[0].bias_ih_l0[:2] += torch.tensor([1000.0, -1000.0])
    cell, *_ = residuals_of(model, altmin.RecurrentCodes(share=1.0, order="codes-first"), x, y, MU)
    assert (cell.saved[0].h[..., :2] == torch.tensor([1.0, -1.0])).all()
    assert cell.delta[:, 1:, :2].any()


# -- backprop through time --------------------------------------------------------------------------------------------


def stack(seed: int = 3):
    """Recurrent layers on each other and on a linear one, read out by several features."""
    torch.manual_seed(seed)
    layers = nn.Linear(2, 3), nn.Tanh(), altmin.Recurrent(3, 4), altmin.Recurrent(4, 5), altmin.Readout(5, 2)
    model = nn.Sequential(*layers, nn.Flatten(), nn.Tanh(), nn.Linear(10, 3)).double()
    return model, torch.randn(6, 5, 2, dtype=torch.float64), torch.randint(3, (6,))


def gradients(model, codes, x, y) -> list[Tensor]:
    chain = altmin.split(model)
    theta, found = chain.parameters(), residuals_of(model, codes, x, y, MU)
    return [
        g
        for block, p, r in zip(chain, theta, found, strict=True)
        for g in block.core.grads([q.detach() for q in p], r.saved, r.delta)
    ]


def backprop(model, x, y) -> list[Tensor]:
    parameters = [p for block in altmin.split(model).parameters() for p in block]
    return list(torch.autograd.grad(F.cross_entropy(model(x), y), parameters))


@pytest.mark.parametrize("make", [lambda: problem(6, steps=7), lambda: problem(6, padded=True), stack])
def test_without_code_moves_the_exact_sweep_is_backprop_through_time_in_direction_and_size(make):
    model, x, y = make()
    for share, tolerance in ((0.0, 1e-12), (1e-6, 1e-4)):
        codes = altmin.RecurrentCodes("exact", share=share, order="weights-first")
        for ours, theirs in zip(gradients(model, codes, x, y), backprop(model, x, y), strict=True):
            assert (ours - theirs).norm() <= tolerance * theirs.norm()


def test_backprop_through_time_in_float32_over_hundreds_of_steps():
    model, x, y = problem(7, steps=300, hidden=8)
    with torch.no_grad():
        model[0].weight_hh_l0 *= 1.4 / torch.linalg.eigvals(model[0].weight_hh_l0).abs().max()
    theirs = backprop(model, x, y)
    ours = gradients(model.float(), altmin.RecurrentCodes("exact", share=0.0, order="weights-first"), x.float(), y)
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).norm() <= 1e-4 * b.norm()


@pytest.mark.parametrize("sweep", ["parallel", "exact"])
def test_without_code_moves_readout_and_classifier_have_the_gradients_of_backprop_in_either_order(sweep):
    model, x, y = problem(8, steps=7)
    ours = gradients(model, altmin.RecurrentCodes(sweep, share=0.0, order="codes-first"), x, y)
    close([*ours[3:]], [*backprop(model, x, y)[3:]])


def test_one_round_is_backprop_through_time_cut_between_all_steps():
    model, x, y = problem(9, steps=6)
    cell, rest = model[0], model[1:]
    U, W, b = cell.weight_ih_l0, cell.weight_hh_l0, cell.bias_ih_l0
    before = F.pad(cell(x).detach(), (0, 0, 1, 0))[:, :-1]
    cut = F.cross_entropy(rest(torch.tanh(x @ U.T + before @ W.T + b)), y)
    ours = gradients(model, altmin.RecurrentCodes("parallel", share=0.0, order="weights-first"), x, y)
    for a, g in zip(ours, torch.autograd.grad(cut, (U, W, b)), strict=False):
        close(a, g)


# -- stacks, and other ways to run ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sweep", SWEEPS)
def test_in_a_stack_what_each_layer_gets_and_what_is_left_make_the_moved_codes(sweep):
    model, x, y = stack()
    chain = altmin.split(model)
    for l, r in enumerate(residuals_of(model, altmin.RecurrentCodes(sweep, order="codes-first"), x, y, MU)):
        if isinstance(chain.blocks[l].core.maps[0], Recurrence):
            with torch.no_grad():
                c = chain.blocks[l].core.maps[0].replay(chain.parameters()[l], r.saved[0], None)[0]
            close(torch.tanh(c - r.scale * r.delta).transpose(0, 1), r.saved[0].h)
            close(float(r.cost), float((r.scale * r.delta).square().sum()))


def test_below_another_recurrent_layer_the_length_still_lowers_the_objective_most():
    """Were tanh linear, as for small moves; also if weights go first, which see more than is left for the codes."""
    model, x, _ = stack()
    delta = torch.randn(6, 5, 2, dtype=torch.float64)
    upper = altmin.RecurrentCodes("exact", share=1.0, order="weights-first")

    @torch.no_grad()
    def after(lower):
        """What the codes of the lower layer leave of f, and their length."""
        segment = segment_of(model, x)
        states = list(segment.states)
        moves, states[2], _ = upper._in_time(segment, 3, wanting(delta, 1e-4))
        above = moves.below
        moves, states[1], _ = lower._in_time(segment._replace(states=states), 2, above)
        cell = unmoved(segment._replace(states=states).part(1, 2), moves.below)
        return moves.costs[0] + cell.costs[0], float(moves.below.scale / above.scale)

    class Other(altmin.RecurrentCodes):
        """With another length."""

        factor = 1.0

        def _length(self, *given):
            a, *squares = super()._length(*given)
            return self.factor * a, *squares

    lower = Other("exact", share=1.0)
    best, a = after(lower)
    for lower.factor in (0.0001, 0.9, 1.1):
        left, length = after(lower)
        assert left > best * (1 + 1e-6)
        assert length == pytest.approx(lower.factor * a)


@pytest.mark.parametrize("sweep", SWEEPS)
@pytest.mark.parametrize("options", SHARES.values(), ids=SHARES.keys())
def test_numbers_that_are_not_read_change_nothing(sweep, options):
    for model, x, y in (problem(10, padded=True), stack()):
        codes = altmin.RecurrentCodes(sweep, **options)
        ours = residuals_of(model, codes, x, y, MU)
        theirs = residuals_of(model, codes, x, y, MU, context=Context(numbers=Tensors))
        for a, b in zip(ours, theirs, strict=True):
            close(a.delta, b.delta)
            close(float(a.cost), float(b.cost))


@pytest.mark.parametrize("sweep", SWEEPS)
@pytest.mark.parametrize("options", [{}, {"order": "codes-first"}], ids=str)
def test_members_of_an_ensemble_move_as_each_does_alone(sweep, options):
    members = [problem(seed) for seed in range(3)]
    x, y = members[0][1:]
    chain, codes = altmin.split(members[0][0]), altmin.RecurrentCodes(sweep, **options)
    thetas = [altmin.split(model).parameters() for model, _, _ in members]
    together = [[torch.stack(ps).detach() for ps in zip(*blocks, strict=True)] for blocks in zip(*thetas, strict=True)]

    def step(theta):
        mu, context = torch.tensor(MU, dtype=torch.float64), Context(numbers=Tensors, traced=True)
        moved = move_codes(chain, theta, codes, adapt(nn.CrossEntropyLoss()), x, y, mu, context)
        return moved.objective, [problem.delta for problem in moved.problems]

    with torch.no_grad():
        objectives, deltas = torch.func.vmap(step)(together)
        for i, theta in enumerate(thetas):
            objective, alone = step(theta)
            close(float(objectives[i]), float(objective))
            for a, b in zip(deltas, alone, strict=True):
                close(a[i], b)
