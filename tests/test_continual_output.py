"""Outputs that are remembered: against ridge regression and recursive least squares written out."""

import pytest
import torch
from torch import Tensor, nn

import altmin
from altmin import continual
from altmin.continual import learners
from altmin.continual.output_memory import Analytic, OutputRegression, Remembering

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


def recursive(f: Tensor, y: Tensor, ridge: float) -> Tensor:
    """ACIL's formula, a sample at a time: R <- R - R f f^T R / (1 + f^T R f), W <- W + (y - W f) f^T R."""
    f = torch.cat([f, torch.ones(len(f), 1).double()], 1)
    R, W = torch.eye(f.shape[1]).double() / ridge, torch.zeros(CLASSES, f.shape[1]).double()
    for row, label in zip(f, y, strict=True):
        R = R - torch.outer(R @ row, R @ row) / (1 + row @ R @ row)
        W = W + torch.outer(nn.functional.one_hot(label, CLASSES).double() - W @ row, R @ row)
    return W


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
    scale = float(0.01 * (f.square().sum() + len(f)) / (f.shape[1] + 1))
    torch.testing.assert_close(weights(learner.model), recursive(f, y, scale), rtol=1e-7, atol=1e-9)


def tasks() -> list[continual.Task]:
    train, test = samples(400), samples(200, seed=5)
    return list(continual.split(train, test, 2))


def test_tasks_in_sequence_give_what_all_samples_at_once_give() -> None:
    learner = OutputRegression(net())
    a = continual.run(learner, tasks(), batch_size=20)
    at_once = OutputRegression(net())
    at_once.step(*samples(400))
    at_once.end_epoch()
    torch.testing.assert_close(weights(learner.model), weights(at_once.model), rtol=1e-7, atol=1e-9)
    assert continual.average_accuracy(a) > 0.85


def test_analytic_learning_trains_its_features_in_the_first_task_alone() -> None:
    learner, (first, second) = Analytic(net(), lr=0.01), tasks()
    start = learner.model[1].weight.detach().clone()
    learner.step(*first.train)
    learner.end_epoch()
    learner.end_task(first.train)
    trained = learner.model[1].weight.detach().clone()
    assert not torch.equal(start, trained)
    learner.step(*second.train)
    learner.end_epoch()
    learner.end_task(second.train)
    assert torch.equal(learner.model[1].weight, trained)
    x, y = (torch.cat(both) for both in zip(first.train, second.train, strict=True))
    f = learner.model[:-1](x).detach()
    torch.testing.assert_close(weights(learner.model), ridge(f, y, 1e-3), rtol=1e-6, atol=1e-8)


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


def test_a_small_convolutional_net_keeps_what_it_has_learnt() -> None:
    """Digits of 8 x 8 in five tasks."""
    load_digits = pytest.importorskip("sklearn.datasets").load_digits
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 8 - 1, dtype=torch.float32).view(-1, 1, 8, 8), torch.tensor(labels)
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 32), nn.ReLU(), nn.Linear(32, 10))
    )
    learner = learners.create("remembering", model, width=200, rate=5.0)
    a = continual.run(learner, continual.split((x[:1400], y[:1400]), (x[1400:], y[1400:])), batch_size=20)
    assert continual.average_accuracy(a) > 0.85
    assert continual.forgetting(a) < 0.1


def test_models_without_a_linear_output_are_refused() -> None:
    for make in (OutputRegression, Analytic, lambda model: Remembering(altmin.AltMin(model))):
        with pytest.raises(ValueError, match=r"fits the last layer of an nn\.Sequential"):
            make(nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2, bias=False)))
    with pytest.raises(ValueError, match="damping of OutputRegression must be a finite number above 0"):
        OutputRegression(net(), damping=0.0)
