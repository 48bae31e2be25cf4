"""What is measured of a sequence of tasks, from `a[k][j]`, the accuracy on task j after task k was learnt (j <= k)."""

from collections.abc import Sequence
from statistics import mean

Accuracies = Sequence[Sequence[float]]
"""Row k has the accuracies on tasks 0 to k after task k."""


def average_accuracy(a: Accuracies) -> float:
    """The mean accuracy over all tasks after the last, `mean_j a[T][j]`.

    >>> average_accuracy([[1.0], [0.5, 0.75]])
    0.625
    """
    return mean(a[-1])


def average_so_far(a: Accuracies) -> list[float]:
    """After each task the mean accuracy over the tasks seen so far.

    >>> average_so_far([[1.0], [0.5, 0.75]])
    [1.0, 0.625]
    """
    return [mean(row) for row in a]


def forgetting(a: Accuracies) -> float:
    """How much accuracy was lost: `mean_{j < T} (max_{k < T} a[k][j] - a[T][j])` (Chaudhry et al., 2018);
    0 for a single task. It is negative where later tasks helped earlier ones.

    >>> forgetting([[1.0], [0.5, 0.75]])
    0.5
    """
    if len(a) < 2:
        return 0.0
    best = [max(row[j] for row in a[j:-1]) for j in range(len(a) - 1)]
    return mean(high - last for high, last in zip(best, a[-1], strict=False))
