"""A method in the place of a torch optimizer: its step is the method's, its rate and state are the method's."""

import pickle

import pytest
import torch
from method_cases import ANY_NET
from torch import nn
from trainer_cases import batch, clone, equal, mlp

from altmin import methods
from altmin.integrations.optimizer import MethodOptimizer

EVERY_METHOD = pytest.mark.parametrize("name", ANY_NET)


def made(name: str) -> tuple[methods.Method, MethodOptimizer]:
    method = methods.create(name, mlp())
    return method, MethodOptimizer(method)


def step(method: methods.Method, optimizer: MethodOptimizer, seed: int) -> None:
    optimizer.step(lambda: method.step(*batch(seed)))


@EVERY_METHOD
def test_a_step_is_one_step_of_the_method_and_no_other(name: str) -> None:
    method, optimizer = made(name)
    alone = methods.create(name, mlp())
    for seed in range(3):
        step(method, optimizer, seed)
        alone.step(*batch(seed))
    assert equal(method.model.state_dict(), alone.model.state_dict())
    assert equal(method.state_dict(), alone.state_dict())


@EVERY_METHOD
def test_its_state_is_the_methods_and_another_goes_on_from_it_exactly(name: str) -> None:
    method, optimizer = made(name)
    step(method, optimizer, 0)
    other, second = made(name)
    other.model.load_state_dict(clone(method.model.state_dict()))
    second.load_state_dict(clone(optimizer.state_dict()))
    for seed in (1, 2):
        step(method, optimizer, seed)
        step(other, second, seed)
    assert equal(method.model.state_dict(), other.model.state_dict())
    assert equal(optimizer.state_dict(), method.state_dict())


@pytest.mark.parametrize("loaded", [False, True])
def test_a_scheduler_moves_the_methods_own_rate_also_after_a_state_was_loaded(loaded: bool) -> None:
    method, optimizer = made("am-sgd")
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    step(method, optimizer, 0)
    if loaded:
        optimizer.load_state_dict(clone(optimizer.state_dict()))
    scheduler.step()
    assert [group["lr"] for group in method.optimizer.param_groups] == [0.05]


def test_a_scheduler_moves_the_rate_after_the_method_itself_has_loaded_a_state() -> None:
    method, optimizer = made("am-sgd")
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    method.load_state_dict(clone(method.state_dict()))
    step(method, optimizer, 0)
    scheduler.step()
    assert [group["lr"] for group in method.optimizer.param_groups] == [0.05]


def test_a_pickled_one_trains_the_model_that_was_pickled_with_it() -> None:
    method, optimizer = made("am-mem")
    step(method, optimizer, 0)
    model, other = pickle.loads(pickle.dumps((method.model, optimizer)))
    assert other.method.model is model
    assert other.param_groups is other.method.optimizer.param_groups
    step(method, optimizer, 1)
    step(other.method, other, 1)
    assert equal(model.state_dict(), method.model.state_dict())


def test_a_method_without_a_rate_has_one_group_with_the_rate_0() -> None:
    method = methods.create("bcd", mlp())
    assert method.optimizer is None
    (group,) = MethodOptimizer(method).param_groups
    assert group["lr"] == 0
    assert [id(p) for p in group["params"]] == [id(p) for p in method.model.parameters()]


def test_a_step_without_a_closure_is_an_error_and_changes_nothing() -> None:
    method, optimizer = made("am-adam")
    before = clone(method.model.state_dict())
    with pytest.raises(ValueError, match=r"step\(lambda: method.step\(x, y\)\)"):
        optimizer.step()
    assert equal(method.model.state_dict(), before)


def test_a_state_that_does_not_fit_is_an_error_and_changes_nothing() -> None:
    method, optimizer = made("am-adam")
    step(method, optimizer, 0)
    before = clone(method.state_dict())
    other = methods.create("am-adam", nn.Sequential(nn.Linear(4, 3)).double())
    other.step(*batch(0))
    with pytest.raises(ValueError, match="group"):
        optimizer.load_state_dict(other.state_dict())
    assert equal(method.state_dict(), before)
