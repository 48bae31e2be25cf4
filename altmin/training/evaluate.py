"""What is measured on samples held back from training: an accuracy, a mean loss where targets are numbers, and both
where every sample has a sequence of labels."""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from altmin.losses import class_axis
from altmin.training.samples import Samples, device_of

Evaluation = Callable[[nn.Module, Samples], float]
Loss = Callable[[Tensor, Tensor], Tensor]
Total = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(output, y) -> a sum over what counts, and how much that is."""


def accuracy(model: nn.Module, samples: Samples, chunk: int = 1000) -> float:
    """The part of `samples` that `model`, in evaluation mode, puts into the right class.

    Where a sample has a label at each of its places, as a sequence of tokens has, it is the part of all places. Labels
    below 0 mark what does not count, as -100 does in torch. It leaves every layer in the mode it was in, and the
    random state as it was.
    """

    def right(output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        axis = class_axis(output, y) if y.ndim > 1 else 1
        return (output.argmax(axis) == y).sum(), (y >= 0).sum()

    return _mean(model, samples, right, chunk)


def mean_loss(model: nn.Module, samples: Samples, loss: Loss, chunk: int = 1000) -> float:
    """The mean of `loss(output, y)`, itself a mean over its samples, of `model` in evaluation mode over `samples`.

    Labels below 0 do not count, as in `accuracy`. It leaves every layer in the mode it was in, and the random state as
    it was.
    """

    def total(output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        counted = torch.tensor(len(y)) if y.is_floating_point() else (y >= 0).sum()
        # a part without any label that counts has no mean
        return (loss(output, y).mean() * counted if counted else output.new_zeros(())), counted

    return _mean(model, samples, total, chunk)


def choose(name: str | None, evaluate: Evaluation | None, test: Samples | None, trained: Any) -> dict[str, Evaluation]:
    """What to measure: under which name to record it, and the function that measures it.

    Where the caller does not choose a function, samples with integer targets have an accuracy, and if each has several
    of them also the mean of the loss that `trained.methods` have, under the same name with "loss" in place of
    "accuracy". For others it is that mean alone, and a `ValueError` if their loss is no function (output, y) -> scalar.
    """
    if evaluate is not None:
        return {name or "test_score": evaluate}
    loss = getattr(trained.methods[0], "loss", None)
    if test is None or not test[1].is_floating_point():
        found: dict[str, Evaluation] = {name or "test_accuracy": accuracy}
        if test is not None and test[1].ndim > 1 and callable(loss):
            first = name or "test_accuracy"
            second = first.replace("accuracy", "loss") if "accuracy" in first else f"{first}_loss"
            found[second] = functools.partial(mean_loss, loss=loss)
        return found
    if not callable(loss):
        raise ValueError(
            f"test targets of type {str(test[1].dtype).removeprefix('torch.')} have no accuracy, and this method's "
            "loss is no function to measure with; give evaluate=, a function (model, samples) -> number"
        )
    return {name or "test_loss": functools.partial(mean_loss, loss=loss)}


def _mean(model: nn.Module, samples: Samples, total: Total, chunk: int) -> float:
    """The sum of `total(output, y)` over chunks of the samples, divided by the sum of its second part.

    chunk: how many labels a chunk has, or a little more.
    """
    device = device_of(model)
    modes = {module: module.training for module in model.modules()}
    labels = samples[1]
    places = 1 if labels.is_floating_point() else max(1, labels[0].numel())
    rows = -(-chunk // places)
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng([device] if device.type == "cuda" else []):
            totals = [
                torch.stack([part.to(device, torch.float64) for part in total(model(x.to(device)), y.to(device))])
                for x, y in zip(*(part.split(rows) for part in samples), strict=True)
            ]
    finally:
        for module, mode in modes.items():
            module.training = mode
    value, count = torch.stack(totals).sum(0).tolist()
    return value / count if count else math.nan
