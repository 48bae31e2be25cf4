"""Rules, losses and trainers can be pickled, before a run and in the middle of one, and say what their options are."""

import pickle
from typing import Any

import pytest
import torch
from method_cases import ANY_NET
from torch import nn
from trainer_cases import EVERY_RULE, RULES, batch, convolutional, equal, mlp

import altmin
from altmin import methods
from altmin.core.losses import adapt


def again(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


@EVERY_RULE
def test_a_rule_that_was_pickled_before_it_was_bound_trains_as_the_original(rule: str) -> None:
    first, second = mlp(), mlp()
    original = RULES[rule]()
    pair = [
        altmin.AltMin(net, weights=each) for net, each in zip((first, second), (original, again(original)), strict=True)
    ]
    for i in range(3):
        for am in pair:
            am.step(*batch(i))
    assert equal(first.state_dict(), second.state_dict())
    assert repr(again(original)) == repr(original)


@EVERY_RULE
@pytest.mark.parametrize("make", [mlp, convolutional], ids=["mlp", "convolutional"])
def test_a_trainer_that_was_pickled_goes_on_as_the_original(make: Any, rule: str) -> None:
    am = altmin.AltMin(make(), weights=RULES[rule](), penalty=altmin.Penalty(growth=2.0))
    am.step(*batch(0))
    am.end_epoch()
    am.gather(*batch(1))
    other = again(am)
    assert equal(other.state_dict(), am.state_dict())
    for each in (am, other):
        each.gather(*batch(2))
        each.apply()
        each.step(*batch(3))
    assert equal(other.model.state_dict(), am.model.state_dict())
    assert equal(other.state_dict(), am.state_dict())
    assert other.chain.model is other.model
    assert other.updates.theta[0][0] is next(other.model.parameters())
    assert repr(other) == repr(am)


@pytest.mark.parametrize("name", ANY_NET)
def test_every_method_can_be_pickled_in_the_middle_of_a_run(name: str) -> None:
    method = methods.create(name, mlp())
    method.step(*batch(0))
    method.end_epoch()
    method.step(*batch(1))
    other = again(method)
    for each in (method, other):
        each.step(*batch(2))
        each.end_epoch()
    assert equal(other.model.state_dict(), method.model.state_dict())
    assert equal(other.state_dict(), method.state_dict())


TEXTS = {
    "LocalAdam(lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.0, decoupled_weight_decay=False, l1=0.0, "
    "steps=1, clip_norm=None, decay_biases=True)": lambda: altmin.LocalAdam(),
    "LocalSGD(lr=[0.1, 0.2], momentum=0.5, weight_decay=0.0, l1=0.1, steps=2, clip_norm=3.0, "
    "decay_biases=False)": lambda: altmin.LocalSGD([0.1, 0.2], 0.5, l1=0.1, steps=2, clip_norm=3.0, decay_biases=False),
    "LocalOptimizer(lr=0.1, factory=torch.optim.rmsprop.RMSprop, l1=0.0, steps=1, clip_norm=None, "
    "decay_biases=True)": lambda: altmin.LocalOptimizer(torch.optim.RMSprop, 0.1),
    "CoActivationMemory(forget=0.5, damping=30.0, sweeps=2, rate=None, rest=LocalSGD(lr=0.1, momentum=0.9, "
    "weight_decay=0.0, l1=0.0, steps=1, clip_norm=None, decay_biases=True), steps=1)": lambda: (
        altmin.CoActivationMemory(0.5, sweeps=2, rate=None, rest=altmin.LocalSGD())
    ),
    "CrossEntropy(label_smoothing=0.1)": lambda: adapt(nn.CrossEntropyLoss(label_smoothing=0.1)),
    "SquaredError()": lambda: adapt(nn.MSELoss()),
    "AnyLoss(HuberLoss(delta=1.0, reduction='mean'))": lambda: adapt(nn.HuberLoss()),
    "AnyLoss(torch.nn.functional.cross_entropy)": lambda: adapt(nn.functional.cross_entropy),
    "AltMin(loss=SquaredError(), codes=GradientCodes(steps=1, momentum=0.0, tolerance=0.0, l1=0.0, share=0.1, "
    "lr='exact', order='codes-first'), weights=LocalSGD(lr=0.1, momentum=0.9, weight_decay=0.0, l1=0.0, steps=1, "
    "clip_norm=None, decay_biases=True), penalty=Penalty(3.0, increment=0.0, growth=1.0, maximum=None))": lambda: (
        altmin.AltMin(mlp(), nn.MSELoss(), weights=altmin.LocalSGD(), penalty=3.0)
    ),
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_of_a_part_names_all_its_options(text: str) -> None:
    assert repr(TEXTS[text]()) == text


def test_the_text_of_other_methods_names_their_parts() -> None:
    assert repr(methods.create("am-adam-offline", mlp())).startswith("Offline(AltMin(loss=CrossEntropy(")
    text = repr(methods.create("adam", mlp()))
    assert text.startswith("Backprop(optimizer=Adam ( Parameter Group 0 ")
    assert text.endswith(
        "loss=CrossEntropyLoss(ignore_index=-100, label_smoothing=0.0, reduction='mean', weight=None))"
    )
    assert "\n" not in text
