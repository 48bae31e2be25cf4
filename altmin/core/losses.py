"""A loss as the algorithm needs it: its value, its gradient at the output and its curvature there.

All are those of the mean over the mini-batch, as PyTorch's losses return it, so that the gradients passed to the
blocks have the size of backprop's. The Hessian H is that of the same mean.
Outputs may be sequences or images with a label at every place; the mean is then over all places that have one.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from altmin.calculus.context import LOCAL, Context
from altmin.calculus.cut_values import OutputValues
from altmin.common.describe import describe, kind
from altmin.common.errors import shown
from altmin.core.labels import CrossEntropyLoss, LossFunction, as_rows, by_label, class_axis, from_rows, without

IGNORED = -100
"""The label of a sample to ignore, torch's default `ignore_index`."""
FEW = 64
"""The largest number of classes for which the softmax is taken by columns."""


class Evaluation(NamedTuple):
    """A loss at one output: its value, a tensor without dimensions; its gradient delta; hessian(q) = H q."""

    value: Tensor
    delta: Tensor
    hessian: Callable[[Tensor], Tensor]


class Loss:
    """Base class of losses. Called with (output, y) it is the value, as the user's own loss is.

    rounding: how many roundings of a number of size one the value may hold beyond its own. adds: whether the value is a
    sum over samples and not a mean. curves: whether it is known that the loss is nowhere linear.
    """

    rounding = 0.0
    adds = False
    curves = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __call__(self, output: Tensor, y: Tensor) -> Tensor:
        return self.at(output, self.prepare(output, y)).value

    def samples(self, output: Tensor) -> int:
        """Return the factor that makes the value a sum over samples."""
        return output.shape[0]

    def terms(self, output: Tensor, y: Any) -> Any:
        """Return the number of terms in the mean, for targets as `prepare` returns them."""
        return self.samples(output)

    def prepare(self, output: Tensor, y: Tensor, context: Context = LOCAL) -> Any:
        """Return the targets as `at` takes them. ValueError if they do not fit the output."""
        demand_same_shape(self, output, y)
        return y

    def check(self, output: Tensor, y: Tensor, context: Context = LOCAL) -> None:
        """Raise ValueError for targets that are out of range, found by reading all of them."""

    def at(self, output: Tensor, y: Any) -> Evaluation:
        """Return the loss at an output, for targets as `prepare` gives them."""
        raise NotImplementedError

    def functional(self) -> "Loss":
        """Return the loss in operations that `torch.func` and torch.compile can transform: here itself."""
        return self

    def delta(self, output: Tensor, y: Any) -> Tensor:
        """Return the gradient alone, as `at` has it."""
        return self.at(output, y).delta

    def others(self, output: Tensor, y: Tensor) -> list[Tensor]:
        """Return what else than the output it would be differentiated by, such as parameters."""
        return []

    def weighted(self, output: Tensor, y: Tensor, w: Tensor) -> Tensor:
        """Return sum_t w_t loss_t / sum_t w_t over samples t, for targets as `prepare` gives them. ValueError if the
        loss is not known for each sample."""
        raise ValueError(f"{self!r} is not known for each sample, which sample weights need; weigh them in the loss")


class Targets(NamedTuple):
    """Targets of a cross-entropy: for every place a row of weights for the classes, and their sum, its mass, both over
    the number of places that count; that number; the dimension of the output that counts the classes, None where an
    output is (samples, classes)."""

    rows: Tensor
    mass: Any
    count: Any
    axis: int | None = None


