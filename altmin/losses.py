"""A loss as the algorithm needs it: its value, its gradient at the output and its curvature there.

All are those of the mean over the mini-batch, as PyTorch's losses return it, so that what goes down to the blocks has
the size of backprop's gradients. The Hessian H is that of the same mean.
"""

import inspect
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from altmin.calculus.numbers import eager, vectorised
from altmin.describe import describe as describe_settings
from altmin.fusing import fusible

LossFunction = Callable[[Tensor, Tensor], Tensor]
"""What users give: (output, y) -> scalar, the mean over the batch."""


IGNORED = -100
"""The label of a sample that counts for nothing, torch's default `ignore_index`."""


class Evaluation(NamedTuple):
    """A loss at one output: its value, a tensor without dimensions; its gradient delta; hessian(q) = H q."""

    value: Tensor
    delta: Tensor
    hessian: Callable[[Tensor], Tensor]


class Loss:
    """What losses have in common. Called with (output, y) it is the value, as the user's own loss is.

    rounding: how many roundings of a number of size one the value may hold beyond its own.
    """

    rounding = 0.0

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __call__(self, output: Tensor, y: Tensor) -> Tensor:
        return self.at(output, self.prepare(output, y)).value

    def samples(self, output: Tensor) -> int:
        """By what the value is to be multiplied to be a sum over samples."""
        return output.shape[0]

    def prepare(self, output: Tensor, y: Tensor) -> Tensor:
        """The targets as `at` takes them. ValueError if they do not fit the output."""
        return y

    def at(self, output: Tensor, y: Tensor) -> Evaluation:
        """The loss at an output, for targets as `prepare` gives them."""
        raise NotImplementedError


class Targets(NamedTuple):
    """Of every sample a row of weights for the classes, and their sum, its mass; None where all are 1."""

    rows: Tensor
    mass: Tensor | None


class CrossEntropy(Loss):
    """-log softmax(o)_y: delta = (p - y) / n, H q = (p q - p <p, q>) / n. Labels, or weights y of the classes for each
    sample, whose sum multiplies p. A sample with the label -100 counts for nothing, and not in n, as in torch."""

    rounding = 32.0  # that of outputs of some ten units

    def __init__(self, label_smoothing: float = 0.0):
        self.smoothing = label_smoothing
        self.rows: Tensor | None = None

    def __repr__(self) -> str:
        return f"CrossEntropy(label_smoothing={self.smoothing})"

    def prepare(self, output: Tensor, y: Tensor) -> Targets:  # type: ignore[override]
        """ValueError if the targets do not fit the output; a label that is out of range and cannot be read without
        waiting for a device becomes NaN, and with it the loss."""
        if output.ndim != 2:
            raise ValueError(
                f"cross-entropy takes outputs of shape (samples, classes), given {tuple(output.shape)}; for others "
                "give the loss as a callable, such as lambda o, y: torch.nn.functional.cross_entropy(o, y)"
            )
        classes = output.shape[1]
        if y.shape == output.shape and y.dtype == output.dtype:
            rows = y * (1 - self.smoothing) + self.smoothing / classes if self.smoothing else y
            return Targets(rows, rows.sum(1, keepdim=True))
        if y.dtype != torch.int64 or y.shape != output.shape[:1]:
            raise ValueError(
                f"cross-entropy takes one int64 label per sample, shape ({len(output)},), given {describe(y)}"
            )
        kind = (classes, output.dtype, output.device)
        if self.rows is None or (len(self.rows), self.rows.dtype, self.rows.device) != kind:
            self.rows = torch.eye(classes, dtype=output.dtype, device=output.device) * (1 - self.smoothing)
            self.rows += self.smoothing / classes  # the same as columns
        if y.is_cuda or not eager():
            return Targets(*_row_or_nan(self.rows, y))
        try:
            return Targets(self.rows.index_select(1, y).mT, None)
        except (IndexError, RuntimeError):
            self.check(output, y)
            return Targets(*_row_or_nan(self.rows, y))

    def check(self, output: Tensor, y: Tensor) -> None:
        """ValueError if a label is out of range, or if all samples are to be ignored."""
        if y.dtype != torch.int64:
            return
        counted = y[y != IGNORED]
        if not len(counted):
            raise ValueError(
                f"all {len(y)} labels are {IGNORED}, which marks samples that do not count; nothing is left"
            )
        classes, (low, high) = output.shape[1], torch.stack(torch.aminmax(counted)).tolist()
        if low < 0 or high >= classes:
            raise ValueError(
                f"label {low if low < 0 else high} is out of range: the model has {classes} outputs, "
                f"so labels go from 0 to {classes - 1}"
            )

    def at(self, output: Tensor, y: Targets) -> Evaluation:  # type: ignore[override]
        value, delta, p = _cross_entropy(output, *y)
        return Evaluation(value, delta, lambda q: _softmax_hessian(p, y.mass, q))


