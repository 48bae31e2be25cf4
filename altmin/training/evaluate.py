"""Measuring a model on samples held back from training: all metrics in one pass, which leaves no trace."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from altmin.common.describe import kind
from altmin.training.metrics import METRICS, Loss, Metric, loss_sums
from altmin.training.samples import Samples, device_of
from altmin.training.sources import Source, Stored

LABELS = 1000
"""Labels, or a few more, that a part of an evaluation has."""


def accuracy(model: nn.Module, samples: Samples, chunk: int = LABELS) -> float:
    """The part of `samples` that `model`, in evaluation mode, puts into the right class.

    Where a sample has a label at each of its places, as a sequence of tokens has, it is the part of all places. Labels
    below 0 mark what does not count, as -100 does in torch. It leaves every layer in the mode it was in, and the
    random state as it was.
    """
    return measure(model, Stored(*samples), [METRICS["accuracy"]], chunk)["accuracy"]


def mean_loss(model: nn.Module, samples: Samples, loss: Loss, chunk: int = LABELS) -> float:
    """The mean of `loss(output, y)`, itself a mean over its samples, of `model` in evaluation mode over `samples`.

    Labels below 0 do not count, as in `accuracy`. It leaves every layer in the mode it was in, and the random state as
    it was.
    """
    return measure(model, Stored(*samples), [Metric("loss", loss_sums(loss), sums=True)], chunk)["loss"]


def measure(model: nn.Module, source: Source, metrics: Sequence[Metric], chunk: int = LABELS) -> dict[str, float]:
    """Every metric of `model` in evaluation mode on the samples of `source`, by name.

    chunk: how many labels are seen at once, or a little more, where the samples are stored. Outputs are kept only if a
    metric needs all of them. It leaves every layer in the mode it was in, and the random state as it was.
    """
    device = device_of(model)
    modes = {module: module.training for module in model.modules()}
    sums: dict[str, list[Tensor]] = {metric.name: [] for metric in metrics if metric.sums}
    outputs, targets = list[Tensor](), list[Tensor]()
    whole = [metric for metric in metrics if not metric.sums]
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng([device] if device.type == "cuda" else []):
            for x, y in source.parts(chunk):
                output, y = model(x.to(device)), y.to(device)
                for metric in metrics:
                    if metric.sums:
                        parts = [part.to(device, torch.float64) for part in metric.function(output, y)]
                        sums[metric.name].append(torch.stack(parts))
                if whole:
                    outputs.append(output)
                    targets.append(y)
            found = {name: _ratio(parts) for name, parts in sums.items()}
            for metric in whole:
                found[metric.name] = _number(metric.name, metric.function(torch.cat(outputs), torch.cat(targets)))
    finally:
        for module, mode in modes.items():
            module.training = mode
    return {metric.name: found[metric.name] for metric in metrics}


def _ratio(parts: Sequence[Tensor]) -> float:
    if not parts:
        raise ValueError("there are no samples to measure on: an iterable has to begin anew for each evaluation")
    value, count = torch.stack(list(parts)).sum(0).tolist()
    return value / count if count else math.nan


def _number(name: str, value: Any) -> float:
    """A metric's value; ValueError if it is no number."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        given = kind(value) if isinstance(value, Tensor) else f"{value!r:.60}"
        raise ValueError(f"the metric {name!r} gave {given}; a function (output, y) gives one number") from error
