"""Tasks in sequence: what a run sees and how it is judged, and what remembers them, against ridge regression."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import altmin
from altmin import continual
from altmin.common.errors import Diverged
from altmin.continual import Task, average_accuracy, average_so_far, forgetting, permuted, run, split
from altmin.continual.learners import OutputRegression, Remembering
from altmin.training.samples import Samples, epoch_order

A = [[0.9], [0.95, 0.8], [0.5, 0.6, 1.0]]


def test_what_is_measured_of_accuracies() -> None:
    assert average_accuracy(A) == pytest.approx((0.5 + 0.6 + 1.0) / 3)
    assert average_so_far(A) == pytest.approx([0.9, 0.875, 0.7])
    assert average_so_far([]) == []
    # task 0 was best, at 0.95, after task 1; the last task has had no time to be forgotten
    assert forgetting(A) == pytest.approx(((0.95 - 0.5) + (0.8 - 0.6)) / 2)
    assert forgetting([[0.5], [0.7, 0.9]]) == pytest.approx(-0.2), "later tasks helped"
    assert forgetting([[0.5]]) == 0.0


X = torch.arange(24, dtype=torch.float32).reshape(12, 1, 1, 2)

Y = torch.arange(12) % 4


def test_split_deals_out_the_classes_in_order_and_keeps_labels_and_pairs() -> None:
    first, second = split((X, Y), (X[:4], Y[:4]), tasks=2)
    for task, classes in ((first, {0, 1}), (second, {2, 3})):
        for (x, y), samples in zip(task, (12, 4), strict=True):
            assert set(y.tolist()) == classes
            assert len(y) == samples // 2
            for sample, label in zip(x, y, strict=True):
                number = int(sample.flatten()[0]) // 2  # the sample's place in X
                assert torch.equal(sample, X[number])
                assert label == Y[number]


def test_the_first_permuted_task_is_the_data_and_every_other_moves_all_samples_by_one_permutation() -> None:
    x, y = torch.randn(5, 1, 3, 4), torch.arange(5)
    first, *others = permuted((x, y), (x[:2], y[:2]), tasks=4, seed=1)
    assert torch.equal(first.train[0], x)
    orders = []
    for task in others:
        # values of a sample are all different, so its order can be read from it
        order = [x[0].flatten().tolist().index(value) for value in task.train[0][0].flatten().tolist()]
        assert sorted(order) == list(range(12))
        for moved, given in ((task.train, (x, y)), (task.evaluated, (x[:2], y[:2]))):
            assert torch.equal(moved[0].flatten(1), given[0].flatten(1)[:, order])
            assert moved[0].shape == given[0].shape
            assert torch.equal(moved[1], given[1])
        orders.append(tuple(order))
    assert len({*orders, tuple(range(12))}) == 4


@pytest.mark.parametrize(
    "call",
    [
        lambda: list(split((X, Y), (X, Y), tasks=3)),  # classes that cannot be dealt out evenly
        lambda: list(split((X, Y), (X[:2], Y[:2]), tasks=2)),  # a task without samples
        lambda: next(permuted((X, Y), (X, Y), 0)),
        lambda: continual.create("remembring", nn.Linear(2, 2)),
        lambda: continual.create("remembering", nn.Linear(2, 2), widht=1.0),
        lambda: continual.create("adam", nn.Linear(2, 2), strength=1.0),
        lambda: OutputRegression(nn.Sequential(nn.Linear(6, 4), nn.Tanh())),
        lambda: Remembering(altmin.AltMin(nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2, bias=False)))),
        lambda: OutputRegression(net(), damping=0.0),
        lambda: continual.learner(net(), rate=0.0),
    ],
)
def test_what_cannot_be_is_refused(call: Any) -> None:
    with pytest.raises(ValueError):
        call()


def numbered(number: int = 3, samples: int = 5) -> list[Task]:
    """Task k has inputs and labels k; samples tell their place in the second column."""
    places = torch.arange(samples, dtype=torch.float32)
    each = [
        (torch.stack([torch.full((samples,), float(k)), places], 1), torch.full((samples,), k)) for k in range(number)
    ]
    return [Task(samples, samples) for samples in each]


class Latest:
    """Predicts for every input the label seen last; it knows the tasks before only where `remembered` says so."""

    optimizer = None

    def __init__(self, remembered: int | None = None) -> None:
        self.model = nn.Linear(2, 3)
        self.remembered, self.events = remembered, list[str]()
        with torch.no_grad():
            for p in self.model.parameters():
                p.zero_()

    @torch.no_grad()
    def step(self, x: Tensor, y: Tensor) -> None:
        self.events.append(",".join(str(int(place)) for place in x[:, 1]))
        self.model.bias.zero_()
        self.model.bias[y[-1]] = 1.0
        if self.remembered is not None and int(y[-1]) > self.remembered:
            self.model.bias[self.remembered] = 2.0

    def end_epoch(self) -> None:
        self.events.append("epoch")

    def end_task(self, samples: Samples) -> None:
        self.events.append(f"task {int(samples[1][0])}")

    def state_dict(self) -> dict[str, Tensor]:
        return {}


def test_accuracies_after_each_task_are_those_on_the_tasks_seen() -> None:
    assert run(Latest(), numbered()) == [[1.0], [0.0, 1.0], [0.0, 0.0, 1.0]]
    assert run(Latest(remembered=0), numbered()) == [[1.0], [1.0, 0.0], [1.0, 0.0, 0.0]]


def test_every_epoch_has_all_samples_of_its_task_in_an_order_of_its_own() -> None:
    learner = Latest()
    done: list[int] = []
    run(learner, numbered(2), epochs=2, batch_size=3, seed=7, after_task=done.append)
    expected = []
    for number in range(4):
        order = [str(i) for i in epoch_order(5, 7, number).tolist()]
        expected += [",".join(order[:3]), ",".join(order[3:]), "epoch"] + [f"task {number // 2}"] * (number % 2)
    assert learner.events == expected
    assert done == [1, 2]


def test_weights_that_are_not_finite_stop_the_run() -> None:
    learner = Latest()
    with torch.no_grad():
        learner.model.weight.fill_(torch.nan)
    with pytest.raises(Diverged, match="weight in task 1 is not finite"):
        run(learner, numbered())


CLASSES = 4


def samples(n: int, seed: int = 0, inputs: int = 6) -> tuple[Tensor, Tensor]:
    """Classes around centres of their own."""
    torch.manual_seed(seed)
    y = torch.arange(n) % CLASSES
    centres = 2 * torch.randn(CLASSES, inputs, generator=torch.Generator().manual_seed(7))
    return (centres[y] + torch.randn(n, inputs)).double(), y


def net(hidden: tuple[int, ...] = (9,)) -> nn.Sequential:
    torch.manual_seed(1)
    return altmin.models.mlp(6, hidden, CLASSES).double()


def ridge(f: Tensor, y: Tensor, damping: float) -> Tensor:
    """argmin_W sum_t |y_t - W f_t|^2 + damping a |W|^2, by least squares with further rows."""
    f = torch.cat([f, torch.ones(len(f), 1).double()], 1)
    scale = (damping * f.square().sum(0).mean()).sqrt()
    rows = torch.cat([f, scale * torch.eye(f.shape[1]).double()])
    targets = torch.cat([nn.functional.one_hot(y, CLASSES).double(), torch.zeros(f.shape[1], CLASSES).double()])
    return torch.linalg.lstsq(rows, targets).solution.mT


def weights(model: nn.Sequential) -> Tensor:
    return torch.cat([model[-1].weight, model[-1].bias[:, None]], 1).detach()


@pytest.mark.parametrize("size", [1, 7, 60])
def test_the_output_is_ridge_regression_on_all_samples_in_any_order_and_batches(size: int) -> None:
    x, y = samples(60)
    learner = OutputRegression(net(), damping=0.01)
    order = torch.randperm(60)
    for rows in order.split(size):
        learner.step(x[rows], y[rows])
    learner.end_epoch()
    f = learner.model[:-1](x).detach()
    torch.testing.assert_close(weights(learner.model), ridge(f, y, 0.01), rtol=1e-8, atol=1e-10)


def tasks() -> list[continual.Task]:
    train, test = samples(400), samples(200, seed=5)
    return list(continual.split(train, test, 2))


def test_remembering_fits_its_output_to_features_as_they_were_when_samples_came() -> None:
    method = continual.learner(net((9, 5)))
    learner = Remembering(method, width=11, damping=0.02, seed=3)
    assert learner.model is method.model
    x, y = samples(60)
    found = []
    for rows in torch.arange(60).split(20):
        learner.step(x[rows], y[rows])
        random = torch.randn(6, 11, generator=torch.Generator().manual_seed(3)).double() * (2 / 6) ** 0.5
        found.append(torch.cat([method.model[:-1](x[rows]), torch.relu(x[rows] @ random)], 1).detach())
    learner.end_epoch()
    wanted = ridge(torch.cat(found), y, 0.02)
    torch.testing.assert_close(weights(learner.model), wanted, rtol=1e-6, atol=1e-8)
    assert learner.state_dict()["output"]["A"].shape == (17 * 18 // 2,)


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return altmin.models.mlp(4, (6,), 4).double()


def test_a_method_needs_no_end_task_and_forgets_less_than_adam() -> None:
    """Two tasks with inputs of their own; the label is the sign of the one that the task uses."""
    random = torch.Generator().manual_seed(3)

    def task(k: int) -> Task:
        x = torch.zeros(400, 4, dtype=torch.float64)
        x[:, 2 * k : 2 * k + 2] = torch.randn(400, 2, generator=random, dtype=torch.float64)
        y = 2 * k + (x[:, 2 * k] > 0).long()
        return Task((x, y), (x, y))

    sequence = [task(0), task(1)]
    kept = continual.run(continual.learner(small(), lr=1e-3), sequence, epochs=5, batch_size=20)
    adam = continual.run(altmin.methods.create("adam", small(), lr=1e-2), sequence, epochs=5, batch_size=20)
    assert kept[0][0] > 0.9
    assert adam[0][0] > 0.9
    assert continual.forgetting(kept) < continual.forgetting(adam)
