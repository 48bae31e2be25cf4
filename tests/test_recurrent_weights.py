"""Weights that follow codes in time: what they are given, and that they learn."""

import copy

import pytest
import torch
from coactivation_cases import memories
from conftest import elman_problem as problem
from conftest import residuals_of
from test_codes_recurrent import MU, SWEEPS, close, places
from torch import Tensor, nn
from torch.nn import functional as F

import altmin


def chosen_codes(model, x, y):
    """Inputs a_t = (x_t, h_{t-1}, 1) of the recurrent block, from the naive loop, its residuals, and its scale."""
    ((_, layer, _, _),) = places(model, x)
    before = F.pad(layer.encode()[1].unflatten(0, x.shape[:2])[:, :-1], (0, 0, 1, 0))
    cell = residuals_of(model, altmin.RecurrentCodes("parallel", order="codes-first"), x, y, MU)[0]
    rows = torch.cat([x, before, torch.ones_like(x[..., :1])], 2)
    return rows.flatten(0, 1), cell.delta.flatten(0, 1), cell.scale


def joined(cell: nn.RNN) -> Tensor:
    return torch.cat([cell.weight_ih_l0, cell.weight_hh_l0, cell.bias_ih_l0[:, None]], 1).detach().clone()


@pytest.mark.parametrize("steps", [1, 3])
def test_recurrent_weights_take_gradient_steps_over_batch_and_time(steps):
    model, x, y = problem(seed=7)
    a, delta, scale = chosen_codes(model, x, y)
    before = joined(model[0])
    rule = altmin.LocalSGD(lr=0.05, steps=steps, momentum=0.0)
    altmin.AltMin(model, codes=altmin.RecurrentCodes("parallel", order="codes-first"), weights=rule, penalty=MU).step(
        x, y
    )
    W = torch.zeros_like(before)
    for _ in range(steps):
        W -= 0.05 * (delta + a @ W.T / scale).T @ a
    close(joined(model[0]) - before, W)


def test_the_memory_holds_the_co_activations_of_all_steps():
    model, x, y = problem(seed=8)
    a, delta, scale = chosen_codes(model, x, y)
    before = joined(model[0])
    rule = altmin.FittedMemory(forget=1.0, damping=0.1, rate=None, rest=altmin.LocalSGD(lr=0.1))
    am = altmin.AltMin(model, codes=altmin.RecurrentCodes("parallel", order="codes-first"), weights=rule, penalty=MU)
    am.step(x, y)
    found = memories(am)
    close(found[0].A, a.T @ a)
    close(found[0].B, (a @ before.T - scale * delta).T @ a)
    assert found[0].samples == len(a)
    assert set(found) == {0, 1}


@pytest.mark.parametrize("sweep", ["parallel", "exact"])
@pytest.mark.parametrize("rule", [lambda: altmin.LocalAdam(lr=0.01), lambda: altmin.LocalSGD(lr=0.02, momentum=0.9)])
def test_it_learns_what_must_be_carried_through_time(rule, sweep):
    """The label is the sign of the sum of all inputs, of which the classifier sees only what the units have kept."""
    torch.manual_seed(2)
    x = torch.randn(1024, 6, 1)
    y = (x.sum((1, 2)) > 0).long()
    model = altmin.models.elman(8, 6, 1, 2)
    am = altmin.AltMin(model, codes=altmin.RecurrentCodes(sweep), weights=rule())
    for _ in range(10):
        for i in torch.randperm(1024).split(64):
            am.step(x[i], y[i])
    assert (model(x).argmax(1) == y).float().mean() > 0.9


def test_a_discrete_activation_may_lie_above_codes_in_time():
    torch.manual_seed(0)
    layers = altmin.Recurrent(1, 8), altmin.Readout(8, 1), nn.Flatten(), nn.ReLU(), nn.Linear(6, 16), altmin.Sign()
    model = nn.Sequential(*layers, nn.Linear(16, 2))
    x = torch.randn(256, 6, 1)
    y = (x.sum((1, 2)) > 0).long()
    am = altmin.AltMin(model, weights=altmin.LocalAdam(lr=0.004))
    assert isinstance(am.codes, altmin.DiscreteCodes)
    before = [p.clone() for p in model[0].parameters()]
    losses = [float(am.step(x, y).loss) for _ in range(250)]
    assert losses[-1] < 0.8 * losses[0]
    assert not torch.equal(before[1], model[0].weight_hh_l0)
    with pytest.raises(TypeError, match="Sign has no derivative"):
        altmin.AltMin(model, codes=altmin.RecurrentCodes())
    assert isinstance(altmin.AltMin(model, codes="discrete").codes.gradient, altmin.RecurrentCodes)


@pytest.mark.cuda
@pytest.mark.parametrize("sweep", SWEEPS)
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_a_step_on_cuda_is_the_one_on_the_cpu(sweep, padded):
    model, x, y = problem(seed=9, padded=padded)
    other = copy.deepcopy(model).cuda()
    for net, device in ((model, "cpu"), (other, "cuda")):
        am = altmin.AltMin(net, codes=altmin.RecurrentCodes(sweep), weights=altmin.LocalSGD(lr=0.1))
        for _ in range(3):
            am.step(x.to(device), y.to(device))
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        close(a, b.cpu())


@pytest.mark.parametrize("kind", ["elman", "gru", "lstm"])
def test_the_solved_memory_holds_real_inputs_and_states(kind):
    """Y = (1 - forget) mean a a^T after the first step, over samples and all steps of the longest sequence, where rows
    of padding are zero whatever they contain."""
    torch.manual_seed(0)
    build = {"elman": altmin.models.elman, "gru": altmin.models.gru, "lstm": altmin.models.lstm}[kind]
    sizes = {"length": 6} if kind == "elman" else {}
    model = build(5, inputs=3, outputs=2, padded=True, **sizes).double()
    lengths = (6, 2, 4)
    x = altmin.models.pad([torch.randn(n, 3, dtype=torch.float64) for n in lengths], 6)
    x[1, 2:, :3] = 7.0
    am = altmin.AltMin(model, weights=altmin.CoActivationMemory(rank=9, rows=10_000))
    rnn = next(m for m in model.modules() if hasattr(m, "weight_hh_l0"))
    cell = {"elman": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[kind](3, 5, batch_first=True).double()
    cell.load_state_dict({name: rnn.state_dict().get(name, p) for name, p in cell.state_dict().items()})
    if kind == "elman":
        cell.bias_hh_l0.data.zero_()
    am.step(x, torch.tensor([0, 1, 0]))
    of_inputs, of_states = torch.zeros(3, 3, dtype=torch.float64), torch.zeros(5, 5, dtype=torch.float64)
    for row, n in zip(x, lengths, strict=True):
        states = cell(row[None, :n, :3])[0][0].detach()
        of_inputs += row[:n, :3].mT @ row[:n, :3]
        of_states += states[: n - 1].mT @ states[: n - 1]
    memory = am.updates.states[0]["memory"]
    close(memory[0]["Y"], 0.4 * of_inputs / x[..., 0].numel())
    close(memory[1]["Y"], 0.4 * of_states / x[..., 0].numel())
