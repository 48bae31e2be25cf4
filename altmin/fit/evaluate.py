"""What is measured on samples held back from training: an accuracy, or a mean loss where targets are numbers."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from altmin.fit.samples import Samples, device_of

Evaluation = Callable[[nn.Module, Samples], float]
Loss = Callable[[Tensor, Tensor], Tensor]


def accuracy(model: nn.Module, samples: Samples, chunk: int = 1000) -> float:
    """The part of `samples` that `model`, in evaluation mode, puts into the right class.

    It leaves every layer in the mode it was in, and the random state as it was.
    """
    return _mean(model, samples, lambda output, y: (output.argmax(1) == y).sum(), chunk)


def mean_loss(model: nn.Module, samples: Samples, loss: Loss, chunk: int = 1000) -> float:
    """The mean of `loss(output, y)`, itself a mean over its samples, of `model` in evaluation mode over `samples`.

    It leaves every layer in the mode it was in, and the random state as it was.
    """
    return _mean(model, samples, lambda output, y: loss(output, y).mean() * len(y), chunk)


def choose(name: str | None, evaluate: Evaluation | None, test: Samples | None, trained: Any) -> tuple[str, Evaluation]:
    """Under which name to record what is measured, and the function that measures it.

    Where the caller does not choose a function, samples with integer targets have an accuracy; for others it is the
    mean of the loss that `trained.methods` have, and a `ValueError` if that is no function (output, y) -> scalar.
    """
    if evaluate is not None:
        return name or "test_score", evaluate
    if test is None or not test[1].is_floating_point():
        return name or "test_accuracy", accuracy
    loss = getattr(trained.methods[0], "loss", None)
    if not callable(loss):
        raise ValueError(
            f"test targets of type {str(test[1].dtype).removeprefix('torch.')} have no accuracy, and this method's "
            "loss is no function to measure with; give evaluate=, a function (model, samples) -> number"
        )
    return name or "test_loss", functools.partial(mean_loss, loss=loss)


def _mean(model: nn.Module, samples: Samples, total: Loss, chunk: int) -> float:
    """The sum of `total(output, y)` over chunks of the samples, divided by their number."""
    device = device_of(model)
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng([device] if device.type == "cuda" else []):
            totals = [
                total(model(x.to(device)), y.to(device))
                for x, y in zip(*(part.split(chunk) for part in samples), strict=True)
            ]
    finally:
        for module, mode in modes.items():
            module.training = mode
    return float(torch.stack(totals).double().sum()) / len(samples[1])
