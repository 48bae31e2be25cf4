"""A method as a learner takes the method's own steps, and ends a task without a change."""

import copy

import torch
from torch import nn

from altmin import methods
from altmin.continual.method import MethodLearner


def test_its_steps_are_the_methods_and_the_end_of_a_task_changes_nothing() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    other = copy.deepcopy(model)
    learner, method = MethodLearner(methods.create("am-mem", model)), methods.create("am-mem", other)
    x, y = torch.randn(6, 3), torch.arange(6) % 2
    for _ in range(3):
        assert learner.step(x, y).loss == method.step(x, y).loss
        learner.end_epoch()
        method.end_epoch()
        learner.end_task((x, y))
    assert learner.model is model
    assert learner.optimizer is learner.method.optimizer
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), other.parameters(), strict=True))
    kept = learner.state_dict()["method"]["weights"]["memories"]
    torch.testing.assert_close(kept, method.state_dict()["weights"]["memories"], rtol=0, atol=0)