@fusible
def _cross_entropy(output: Tensor, y: Tensor, mass: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The mean loss, its gradient, and the probabilities."""
    n = output.shape[0]
    if output.is_cuda:
        log_p = F.log_softmax(output, 1)
        p = log_p.exp()
        return (y * log_p).sum() / -n, ((p if mass is None else mass * p) - y) / n, p
    log_p = F.log_softmax(output.mT.contiguous(), 0).mT  # along columns: many times faster for few classes
    p = log_p.exp()
    return (y * log_p).sum() / -n, ((p if mass is None else mass * p) - y).mul_(1 / n), p


@fusible
def _softmax_hessian(p: Tensor, mass: Tensor | None, q: Tensor) -> Tensor:
    pq = p * q
    Hq = torch.addcmul(pq, p, pq.sum(1, keepdim=True), value=-1) / p.shape[0]
    return Hq if mass is None else mass * Hq


@fusible
def _row_or_nan(rows: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and masses for labels: NaN for one that is out of range, zero for one that is to be ignored. The others have
    more mass for it, so that the mean over all samples is that over those that count."""
    label, counts = y.clamp(0, len(rows) - 1), (y != IGNORED).to(rows.dtype)
    mass = (counts * (len(y) / counts.sum())).unsqueeze(1)
    known = (y == label) | (y == IGNORED)
    return torch.where(known.unsqueeze(1), mass * rows[label], torch.nan), mass


class SquaredError(Loss):
    """The mean over samples and outputs of (o - y)^2: delta = 2 (o - y) / m, H = 2 I / m with m entries in all."""

    def prepare(self, output: Tensor, y: Tensor) -> Tensor:
        """ValueError unless targets have the output's shape and type."""
        if y.shape != output.shape or y.dtype != output.dtype:
            raise ValueError(
                f"the squared error compares like with like: the model's output is {describe(output)}, "
                f"the targets are {describe(y)}"
            )
        return y

    def at(self, output: Tensor, y: Tensor) -> Evaluation:
        error, m = output - y, output.numel()
        return Evaluation(error.square().sum() / m, error * (2 / m), lambda q: q * (2 / m))


class AnyLoss(Loss):
    """Any callable(output, y) -> scalar, the mean over the batch, differentiated at the output and no further. One with
    reduction="sum" is taken for the sum that it is; one without a second derivative has no curvature. ValueError if it
    gives no scalar tensor."""

    def __init__(self, function: LossFunction):
        self.function = function

    def __repr__(self) -> str:
        return f"AnyLoss({describe_settings(self.function)})"

    def samples(self, output: Tensor) -> int:
        return 1 if getattr(self.function, "reduction", "mean") == "sum" else output.shape[0]

    def at(self, output: Tensor, y: Tensor) -> Evaluation:
        try:
            return self._at(output, y)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, IndexError) as error:
            words = str(error).partition("\n")[0]
            raise ValueError(
                f"the loss cannot take outputs {describe(output)} and targets {describe(y)}: {words}"
            ) from None

    def _at(self, output: Tensor, y: Tensor) -> Evaluation:
        if vectorised():
            gradient = torch.func.grad_and_value(self.function)
            delta, value = gradient(output, y)
            return Evaluation(value, delta, lambda q: torch.func.vjp(lambda o: gradient(o, y)[0], output)[1](q)[0])
        with torch.enable_grad():
            o = output.detach().requires_grad_()
            value = self.function(o, y)
            if not isinstance(value, Tensor) or value.ndim != 0 or not value.is_floating_point():
                given = describe(value) if isinstance(value, Tensor) else type(value).__name__
                raise ValueError(f"the loss must return a scalar tensor, the mean over the batch, given {given}")
            if not value.requires_grad:
                raise ValueError("the loss does not depend on the model's output in a way that can be differentiated")
            (delta,) = torch.autograd.grad(value, o, create_graph=True, materialize_grads=True)

        def hessian(q: Tensor) -> Tensor:
            if not delta.requires_grad:  # a loss of straight pieces
                return torch.zeros_like(q)
            try:
                return torch.autograd.grad(delta, o, q, retain_graph=True, materialize_grads=True)[0]
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:  # torch has no second derivative of it
                return torch.zeros_like(q)

        return Evaluation(value.detach(), delta.detach(), hessian)


def adapt(loss: LossFunction) -> Loss:
    """The loss with its closed forms where it has them. TypeError if it is none."""
    if isinstance(loss, type) or not callable(loss):
        name = getattr(loss, "__name__", None)
        remedy = f"give {name}()" if isinstance(loss, type) else "such as nn.CrossEntropyLoss() or nn.MSELoss()"
        raise TypeError(f"a loss is a function of (output, y), given {loss!r}; {remedy}")
    if isinstance(loss, Loss):
        return loss
    try:
        inspect.signature(loss).bind(None, None)
    except TypeError:
        raise TypeError(
            f"a loss is a function of (output, y), and {describe_settings(loss)} takes other ones"
        ) from None
    except ValueError:  # one of C's functions, which does not tell
        pass
    mean = getattr(loss, "reduction", None) == "mean"
    if mean and type(loss) is nn.CrossEntropyLoss and loss.weight is None and loss.ignore_index == -100:
        return CrossEntropy(loss.label_smoothing)
    if mean and type(loss) is nn.MSELoss:
        return SquaredError()
    return AnyLoss(loss)


def describe(x: Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')} of shape {tuple(x.shape)}"
