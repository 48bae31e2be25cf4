"""Adam within a captured step is torch's Adam, and what comes on top of it is not lost."""

import copy

import pytest
import torch
from capture_cases import batches, mlp, pair, same

import altmin
from altmin.calculus.context import LOCAL
from altmin.runners.capture import captured
from altmin.runners.optimizer_on_device import all_finite


@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_one_number_that_is_not_finite_is_found_among_many(bad):
    tensors = [torch.ones(3), torch.zeros(0), torch.ones((), dtype=torch.float64), torch.full((2, 2), 1e38)]
    assert all_finite(tensors)
    tensors[3][1, 0] = bad
    assert not all_finite(tensors)


def test_a_model_that_has_changed_has_to_be_captured_anew():
    am = altmin.AltMin(mlp(6, 5))
    step = captured(am, False, LOCAL)
    step.run(*next(batches(1)))
    step.push()
    am.model[2] = copy.deepcopy(am.model[2])
    with pytest.raises(ValueError, match="the model has changed since it was cut"):
        step.push()


def test_a_frozen_parameter_has_to_be_captured_anew():
    am = altmin.AltMin(mlp(6, 5))
    step = captured(am, False, LOCAL)
    step.run(*next(batches(1)))
    step.push()
    am.model[0].weight.requires_grad_(False)
    with pytest.raises(ValueError, match="frozen or freed after the step was captured; make a new Recorded"):
        step.push()


def test_what_a_scheduler_leaves_in_a_group_is_no_option_of_the_capture():
    am = altmin.AltMin(mlp(6, 5))
    step = captured(am, False, LOCAL)
    step.run(*next(batches(1)))
    torch.optim.lr_scheduler.StepLR(am.optimizer, 1)
    step.push()
    am.optimizer.param_groups[0]["betas"] = (0.5, 0.9)
    with pytest.raises(ValueError, match=r"options of the optimizer other than lr are part of the capture"):
        step.push()


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_a_captured_step_of_backprop_clips_and_decays_as_an_ordinary_one(name):
    options = {"lr": 2**-4, "clip_norm": 0.1, "weight_decay": 0.1, "decay_biases": False}
    net = mlp(6, 5)
    ordinary, other = (altmin.methods.create(name, each, **options) for each in (net, copy.deepcopy(net)))
    step = captured(other, False, LOCAL)
    for x, y in batches(5):
        ordinary.step(x, y)
        step.run(x, y)
    same(ordinary.model, other.model, 1e-7)  # Adam computes with a rate on the device in float32


DECAY = {"weight_decay": 0.1}


@pytest.mark.parametrize(
    "options", [{}, DECAY, {**DECAY, "decoupled_weight_decay": True}, {**DECAY, "decay_biases": False}]
)
def test_adam_within_a_whole_step_is_adam_and_a_step_that_is_not_finite_changes_nothing(options, traced):
    torch.manual_seed(0)
    ordinary, other = pair(mlp(6, 5), lambda: altmin.LocalAdam(lr=[2**-7, 2**-6, 2**-5], **options))
    step, data = captured(other, True, LOCAL), list(batches(6))
    for x, y in data:
        ordinary.step(x, y)
        step.run(x, y)
    assert step.pull() is None
    same(ordinary.model, other.model)
    assert other.optimizer.param_groups[0]["params"][0].grad is None, "the weights' step was part of the whole"
    states = [m.optimizer.state_dict()["state"] for m in (ordinary, other)]
    torch.testing.assert_close(*states, check_device=False)
    step.run(data[0][0] * torch.nan, data[0][1])
    same(ordinary.model, other.model)
    torch.testing.assert_close(ordinary.optimizer.state_dict()["state"], other.optimizer.state_dict()["state"])
    assert step.pull() == 0


@pytest.mark.parametrize("options", [{"l1": 0.1}, {"clip_norm": 0.01}, {"steps": 2}], ids=str)
def test_what_comes_on_top_of_adam_is_not_lost_in_a_whole_step(options, traced):
    torch.manual_seed(0)
    ordinary, other = pair(mlp(6, 5), lambda: altmin.LocalAdam(lr=2**-7, **options))
    step = captured(other, True, LOCAL)
    for x, y in batches(4):
        ordinary.step(x, y)
        step.run(x, y)
    same(ordinary.model, other.model)


def test_a_frozen_layer_stays_in_a_whole_step(traced):
    torch.manual_seed(0)
    model = mlp(6, 5)
    model[2].requires_grad_(False)
    ordinary, other = pair(model, lambda: altmin.LocalAdam(lr=2**-7))
    step = captured(other, True, LOCAL)
    for x, y in batches(4):
        ordinary.step(x, y)
        step.run(x, y)
    same(ordinary.model, other.model)
    assert torch.equal(other.model[2].weight, model[2].weight)
    assert step.fuse, "it was traced"
