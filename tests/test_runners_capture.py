"""A step that reads nothing back is the ordinary step: the same numbers, with equal layers together.

All of it runs on a CPU; that a CUDA graph of it gives the same is in test_runners_recorded.py, on a GPU.
"""

import copy
from types import SimpleNamespace

import pytest
import torch
from capture_cases import NETS, RULES, batches, both, following, mlp, pair, same, steps, tensors
from torch import nn

import altmin
from altmin.calculus.context import LOCAL
from altmin.methods.backprop import Backprop
from altmin.runners import programs
from altmin.runners.capture import captured, check_capturable
from altmin.runners.programs import Program


def plain(method):
    """The method's captured step, not compiled."""
    return captured(method, False, LOCAL)


@pytest.mark.parametrize(
    "net, rule", [*((net, "adam") for net in NETS), *(("mixed", rule) for rule in RULES), ("40 layers", "memory")]
)
def test_a_captured_step_is_the_ordinary_step(net, rule):
    torch.manual_seed(0)
    ordinary, step = both(NETS[net](), rule, penalty=altmin.Penalty(0.5, increment=0.3, maximum=1.2))
    assert step.am.penalty.value == ordinary.penalty.value


def test_weights_first_is_captured_too():
    torch.manual_seed(0)
    both(NETS["two runs"](), codes=altmin.GradientCodes(order="weights-first", share=1.0))


@pytest.mark.parametrize("first", [nn.Embedding(9, 4), nn.EmbeddingBag(9, 12, padding_idx=1)], ids=["rows", "bag"])
def test_integer_inputs(first):
    torch.manual_seed(0)
    data = [(torch.randint(9, (len(y), 3)), y) for _, y in batches(4)]
    both(nn.Sequential(first, nn.Flatten(), nn.Linear(12, 7), nn.Tanh(), nn.Linear(7, 3)).double(), data=data)


@pytest.mark.parametrize("codes", ["parallel", "exact"])
def test_codes_in_time(codes):
    torch.manual_seed(0)
    both(altmin.models.elman(4, 6, 2, 3).double(), data=list(batches(3, (6, 2))), codes=codes)


def test_straight_through_codes():
    torch.manual_seed(0)
    both(altmin.models.binary_mlp(7, (6, 6), 3).double(), codes="straight-through")


@pytest.mark.parametrize("loss", [nn.MSELoss(), lambda o, y: (o - y).abs().pow(1.5).mean()], ids=["mse", "own"])
@pytest.mark.parametrize("shape", [(7,), (5, 7)], ids=["samples", "samples and places"])
def test_regression_and_losses_of_ones_own(loss, shape):
    torch.manual_seed(0)
    data = [(x, x[..., :3].sin()) for x, _ in batches(4, shape)]
    both(NETS["a run"](), loss=loss, data=data)


def test_metrics_are_those_of_the_ordinary_step():
    torch.manual_seed(0)
    ordinary, other = pair(unequal_tanh(), RULES["adam"])
    step = plain(other)
    for x, y in batches(3):
        expected, found = ordinary.step(x, y), step.metrics(step.run(x, y))
        assert found.loss.dtype == expected.loss.dtype
        assert found.penalty == expected.penalty
        assert found.objective == pytest.approx(expected.objective, rel=1e-12)
        assert found.residuals == pytest.approx(expected.residuals, rel=1e-9)
        assert found.movements == pytest.approx(expected.movements, rel=1e-9)
    with pytest.raises(AttributeError, match="offset"):
        _ = found.offset


def unequal_tanh() -> nn.Sequential:
    return nn.Sequential(*NETS["two runs"]()[:-1], nn.Linear(5, 4).double(), nn.Tanh(), nn.Linear(4, 3).double())


def normed() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Linear(7, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(5, 3)).double()


@pytest.mark.parametrize("rule", ["adam", "memory"])
def test_convolutions_and_frozen_layers(rule):
    torch.manual_seed(0)
    both(altmin.models.lenet5(3).double(), rule, data=list(batches(3, (1, 28, 28))))
    model = NETS["a run"]()
    model[4].requires_grad_(False)  # in the middle of a run
    before = model[4].weight.clone()
    _, step = both(model, rule)
    assert torch.equal(step.am.model[4].weight, before)


@pytest.mark.parametrize("rule", ["adam", "memory"])
def test_batch_norm_keeps_the_statistics_of_steps_that_are_taken(rule):
    ordinary, step = both(normed(), rule)
    x, y = next(batches(1, seed=1))
    step.run(x / 0, y)
    same(ordinary.model, step.am.model)
    step.run(x, y)
    same(ordinary.model, step.am.model)
    assert step.pull() == 0
    step.run(x, y)
    ordinary.step(x, y)
    same(ordinary.model, step.am.model)


