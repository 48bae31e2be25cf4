"""Activations that become discrete entry by entry, their maps, and the schedule from the input upwards."""

import pytest
import torch
from torch import nn

import altmin
from altmin.calculus import PartlyDiscrete, map_of
from altmin.calculus.context import BatchShard, Context
from altmin.layers import Committed, committed
from altmin.training import fit
from altmin.training.commitment import Commitment, commit, shares

F64 = torch.float64
KINDS = [(altmin.Sign(), nn.Tanh()), (altmin.Staircase(4), nn.Hardtanh()), (altmin.Staircase(3), nn.Softsign())]
EACH = pytest.mark.parametrize("discrete, smooth", KINDS, ids=str)


def points() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return list(torch.randn(3, 40, 6, dtype=F64))


def layer(discrete: nn.Module, smooth: nn.Module, share: float) -> Committed:
    module = Committed(discrete, smooth)
    module.share.fill_(share)
    return module


@EACH
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_an_entry_is_discrete_with_the_given_probability_and_smooth_otherwise(discrete, smooth, share):
    x = points()[0]
    x = x[discrete(x) != smooth(x)]
    y = layer(discrete, smooth, share)(x)
    is_discrete = y == discrete(x)
    assert torch.equal(y[~is_discrete], smooth(x)[~is_discrete])
    assert abs(float(is_discrete.double().mean()) - share) < 0.1


@EACH
def test_in_evaluation_all_entries_are_discrete(discrete, smooth):
    x = points()[0]
    assert torch.equal(layer(discrete, smooth, 0.0).eval()(x), discrete(x))
    y, saved = map_of(layer(discrete, smooth, 0.0).eval()).forward((), x)
    assert torch.equal(y, discrete(x))
    assert not map_of(layer(discrete, smooth, 0.0)).vjp((), saved, x).any()


@EACH
def test_autograd_passes_the_derivative_of_smooth_entries_only(discrete, smooth):
    x, v, _ = points()
    x.requires_grad_()
    y = layer(discrete, smooth, 0.5)(x)
    (found,) = torch.autograd.grad(y, x, v)
    (whole,) = torch.autograd.grad(smooth(x), x, v)
    is_discrete = y == discrete(x.detach())
    assert torch.equal(found, torch.where(is_discrete, 0, whole))
    assert 0 < int(is_discrete.sum()) < x.numel()


@EACH
def test_a_map_agrees_with_autograd_for_the_entries_it_has_drawn(discrete, smooth):
    x, u, v = points()
    m = map_of(layer(discrete, smooth, 0.5))
    assert type(m) is PartlyDiscrete
    y, saved = m.forward((), x)
    mask = saved[0]
    assert 0 < int(mask.sum()) < x.numel()

    def f(x):
        return torch.where(mask, discrete.values(x), smooth(x))

    assert torch.equal(y, f(x))
    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(f(leaf), leaf, v)
    torch.testing.assert_close(m.vjp((), saved, v), expected)
    torch.testing.assert_close(m.jvp((), saved, v), expected)  # a diagonal J is its own transpose
    assert torch.equal(m.replay((), saved, u)[0], f(u)), "the entries of the first pass stay the discrete ones"


def test_ranks_draw_the_entries_of_the_whole_batch():
    x, m = points()[0], map_of(layer(altmin.Sign(), nn.Tanh(), 0.5))

    def masks(*contexts):
        found = []
        for rows, context in contexts:
            torch.manual_seed(1)
            found.append(m.forward((), x[rows], context)[1][0])
        return torch.cat(found)

    whole = masks((slice(None), Context()))
    shards = [(slice(20 * r, 20 * r + 20), Context(BatchShard(print, 20 * r, 20, 40))) for r in (0, 1)]
    assert torch.equal(masks(*shards), whole)


@pytest.mark.parametrize("given", [{"discrete": nn.Tanh()}, {"smooth": nn.PReLU()}, {"smooth": torch.tanh}])
def test_parts_that_do_not_fit_are_refused(given):
    with pytest.raises(TypeError, match="part of Committed"):
        Committed(**given)


def test_the_discrete_copy_has_the_same_parameters():
    model = altmin.models.binary_mlp(4, (3, 3), 2, Committed, batch_norm=True)
    twin = committed(model)
    assert [type(m) for m in twin if not isinstance(m, nn.Linear | nn.BatchNorm1d | nn.Flatten)] == [altmin.Sign] * 2
    assert all(a is b for a, b in zip(twin.parameters(), model.parameters(), strict=True))
    assert all(isinstance(m, Committed) for m in (model[3], model[6])), "the model is as it was"
    assert isinstance(committed(Committed()), altmin.Sign)
    x = torch.randn(5, 4)
    assert torch.equal(twin.eval()(x), model.eval()(x))


def test_shares_rise_one_layer_after_the_other():
    for done in torch.linspace(0, 1, 41).tolist():
        for i, share in enumerate(shares(3, done, 0.2, 0.8)):
            begin, end = 0.2 + 0.2 * i, 0.4 + 0.2 * i  # the layer's own window
            expected = 0 if done <= begin else 1 if done >= end else (done - begin) / (end - begin)
            assert share == pytest.approx(expected, abs=1e-9)
    assert shares(3, 0.0) == [0.0] * 3
    assert shares(3, 1.0) == [1.0] * 3


@pytest.mark.parametrize("given", [{"begin": -0.1}, {"begin": 0.9, "end": 0.4}, {"end": 1.1}])
def test_a_schedule_outside_the_run_is_refused(given):
    with pytest.raises(ValueError, match="Commitment"):
        Commitment(**given)


@pytest.mark.parametrize("method", ["am-adam", "adam"])
def test_a_run_commits_all_layers_one_after_the_other(method):
    torch.manual_seed(0)
    x = torch.randn(200, 6)
    y = (x[:, 0] * x[:, 1] > 0).long()
    model = altmin.models.binary_mlp(6, (60, 60), 2, Committed, batch_norm=True)
    seen, weights = [], []

    class Watch:
        def on_batch_end(self, progress):
            seen.append([float(model[i].share) for i in (3, 6)])
            weights.append(model[1].weight.detach().clone())

    made = altmin.methods.create(method, model, lr=0.01)
    fit(made, (x, y), epochs=20, batch_size=50, callbacks=[Commitment(0.25, 0.75), Watch()])
    for i, row in enumerate(seen):
        assert row == pytest.approx(shares(2, (i + 1) / 80, 0.25, 0.75))
    assert seen[19] == [0, 0]
    assert seen[-1] == [1, 1]
    assert not torch.equal(weights[10], weights[30]), "trained while some of its entries are smooth"
    assert float((committed(model).eval()(x).argmax(1) == y).double().mean()) > 0.8


def test_no_gradient_reaches_what_lies_below_a_committed_layer():
    torch.manual_seed(0)
    model = altmin.models.binary_mlp(6, (5, 5), 2, Committed)
    commit(model, 0.65)  # the first layer wholly, the second not yet
    x, y = torch.randn(20, 6), torch.randint(2, (20,))
    before = [p.clone() for p in model.parameters()]
    altmin.AltMin(model, weights=altmin.LocalSGD(lr=0.1)).step(x, y)
    changed = [not torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True)]
    assert changed == [False, False, True, True, True, True]
