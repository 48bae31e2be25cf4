"""Codes in time against a naive loop written from the objective."""

import copy

import pytest
import reference
import reference_recurrent as naive
import torch
from conftest import elman_problem as problem
from conftest import residual, update_codes
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import altmin
from altmin import trainer
from altmin.calculus import Recurrence
from altmin.codes import recurrent
from altmin.codes.linesearch import Doubts

MU = 0.7
close = torch.testing.assert_close


def cosine(a: Tensor, b: Tensor) -> float:
    return float(F.cosine_similarity(a.flatten(), b.flatten(), 0))


# -- the sweeps -------------------------------------------------------------------------------------------------------

SWEEPS = [("sequential", 1), ("parallel", 1), ("parallel", 2), ("parallel", 5)]
STEPS = {
    "exact": {},
    "exact, three steps": {"steps": 3},
    "fixed": {"lr": 0.3},
    "fixed, two steps, momentum": {"lr": 0.3, "steps": 2, "momentum": 0.5},
    "sparse": {"l1": 0.2},
}


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("options", STEPS.values(), ids=STEPS.keys())
@pytest.mark.parametrize("sweep, rounds", SWEEPS)
def test_codes_move_as_in_the_loop_written_from_the_objective(sweep, rounds, options, padded):
    model, x, y = problem(seed=1, padded=padded)
    codes = altmin.RecurrentCodes(sweep, rounds, **options)
    _, _, problems = update_codes(model, codes, x, y, MU)
    h, left = problems[0].core[0].h.transpose(0, 1), residual(problems[0])
    moved, far = 0.0, torch.zeros(len(x), dtype=torch.float64)
    for i in range(len(x)):
        length = int(x[i, :, -1].sum()) if padded else x.shape[1]
        net, steps = naive.of(model, length), x[i, :length, :2]
        new, z = naive.update(net, steps, y[i], MU, reference.Codes(**options), sweep, rounds)
        for t in range(length):
            close(h[i, t], torch.tanh(new[t]))
            close(left[i, t], new[t] - net.cell(steps[t], new[t - 1] if t else None))
            close(residual(problems[1])[i, t], z[t] - net.V @ torch.tanh(new[t]))
        assert not left[i, length:].any()
        home = net.encode(steps)[0]
        moved += sum(float((a - b).abs().sum()) for a, b in zip(new, home, strict=True))
        far[i] = sum((a - b).square().sum() for a, b in zip(new, home, strict=True))
    assert moved > 0.01
    close(problems[0].above.moved, far)


@pytest.mark.parametrize("sweep, rounds", SWEEPS)
def test_the_step_reports_f_of_the_codes_it_chose(sweep, rounds):
    model, x, y = problem(seed=2)
    net = naive.of(model, 5)
    am = altmin.AltMin(model, codes=altmin.RecurrentCodes(sweep, rounds), penalty=MU)
    chosen = [naive.update(net, s, label, MU, reference.Codes(), sweep, rounds) for s, label in zip(x, y, strict=True)]
    f = sum(net.f(s, label, *codes, MU) for s, label, codes in zip(x, y, chosen, strict=True)) / len(x)
    homes = [net.encode(s)[0] for s in x]
    squares = [
        (a - b).square().mean()
        for home, (new, _) in zip(homes, chosen, strict=True)
        for a, b in zip(home, new, strict=True)
    ]
    metrics = am.step(x, y)
    assert metrics.objective == pytest.approx(float(f))
    assert metrics.movements[0] == pytest.approx(float(torch.stack(squares).mean()) ** 0.5)


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("outputs, rounds", [(1, 1), (1, 3), (3, 1), (3, 3)])
def test_the_fast_step_is_that_of_gradient_codes(outputs, rounds, padded):
    """For readouts of any width, which the loop from the objective does not have."""

    class Slow(altmin.RecurrentCodes):
        def _parallel(self, time, l1):
            d = None
            for _ in range(self.rounds):
                n = None if d is None else torch.cat([d[1:], torch.zeros_like(d[:1])])
                d, moved = self._lower(time, slice(None), n, l1)
            return d, moved

    model, x, y = problem(seed=11, padded=padded)
    model[1], model[-1] = altmin.Readout(4, outputs).double(), nn.Linear(5 * outputs, 3).double()
    fast, slow = (update_codes(model, kind(rounds=rounds), x, y, MU)[2] for kind in (altmin.RecurrentCodes, Slow))
    for a, b in zip(fast[:2], slow[:2], strict=True):
        assert residual(a).abs().max() > 0.01
        close(residual(a), residual(b))
        close(a.above.moved, b.above.moved)


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_work_in_pieces_of_time_is_work_on_the_whole(padded, monkeypatch):
    model, x, y = problem(seed=10, steps=7, padded=padded)
    whole = update_codes(model, altmin.RecurrentCodes(rounds=2), x, y, MU)[2]
    for cache in (1, 30):  # one step, two steps
        monkeypatch.setattr(recurrent, "CACHE", cache)
        pieces = update_codes(model, altmin.RecurrentCodes(rounds=2), x, y, MU)[2]
        for a, b in zip(whole[:2], pieces[:2], strict=True):
            close(a.at.force, b.at.force)
            close(a.at.values, b.at.values)
            close(a.above.moved, b.above.moved)
        close(whole[0].core[0].h, pieces[0].core[0].h)