@pytest.mark.parametrize("rule", RULES)
def test_in_single_precision(rule):
    torch.manual_seed(0)
    data = [(x.float(), y) for x, y in batches(3)]
    both(mlp(*[8] * 20).float(), rule, data=data, within=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_below_a_layer_whose_units_are_all_dead_nothing_happens(dtype):
    torch.manual_seed(0)
    model = mlp(*[8] * 30).to(dtype)
    with torch.no_grad():
        model[2 * 20].bias.fill_(-100.0)
    step = plain(altmin.AltMin(copy.deepcopy(model), weights=RULES["sgd, plain"]()))
    for x, y in batches(2):
        metrics = step.metrics(step.run(x.to(dtype), y))
    assert step.pull() is None
    assert metrics.residuals[:20] == metrics.movements[:20] == [0.0] * 20
    trained = step.am.model.parameters()  # type: ignore[attr-defined]
    moved = [not torch.equal(p, q) for p, q in zip(trained, model.parameters(), strict=True)]
    assert not any(moved[: 2 * 20])
    assert moved[-1]


@pytest.mark.parametrize("rule", RULES)
def test_if_all_is_frozen_a_step_changes_nothing_and_tells_the_loss(rule):
    torch.manual_seed(0)
    model = NETS["a run"]().requires_grad_(False)
    step = plain(pair(model, RULES[rule])[0])
    for x, y in batches(2):
        loss = step.metrics(step.run(x, y)).loss
        torch.testing.assert_close(loss, nn.functional.cross_entropy(model(x), y))
    same(step.am.model, model, 0.0)  # type: ignore[attr-defined]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_from_a_bad_step_on_none_is_taken_until_somebody_asks(bad, rule):
    torch.manual_seed(0)
    ordinary, other = pair(NETS["a run"](), RULES[rule])
    step, data = plain(other), list(batches(5))
    run = following(step)
    steps(data[:2], ordinary.step, run)
    before = [t.clone() for t in step.tensors()[1:]]
    x, y = data[2]
    run(x.clone().fill_(bad), y)
    run(x, y)
    torch.testing.assert_close([*before], [*step.tensors()[1:]], rtol=0, atol=0)
    assert step.pull() == 2
    assert other.penalty.value == ordinary.penalty.value
    steps(data[2:], ordinary.step, run)
    assert step.pull() is None
    same(ordinary.model, other.model)


@pytest.mark.parametrize("rule", [name for name in RULES if "memory" in name])
def test_a_memory_that_overflows_leaves_weights_memory_moments_and_mu(rule):
    """Of inputs as large as these the loss is finite and the sum of their squares is not."""
    torch.manual_seed(0)
    ordinary, other = pair(mlp(6, 5), RULES[rule], penalty=altmin.Penalty(0.5, increment=0.3, maximum=9.0))
    step, data = plain(other), list(batches(4))
    run = following(step)
    steps(data[:2], ordinary.step, run)
    before = [t.clone() for t in step.tensors()[1:]]
    x, y = 1e160 * data[2][0], data[2][1]
    with pytest.raises(altmin.Diverged, match="the update of block 0"):
        ordinary.step(x, y)
    run(x, y)
    assert all(torch.equal(a, b) for a, b in zip(before, step.tensors()[1:], strict=True))
    assert step.pull() == 2
    steps(data[2:], ordinary.step, run)
    assert step.pull() is None
    assert other.penalty.value == ordinary.penalty.value
    same(ordinary.model, other.model)
    torch.testing.assert_close(tensors(other), tensors(ordinary))


@pytest.mark.parametrize("rule", RULES)
def test_it_goes_on_where_the_method_was_and_hands_back_to_it(rule):
    """Two ordinary steps, two captured, two ordinary: six ordinary steps. The optimizer's state is its own."""
    torch.manual_seed(0)
    ordinary, other = pair(NETS["two runs"](), RULES[rule])
    data = list(batches(6))
    steps(data, ordinary.step)
    steps(data[:2], other.step)
    step = plain(other)
    run = following(step)
    steps(data[2:4], run)
    step.pull()
    steps(data[4:], other.step)
    same(ordinary.model, other.model)
    torch.testing.assert_close(tensors(other), tensors(ordinary), rtol=1e-8, atol=1e-10)
    ours, theirs = (am.optimizer.state_dict()["param_groups"] for am in (other, ordinary))
    assert ours == theirs
    assert all(type(group["lr"]) is float for group in ours)


def test_rates_and_mu_that_change_on_the_processor_reach_the_device():
    torch.manual_seed(0)
    ordinary, other = pair(NETS["a run"](), lambda: altmin.LocalAdam([2**-7] * 3 + [2**-8] * 3))
    step = plain(other)
    for i, (x, y) in enumerate(batches(6)):
        step.pull()
        for am in (ordinary, other):
            am.optimizer.param_groups[i % 2]["lr"] *= 0.5
            if i % 2:
                am.end_epoch()
                am.penalty.value *= 1.5
        ordinary.step(x, y)
        step.push()
        step.run(x, y)
    step.pull()
    assert other.penalty.value == ordinary.penalty.value
    same(ordinary.model, other.model)


CHANGES = {
    "options": (lambda am: am.optimizer.param_groups[0].update(betas=(0.5, 0.9)), "options of the optimizer other"),
    "elsewhere": (lambda am: am.model.float().double(), "no longer lie"),
    "loaded": (lambda am: am.load_state_dict(copy.deepcopy(am.state_dict())), "no longer|loaded another state"),
    "frozen": (lambda am: am.model[0].weight.requires_grad_(False), "frozen or freed|no longer"),
    "another layer": (lambda am: am.model.__setitem__(2, copy.deepcopy(am.model[2])), "has changed since it was cut"),
}


@pytest.mark.parametrize("rule", ["adam", "memory"])
@pytest.mark.parametrize("change", CHANGES)
def test_what_is_part_of_the_capture_may_not_change(change, rule):
    am, _ = pair(mlp(5, 5), RULES[rule])
    step = plain(am)
    step.run(*next(batches(1)))
    torch.optim.lr_scheduler.StepLR(am.optimizer, 1)  # what a scheduler leaves in a group is no option
    step.push()
    make, words = CHANGES[change]
    make(am)
    with pytest.raises(ValueError, match=words):
        step.push()


@pytest.mark.parametrize("fused", [False, True])
def test_backprop_reads_its_rate_from_the_device(fused):
    torch.manual_seed(0)
    models = [mlp(6, 6) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    a, b = (Backprop(m, torch.optim.Adam(m.parameters(), 2**-7, fused=fused)) for m in models)
    step = plain(b)
    for x, y in batches(4):
        for method in (a, b):
            method.optimizer.param_groups[0]["lr"] *= 0.5
        expected = a.step(x, y).loss
        step.push()
        torch.testing.assert_close(step.metrics(step.run(x, y)).loss, expected, rtol=1e-9, atol=1e-9)
    assert step.pull() is None
    same(*models)
    assert b.optimizer.param_groups[0]["lr"] == a.optimizer.param_groups[0]["lr"]


def unfused(groups) -> torch.optim.Optimizer:
    return torch.optim.Adagrad(groups)


def averaging() -> nn.Sequential:
    return nn.Sequential(nn.Linear(7, 4), nn.BatchNorm1d(4, momentum=None), nn.Linear(4, 3))


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda m: altmin.AltMin(m, weights=altmin.FittedMemory(steps=None)), "exact fit .* give steps=1"),
        (
            lambda m: altmin.AltMin(m, weights=altmin.FittedMemory(rest=altmin.LocalOptimizer(unfused, 0.1))),
            "Adagrad is captured if it is fused",
        ),
        (lambda m: altmin.AltMin(m, weights=altmin.LocalOptimizer(unfused, 0.1)), "Adagrad is captured if it is fused"),
        (lambda m: altmin.AltMin(averaging()), "averages over all batches"),
        (lambda m: altmin.AltMin(altmin.models.binary_mlp(7, (5, 5), 3)), "DiscreteCodes decides"),
        (
            lambda m: altmin.methods.create("am-adam-offline", m),
            "an offline method moves its weights at the end of an epoch",
        ),
        (lambda m: Backprop(m, torch.optim.SGD(m.parameters(), 0.1)), "SGD is captured if it is fused"),
    ],
)
def test_what_cannot_be_captured_says_why(make, words):
    with pytest.raises(ValueError, match=f"this step cannot be captured: .*{words}"):
        check_capturable(make(mlp(5, 5)))


