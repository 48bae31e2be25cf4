"""Sequences of tasks made from one data set: its classes a few at a time, or all of them under permuted inputs;
and what is measured of them, from `a[k][j]`, the accuracy on task j after task k was learnt (j <= k)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import mean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from altmin.common.errors import Diverged, demand
from altmin.training.evaluate import accuracy
from altmin.training.samples import Samples, epoch_order

Accuracies = Sequence[Sequence[float]]
"""Row k has the accuracies on tasks 0 to k after task k."""


class Task(NamedTuple):
    """The training samples, and the samples for evaluation."""

    train: Samples
    evaluated: Samples


def split(train: Samples, evaluated: Samples, tasks: int = 5) -> Iterator[Task]:
    """Tasks of equally many classes each, in the order of the labels: of ten classes, 0 and 1 come first.

    Labels stay as they are, so that a model has one output for each class of all tasks (class-incremental learning).
    Raises ValueError if the classes, those from 0 to the largest label, cannot be dealt out evenly, or if one of the
    tasks has no samples.
    """
    demand("split", "tasks", tasks, low=1, whole=True)
    classes = int(train[1].max()) + 1
    if classes % tasks:
        raise ValueError(f"{classes} classes cannot be split into {tasks} equal tasks; give a number that divides them")
    numbers = [labels.div(classes // tasks, rounding_mode="floor") for _, labels in (train, evaluated)]
    for k in range(tasks):
        inside = [number == k for number in numbers]
        if not all(bool(chosen.any()) for chosen in inside):
            raise ValueError(f"task {k + 1} of {tasks} has no samples to learn or to evaluate; give more samples")
        yield Task(*((x[chosen], y[chosen]) for (x, y), chosen in zip((train, evaluated), inside, strict=True)))


def permuted(train: Samples, evaluated: Samples, tasks: int = 10, seed: int = 0) -> Iterator[Task]:
    """Tasks of all samples; task k >= 2 has their values permuted, by a permutation that depends on seed and k alone.

    Samples keep their shape. Tasks are made on demand, since each is as large as the data.
    """
    demand("permuted", "tasks", tasks, low=1, whole=True)
    generator = torch.Generator().manual_seed(seed)
    for k in range(tasks):
        order = torch.randperm(train[0][0].numel(), generator=generator) if k else None
        yield Task((_reordered(train[0], order), train[1]), (_reordered(evaluated[0], order), evaluated[1]))


def _reordered(x: Tensor, order: Tensor | None) -> Tensor:
    return x if order is None else x.flatten(1)[:, order.to(x.device)].reshape(x.shape)


def average_accuracy(a: Accuracies) -> float:
    """The mean accuracy over all tasks after the last, `mean_j a[T][j]`.

    >>> average_accuracy([[1.0], [0.5, 0.75]])
    0.625
    """
    return mean(a[-1])


def average_so_far(a: Accuracies) -> list[float]:
    """Return, after each task, the mean accuracy over the tasks seen so far.

    >>> average_so_far([[1.0], [0.5, 0.75]])
    [1.0, 0.625]
    """
    return [mean(row) for row in a]


def forgetting(a: Accuracies) -> float:
    """Return the mean loss of accuracy, `mean_{j < T} (max_{k < T} a[k][j] - a[T][j])` (Chaudhry et al., 2018);
    0 for a single task. It is negative where later tasks helped earlier ones.

    >>> forgetting([[1.0], [0.5, 0.75]])
    0.5
    """
    if len(a) < 2:
        return 0.0
    best = [max(row[j] for row in a[j:-1]) for j in range(len(a) - 1)]
    return mean(high - last for high, last in zip(best, a[-1], strict=False))


def run(
    learner: Any,
    sequence: Iterable[Task],
    *,
    epochs: int = 1,
    batch_size: int = 200,
    seed: int = 0,
    after_task: Callable[[int], None] = lambda done: None,
) -> list[list[float]]:
    """Learn the tasks in turn, each in `epochs` passes over its samples; return `a[k][j]`, the accuracy on task j after
    task k (j <= k). The order of the samples depends on the seed, the task and the epoch alone. A learner's
    `end_task`, if it has one, is called at the end of each task, with its samples. Raises `Diverged`."""
    seen: list[Samples] = []
    accuracies: list[list[float]] = []
    for k, task in enumerate(sequence):
        x, y = task.train
        for epoch in range(epochs):
            for rows in epoch_order(len(x), seed, k * epochs + epoch).to(x.device).split(batch_size):
                learner.step(x[rows], y[rows])
            learner.end_epoch()
        if hasattr(learner, "end_task"):
            learner.end_task(task.train)
        for name, p in learner.model.named_parameters():
            if not p.isfinite().all():
                raise Diverged(f"{name} in task {k + 1}")
        seen.append(task.evaluated)
        accuracies.append([accuracy(learner.model, samples) for samples in seen])
        after_task(k + 1)
    return accuracies