@pytest.mark.parametrize("options", [{}, {"lr": 0.5}, {"steps": 3}], ids=["exact", "fixed", "three steps"])
def test_as_many_rounds_as_steps_are_the_sequential_sweep(options):
    model, x, y = problem(seed=3, steps=6)
    with torch.no_grad():
        model[0].weight_hh_l0 *= 0.5  # so that no sample's offsets need halving
    one = update_codes(model, altmin.RecurrentCodes("sequential", **options), x, y, MU)[2]
    many = update_codes(model, altmin.RecurrentCodes("parallel", rounds=6, **options), x, y, MU)[2]
    few = update_codes(model, altmin.RecurrentCodes("parallel", rounds=5, **options), x, y, MU)[2]
    close(residual(many[0]), residual(one[0]))
    assert not torch.allclose(residual(few[0]), residual(one[0]))


def test_error_travels_one_step_back_per_round():
    model, x, y = problem(seed=4, steps=6)
    with torch.no_grad():
        model[-1].weight[:, :-1] = 0  # only the last z matters to the loss
    for rounds in (1, 2, 4):
        h = update_codes(model, altmin.RecurrentCodes(rounds=rounds), x, y, MU)[2][0].core[0].h
        changed = (h - model[0](x).detach().transpose(0, 1)).abs().amax((1, 2)) > 0
        assert changed.tolist() == [t >= 6 - rounds for t in range(6)]


def test_a_small_unit_step_of_the_sequential_sweep_is_backprop_through_time():
    """With a tiny loss all is linear, and d_t = (1 - h_t^2)(V^T e_t + W^T d_{t+1}) is BPTT's recursion."""
    model, x, y = problem(seed=5, steps=7)

    def tiny(output: Tensor, y: Tensor) -> Tensor:
        return 1e-7 * F.cross_entropy(output, y)

    codes = altmin.RecurrentCodes("sequential", lr=1.0)
    _, _, problems = update_codes(model, codes, x, y, MU, tiny)
    net = naive.of(model, 7)
    by_time = [naive.bptt(net, s, label) for s, label in zip(x, y, strict=True)]
    through = torch.stack([torch.stack(codes) for codes, _ in by_time])
    # the offsets: what is left for the weights, and what the codes before already do
    h, h_new = model[0](x).detach(), problems[0].core[0].h.transpose(0, 1)
    d = residual(problems[0])
    d[:, 1:] += (h_new - h)[:, :-1] @ net.W.T
    assert cosine(d, -through) > 0.9999
    before = torch.cat([torch.zeros_like(h[:, :1]), h[:, :-1]], 1)
    implied = torch.einsum("bti,btj->ij", d, x), torch.einsum("bti,btj->ij", d, before), d.sum((0, 1))
    for ours, theirs in zip(implied, zip(*[grads[:3] for _, grads in by_time], strict=True), strict=True):
        assert cosine(ours, -sum(theirs)) > 0.9999


