"""The code update over ranks: the numbers of one process, in a number of messages that does not grow with depth."""

import copy
from typing import Any
from unittest.mock import patch

import in_threads
import pytest
import reference
import torch
from codes_cases import F64, NETS, batch, mlp, net
from torch import Tensor, nn

import altmin
from altmin import GradientCodes
from altmin.core.chain import Block
from altmin.core.codes.phases import TOGETHER, messages
from altmin.core.losses import adapt
from altmin.core.reweighted import of_batch
from altmin.core.step import move_codes

ORDERS = ("codes-first", "weights-first")


def residuals(model: nn.Module, codes: Any, x: Tensor, y: Tensor, mu: float) -> list[Any]:
    """Of every block r, its scale, its cost, its own code's move, and the gradients of its parameters."""
    chain = altmin.split(model)
    theta = chain.parameters()

    def measure(l: int, r: Any) -> Any:
        grads = chain.blocks[l].core.grads(theta[l], r.saved, r.delta) if r.grads is None else r.grads
        return r.delta, float(r.scale), float(r.cost), 0.0 if r.moved is None else float(r.moved), list(grads)

    loss = of_batch(adapt(nn.CrossEntropyLoss()))
    return move_codes(chain, theta, codes, loss, x, y, mu, measure).found


def over_ranks(model: nn.Module, codes: Any, size: int = 2, mu: float = 0.3, samples: int = 7) -> tuple[Any, list[int]]:
    """The residuals of all rows by several ranks, and how many numbers their messages had; they are those of one."""
    x, y = batch(samples=samples)
    found, sent = in_threads.run(size, samples, lambda rows: residuals(model, codes, x[rows], y[rows], mu))
    with torch.no_grad():
        wanted = residuals(model, codes, x, y, mu)
    for l, whole in enumerate(wanted):
        parts = [rank[l] for rank in found]
        close(torch.cat([part[0] for part in parts]), whole[0])
        for part in parts:
            assert part[1:4] == pytest.approx(whole[1:4], rel=1e-10, abs=1e-20)
        for i, grad in enumerate(whole[4]):
            close(sum(part[4][i] for part in parts), grad)
    return wanted, sent


def close(found: Tensor, wanted: Tensor) -> None:
    assert float((found - wanted).norm()) <= 1e-10 * float(wanted.norm()) + 1e-16


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", [n for n in NETS if n != "dropout"])
def test_ranks_leave_every_block_what_one_process_does(name, order):
    for size, share, gain in ((2, 0.1, 1.0), (3, 1.0, 3.0)):
        over_ranks(net(name, gain=gain), GradientCodes(share=share, order=order), size, mu=1e-2)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.Identity])
def test_ranks_move_codes_as_the_equations_do(activation, order):
    model, (x, y) = mlp(activation, 5), batch()
    codes = GradientCodes(share=0.3, order=order)
    wanted = reference.Codes(share=0.3, order=order).update(reference.of(model), x, y, 0.3, reference.cross_entropy)
    found, _ = in_threads.run(2, len(x), lambda rows: residuals(model, codes, x[rows], y[rows], 0.3))
    for l, (delta, scale) in enumerate(zip(wanted.deltas, wanted.scales, strict=True)):
        torch.testing.assert_close(torch.cat([rank[l][0] for rank in found]), delta, rtol=1e-6, atol=1e-9)
        assert found[0][l][1] == pytest.approx(scale, rel=1e-8)


@pytest.mark.parametrize("hidden", [1, 2, 5, 12])
def test_the_number_of_messages_does_not_grow_with_depth(hidden):
    """The loss with two counts; all squares; the loss once the last code has moved; then those of all other codes."""
    for order in ORDERS:
        _, sent = over_ranks(mlp(nn.ReLU, hidden + 1), GradientCodes(order=order))
        assert sent == [3, 4 + hidden, 1, 3 * hidden]
    _, sent = over_ranks(mlp(nn.Tanh, hidden + 1), GradientCodes())
    assert sent == [3, 4 + 3 * hidden, 1, hidden] == messages(altmin.split(mlp(nn.Tanh, hidden + 1)))


def test_a_step_of_a_relu_net_takes_five_messages_with_the_gradients():
    x, y = batch()
    for model in (mlp(depth=7), net("lenet")):
        models = [copy.deepcopy(model) for _ in range(2)]

        def step(rows: slice, models: Any = models) -> None:
            altmin.AltMin(models[0 if rows.start == 0 else 1]).step(x[rows], y[rows])

        sent = in_threads.run(2, len(x), step)[1]
        assert len(sent) == 5
        assert sent[-1] == sum(p.numel() for p in model.parameters()) + 1
        altmin.AltMin(model).step(x, y)
        for trained in models:
            for p, q in zip(trained.parameters(), model.parameters(), strict=True):
                torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-10)


