"""The local weight rules: gradients of f block by block, rates, clipping, parts of a batch, torch's optimizers."""

import copy

import pytest
import reference
import torch
from conftest import gradients_of, residuals_of, update_codes
from torch import Tensor, nn

import altmin
from altmin.core.weights import local

F64 = torch.float64
MU = 0.3


def setting(activation=nn.Tanh, seed: int = 0) -> tuple[nn.Sequential, Tensor, Tensor]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 5), activation(), nn.Linear(5, 6), activation(), nn.Linear(6, 3)).double()
    return model, torch.randn(8, 4, dtype=F64), torch.randint(3, (8,))


def constant(mu: float = MU) -> altmin.Penalty:
    return altmin.Penalty(mu, increment=0.0, maximum=None)


def trainer(model, weights, **options) -> altmin.AltMin:
    return altmin.AltMin(model, codes=altmin.GradientCodes(share=0.2), weights=weights, penalty=constant(), **options)


def naive_codes(model, x, y) -> tuple[reference.Net, reference.Result]:
    """The reference's codes."""
    layers = reference.of(model)
    return layers, reference.Codes(0.2).update(layers, x, y, MU, reference.cross_entropy)


def naive_gradients(model, x, y) -> list[Tensor]:
    layers, found = naive_codes(model, x, y)
    return [g for pair in reference.weight_gradients(layers, [x, *reference.encode(layers, x)], found) for g in pair]


def close(ours, theirs, tolerance: float = 1e-10) -> None:
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.detach(), b.detach(), rtol=tolerance, atol=tolerance)


def values(model) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


# -- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU, nn.GELU])
def test_every_blocks_gradient_is_that_of_the_reference(activation):
    model, x, y = setting(activation, seed=1)
    before, gradients = values(model), naive_gradients(model, x, y)
    close(gradients_of(model, altmin.GradientCodes(share=0.2), x, y, MU), gradients)
    trainer(model, altmin.LocalSGD(lr=0.1)).step(x, y)
    close(model.parameters(), [b - 0.1 * g for b, g in zip(before, gradients, strict=True)])


def test_gradients_through_convolution_and_batch_norm_are_those_of_the_residuals():
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(12, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 3)),
    ).double()
    x, y = torch.randn(6, 1, 6, 6, dtype=F64), torch.randint(3, (6,))
    codes = altmin.GradientCodes(share=0.2)
    encoded, _, residuals = update_codes(model, codes, x, y, MU)
    wanted = []
    for part, c, r in zip((model[:2], model[2:7], model[7:]), [x, *encoded], residuals, strict=False):
        wanted += torch.autograd.grad((part(c) * r.delta).sum(), list(part.parameters()))
    close(gradients_of(model, codes, x, y, MU), wanted)


@pytest.mark.parametrize("rule", [altmin.LocalAdam, altmin.CoActivationMemory])
def test_a_hidden_block_whose_code_does_not_move_gets_no_gradient_and_no_nan(rule):
    """All units of the second layer silent: nothing passes below."""
    model, x, y = setting(nn.ReLU)
    with torch.no_grad():
        model[2].weight.zero_()
        model[2].bias.fill_(-1.0)
    before = values(model)
    altmin.AltMin(model, weights=rule()).step(x, y)
    for l in (0, 1, 2, 3):
        assert torch.equal(values(model)[l], before[l])
    assert not torch.equal(values(model)[5], before[5]), "the output bias still learns"


# -- optimizers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [2, 4])
def test_several_inner_steps_are_a_loop_over_the_same_codes(steps):
    """A hidden layer's delta is (W a - c) / scale, and follows the weights; that of the output layer, too."""
    model, x, y = setting()
    layers, found = naive_codes(model, x, y)
    trainer(model, altmin.LocalSGD(lr=0.2, momentum=0.0, steps=steps)).step(x, y)
    start, residuals = reference.encode(layers, x), found.deltas
    below, output = [x, *start], layers.layer(2, found.codes[1])
    for _ in range(steps):
        pairs = reference.weight_gradients(layers, below, found)
        layers.weights = [W - 0.2 * g[0] for W, g in zip(layers.weights, pairs, strict=True)]
        layers.biases = [b - 0.2 * g[1] for b, g in zip(layers.biases, pairs, strict=True)]
        changes = [layers.layer(l, below[l]) - start[l] for l in range(3)]
        hidden = [r + change / m for r, change, m in zip(residuals, changes, found.scales, strict=True)][:2]
        found.deltas = [*hidden, reference.gradient(lambda o: reference.cross_entropy(o, y), output + changes[2])]
    wanted = [p for pair in zip(layers.weights, layers.biases, strict=True) for p in pair]
    close(model.parameters(), wanted)