def test_a_small_step_gives_readout_and_classifier_the_gradients_of_backprop():
    model, x, y = problem(seed=6, steps=7)
    _, _, problems = update_codes(model, altmin.RecurrentCodes("sequential", lr=1e-4), x, y, MU)
    grads = [naive.bptt(naive.of(model, 7), s, label)[1] for s, label in zip(x, y, strict=True)]
    chain = altmin.split(model)
    for l, names in ((1, [3]), (2, [4, 5])):
        ours = chain.blocks[l].core.grads(chain.parameters()[l], problems[l].core, residual(problems[l]))
        for g, i in zip(ours, names, strict=True):
            assert cosine(g, -sum(sample[i] for sample in grads)) > 0.9999


@given(st.integers(0, 10_000), st.floats(0.05, 20), st.floats(0.1, 4), st.sampled_from(SWEEPS), st.booleans())
def test_no_sweep_ever_raises_a_samples_objective(seed, mu, size, how, padded):
    model, x, y = problem(seed, samples=4, padded=padded)
    with torch.no_grad():
        for p in model.parameters():
            p *= size
    encoded, _, problems = update_codes(model, altmin.RecurrentCodes(*how), x, y, mu)
    before = F.cross_entropy(encoded[-1], y, reduction="none")
    after = problems[2].at.values + mu * (problems[0].at.values + problems[1].at.values)
    assert (after <= before * (1 + 1e-12)).all()


def strong_problem(seed: int):
    """Far from the linear range: with a small mu, steps that raise the objective are tried now and then."""
    model, x, y = problem(seed, samples=4)
    with torch.no_grad():
        for p, factor in ((model[0].weight_ih_l0, 0.2), (model[0].weight_hh_l0, 4), (model[1].weight, 3)):
            p *= factor
        model[-1].weight *= 3
    return model, x, y


def test_a_mini_batch_with_a_step_taken_in_doubt_is_done_again(monkeypatch):
    """As on a GPU, where no step waits for the answer whether it has risen."""
    again = 0
    for seed in range(30):
        model, x, y = strong_problem(seed)
        twin, made = copy.deepcopy(model), []
        altmin.AltMin(model, penalty=0.05).step(x, y)
        with monkeypatch.context() as patch:
            patch.setattr(trainer, "Doubts", lambda wait=True, made=made: made.append(Doubts(bool(made))) or made[-1])
            altmin.AltMin(twin, penalty=0.05).step(x, y)
        again += len(made) - 1
        for a, b in zip(model.parameters(), twin.parameters(), strict=True):
            assert torch.equal(a, b)
    assert 0 < again < 30


def test_rounding_alone_is_not_taken_for_a_rise():
    """A readout of zeros can gain nothing: what the sums over 500 steps differ by is their order."""
    model, x, y = problem(seed=0, samples=16, steps=500)
    model, x = model.float(), x.float()
    model[1] = altmin.Readout(4, 1)
    nn.init.zeros_(model[1].weight)
    nn.init.ones_(model[1].bias)
    codes, calls = altmin.RecurrentCodes(), []
    parallel = codes._parallel
    codes._parallel = lambda *args: calls.append(1) or parallel(*args)
    update_codes(model, codes, x, y, MU)
    assert len(calls) == 1


def test_offsets_are_halved_where_codes_that_move_together_would_raise_the_objective():
    """Far from the linear range, with strong weights, some sample must be held back; those that are, as in the loop."""
    held, mu = 0, 0.05
    for seed in range(30):
        model, x, y = strong_problem(seed)
        free = altmin.RecurrentCodes()
        parallel, calls = free._parallel, []
        free._parallel = lambda *args, parallel=parallel, calls=calls: calls.append(1) or parallel(*args)
        update_codes(model, free, x, y, mu)
        if len(calls) > 1:
            held += 1
            _, moved, problems = update_codes(model, free, x, y, mu)
            for i in range(len(x)):
                how = reference.Codes(), "parallel", 1, moved[1][i, :, 0]
                new, _ = naive.update(naive.of(model, 5), x[i], y[i], mu, *how)
                close(problems[0].core[0].h[:, i], torch.tanh(torch.stack(new)))
                home = torch.stack(naive.of(model, 5).encode(x[i])[0])
                close(problems[0].above.moved[i], (torch.stack(new) - home).square().sum())
    assert held


