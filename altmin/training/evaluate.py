"""Metrics of samples held back from training, by name or by functions: accuracies of labels, errors of
numbers, the method's own loss; all in one pass, without side effects."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from altmin.common.errors import shown, unknown
from altmin.common.inputs import as_inputs, call
from altmin.common.unchanged import evaluating
from altmin.core.labels import class_axis
from altmin.training.samples import Samples, device_of
from altmin.training.sources import Source, Stored

LABELS = 1000
"""The approximate number of labels in a part of an evaluation."""
Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Metric:
    """Metric by name. sums: whether `function(output, y)` of a part of the samples is a sum and its number of terms, so
    that the metric is the ratio of all; else it is a number, of all samples at once. higher: whether larger values are
    better, None if unknown."""

    name: str
    function: Callable[[Tensor, Tensor], Any]
    sums: bool = False
    higher: bool | None = None


def right(output: Tensor, y: Tensor, k: int = 1) -> tuple[Tensor, Tensor]:
    """Return the number of labels among the k largest outputs, and the number of labels, without those below 0."""
    axis = class_axis(output, y) if y.ndim > 1 else 1
    if k == 1:
        return (output.argmax(axis) == y).sum(), (y >= 0).sum()
    if output.shape[axis] < k:
        raise ValueError(f"top{k} needs {k} classes or more, the output has {output.shape[axis]}")
    return (output.topk(k, axis).indices == y.unsqueeze(axis)).sum(), (y >= 0).sum()


def sums_of(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return the function that gives the sum of f(output - y) over all entries, and their number."""
    return lambda output, y: (f(_errors(output, y)).sum(), torch.tensor(y.numel()))


def rmse(output: Tensor, y: Tensor) -> Tensor:
    """Return the root of the mean squared error."""
    return _errors(output, y).square().mean().sqrt()


def r2(output: Tensor, y: Tensor) -> Tensor:
    """Return the mean over outputs of 1 - sum (output - y)^2 / sum (y - mean y)^2; of constant targets, as in
    scikit-learn, 1 if they are met, else 0."""
    errors, y = _errors(output, y).flatten(1 if y.ndim > 1 else 0), y.double().flatten(1 if y.ndim > 1 else 0)
    left, all_ = errors.square().sum(0), (y - y.mean(0)).square().sum(0)
    constant = torch.where(left == 0, 1.0, 0.0).to(left)
    return torch.where(all_ == 0, constant, 1 - left / all_.clamp_min(torch.finfo(all_.dtype).tiny)).mean()


def loss_sums(loss: Loss) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return a function that gives the sum of a loss, itself a mean over the targets that count, and their number."""

    def total(output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        counted = torch.tensor(len(y)) if y.is_floating_point() else (y >= 0).sum()
        # a part without any label that counts has no mean
        return (loss(output, y).mean() * counted if counted else output.new_zeros(())), counted

    return total


def _errors(output: Tensor, y: Tensor) -> Tensor:
    if output.shape != y.shape:
        raise ValueError(
            f"errors are between outputs and targets of one shape, given {tuple(output.shape)} and {tuple(y.shape)}; "
            "give the targets the outputs' shape, for example by y[:, None]"
        )
    return output.double() - y.double()


NAMED = (
    Metric("accuracy", right, sums=True, higher=True),
    Metric("top5", lambda output, y: right(output, y, 5), sums=True, higher=True),
    Metric("mse", sums_of(torch.square), sums=True, higher=False),
    Metric("mae", sums_of(torch.abs), sums=True, higher=False),
    Metric("rmse", rmse, higher=False),
    Metric("r2", r2, higher=True),
)
METRICS = {metric.name: metric for metric in NAMED}
"""Metrics of outputs and targets; "loss", the method's own, is another."""


def higher_is_better(column: str) -> bool | None:
    """Return whether larger values are better in a column, such as "test_accuracy"; None if unknown."""
    name = column.rpartition("_")[2]
    return METRICS[name].higher if name in METRICS else False if name == "loss" else None


