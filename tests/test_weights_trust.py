"""What no weight rule does: leave a weight that is not finite, move a frozen one, or keep a batch that it refused."""

import copy

import pytest
import torch
from test_weights_local import close, setting
from torch import nn
from trainer_cases import clone, equal

import altmin


@pytest.mark.parametrize(
    "make",
    [
        lambda: altmin.LocalAdam(lr=1e38),
        lambda: altmin.LocalSGD(lr=1e38),
        lambda: altmin.LocalSGD(lr=1e36, steps=3),
        lambda: altmin.LocalAdam(lr=1e30, steps=2),
    ],
)
def test_no_step_leaves_a_weight_that_is_not_finite(make):
    model, x, y = setting()
    model, x = model.float(), x.float()
    am = altmin.AltMin(model, weights=make())
    states = []

    def steps():
        for _ in range(3):
            states.append(copy.deepcopy((model.state_dict(), am.state_dict())))
            am.step(x, y)

    with pytest.raises(altmin.Diverged, match="the weights' next value is not finite"):
        steps()
    torch.testing.assert_close((model.state_dict(), am.state_dict()), states[-1], rtol=0, atol=0)


def test_a_gradient_whose_square_is_not_finite_is_not_followed():
    model, x, y = setting(nn.ReLU)
    model, x = model.float(), x.float()
    am = altmin.AltMin(model)
    with torch.no_grad():
        model[0].weight.mul_(1e-25)
        model[0].bias.zero_()
    with pytest.raises(altmin.Diverged, match=r"next value is not finite; .* inputs of a smaller size"):
        am.step(x * 1e25, y)
    assert not am.optimizer.state


def test_inner_steps_follow_what_is_asked_where_a_code_has_not_moved():
    """Its problem has no curvature: steps along the same gradient."""
    model, x, y = setting()
    twin = copy.deepcopy(model)
    codes = altmin.GradientCodes(share=0.0)
    am = altmin.AltMin(model, codes=codes, weights=altmin.LocalSGD(lr=0.1, momentum=0.0, steps=3))
    gradients = torch.autograd.grad(nn.functional.cross_entropy(twin(x), y), list(twin.parameters()))
    am.step(x, y)
    hidden = list(zip(model.parameters(), twin.parameters(), gradients, strict=True))[:-2]
    close([p for p, _, _ in hidden], [q - 0.3 * g for _, q, g in hidden])


@pytest.mark.parametrize("rule", [altmin.LocalAdam, altmin.LocalSGD, altmin.FittedMemory])
def test_frozen_is_what_a_layer_says_at_the_step(rule):
    """With state and all."""
    model, x, y = setting()
    am = altmin.AltMin(model, weights=rule(**({} if rule is altmin.FittedMemory else {"lr": 0.1, "l1": 0.01})))
    layer = model[2]
    for frozen in (False, True, False):
        layer.requires_grad_(not frozen)
        for _ in range(2):
            before = clone((layer.weight, am.updates.states[1]))
            am.step(x, y)
            assert torch.equal(before[0], layer.weight) == frozen
            assert equal(before[1], am.updates.states[1]) == frozen


@pytest.mark.parametrize("whole", [True, False])
def test_a_batch_too_large_for_a_memory_is_refused_and_forgotten(whole):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    am = altmin.AltMin(model, weights=altmin.FittedMemory())
    x, y = torch.randn(9, 4), torch.randint(3, (9,))
    am.step(x, y)
    state = copy.deepcopy((model.state_dict(), am.state_dict()))

    def step():
        if whole:
            am.step(1e20 * x, y)
        else:
            am.gather(1e20 * x, y)
            am.apply()

    with pytest.raises(altmin.Diverged, match="inputs of a smaller size"):
        step()
    torch.testing.assert_close((model.state_dict(), am.state_dict()), state, rtol=0, atol=0)
    assert am.step(x, y).loss.isfinite()
