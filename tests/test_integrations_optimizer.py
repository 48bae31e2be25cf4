"""A method in the place of a torch optimizer: its step is the method's, its rate and state are the method's."""

import pickle

import pytest
import torch
from trainer_cases import batch, clone, equal, mlp

from altmin import methods
from altmin.integrations.optimizer import MethodOptimizer


def made(name: str) -> tuple[methods.Method, MethodOptimizer]:
    method = methods.create(name, mlp())
    return method, MethodOptimizer(method)


def step(optimizer: MethodOptimizer, seed: int) -> None:
    optimizer.step(lambda: optimizer.method.step(*batch(seed)))


@pytest.mark.parametrize("name", ["am-adam", "am-mem", "am-adam-offline", "adam"])
def test_step_and_state_are_the_methods_and_a_copy_goes_on_from_it_exactly(name: str) -> None:
    (method, optimizer), alone = made(name), methods.create(name, mlp())
    step(optimizer, 0)
    alone.step(*batch(0))
    other, second = made(name)
    other.model.load_state_dict(clone(method.model.state_dict()))
    second.load_state_dict(clone(optimizer.state_dict()))
    model, third = pickle.loads(pickle.dumps((method.model, optimizer)))
    assert third.method.model is model
    for each in (optimizer, second, third):
        step(each, 1)
    alone.step(*batch(1))
    for each in (method, other, third.method):
        assert equal(each.model.state_dict(), alone.model.state_dict())
        assert equal(each.state_dict(), alone.state_dict())


@pytest.mark.parametrize("load", ["nothing", "optimizer", "method"])
def test_a_scheduler_moves_the_methods_own_rate_also_after_a_state_was_loaded(load: str) -> None:
    method, optimizer = made("am-sgd")
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    if load != "nothing":
        {"optimizer": optimizer, "method": method}[load].load_state_dict(clone(method.state_dict()))
    step(optimizer, 0)
    scheduler.step()
    assert method.optimizer is not None
    assert [group["lr"] for group in method.optimizer.param_groups] == [0.05]


def test_a_step_without_a_closure_is_refused() -> None:
    with pytest.raises(ValueError, match="lambda"):
        made("am-adam")[1].step()