def choose(metrics: Any, targets: Tensor | None, loss: Any) -> list[Metric]:
    """Return the metrics of a run. metrics: a name, a function (output, y) -> number, several of them, or by name.
    targets: some of the targets to evaluate on. loss: the method's.

    The default is the accuracy for labels, with the loss where a sample has several of them, and the loss for numbers.
    Raises ValueError or TypeError for an unknown name or an object that is no metric.
    """
    if metrics is None:
        if targets is None:
            return []
        floating = targets.is_floating_point()
        metrics = ["loss"] if floating else ["accuracy", *["loss"] * (targets.ndim > 1 and callable(loss))]
    if not isinstance(metrics, Mapping):
        several = isinstance(metrics, Sequence) and not isinstance(metrics, str)
        metrics = {_name(metric): metric for metric in (metrics if several else [metrics])}
    chosen = [_metric(name, value, loss) for name, value in metrics.items()]
    for metric in chosen:
        if metric.function is right and targets is not None and targets.is_floating_point():
            raise ValueError(f"targets of type {targets.dtype} have no accuracy; give metrics such as 'mse' or 'r2'")
    return chosen


def _name(value: Any) -> str:
    name = value if isinstance(value, str) else getattr(value, "__name__", "<lambda>")
    if callable(value) and not name.isidentifier():
        raise ValueError('a function without a name is given by one: metrics={"name": function}')
    return name


def _metric(name: str, value: Any, loss: Any) -> Metric:
    if value == "loss":
        if not callable(loss):
            raise ValueError("this method's loss is no function; give metrics")
        return Metric(name, loss_sums(loss), sums=True)
    if isinstance(value, str):
        if value not in METRICS:
            raise unknown("metric", value, [*METRICS, "loss"])
        return replace(METRICS[value], name=name)
    if not callable(value) or isinstance(value, type):
        raise TypeError(f"a metric is a name or a function (output, y) -> number, given {shown(value)}")
    return Metric(name, value)


def accuracy(model: nn.Module, samples: Samples, chunk: int = LABELS) -> float:
    """Return the fraction of `samples` that `model`, in evaluation mode, classifies correctly.

    If a sample has a label at each of its places, as a sequence of tokens has, it is the fraction of all places. Labels
    below 0 are ignored, as -100 is in torch. The mode of every layer and the random state are restored.
    """
    return measure(model, _stored(samples), [METRICS["accuracy"]], chunk)["accuracy"]


def mean_loss(model: nn.Module, samples: Samples, loss: Loss, chunk: int = LABELS) -> float:
    """Return the mean of `loss(output, y)`, itself a mean over its samples, of `model` in evaluation mode.

    Labels below 0 do not count, as in `accuracy`. It leaves every layer in the mode it was in, and the random state as
    it was.
    """
    return measure(model, _stored(samples), [Metric("loss", loss_sums(loss), sums=True)], chunk)["loss"]


def measure(model: nn.Module, source: Source, metrics: Sequence[Metric], chunk: int = LABELS) -> dict[str, float]:
    """Return every metric of `model` in evaluation mode on the samples of `source`, by name.

    chunk: how many labels are seen at once, or a little more, where the samples are stored. Outputs are kept only if a
    metric needs all of them. It leaves every layer in the mode it was in, and the random state as it was.
    """
    device = device_of(model)
    sums: dict[str, list[Tensor]] = {metric.name: [] for metric in metrics if metric.sums}
    functions = {metric.name: metric.function for metric in metrics}
    outputs, targets = list[Any](), list[Tensor]()
    with evaluating(model):
        for x, y in source.parts(chunk):
            output, y = call(model, x.to(device)), y.to(device)
            for name, parts in sums.items():
                parts.append(torch.stack([t.to(device, torch.float64) for t in functions[name](output, y)]))
            if len(sums) < len(metrics):
                outputs.append(output)
                targets.append(y)
        values = {name: _ratio(parts) for name, parts in sums.items()}
        for name in functions.keys() - sums.keys():
            values[name] = float(functions[name](_joined(outputs), torch.cat(targets)))
    return {metric.name: values[metric.name] for metric in metrics}


def _stored(samples: Samples) -> Stored:
    x, y = samples
    return Stored(as_inputs(x), y)


def _joined(outputs: Sequence[Any]) -> Any:
    """Concatenate the outputs of all parts, also where a model returns several."""
    return pytree.tree_map(lambda *parts: torch.cat(parts) if isinstance(parts[0], Tensor) else parts[0], *outputs)


def _ratio(parts: Sequence[Tensor]) -> float:
    if not parts:
        raise ValueError("there are no samples to measure on: an iterable has to start again for each evaluation")
    value, count = torch.stack(list(parts)).sum(0).tolist()
    return value / count if count else math.nan
