"""Elastic weights, falling rates, replay, streaming discriminants and analytic learning."""

import copy
import itertools
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from altmin.continual.learners import OutputRegression
from altmin.methods.backprop import Backprop
from reproduction.opponents.continual import (
    Analytic,
    ElasticWeights,
    Replay,
    Reservoir,
    StreamingLDA,
    fisher,
)


def problem(samples: int = 7) -> tuple[nn.Sequential, Tensor, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    return model, torch.randn(samples, 3, dtype=torch.float64), torch.arange(samples) % 3


def looped_fisher(model: nn.Module, x: Tensor, y: Tensor) -> list[Tensor]:
    squares = [torch.zeros_like(p) for p in model.parameters()]
    for sample, label in zip(x, y, strict=True):
        log_p = log_softmax(model(sample[None]), 1)[0, label]
        for total, g in zip(squares, torch.autograd.grad(log_p, list(model.parameters())), strict=True):
            total += g**2 / len(x)
    return squares


@pytest.mark.parametrize("samples", [7, 230])
def test_the_fisher_information_is_that_of_a_loop_over_samples(samples: int) -> None:
    model, x, y = problem(samples)
    torch.testing.assert_close([*fisher(model, x, y).values()], [*looped_fisher(model, x, y)])


def test_a_step_follows_the_gradient_of_loss_and_penalty_by_autograd() -> None:
    """After two tasks: the importances add up, the anchor is where the second ended."""
    model, x, y = problem()
    learner = ElasticWeights(model, strength=3.0)
    learner.method = Backprop(model, torch.optim.SGD(model.parameters(), 0.1))
    importance = [torch.zeros_like(p) for p in model.parameters()]
    for _ in range(2):
        learner.step(x, y)
        importance = [old + new for old, new in zip(importance, looped_fisher(model, x, y), strict=True)]
        learner.end_task((x, y))
    anchor = [p.detach().clone() for p in model.parameters()]
    learner.step(x, y)
    before = [p.detach().clone() for p in model.parameters()]
    parts = zip(importance, model.parameters(), anchor, strict=True)
    penalty = 3.0 / 2 * sum((F * (p - a) ** 2).sum() for F, p, a in parts)
    expected = torch.autograd.grad(nn.functional.cross_entropy(model(x), y) + penalty, list(model.parameters()))
    learner.step(x, y)
    for p, old, g in zip(model.parameters(), before, expected, strict=True):
        torch.testing.assert_close(p.detach(), old - 0.1 * g)


class Numbered(Reservoir):
    """Its random numbers are given, one for each sample that comes when it is full."""

    def __init__(self, budget: int, numbers: Iterator[int]):
        super().__init__(budget)
        self.numbers = numbers

    def _slot(self, n: int) -> int:
        return n if n < self.capacity else next(self.numbers)


def kept(numbers: tuple[int, ...], capacity: int, samples: int, batch: int) -> frozenset[int]:
    """Which of the samples, named by their labels, are kept after they came in batches."""
    buffer, labels = Numbered(2 * capacity, iter(numbers)), torch.arange(samples)
    for part in labels.split(batch):
        buffer.add(part[:, None].float(), part)
    return frozenset(buffer.labels.tolist())


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_every_subset_of_the_samples_is_kept_with_equal_probability(batch: int) -> None:
    """Over all outcomes of the random numbers: the one for sample n (from 0) is any of 0 to n, each as likely."""
    capacity, samples = 2, 5
    outcomes = itertools.product(*(range(n + 1) for n in range(capacity, samples)))
    found = Counter(kept(numbers, capacity, samples, batch) for numbers in outcomes)
    assert set(found) == {frozenset(two) for two in itertools.combinations(range(samples), capacity)}
    total = sum(found.values())
    assert {Fraction(count, total) for count in found.values()} == {Fraction(1, 10)}


class Watched:
    """A method that notes its batches."""

    model, optimizer = nn.Linear(1, 4), None

    def __init__(self) -> None:
        self.batches: list[tuple[Tensor, Tensor]] = []

    def step(self, x: Tensor, y: Tensor) -> None:
        self.batches.append((x, y))


def test_a_step_learns_the_batch_and_as_many_samples_of_earlier_batches() -> None:
    watched = Watched()
    learner = Replay(nn.Linear(1, 4), 100)
    learner.method = watched
    for k in range(3):
        learner.step(torch.full((2, 1), float(k)), torch.full((2,), k))
    assert [y.tolist()[:2] for _, y in watched.batches] == [[0, 0], [1, 1], [2, 2]]
    assert len(watched.batches[0][1]) == 2
    assert watched.batches[1][1].tolist() == [1, 1, 0, 0]
    assert set(watched.batches[2][1].tolist()[2:]) <= {0, 1}
    assert len(watched.batches[2][1]) == 4
    assert sorted(learner.buffer.draw(9)[1].tolist()) == [0, 0, 1, 1, 2, 2]  # samples replayed are not added again


def two_tasks() -> list[tuple[Tensor, Tensor]]:
    """Four clusters on the axes: first the classes 0 and 1, then 2 and 3."""
    torch.manual_seed(0)
    y = torch.arange(4).repeat(400)
    x = 4 * nn.functional.one_hot(y).float() + torch.randn(len(y), 4)
    return [(x[chosen], y[chosen]) for chosen in (y < 2, y >= 2)]


def clusters(samples: int, classes: int, size: int, seed: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    y = torch.randint(classes, (samples,))
    mixing = torch.randn(size, size, dtype=torch.float64)
    return 5 + torch.randn(classes, size, dtype=torch.float64)[y] + torch.randn_like(
        mixing[0].expand(samples, -1)
    ) @ mixing, y


def at_once(x: Tensor, y: Tensor, classes: int, shrinkage: float) -> tuple[Tensor, Tensor]:
    """Weights and biases of the discriminant: means and covariance from all samples."""
    means = torch.stack([x[y == k].mean(0) for k in range(classes)])
    C = sum(torch.outer(a - means[k], a - means[k]) for a, k in zip(x, y, strict=True)) / len(x)
    assert isinstance(C, Tensor)
    C = (1 - shrinkage) * C + shrinkage * C.trace() / len(C) * torch.eye(len(C), dtype=C.dtype)
    weights = means @ torch.linalg.inv(C)
    return weights, torch.stack([-0.5 * m @ torch.linalg.inv(C) @ m for m in means])


@given(st.integers(0, 5), st.integers(1, 40), st.sampled_from([1e-4, 0.1, 1.0]), st.booleans())
def test_mini_batches_in_any_order_give_the_discriminant_of_all_samples(
    seed: int, batch: int, shrinkage: float, sorted_by_class: bool
) -> None:
    x, y = clusters(60, 3, 4, seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).double()
    learner = StreamingLDA(model, shrinkage)
    order = y.argsort() if sorted_by_class else torch.arange(60)
    for rows in order.split(batch):
        learner.step(x[rows], y[rows])
    learner.end_epoch()
    weights, biases = at_once(x, y, 3, shrinkage)
    torch.testing.assert_close(model[-1].weight.detach(), weights)
    torch.testing.assert_close(model[-1].bias.detach(), biases)


def test_analytic_learning_trains_its_features_in_the_first_task_alone() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 4)).double()
    tasks = [(x.double(), y) for x, y in two_tasks()]
    learner, features = Analytic(model, lr=0.01), [model[0].weight.detach().clone()]
    for x, y in tasks:
        learner.step(x, y)
        learner.end_epoch()
        learner.end_task((x, y))
        features.append(model[0].weight.detach().clone())
    learner.end_epoch()
    assert not torch.equal(features[0], features[1])
    assert torch.equal(features[1], features[2])
    at_once = OutputRegression(copy.deepcopy(model))
    for x, y in tasks:
        at_once.step(x, y)
    at_once.end_epoch()
    torch.testing.assert_close(model[2].weight, at_once.model[2].weight, rtol=1e-7, atol=1e-9)