class CrossEntropy(Loss):
    """Mean of -log softmax(o)_y: delta = (p - y) / n, H q = (p q - p <p, q>) / n. Labels, or weights y of the classes
    for each sample, whose sum multiplies p. With outputs (samples, time, classes), or (samples, classes, ...) as in
    torch, every place has a label, and n is the number of places. A place with the label `ignore_index` is ignored and
    not counted in n, as in torch. reads: whether `prepare` raises ValueError for a label out of range; without, no
    number is read from a tensor, and such a label makes the loss NaN."""

    rounding = 32.0  # for outputs of about ten
    curves = True

    def __init__(self, label_smoothing: float = 0.0, ignore_index: int = IGNORED, reads: bool = True):
        self.smoothing, self.ignored, self.reads = label_smoothing, ignore_index, reads

    def __repr__(self) -> str:
        return f"CrossEntropy(label_smoothing={self.smoothing}, ignore_index={self.ignored})"

    def prepare(self, output: Tensor, y: Tensor, context: Context = LOCAL) -> Targets:
        """Return the targets in rows. ValueError if they do not fit the output."""
        if output.ndim == 2 and y.shape == output.shape and y.dtype == output.dtype:
            rows = (y * (1 - self.smoothing) + self.smoothing / output.shape[1]) / len(y)
            return Targets(rows, rows.sum(1, keepdim=True), len(y))
        axis = None if output.ndim == 2 else class_axis(output, y)
        classes, shape = output.shape[1 if axis is None else axis], output.shape[:1]
        if axis is not None:
            shape = without(output, axis)
        if y.dtype != torch.int64 or y.shape != shape:
            raise ValueError(
                f"cross-entropy takes int64 labels of shape {tuple(shape)} or probabilities as {kind(output)}, "
                f"given {kind(y)}"
            )
        y = y.reshape(-1)
        if self.reads and self._all_count(y, classes, context):
            return Targets(self._rows(output, y, classes), 1 / len(y), len(y), axis)
        counts, label = y != self.ignored, y.clamp(0, classes - 1)
        count = counts.sum()
        mass = counts.to(output.dtype).div_(count).masked_fill(counts & (label != y), torch.nan).unsqueeze(1)
        return Targets(self._rows(output, label, classes) * (mass * len(y)), mass, count, axis)

    def _rows(self, output: Tensor, label: Tensor, classes: int) -> Tensor:
        """Return a row of weights for each label, over their number."""
        n, rest = len(label), self.smoothing / classes
        rows = output.new_full((classes, n), rest / n)
        mass = output.new_full((1, n), (1 - self.smoothing + rest) / n)  # compiled, a number would be one of float32
        return rows.scatter(0, label.unsqueeze(0), mass).mT

    def functional(self) -> Loss:
        return CrossEntropy(self.smoothing, self.ignored, reads=False)

    def check(self, output: Tensor, y: Tensor, context: Context = LOCAL) -> None:
        if y.dtype == torch.int64:
            self._all_count(y, output.shape[class_axis(output, y)], context)

    def _all_count(self, y: Tensor, classes: int, context: Context) -> bool:
        """Return whether no label is to be ignored. ValueError if one is out of range, or if all are to be ignored, on
        all ranks."""
        counted, (low, high) = y, torch.stack(torch.aminmax(y)).tolist()
        if low <= self.ignored <= high:
            counted = y[y != self.ignored]
            if not counted.numel() and context.shard is None:  # other ranks may have some
                raise ValueError(f"all {y.numel()} labels are {self.ignored}, which marks samples that do not count")
            low, high = torch.stack(torch.aminmax(counted)).tolist() if counted.numel() else (0, 0)
        if low < 0 or high >= classes:
            raise ValueError(
                f"label {low if low < 0 else high} is out of range: the model has {classes} outputs, "
                f"so labels go from 0 to {classes - 1}"
            )
        return counted.numel() == y.numel()

    def terms(self, output: Tensor, y: Targets) -> Any:
        """Return the number of places whose label is not to be ignored."""
        return int(y.count)

    def at(self, output: Tensor, y: Targets) -> Evaluation:
        rows = output if y.axis is None else as_rows(output, y.axis)
        # columns are many times faster on a CPU for few classes
        log_p = F.log_softmax(rows, 1) if rows.shape[1] > FEW else F.log_softmax(rows.mT.contiguous(), 0).mT
        p = log_p.exp()
        weighted = y.mass * p
        value = -(y.rows * log_p).sum(1).sum()  # a compiled sum over everything would run on one processor
        delta = weighted - y.rows

        def hessian(q: Tensor) -> Tensor:
            pq = weighted * (q if y.axis is None else as_rows(q, y.axis))
            Hq = torch.addcmul(pq, p, pq.sum(1, keepdim=True), value=-1)
            return Hq if y.axis is None else from_rows(Hq, q.shape, y.axis)

        return Evaluation(value, delta if y.axis is None else from_rows(delta, output.shape, y.axis), hessian)

    def weighted(self, output: Tensor, y: Targets, w: Tensor) -> Tensor:  # type: ignore[override]
        if output.ndim != 2 or self.terms(output, y) < len(output):
            raise ValueError(
                f"sample weights need outputs (samples, classes), given shape {tuple(output.shape)}, and labels that "
                f"count; leave samples with the label {self.ignored} out"
            )
        return -(w.unsqueeze(1) * y.rows * F.log_softmax(output, 1)).sum() * len(w) / w.sum()