def test_a_model_on_another_gpu_than_the_current_one_is_refused(monkeypatch):
    """A capture on the current one would hold none of its kernels."""
    weight = SimpleNamespace(is_cuda=True, device=torch.device("cuda:1"))
    model = SimpleNamespace(parameters=lambda: [weight])
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)
    assert not programs.is_on_gpu(model)
    with pytest.raises(
        ValueError, match=r"current CUDA device, cuda:0, and the model is on cuda:1; call .*set_device\(1\)"
    ):
        programs.demand_cuda(model)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 1)
    assert programs.is_on_gpu(model)
    programs.demand_cuda(model)


def test_a_kind_of_method_nobody_has_thought_of_is_refused():
    with pytest.raises(ValueError, match="nobody has said how one of list"):
        plain([])


@pytest.mark.cuda
def test_a_step_that_asks_the_device_is_refused_and_leaves_no_trace():
    torch.manual_seed(0)
    loss = lambda o, y: o.square().mean() * (2.0 if o.sum().item() > 0 else 1.0)  # noqa: E731
    am = altmin.AltMin(mlp(6, 6).cuda(), loss=loss)
    before, step = copy.deepcopy(am.model), plain(am)
    x, y = (t.cuda() for t in next(batches(1)))
    with pytest.raises(ValueError, match="this step cannot be captured"):
        Program(lambda: step.run(x, y), step.tensors)
    same(am.model, before, 0.0)
