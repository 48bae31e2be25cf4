"""The method that keeps its memories: its sums against those over all samples, and two tasks in turn."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import altmin
from altmin import continual
from altmin.continual import Task


def net(inputs: int = 4, classes: int = 2) -> nn.Sequential:
    torch.manual_seed(0)
    return altmin.models.mlp(inputs, (6,), classes).double()


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    random = torch.Generator().manual_seed(1)
    return [(torch.randn(5, 4, generator=random, dtype=torch.float64), torch.arange(5) % 2) for _ in range(count)]


def test_the_memory_of_the_first_layer_is_the_sum_over_all_samples_ever_seen() -> None:
    method = continual.learner(net())
    for x, y in batches(7):
        method.step(x, y)
    a = nn.functional.pad(torch.cat([x for x, _ in batches(7)]), (0, 1), value=1.0)
    torch.testing.assert_close(method.updates.states[0]["A"], a.mT @ a)
    assert method.updates.states[0]["samples"] == 35


def test_only_the_output_layer_has_a_rate_and_it_is_slow() -> None:
    model = net()
    method = continual.learner(model, lr=2e-4)
    assert [group["lr"] for group in method.optimizer.param_groups] == [2e-4]
    held = [p for group in method.optimizer.param_groups for p in group["params"]]
    assert {id(p) for p in held} == {id(p) for p in model[-1].parameters()}


def test_it_equals_the_learner_of_the_figure() -> None:
    """That is `create("am-mem-fitted", ...)` with the options of reproduction/results/continual.jsonl."""
    first, second = net(), net()
    options = {"forget": 1.0, "lr": 0.0001, "rate": 30.0, "damping": 10.0, "steps": None}
    figure: Any = continual.create("am-mem-fitted", first, **options)
    own = continual.learner(second)
    for x, y in batches(5):
        assert figure.step(x, y).loss == own.step(x, y).loss
    assert all(torch.equal(p, q) for p, q in zip(first.parameters(), second.parameters(), strict=True))


def test_a_method_needs_no_end_task_and_forgets_less_than_adam() -> None:
    """Two tasks with inputs of their own; the label is the sign of the one that the task uses."""
    random = torch.Generator().manual_seed(3)

    def task(k: int) -> Task:
        x = torch.zeros(400, 4, dtype=torch.float64)
        x[:, 2 * k : 2 * k + 2] = torch.randn(400, 2, generator=random, dtype=torch.float64)
        y = 2 * k + (x[:, 2 * k] > 0).long()
        return Task((x, y), (x, y))

    sequence = [task(0), task(1)]
    kept = continual.run(continual.learner(net(4, 4), lr=1e-3), sequence, epochs=5, batch_size=20)
    adam = continual.run(altmin.methods.create("adam", net(4, 4), lr=1e-2), sequence, epochs=5, batch_size=20)
    assert kept[0][0] > 0.9
    assert adam[0][0] > 0.9
    assert continual.forgetting(kept) < continual.forgetting(adam)


def test_a_rate_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="lr of learner must be a finite number of at least 0, given -1"):
        continual.learner(net(), lr=-1)
    with pytest.raises(ValueError, match="rate of FittedMemory"):
        continual.learner(net(), rate=0.0)