def test_several_inner_steps_hold_for_cores_that_are_not_linear_in_their_parameters():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)).double()
    x, y = torch.randn(8, 4, dtype=F64), torch.randint(3, (8,))
    twin = copy.deepcopy(model)[:2]
    r, _ = residuals_of(model, altmin.GradientCodes(share=0.2), x, y, MU)
    trainer(model, altmin.LocalSGD(lr=0.3, momentum=0.0, steps=3)).step(x, y)
    start = twin(x).detach()
    for _ in range(3):
        output = twin(x)
        delta = r.delta + (output.detach() - start) / r.scale
        gradients = torch.autograd.grad((output * delta).sum(), [*twin.parameters()])
        for p, g in zip(twin.parameters(), gradients, strict=True):
            p.data.sub_(0.3 * g)
    close(model[:2].parameters(), twin.parameters())


def test_any_torch_optimizer_serves():
    model, x, y = setting()
    twin = copy.deepcopy(model)
    rule = altmin.LocalOptimizer(lambda groups: torch.optim.RMSprop(groups, alpha=0.5), lr=0.01)
    trainer(model, rule).step(x, y)
    optimizer = torch.optim.RMSprop(twin.parameters(), lr=0.01, alpha=0.5)
    for p, g in zip(twin.parameters(), naive_gradients(twin, x, y), strict=True):
        p.grad = g
    optimizer.step()
    close(model.parameters(), twin.parameters())


def test_where_codes_do_not_move_am_adam_clips_as_backprop_does():
    model, x, y = setting()
    twin = copy.deepcopy(model)
    am = altmin.methods.create("am-adam", model, lr=0.01, share=0.0, clip_norm=0.1)
    adam = torch.optim.Adam(twin.parameters(), 0.01)
    for _ in range(5):
        am.step(x, y)
        adam.zero_grad()
        nn.functional.cross_entropy(twin(x), y).backward()
        assert nn.utils.clip_grad_norm_(twin.parameters(), 0.1) > 0.1
        adam.step()
    close(model.parameters(), twin.parameters(), 1e-9)


def test_hooks_on_the_step_of_an_optimizer_are_called_and_those_that_would_not_be_are_refused():
    model, x, y = setting()
    for refuse in ("register_step_pre_hook", "register_step_post_hook"):
        with pytest.raises(RuntimeError):
            getattr(trainer(model, altmin.LocalAdam()).optimizer, refuse)(print)
    am, before, calls = trainer(model, altmin.LocalOptimizer(torch.optim.SGD, 0.1)), values(model), []

    def forget(optimizer, args, kwargs) -> None:
        calls.append("before")
        for p in model.parameters():
            p.grad.zero_()

    am.optimizer.register_step_pre_hook(forget)
    am.optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    am.step(x, y)
    assert calls == ["before", "after"]
    close(model.parameters(), before, 0.0)


@pytest.mark.filterwarnings("error")
def test_a_torch_scheduler_changes_adams_step_too():
    model, x, y = setting()
    am = trainer(model, altmin.LocalAdam(lr=0.1, eps=1e-8))
    scheduler = torch.optim.lr_scheduler.StepLR(am.optimizer, step_size=1, gamma=0.5)
    rules = [reference.Adam(0.1) for _ in model.parameters()]
    for _ in range(3):
        before, gradients = values(model), naive_gradients(model, x, y)
        am.step(x, y)
        scheduler.step()
        close(model.parameters(), [r.step(b, g) for r, b, g in zip(rules, before, gradients, strict=True)], 1e-9)
        for rule in rules:
            rule.lr /= 2


# -- a mini-batch in parts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [
        lambda: altmin.LocalAdam(lr=0.01, eps=1e-8),
        lambda: altmin.LocalSGD(lr=0.1, momentum=0.5),
        lambda: altmin.LocalSGD(lr=0.1, l1=0.1),
        lambda: altmin.FittedMemory(),
        lambda: altmin.FittedMemory(forget=1.0, sweeps=2, rest=altmin.LocalSGD(lr=0.1)),
    ],
    ids=["adam", "sgd", "sgd with l1", "memory", "plain memory"],
)
def test_parts_gathered_and_applied_are_one_step_on_the_whole(rule):
    model, x, y = setting()
    twin = copy.deepcopy(model)
    codes = altmin.GradientCodes(share=0.0)  # a length above 0 is that of the part
    whole = altmin.AltMin(model, codes=codes, weights=rule(), penalty=altmin.Penalty(0.5, increment=0.1))
    parts = altmin.AltMin(twin, codes=codes, weights=rule(), penalty=altmin.Penalty(0.5, increment=0.1))
    for _ in range(3):
        whole.step(x, y)
        before = values(twin)
        for a, b in ((0, 3), (3, 4), (4, 8)):
            parts.gather(x[a:b], y[a:b])
            close(twin.parameters(), before, 0.0)
        parts.apply()
        close(model.parameters(), twin.parameters(), 1e-10)
        assert parts.penalty.value == whole.penalty.value