@pytest.mark.parametrize("codes", [{}, {"rounds": 3}, {"steps": 2}, {"sweep": "sequential"}], ids=str)
def test_padding_has_no_codes_even_where_its_readout_is_asked_to_move(codes):
    model, x, y = problem(padded=True, samples=5)
    model[1] = altmin.Readout(4, 1).double()
    nn.init.ones_(model[1].bias)
    encoded, moved, problems = update_codes(model, altmin.RecurrentCodes(**codes), x, y, MU)
    padding = x[..., -1] == 0
    asked = (moved[1] - encoded[1])[padding]
    assert asked.abs().max() > 0.01
    close(residual(problems[1])[padding], asked)
    assert not residual(problems[0])[padding].any()
    assert not problems[0].core[0].h.transpose(0, 1)[padding].any()
    assert residual(problems[0])[~padding].abs().max() > 0.001


# -- weights ----------------------------------------------------------------------------------------------------------


def chosen_codes(model, x, y):
    """Inputs a_t = (x_t, h_{t-1}, 1) and residuals of the recurrent block, from the naive loop."""
    net, rows, left = naive.of(model, x.shape[1]), [], []
    for s, label in zip(x, y, strict=True):
        new, _ = naive.update(net, s, label, MU, reference.Codes(), "parallel", 1)
        for t in range(len(s)):
            before = torch.tanh(new[t - 1]) if t else torch.zeros_like(new[0])
            rows.append(torch.cat([s[t], before, torch.ones(1, dtype=torch.float64)]))
            left.append(new[t] - net.cell(s[t], new[t - 1] if t else None))
    return torch.stack(rows), torch.stack(left)


def joined(cell: nn.RNN) -> Tensor:
    return torch.cat([cell.weight_ih_l0, cell.weight_hh_l0, cell.bias_ih_l0[:, None]], 1).detach().clone()


@pytest.mark.parametrize("steps", [1, 3])
def test_recurrent_weights_take_gradient_steps_over_batch_and_time(steps):
    model, x, y = problem(seed=7)
    a, r = chosen_codes(model, x, y)
    before = joined(model[0])
    altmin.AltMin(model, weights=altmin.LocalSGD(lr=0.05, steps=steps), penalty=MU).step(x, y)
    W = torch.zeros_like(before)
    for _ in range(steps):
        W += 0.05 * 2 * MU / len(x) * (r - a @ W.T).T @ a
    close(joined(model[0]) - before, W)


def test_the_memory_holds_the_co_activations_of_all_steps():
    model, x, y = problem(seed=8)
    a, r = chosen_codes(model, x, y)
    before = joined(model[0])
    rule = altmin.CoActivationMemory(forget=1.0, damping=0.1, rate=None, rest=altmin.LocalSGD(lr=0.1))
    altmin.AltMin(model, weights=rule, penalty=MU).step(x, y)
    close(rule.memories[0].A, a.T @ a)
    close(rule.memories[0].B, (a @ before.T + r).T @ a)
    assert rule.memories[0].samples == len(a)
    assert set(rule.memories) == {0, 1}
    A, B = a.T @ a / len(a), (a @ before.T + r).T @ a / len(a)
    ridge = 0.1 * A.diagonal().mean() * torch.eye(len(A), dtype=torch.float64)
    close(joined(model[0]), before + torch.linalg.solve(A + ridge, (B - before @ A).T).T)


