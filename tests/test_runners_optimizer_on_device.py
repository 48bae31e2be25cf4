"""Adam within a captured step is torch's Adam, and what comes on top of it is not lost."""

import copy

import pytest
import torch
from capture_cases import batches, both, mlp, pair, same, steps
from torch import nn

import altmin
from altmin.calculus.context import LOCAL
from altmin.runners.capture import captured
from altmin.runners.optimizer_on_device import OptimizerOnDevice, all_finite


@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_one_number_that_is_not_finite_is_found_among_many(bad):
    tensors = [torch.ones(3), torch.zeros(0), torch.ones((), dtype=torch.float64), torch.full((2, 2), 1e38)]
    assert all_finite(tensors)
    tensors[3][1, 0] = bad
    assert not all_finite(tensors)


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_a_captured_step_of_backprop_clips_and_decays_as_an_ordinary_one(name):
    options = {"lr": 2**-4, "clip_norm": 0.1, "weight_decay": 0.1, "decay_biases": False}
    net = mlp(6, 5)
    ordinary, other = (altmin.methods.create(name, each, **options) for each in (net, copy.deepcopy(net)))
    step = captured(other, False, LOCAL)
    steps(batches(5), ordinary.step, step.run)
    same(ordinary.model, other.model, 1e-7)  # Adam computes with a rate on the device in float32


DECAY = {"weight_decay": 0.1}


@pytest.mark.parametrize(
    "options", [{**DECAY, "decoupled_weight_decay": True}, {**DECAY, "decay_biases": False}], ids=str
)
def test_adam_within_a_whole_step_is_adam_and_a_step_that_is_not_finite_changes_nothing(options, traced):
    torch.manual_seed(0)
    ordinary, other = pair(mlp(6, 5), lambda: altmin.LocalAdam(lr=[2**-7, 2**-6, 2**-5], **options))
    step, data = captured(other, True, LOCAL), list(batches(6))
    steps(data, ordinary.step, step.run)
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
    both(mlp(6), lambda: altmin.LocalAdam(lr=2**-7, **options), data=list(batches(3)), fuse=True)


def test_a_frozen_layer_stays_in_a_whole_step(traced):
    torch.manual_seed(0)
    model = mlp(6, 5)
    model[2].requires_grad_(False)
    _, step = both(model, lambda: altmin.LocalAdam(lr=2**-7), fuse=True)
    assert torch.equal(step.am.model[2].weight, model[2].weight)
    assert step.compiled.works, "it was traced"


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf, 1e200])
def test_a_gradient_that_is_not_finite_moves_no_weight_and_is_found(bad):
    """Its loss is finite, so that the step is taken."""
    layer = nn.Linear(3, 2).double()
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1, fused=True)
    layer(torch.ones(1, 3, dtype=torch.float64)).sum().backward()
    optimizer.step()
    device, before = OptimizerOnDevice(optimizer), layer.weight.detach().clone()
    grads = {p: torch.ones_like(p) for p in layer.parameters()}
    grads[layer.weight][0, 1] = bad
    with torch.no_grad():
        device.step_adam(grads, torch.tensor(True))
    still = layer.weight == before
    assert still[0, 1]
    assert still.sum() == 1
    assert layer.weight.isfinite().all()
    assert not all_finite(device.tensors())