def test_applying_without_having_gathered_says_so_and_changes_nothing():
    model, x, y = setting()
    am = trainer(model, altmin.LocalAdam())
    am.step(x, y)
    before = values(model)
    with pytest.raises((RuntimeError, ValueError), match="gather"):
        am.apply()
    close(model.parameters(), before, 0.0)


@pytest.mark.parametrize("rule", [altmin.LocalAdam, altmin.LocalSGD])
@pytest.mark.parametrize("of", ["weights", "inputs", "both"])
def test_how_weights_and_inputs_lie_in_memory_changes_nothing(rule, of):
    torch.manual_seed(0)
    layers = nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(80, 5), nn.ReLU()
    model, x, y = nn.Sequential(*layers, nn.Linear(5, 3)).double(), torch.randn(4, 2, 8, 8, dtype=F64), torch.arange(3)
    plain, other, y = model, copy.deepcopy(model), y.repeat(2)[:4]
    given = x.to(memory_format=torch.channels_last) if of != "weights" else x
    if of != "inputs":
        other = other.to(memory_format=torch.channels_last)
        other[5].weight = nn.Parameter(other[5].weight.detach().t().contiguous().t())
    for net, inputs in ((plain, x), (other, given)):
        am = altmin.AltMin(net, weights=rule(0.01))
        for _ in range(3):
            am.step(inputs, y)
    torch.testing.assert_close([*plain.parameters()], [*other.parameters()], rtol=1e-10, atol=1e-12)


# -- wrong settings ---------------------------------------------------------------------------------------------------


WRONG = {
    "lr of LocalAdam": lambda: altmin.LocalAdam(lr=-1),
    "lr of LocalSGD": lambda: altmin.LocalSGD(lr=-0.5),
    "steps of LocalSGD": lambda: altmin.LocalSGD(steps=0),
    "clip_norm of LocalAdam": lambda: altmin.LocalAdam(clip_norm=0.0),
}


@pytest.mark.parametrize("words", WRONG)
def test_settings_that_make_no_sense_are_refused(words):
    with pytest.raises(ValueError, match=words):
        WRONG[words]()


@pytest.mark.parametrize("frozen", [(4,), (0, 2, 4)])
def test_inner_steps_leave_frozen_blocks_as_they_are(frozen):
    model, x, y = setting()
    for i in frozen:
        model[i].requires_grad_(False)
    before = values(model)
    rule = altmin.FittedMemory(rest=altmin.LocalAdam(0.1, steps=3)) if len(frozen) == 1 else altmin.LocalAdam(steps=3)
    trainer(model, rule).step(x, y)
    moved = [not torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True)]
    assert moved == [2 * (i // 2) not in frozen for i in range(6)]


def test_kernels_in_parts_take_the_step_of_whole_tensors(monkeypatch):
    def step(recorded):
        monkeypatch.setattr(local, "_is_recorded", lambda t: recorded)
        torch.manual_seed(0)
        shapes = [(70, 90), (3,), (5000,)]
        count = torch.ones(())
        rows = [[*(torch.rand(shape) for _ in range(4)), count] for shape in shapes]
        rows[0][:4] = [t.t().contiguous().t() for t in rows[0][:4]]  # not contiguous: left whole
        parts = local.in_parts(rows)
        params, grads, means, squares, counts = map(list, zip(*parts, strict=True))
        altmin.LocalAdam().kernel(params, grads, counts, [means, squares], 0.1, 0.0, None)
        return len(parts), [row[0] for row in rows], local.norms([row[0] for row in rows])

    few, whole, sizes = step(False)
    many, cut, sizes_of_cut = step(True)
    assert (few, many) == (3, 5)
    torch.testing.assert_close(cut, whole)
    torch.testing.assert_close(sizes_of_cut, sizes)
    torch.testing.assert_close(sizes, torch.stack([t.norm() for t in whole]))
