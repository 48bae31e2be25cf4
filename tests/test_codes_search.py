"""The search over the values of a discrete activation, against E from its definition and every pattern there is."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_layers import DISCRETE, EACH, interval, levels
from torch import Tensor, nn

import altmin
from altmin.calculus.context import LOCAL
from altmin.core.codes.discrete import Search

F64 = torch.float64


def E(module: nn.Module, W: Tensor, R: Tensor, c: Tensor, s: Tensor, values: Tensor) -> float:
    """|R - W (s' - s)|^2 + the squared way of each code to where its activation is s'."""
    return float((R - W @ (values - s)).square().sum()) + way(module, c, values)


def way(module: nn.Module, c: Tensor, values: Tensor) -> float:
    bounds = (
        (code, *interval(module, v)) for code, v in zip(c.flatten().tolist(), values.flatten().tolist(), strict=True)
    )
    return sum(max(low - code, code - high, 0.0) ** 2 for code, low, high in bounds)


def make(module: nn.Module, m: int = 6, n: int = 3, samples: int = 4, seed: int = 0, amplify: float = 2.0):
    """A search over m units below a layer of n, the layer's matrix, and the wishes."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(m, m), module, nn.Linear(m, n)).double().requires_grad_(False)
    chain = altmin.split(model)
    c, t = torch.randn(samples, m, dtype=F64), torch.randn(samples, n, dtype=F64)
    with torch.no_grad():
        state = chain.blocks[1].forward(chain.parameters()[1], c, LOCAL)[1]
        return Search(chain.blocks[1], chain.parameters()[1], state, t, amplify, LOCAL), model[2].weight.detach(), t


def values(module: nn.Module, search: Search, W: Tensor, s: Tensor) -> list[float]:
    """E(s) of each sample."""
    each = zip(search.R, search.c, search.start, s, strict=True)
    return [E(module, W, *of) for of in each]


def sweep(search: Search) -> None:
    """One more sweep from where the search has come to."""
    search.q = search.vjp(search.left)
    search.sweep()


@EACH
@pytest.mark.parametrize("amplify", [0.5, 3.0])
def test_the_wish_is_amplified_to_the_stated_size(module, amplify):
    search, W, t = make(module, amplify=amplify)
    h = levels(module)[1] - levels(module)[0]
    rms = float((search.R @ W).square().mean().sqrt())
    assert rms == pytest.approx(amplify * h / 2 * float(W.square().sum(0).mean()))
    torch.testing.assert_close(search.R / search.R.norm(), t / t.norm())


@EACH
@pytest.mark.parametrize("sweeps", [0, 1])
def test_a_gain_is_the_exact_difference_that_the_move_makes(module, sweeps):
    """At the start, and where units have moved already."""
    search, W, _ = make(module)
    for _ in range(sweeps):
        search.sweep()
        search.q = search.vjp(search.left)
    h = levels(module)[1] - levels(module)[0]
    seen = 0
    for e in (1.0, -1.0):
        gain, _ = search.gains(e)
        for i, j in itertools.product(*map(range, gain.shape)):
            before, after = search.s[i], search.s[i].clone()
            after[j] += e * h
            if abs(float(after[j])) > 1 + 1e-9 or abs(float(search.c[i, j])) > 1:
                assert float(gain[i, j]) == -1
                continue
            args = module, W, search.R[i], search.c[i], search.start[i]
            assert float(gain[i, j]) == pytest.approx(E(*args, before) - E(*args, after), abs=1e-12)
            seen += 1
    assert seen > 5


@pytest.mark.parametrize("module, m", [(altmin.Sign(), 10), (altmin.Staircase(3), 6), (altmin.Staircase(4), 5)])
@pytest.mark.parametrize("seed", range(4))
def test_sweeps_end_between_the_start_and_the_best_of_all_patterns_where_no_unit_alone_can_gain(module, m, seed):
    search, W, _ = make(module, m, seed=seed)
    begin = values(module, search, W, search.start)
    for _ in range(50):
        sweep(search)
    search.q = search.vjp(search.left)
    assert max(float(search.gains(e)[0].max()) for e in (1.0, -1.0)) <= 1e-12
    end = values(module, search, W, search.s)
    for i, (c, s) in enumerate(zip(search.c, search.start, strict=True)):
        choices = [levels(module) if abs(code) <= 1 else [v] for code, v in zip(c.tolist(), s.tolist(), strict=True)]
        tried = (torch.tensor(v, dtype=F64) for v in itertools.product(*choices))
        best = min(E(module, W, search.R[i], c, s, v) for v in tried)
        assert best - 1e-9 <= end[i] <= begin[i] + 1e-12
    assert sum(end) < sum(begin) - 1e-6, "the search must find something"


@given(
    st.sampled_from(DISCRETE),
    st.integers(1, 9),
    st.integers(1, 6),
    st.floats(0.1, 50),
    st.integers(0, 10**6),
)
def test_no_sweep_raises_the_objective_of_any_sample(module, m, n, amplify, seed):
    search, W, _ = make(module, m, n, 7, seed, amplify)
    value = values(module, search, W, search.s)
    for _ in range(4):
        sweep(search)
        after = values(module, search, W, search.s)
        assert all(new <= old + 1e-11 * (1 + old) for new, old in zip(after, value, strict=True))
        value = after
    torch.testing.assert_close(search.left, search.R - (search.s - search.start) @ W.T)
    nearest = (search.s.unsqueeze(-1) - torch.tensor(levels(module), dtype=F64)).abs().min(-1).values
    assert float(nearest.max()) < 1e-12, "every value is a level"
    assert torch.equal(search.s[search.c.abs() > 1], search.start[search.c.abs() > 1]), "what is far off stays"


def test_moves_that_pay_alone_and_not_together_are_not_made_together():
    """Two equal columns: either flip gives all that is asked, both give too much."""
    search, _, _ = make(altmin.Sign(), 2, 1, samples=1)
    search.c = torch.tensor([[-0.1, -0.1]], dtype=F64)
    search.start = search.s = torch.tensor([[-1.0, -1.0]], dtype=F64)
    search.near = torch.ones(1, 2, dtype=torch.bool)
    search.p = [torch.ones(1, 2, dtype=F64)]
    search.weight = torch.ones(1, 2, dtype=F64)
    search.R = search.left = torch.tensor([[1.5]], dtype=F64)
    search.q = search.pull = search.vjp(search.R)
    assert (search.gains(1.0)[0] > 0).all()
    search.sweep()
    assert sorted(search.s[0].tolist()) == [-1, 1]


@EACH
def test_units_that_move_and_units_that_should_hold_are_asked_and_no_others(module):
    search, W, _ = make(module, 12, 4, samples=30)
    asks, size = search.R @ W, W.square().sum(0)
    h = levels(module)[1] - levels(module)[0]
    search.sweep()
    v, e = search.target()
    kinds = {"moved": 0, "held": 0, "free": 0}
    for i, j in itertools.product(*map(range, v.shape)):
        c, s, new = (float(t[i, j]) for t in (search.c, search.start, search.s))
        assert float(v[i, j]) == new
        if abs(new - s) > 1e-9:
            expected, kind = math.copysign(1, new - s), "moved"
        elif abs(c) <= 1 and abs(s) > 1 - 1e-9 and 2 * h * s * float(asks[i, j]) > h * h * float(size[j]):
            expected, kind = s, "held"
        else:
            expected, kind = 0.0, "free"
        assert float(e[i, j]) == expected
        kinds[kind] += 1
    assert min(kinds.values()) > 0
    assert (e * (v - search.c) >= 0).all(), "the side from which c comes to v"


@EACH
def test_without_a_wish_nothing_is_asked(module):
    """Nor anything divided by zero, however large the weights."""
    model = nn.Sequential(nn.Linear(4, 6), module, nn.Linear(6, 3)).requires_grad_(False)
    model[2].weight.mul_(1000)
    block = altmin.split(model).blocks[1]
    p = block.parameters()
    search = Search(block, p, block.forward(p, torch.randn(5, 6), LOCAL)[1], torch.zeros(5, 3), 2.0, LOCAL)
    search.sweep()
    v, e = search.target()
    assert torch.equal(v, search.start)
    assert not e.any()
    assert torch.equal(search.R, torch.zeros(5, 3))


# -- other layers, and what may lie between ---------------------------------------------------------------------------

BETWEEN = {
    "convolution": (nn.Conv2d(2, 2, 1), [], nn.Conv2d(2, 3, 3, stride=2, padding=1), (2, 4, 4)),
    "flatten": (nn.Conv2d(1, 2, 1), [nn.Flatten()], nn.Linear(8, 3), (1, 2, 2)),
    "dropout": (nn.Linear(5, 8), [nn.Dropout(0.4)], nn.Linear(8, 3), (5,)),
    "flatten and dropout": (nn.Conv2d(1, 2, 1), [nn.Dropout2d(0.4), nn.Flatten()], nn.Linear(8, 3), (1, 2, 2)),
}


@pytest.mark.parametrize("kind", BETWEEN)
@pytest.mark.parametrize("module", [altmin.Sign(), altmin.Staircase(4)], ids=str)
def test_gains_are_exact_below_convolutions_and_with_dropout_or_reshaping_between(kind, module):
    """Differences of the real forward pass, with the mask of this step."""
    torch.manual_seed(0)
    below, between, layer, shape = BETWEEN[kind]
    model = nn.Sequential(below, module, *between, layer).double()
    chain = altmin.split(model)
    (_, block), (_, p) = chain.blocks, chain.parameters()
    with torch.no_grad():
        code = below(torch.randn(3, *shape, dtype=F64))
        output, state = block.forward(p, code, LOCAL)
        search = Search(block, p, state, torch.randn_like(output), 2.0, LOCAL)

        def value(values: Tensor, i: int) -> float:
            """E of sample i; the block's own forward pass with other values, and the same mask."""
            x = values
            for m, saved in zip(block.prelude.maps[1:], state.prelude[1:], strict=True):
                x = m.replay((), saved, x)[0]
            return float((search.R[i] - (layer(x) - output)[i]).square().sum()) + way(module, code[i], values[i])

        for _ in range(2):
            for e in (1.0, -1.0):
                gain = search.gains(e)[0].flatten(1)
                for i, j in itertools.product(*map(range, gain.shape)):
                    if float(gain[i, j]) != -1:
                        moved = search.s.clone()
                        moved[i].view(-1)[j] += e * search.h
                        assert float(gain[i, j]) == pytest.approx(value(search.s, i) - value(moved, i), abs=1e-11)
            before = [value(search.s, i) for i in range(3)]
            search.sweep()
            assert all(value(search.s, i) <= before[i] + 1e-12 for i in range(3))
            search.q = search.vjp(search.left)


@pytest.mark.cuda
@EACH
def test_the_search_is_the_same_on_a_gpu(module):
    ours, _, t = make(module, 12, 5, samples=16)
    model = nn.Sequential(nn.Linear(12, 12), module, nn.Linear(12, 5)).double().cuda()
    block, p = altmin.split(model).blocks[1], [each.cuda() for each in ours.p]
    with torch.no_grad():
        theirs = Search(block, p, block.forward(p, ours.c.cuda(), LOCAL)[1], t.cuda(), 2.0, LOCAL)
    ours.sweep()
    theirs.sweep()
    torch.testing.assert_close(theirs.s.cpu(), ours.s)
    torch.testing.assert_close(theirs.target()[1].cpu(), ours.target()[1])