ELEMENTWISE = (nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.PoissonNLLLoss)


def demand_same_shape(loss: Any, output: Tensor, y: Tensor) -> None:
    """Raise ValueError where torch would broadcast, and compare the output of each sample with the targets of all."""
    function = getattr(loss, "function", loss)
    if isinstance(function, (SquaredError, *ELEMENTWISE)) and y.shape != output.shape:
        raise ValueError(
            f"{type(function).__name__} compares each output with its target: the model's output is "
            f"{kind(output)}, the targets are {kind(y)}; give targets of that shape, such as y.unsqueeze(1)"
        )


class SquaredError(Loss):
    """The mean over samples and outputs of (o - y)^2: delta = 2 (o - y) / m, H = 2 I / m with m entries in all."""

    curves = True

    def at(self, output: Tensor, y: Tensor) -> Evaluation:
        error, m = (output - y.to(torch.promote_types(y.dtype, output.dtype))).to(output.dtype), output.numel()
        return Evaluation(error.square().sum() / m, error * (2 / m), lambda q: q * (2 / m))

    def weighted(self, output: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return (w * (output - y).square().flatten(1).mean(1)).sum() / w.sum()


class AnyLoss(Loss):
    """Any callable(output, y) -> scalar, the mean over the batch, differentiated at the output and no further. A loss
    with reduction="sum" is treated as a sum; one without a second derivative has no curvature. ValueError if it does
    not return a scalar tensor."""

    def __init__(self, function: LossFunction):
        self.function = function
        self.adds = getattr(function, "reduction", "mean") == "sum"

    def __repr__(self) -> str:
        return f"AnyLoss({describe(self.function)})"

    def __call__(self, output: Any, y: Tensor) -> Tensor:
        """Return the loss. output: also what a model returns that is no tensor."""
        return super().__call__(output, y) if isinstance(output, Tensor) else self.function(output, y)

    def samples(self, output: Tensor) -> int:
        return 1 if self.adds else output.shape[0]

    def terms(self, output: Tensor, y: Any) -> Any:
        """Return the number of samples; for torch's losses with labels, the weights of labels that are not ignored."""
        if not isinstance(self.function, nn.CrossEntropyLoss | nn.NLLLoss) or y.is_floating_point():
            return self.samples(output)
        counted, weight = y[y != self.function.ignore_index], self.function.weight
        return counted.numel() if weight is None else weight[counted].sum().item()

    def functional(self) -> Loss:
        return FunctionalLoss(self.function)

    def others(self, output: Tensor, y: Tensor) -> list[Tensor]:
        buffers = list(self.function.buffers()) if isinstance(self.function, nn.Module) else []
        before = [b.clone() for b in buffers]
        o, value = self._evaluated(output, y)
        if not all(map(torch.equal, buffers, before)):
            for b, old in zip(buffers, before, strict=True):
                b.copy_(old)
            raise ValueError("the loss changes its buffers when it is called, which a step does several times")
        nodes: list[Any] = [value.grad_fn]
        for node in nodes:  # which grows
            below = [n for n, _ in node.next_functions] if node is not None else []
            nodes += [n for n in below if n not in nodes]
        return [n.variable for n in nodes if hasattr(n, "variable") and n.variable is not o]

    def _evaluated(self, output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output as a leaf of a graph, and the value with its graph."""
        with torch.enable_grad():
            o = output.detach().requires_grad_()
            return o, self.function(o, y)

    def at(self, output: Tensor, y: Any) -> Evaluation:
        o, value = self._evaluated(output, y)
        with torch.enable_grad():
            (delta,) = torch.autograd.grad(value, o, create_graph=True, materialize_grads=True)

        def hessian(q: Tensor) -> Tensor:
            if not delta.requires_grad:  # a piecewise linear loss
                return torch.zeros_like(q)
            try:
                return torch.autograd.grad(delta, o, q, retain_graph=True, materialize_grads=True)[0]
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:  # torch has no second derivative of it
                return torch.zeros_like(q)

        return Evaluation(value.detach(), delta.detach(), hessian)


class FunctionalLoss(AnyLoss):
    """`AnyLoss` by `torch.func`."""

    def at(self, output: Tensor, y: Any) -> Evaluation:
        # compiled, an argument itself would look as if it needed no gradient
        gradient = torch.func.grad_and_value(lambda o, y: self.function(o.view_as(o), y))

        def hessian(q: Tensor) -> Tensor:
            try:
                return torch.func.vjp(lambda o: gradient(o, y)[0], output)[1](q)[0]
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:  # torch has no second derivative of it
                return torch.zeros_like(q)

        try:
            delta, value = gradient(output, y)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            words = str(error).partition("\n")[0]
            raise ValueError(
                f"the loss is no function that torch.func differentiates, as recorded steps and ensembles do: {words}"
            ) from error
        return Evaluation(value, delta, hessian)


def adapt(loss: LossFunction) -> Loss:
    """Return the loss, with closed forms where it has them. TypeError if it is not a function."""
    if isinstance(loss, type) or not callable(loss):
        raise TypeError(f"a loss is a function of (output, y), such as nn.MSELoss(), given {shown(loss)}")
    if isinstance(loss, Loss):
        return loss
    mean = getattr(loss, "reduction", None) == "mean"
    if mean and type(loss) in (nn.CrossEntropyLoss, CrossEntropyLoss) and loss.weight is None:  # type: ignore[attr-defined]
        return CrossEntropy(loss.label_smoothing, loss.ignore_index)  # type: ignore[attr-defined]
    if mean and type(loss) is nn.MSELoss:
        return SquaredError()
    if isinstance(loss, nn.Module) and any(p.requires_grad for p in loss.parameters()):
        raise ValueError(
            f"{describe(loss)} has parameters of its own, which nothing would train; put them into the model, or "
            "freeze them with requires_grad_(False)"
        )
    return AnyLoss(by_label(loss))


class AdaptedLoss:
    """Attribute that is set to a user's loss, and read as a `Loss` with the options that the user's has now."""

    def __set__(self, owner: Any, loss: LossFunction) -> None:
        adapt(loss)
        vars(owner)["loss"] = loss

    def __get__(self, owner: Any, kind: Any = None) -> Loss:
        return adapt(vars(owner)["loss"])


def options_of(loss: Any) -> list[Any]:
    """Return the options that a loss has now, adapted or not: numbers, texts, and where its tensors lie; and the loss
    itself if it is one of the user's."""
    function = getattr(loss, "function", loss)
    attributes = vars(function) if isinstance(function, nn.Module | CrossEntropy) else {}
    plain = [v for name, v in attributes.items() if name != "training" and isinstance(v, int | float | str)]
    custom = [] if isinstance(function, nn.modules.loss._Loss | Loss) else [function]
    tensors = (None if t is None else t.data_ptr() for t in attributes.get("_buffers", {}).values())
    return [type(loss), *custom, *plain, *tensors]


def loss_of(loss: LossFunction | None, outputs: OutputValues | None) -> LossFunction:
    """Return the loss at the output of a model, by default cross-entropy. outputs: how those of a model that returns a
    tuple, list or dict are one tensor; ValueError for such a model with a loss that takes a tensor."""
    if outputs is None:
        return nn.CrossEntropyLoss() if loss is None else loss
    if loss is None or isinstance(loss, nn.modules.loss._Loss):
        raise ValueError(
            f"the model returns a {type(outputs.form).__name__}; give a loss that takes it: a function (output, y) -> "
            "scalar"
        )
    adapt(loss)
    return functools.partial(_structured, loss, outputs)


def _structured(loss: LossFunction, outputs: OutputValues, output: Any, y: Tensor) -> Tensor:
    """Return a loss of what such a model returns, also of its code."""
    return loss(outputs.structured(output) if isinstance(output, Tensor) else output, y)