@pytest.mark.parametrize(
    "weights",
    [
        altmin.LocalAdam(lr=0.01),
        altmin.LocalSGD(lr=0.1, momentum=0.9),
        altmin.CoActivationMemory(rest=altmin.LocalAdam(lr=0.02)),
    ],
)
@pytest.mark.parametrize("sweep", ["parallel", "sequential"])
def test_it_learns_what_must_be_carried_through_time(weights, sweep):
    """The label is the sign of the sum of all inputs, of which the classifier sees only what the units have kept."""
    torch.manual_seed(0)
    x = torch.randn(1024, 6, 1)
    y = (x.sum((1, 2)) > 0).long()
    model = altmin.models.elman(8, 6, 1, 2)
    am = altmin.AltMin(model, codes=altmin.RecurrentCodes(sweep), weights=copy.deepcopy(weights))
    for _ in range(10):
        for i in torch.randperm(1024).split(64):
            am.step(x[i], y[i])
    assert (model(x).argmax(1) == y).float().mean() > 0.85


def test_recurrent_layers_stack_and_stand_on_other_layers():
    torch.manual_seed(3)
    layers = nn.Linear(2, 3), nn.ReLU(), altmin.Recurrent(3, 4), altmin.Recurrent(4, 4), altmin.Readout(4, 1)
    model = nn.Sequential(*layers, nn.Flatten(), nn.ReLU(), nn.Linear(5, 3)).double()
    nn.init.ones_(model[4].bias)  # a readout below zero everywhere would teach nothing
    x, y = torch.randn(6, 5, 2, dtype=torch.float64), torch.randint(3, (6,))
    am = altmin.AltMin(model, weights=altmin.LocalAdam(lr=0.02), penalty=1.0)
    problems = update_codes(model, am.codes, x, y, 1.0)[2]
    for l, block in enumerate(am.chain):
        if isinstance(block.core.maps[0], Recurrence):  # what each step gets, and what is left, make the moved h
            steps = problems[l].core[0]
            c = block.core.maps[0].replay(am.theta[l], steps, None)[0] + residual(problems[l])
            close(torch.tanh(c).transpose(0, 1).detach(), steps.h)
    first = am.step(x, y)
    assert first.objective < float(first.loss)
    assert altmin.audit(am, x, y).clean
    for _ in range(150):
        last = am.step(x, y)
    assert last.loss < 0.1 * first.loss


def test_a_discrete_activation_may_lie_above_codes_in_time():
    torch.manual_seed(0)
    layers = altmin.Recurrent(1, 8), altmin.Readout(8, 1), nn.Flatten(), nn.ReLU(), nn.Linear(6, 16), altmin.Sign()
    model = nn.Sequential(*layers, nn.Linear(16, 2))
    x = torch.randn(256, 6, 1)
    y = (x.sum((1, 2)) > 0).long()
    am = altmin.AltMin(model, weights=altmin.LocalAdam(lr=0.004))
    assert isinstance(am.codes, altmin.DiscreteCodes)
    before = [p.clone() for p in model[0].parameters()]
    losses = [float(am.step(x, y).loss) for _ in range(120)]
    assert losses[-1] < 0.8 * losses[0]
    assert not torch.equal(before[1], model[0].weight_hh_l0)
    with pytest.raises(TypeError, match="Sign has no derivative"):
        altmin.AltMin(model, codes=altmin.RecurrentCodes())
    with pytest.raises(ValueError, match="codes in time, which GradientCodes does not move"):
        altmin.AltMin(model, codes="discrete")


@pytest.mark.cuda
@pytest.mark.parametrize("sweep, rounds", SWEEPS)
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_a_step_on_cuda_is_the_one_on_the_cpu(sweep, rounds, padded):
    model, x, y = problem(seed=9, padded=padded)
    twin = copy.deepcopy(model).cuda()
    for net, device in ((model, "cpu"), (twin, "cuda")):
        am = altmin.AltMin(net, codes=altmin.RecurrentCodes(sweep, rounds), weights=altmin.LocalSGD(lr=0.1))
        for _ in range(3):
            am.step(x.to(device), y.to(device))
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        close(a, b.cpu())