def test_runs_of_straight_and_of_smooth_blocks_take_one_message_each():
    torch.manual_seed(0)
    kinds = [nn.ReLU, nn.ReLU, nn.Tanh, nn.Tanh, nn.ReLU]
    hidden = [m for kind in kinds for m in (kind(), nn.Linear(6, 6))]
    model = nn.Sequential(nn.Linear(4, 6), *hidden, nn.ReLU(), nn.Linear(6, 3)).double()
    for order, squares in (("codes-first", [4 + 3 + 2 * 3]), ("weights-first", None)):
        _, sent = over_ranks(model, GradientCodes(order=order))
        if squares:
            assert sent == [3, *squares, 1, 3, 2, 6] == messages(altmin.split(model))
        else:
            assert sent == [3, 4 + 1 + 2 * 3, 1, 3, 2, 2, 6], "the squares of the last two blocks come later"


def test_nets_of_one_and_of_two_layers_have_fewer_messages():
    for layers, wanted in (([nn.Linear(4, 3)], [3]), ([nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)], [3, 4, 1])):
        model = nn.Sequential(*layers).double()
        _, sent = over_ranks(model, GradientCodes())
        assert sent == wanted == messages(altmin.split(model))


class Spike(nn.Module):
    """W x + 1000 x^2: no linear model holds far."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + 1000 * x.square()


@pytest.mark.parametrize("order", ORDERS)
def test_below_a_refused_step_the_others_are_taken_once_more(order):
    torch.manual_seed(0)
    smooth = nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6)
    model = nn.Sequential(nn.Linear(4, 6), *smooth, Spike(), nn.Linear(6, 3)).double()
    with torch.no_grad():
        for p in model[4].parameters():
            p.mul_(1e-4)  # so near zero the spike looks linear
    found, sent = over_ranks(model, GradientCodes(share=1.0, order=order), mu=0.01)
    assert found[3][1] > 0, "the last code moves"
    assert [r[1] for r in found[:3]] == [0.0] * 3, "that below the spike does not, nor any further down"
    quotient = [2]  # of the spike, which goes through autograd
    again = [2] if order == "codes-first" else []
    assert sent == [3, 4 + 3 * 3, 1, *quotient, 3, *again]


class Wave(nn.Module):
    """x + W sin(x) / 4."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layer(torch.sin(x)) / 4


def test_with_weights_first_passes_are_spared_where_codes_cannot_move():
    """J is near I, so a |Jg| <= share |delta| leaves lengths below 5e-3, seven of which are below the rounding of
    float64: no J g is needed further down, but for the blocks taken together with the last that moves."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), *[Wave() for _ in range(30)], nn.Linear(6, 3)).double()
    (x, y), calls = batch(), []
    codes = GradientCodes(share=1e-3, order="weights-first")
    whole, sent = over_ranks(model, codes)
    assert [r[1] > 0 for r in whole] == [False] * 25 + [True] * 7, "so many codes move"
    assert TOGETHER == 4, "what follows is for groups of four"
    first, second = (
        [3, 4 + 3 * 3, 1, *[2] * 3, 3],
        [3 * 4, *[2], 4],
    )  # with the quotients of those that can be perceived
    assert sent == [*first, *second, *[4] * 5, 3]
    whole_pass = Block.vjp_and_jvp

    def counted(*given: Any) -> Any:
        calls.append(given)
        return whole_pass(*given)

    with patch.object(Block, "vjp_and_jvp", counted):
        in_threads.run(2, len(x), lambda rows: residuals(model, codes, x[rows], y[rows], 0.3))
    assert len(calls) == 2 * 2 * TOGETHER, "two ranks, two groups"


def test_a_scale_that_is_not_a_number_ends_all_the_same():
    model, (x, y) = mlp(nn.Tanh, 4), batch()
    with torch.no_grad():
        model[4].weight[0, 0] = torch.nan
    found, _ = in_threads.run(2, len(x), lambda rows: residuals(model, GradientCodes(), x[rows], y[rows], 0.3))
    assert all(len(rank) == 5 for rank in found)


def test_weighted_samples_have_the_numbers_of_one_process():
    model, (x, y) = mlp(nn.ReLU, 4), batch()
    w = torch.rand(len(x), generator=torch.Generator().manual_seed(0), dtype=F64) + 0.1
    models = [copy.deepcopy(model) for _ in range(2)]

    def step(rows: slice) -> Any:
        return altmin.AltMin(models[rows.start > 0]).step(x[rows], y[rows], w[rows])

    (found, _), _ = in_threads.run(2, len(x), step)
    wanted = altmin.AltMin(model).step(x, y, w)
    assert found.objective == pytest.approx(wanted.objective, rel=1e-10)
    assert found.residuals == pytest.approx(wanted.residuals, rel=1e-9)
