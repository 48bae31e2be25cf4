"""The local weight rules: gradients of f block by block, and optimizers by hand."""

import copy

import pytest
import reference
import torch
from conftest import update_codes
from torch import Tensor, nn

import altmin

F64 = torch.float64
MU = 0.3


def setting(activation=nn.Tanh, seed: int = 0) -> tuple[nn.Sequential, Tensor, Tensor]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 5), activation(), nn.Linear(5, 6), activation(), nn.Linear(6, 3)).double()
    return model, torch.randn(8, 4, dtype=F64), torch.randint(3, (8,))


def constant(mu: float = MU) -> altmin.Penalty:
    return altmin.Penalty(mu, increment=0.0, maximum=None)


def trainer(model, weights, **options) -> altmin.AltMin:
    return altmin.AltMin(model, codes=altmin.GradientCodes(lr=0.4), weights=weights, penalty=constant(), **options)


def naive_codes(model, x, y, mu: float = MU):
    """The reference's codes, sample by sample, for the same fixed code step."""
    layers = reference.of(model)
    return layers, [
        [c.detach() for c in reference.Codes(1, 0.4).update(layers, x[t], y[t], mu, reference.cross_entropy)]
        for t in range(len(x))
    ]


def naive_gradients(model, x, y, normalise=False):
    layers, codes = naive_codes(model, x, y)
    gradients = reference.weight_gradients(layers, x, y, codes, MU, reference.cross_entropy, normalise)
    return [g for pair in gradients for g in pair]


def close(ours, theirs, tolerance: float = 1e-10) -> None:
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.detach(), b.detach(), rtol=tolerance, atol=tolerance)


def values(model) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


# -- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU, nn.GELU])
def test_sgds_gradient_is_that_of_f_for_every_block(activation):
    model, x, y = setting(activation)
    before = values(model)
    trainer(model, altmin.LocalSGD(lr=0.1)).step(x, y)
    twin = copy.deepcopy(model)
    for p, b in zip(twin.parameters(), before, strict=True):
        p.data.copy_(b)
    gradients = naive_gradients(twin, x, y)
    close([p.grad for p in model.parameters()], gradients)
    close(model.parameters(), [b - 0.1 * g for b, g in zip(before, gradients, strict=True)])


def test_normalising_brings_every_hidden_residual_to_unit_size_and_changes_no_direction():
    model, x, y = setting()
    expected = naive_gradients(model, x, y, normalise=True)
    plain = naive_gradients(model, x, y)
    trainer(model, altmin.LocalSGD(lr=0.0, normalise=True)).step(x, y)
    ours = [p.grad for p in model.parameters()]
    close(ours, expected)
    for l in range(2):  # both parameters of a hidden block by the same factor
        factors = [a.norm() / b.norm() for a, b in zip(ours[2 * l : 2 * l + 2], plain[2 * l : 2 * l + 2], strict=True)]
        torch.testing.assert_close(factors[0], factors[1])
        assert abs(factors[0] - 1) > 0.1
    close(ours[4:], plain[4:])


def test_gradients_through_convolution_and_batch_norm_are_those_of_f():
    """By autograd on f at the codes the package moved to; each block's terms alone depend on its weights."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(12, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 3)),
    ).double()
    x, y = torch.randn(6, 1, 6, 6, dtype=F64), torch.randint(3, (6,))
    twin = copy.deepcopy(model)
    moved = moved_codes(twin, x, y)
    below = [x, *moved]
    parts = [twin[:2], twin[2:7], twin[7:]]
    f = nn.CrossEntropyLoss()(parts[2](below[2]), y)
    for l in range(2):
        f = f + MU * (moved[l] - parts[l](below[l])).square().sum() / len(x)
    gradients = torch.autograd.grad(f, list(twin.parameters()))
    trainer(model, altmin.LocalSGD(lr=0.0)).step(x, y)
    close([p.grad for p in model.parameters()], gradients)


def test_where_codes_stop_at_kinks_the_gradients_are_those_of_f_too():
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 3)),
    ).double()
    x, y = torch.randn(6, 1, 6, 6, dtype=F64), torch.randint(3, (6,))
    moved = update_codes(model, altmin.GradientCodes(), x, y, MU)[1]
    f = altmin.objective(altmin.split(model), moved, x, y, MU, nn.CrossEntropyLoss())
    gradients = torch.autograd.grad(f, list(model.parameters()))
    altmin.AltMin(model, weights=altmin.LocalSGD(lr=0.0), penalty=constant()).step(x, y)
    close([p.grad for p in model.parameters()], gradients)


def moved_codes(model, x, y) -> list[Tensor]:
    return update_codes(model, altmin.GradientCodes(lr=0.4), x, y, MU)[1]


def test_a_hidden_block_whose_code_does_not_move_gets_no_gradient_and_no_nan():
    """All units of the second layer silent: nothing passes below, and unit size cannot be reached."""
    model, x, y = setting(nn.ReLU)
    with torch.no_grad():
        model[2].weight.zero_()
        model[2].bias.fill_(-1.0)
    before = values(model)
    altmin.AltMin(model, weights=altmin.LocalAdam()).step(x, y)
    for l in (0, 1, 2, 3):
        assert torch.equal(values(model)[l], before[l])
    assert not torch.equal(values(model)[5], before[5]), "the output bias still learns"


# -- optimizers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_local_adam_is_adam_by_hand_on_the_normalised_gradients(decay):
    model, x, y = setting()
    ours = trainer(model, altmin.LocalAdam(lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=decay))
    twin = copy.deepcopy(model)
    rules = [reference.Adam(0.02, 0.8, 0.95, 1e-6, decay) for _ in twin.parameters()]
    for _ in range(4):
        ours.step(x, y)
        gradients = naive_gradients(twin, x, y, normalise=True)
        for rule, p, g in zip(rules, twin.parameters(), gradients, strict=True):
            p.data.copy_(rule.step(p.data, g))
        close(model.parameters(), twin.parameters(), 1e-9)


def test_local_sgd_with_momentum_and_decay_is_sgd_by_hand():
    model, x, y = setting()
    ours = trainer(model, altmin.LocalSGD(lr=0.05, momentum=0.9, weight_decay=0.2))
    twin = copy.deepcopy(model)
    speed = [torch.zeros_like(p) for p in twin.parameters()]
    for _ in range(4):
        ours.step(x, y)
        gradients = naive_gradients(twin, x, y)
        for v, p, g in zip(speed, twin.parameters(), gradients, strict=True):
            v.mul_(0.9).add_(g + 0.2 * p.data)
            p.data.sub_(0.05 * v)
        close(model.parameters(), twin.parameters())


def test_each_block_may_have_its_own_learning_rate():
    model, x, y = setting()
    before, gradients = values(model), naive_gradients(model, x, y)
    trainer(model, altmin.LocalSGD(lr=[0.1, 0.0, 0.7])).step(x, y)
    rates = [0.1, 0.1, 0.0, 0.0, 0.7, 0.7]
    close(model.parameters(), [b - r * g for b, r, g in zip(before, rates, gradients, strict=True)])


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("steps", [2, 4])
def test_several_inner_steps_are_a_loop_over_the_same_codes(steps, normalise):
    model, x, y = setting()
    layers, codes = naive_codes(model, x, y)
    trainer(model, altmin.LocalSGD(lr=0.2, steps=steps, normalise=normalise)).step(x, y)
    for _ in range(steps):
        pairs = reference.weight_gradients(layers, x, y, codes, MU, reference.cross_entropy, normalise)
        layers.weights = [W - 0.2 * g[0] for W, g in zip(layers.weights, pairs, strict=True)]
        layers.biases = [b - 0.2 * g[1] for b, g in zip(layers.biases, pairs, strict=True)]
    wanted = [p for pair in zip(layers.weights, layers.biases, strict=True) for p in pair]
    close(model.parameters(), wanted)


def test_several_inner_steps_hold_for_cores_that_are_not_linear_in_their_parameters():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)).double()
    x, y = torch.randn(8, 4, dtype=F64), torch.randint(3, (8,))
    twin = copy.deepcopy(model)
    (code,) = moved_codes(copy.deepcopy(model), x, y)
    trainer(model, altmin.LocalSGD(lr=0.3, steps=3)).step(x, y)
    for _ in range(3):
        f = nn.CrossEntropyLoss()(twin[2:](code), y) + MU * (code - twin[:2](x)).square().sum() / len(x)
        for p, g in zip(twin.parameters(), torch.autograd.grad(f, list(twin.parameters())), strict=True):
            p.data.sub_(0.3 * g)
    close(model.parameters(), twin.parameters())


def test_l1_on_weights_is_soft_thresholding_after_the_step_and_spares_biases():
    model, x, y = setting()
    before, gradients = values(model), naive_gradients(model, x, y)
    trainer(model, altmin.LocalSGD(lr=0.1, l1=1.5)).step(x, y)
    stepped = [b - 0.1 * g for b, g in zip(before, gradients, strict=True)]
    wanted = [reference.soft_threshold(p, 0.15) if p.ndim > 1 else p for p in stepped]
    close(model.parameters(), wanted)
    assert sum(int((p == 0).sum()) for p in model.parameters()) > 5


def test_frozen_parameters_stay_and_the_others_learn_as_ever():
    model, x, y = setting()
    before, gradients = values(model), naive_gradients(model, x, y)
    model[0].bias.requires_grad_(False)
    model[2].weight.requires_grad_(False)
    model[2].bias.requires_grad_(False)
    trainer(model, altmin.LocalSGD(lr=[0.1, 0.1, 0.1])).step(x, y)
    for i, (p, b, g) in enumerate(zip(model.parameters(), before, gradients, strict=True)):
        if i in (1, 2, 3):
            assert torch.equal(p, b)
            assert p.grad is None
        else:
            close([p], [b - 0.1 * g])


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


def test_a_torch_scheduler_changes_the_step():
    model, x, y = setting()
    am = trainer(model, altmin.LocalSGD(lr=0.1))
    scheduler = torch.optim.lr_scheduler.StepLR(am.optimizer, step_size=1, gamma=0.5)
    for rate in (0.1, 0.05, 0.025):
        before, gradients = values(model), naive_gradients(model, x, y)
        am.step(x, y)
        scheduler.step()
        close(model.parameters(), [b - rate * g for b, g in zip(before, gradients, strict=True)])


@pytest.mark.filterwarnings("error")
def test_a_torch_scheduler_changes_adams_step_too():
    model, x, y = setting()
    am = trainer(model, altmin.LocalAdam(lr=0.1, eps=1e-8))
    scheduler = torch.optim.lr_scheduler.StepLR(am.optimizer, step_size=1, gamma=0.5)
    rules = [reference.Adam(0.1) for _ in model.parameters()]
    for _ in range(3):
        before, gradients = values(model), naive_gradients(model, x, y, normalise=True)
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
        lambda: altmin.LocalSGD(lr=0.1, normalise=True, l1=0.1),
        lambda: altmin.CoActivationMemory(),
        lambda: altmin.CoActivationMemory(forget=1.0, sweeps=2, rest=altmin.LocalSGD(lr=0.1)),
    ],
    ids=["adam", "sgd", "normalised sgd", "memory", "plain memory"],
)
def test_parts_gathered_and_applied_are_one_step_on_the_whole(rule):
    model, x, y = setting()
    twin = copy.deepcopy(model)
    whole = altmin.AltMin(model, weights=rule(), penalty=altmin.Penalty(0.5, increment=0.1))
    parts = altmin.AltMin(twin, weights=rule(), penalty=altmin.Penalty(0.5, increment=0.1))
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


@pytest.mark.parametrize("activation, depth", [(nn.Sigmoid, 9), (nn.Tanh, 14)])
def test_deep_below_where_offsets_are_tiny_the_gradients_are_still_those_of_f(activation, depth):
    """Not their direction alone: offsets may be kept magnified, gradients may not."""
    torch.manual_seed(0)
    layers = [m for _ in range(depth) for m in (nn.Linear(5, 5), activation())]
    model = nn.Sequential(*layers, nn.Linear(5, 3)).double()
    x, y = torch.randn(4, 5, dtype=F64), torch.randint(3, (4,))
    mu = 20.0
    naive = reference.of(model)
    solver = reference.Codes()
    codes = [[c.detach() for c in solver.update(naive, x[t], y[t], mu, reference.cross_entropy)] for t in range(4)]
    wanted = reference.weight_gradients(naive, x, y, codes, mu, reference.cross_entropy)
    twin = copy.deepcopy(model)
    whole, parts = (altmin.AltMin(m, weights=altmin.LocalSGD(lr=0.0), penalty=constant(mu)) for m in (model, twin))
    whole.step(x, y)
    parts.gather(x[:3], y[:3])
    parts.gather(x[3:], y[3:])
    parts.apply()
    smallest = min(float(g.norm()) for pair in wanted for g in pair)
    assert smallest < 1e-6, "deep enough for small gradients"
    for p, q, g in zip(model.parameters(), twin.parameters(), (g for pair in wanted for g in pair), strict=True):
        assert (p.grad - g).norm() < 1e-4 * g.norm()
        assert (q.grad - g).norm() < 1e-4 * g.norm()


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("steps", [1, 2])
def test_that_small_offsets_are_kept_magnified_changes_no_gradient_and_no_metric(steps, normalise, monkeypatch):
    """In float64, where they need not be."""
    torch.manual_seed(0)
    layers = [m for _ in range(19) for m in (nn.Linear(5, 5), nn.Sigmoid())]
    model = nn.Sequential(*layers, nn.Linear(5, 3)).double()
    x, y = torch.randn(4, 5, dtype=F64), torch.randint(3, (4,))

    def run(in_parts: bool):
        twin = copy.deepcopy(model)
        rule = altmin.LocalSGD(lr=1e-3, steps=steps, normalise=normalise)
        am = altmin.AltMin(twin, weights=rule, penalty=constant(20.0))
        if in_parts:
            metrics = [am.gather(x[:3], y[:3]), am.gather(x[3:], y[3:])]
            am.apply()
        else:
            metrics = [am.step(x, y)]
        return [p.grad for p in twin.parameters()], metrics

    ours = [run(False), run(True)]
    monkeypatch.setattr("altmin.codes.gradient.magnify", lambda above: above)
    for (grads, metrics), (plain, plain_metrics) in zip(ours, [run(False), run(True)], strict=True):
        for g, wanted in zip(grads, plain, strict=True):
            assert (g - wanted).norm() <= 1e-4 * wanted.norm()
        for m, wanted in zip(metrics, plain_metrics, strict=True):
            assert m.objective == pytest.approx(wanted.objective, rel=1e-13)
            assert m.residuals == pytest.approx(wanted.residuals, rel=1e-4)
            assert m.movements == pytest.approx(wanted.movements, rel=1e-4)
            assert m.movements[0] < 1e-12, "deep enough to be magnified twice"


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
    for p, q in zip(plain.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-10, atol=1e-12)


def test_a_run_saved_between_two_parts_is_resumed():
    def make(model) -> altmin.AltMin:
        return altmin.AltMin(model, weights=altmin.LocalSGD(lr=0.1, momentum=0.9), penalty=constant())

    model, x, y = setting()
    am = make(model)
    am.step(x, y)
    am.gather(x[:5], y[:5])
    twin = copy.deepcopy(model)
    other = make(twin)
    other.load_state_dict(copy.deepcopy(am.state_dict()))
    for trainer in (am, other):
        trainer.gather(x[5:], y[5:])
        trainer.apply()
    close(model.parameters(), twin.parameters(), 0.0)


# -- wrong settings ---------------------------------------------------------------------------------------------------


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="learning rate must be at least 0, given -1"):
        altmin.LocalAdam(lr=-1)
    with pytest.raises(ValueError, match=r"learning rate must be at least 0, given -0\.5"):
        altmin.LocalSGD(lr=[0.1, -0.5])
    with pytest.raises(ValueError, match="at least one step per mini-batch, given steps=0"):
        altmin.LocalSGD(steps=0)
    with pytest.raises(ValueError, match="lr has 2 entries for 3 blocks"):
        altmin.AltMin(setting()[0], weights=altmin.LocalSGD(lr=[0.1, 0.1]))


def test_the_epsilon_is_large_only_where_residuals_have_unit_size():
    """A gradient of 1e-6 at the output moves Adam by a full rate; hidden ones of that size are held back."""
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    rules = altmin.LocalAdam(), altmin.LocalAdam(normalise=False), altmin.LocalAdam(eps=1e-4)
    for rule, hidden, output in zip(rules, (1e-2, 1e-8, 1e-4), (1e-8, 1e-8, 1e-4), strict=True):
        optimizer = altmin.AltMin(model, weights=rule).optimizer
        found = {id(p): group["eps"] for group in optimizer.param_groups for p in group["params"]}
        assert [found[id(p)] for p in model.parameters()] == [hidden, hidden, output, output]
