"""f(W, C; mu): the one place where it is written down, and the losses in the form the algorithm needs.

    f(W, C) = sum_t loss(y_t, W_{L+1} s_L(c_t^L)) + mu * sum_t sum_l || c_t^l - W_l s_{l-1}(c_t^{l-1}) ||^2

(the paper's eq. 3). It is reported divided by the number of samples, like PyTorch's losses.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from altmin.calculus import vectorised
from altmin.chain import Chain
from altmin.fusing import fusible

LossFunction = Callable[[Tensor, Tensor], Tensor]
"""What users give: (output, y) -> scalar, the mean over the batch."""


def dot(u: Tensor, v: Tensor, couples: bool = False) -> Tensor:
    """<u, v> of each sample; of all together where the samples are coupled and must move as one."""
    same = u is v
    if couples or u.ndim != 2:
        rows = (1 if couples else u.shape[0], -1)
        u, v = u.reshape(rows), v.reshape(rows)
    return torch.linalg.vector_norm(u, dim=1).square() if same else torch.linalg.vecdot(u, v)


def objective(chain: Chain, codes: Sequence[Tensor], x: Tensor, y: Tensor, mu: float, loss: LossFunction) -> Tensor:
    """f(W, C; mu) per sample, from its definition, for given codes c_1..c_L and the model's present weights.

    Of a chain without codes in time: those feed their own block too, and recurrent.py has their terms.
    """
    if chain.recurrent:
        raise ValueError("f of codes in time is not computed from given codes; a step's metrics.objective has it")
    below, misfit = [x, *codes], x.new_zeros(())
    for block, p, c, c_next in zip(chain, chain.parameters(), below, codes, strict=False):
        misfit = misfit + (c_next - block.forward(p, c)[0]).square().sum()
    output = chain.blocks[-1].forward(chain.parameters()[-1], below[-1])[0]
    term = adapt(loss)
    return (term.at(output, term.prepare(output, y)).values.sum() + mu * misfit) / len(x)


class Evaluation(NamedTuple):
    """A term of f as a function of a block's output, at one output.

    values: one for each sample, or a single entry for the whole batch where samples cannot be told apart.
    force: the way the output should go: minus the gradient of the summed loss; the residual of a fit.
    curvature(q): q^T H q with the Hessian H, per value; None where it is not known.
    """

    output: Tensor
    values: Tensor
    force: Tensor
    curvature: Callable[[Tensor], Tensor] | None


def newton(slope: Tensor, bend: Tensor, costs: Tensor) -> Tensor:
    """The lowest point in [0, 1] of -slope s + (bend / 2 + costs) s^2."""
    return (slope / torch.add(bend, costs, alpha=2).clamp_min(torch.finfo(bend.dtype).tiny)).clamp(0, 1)


class CrossEntropy:
    """-log softmax(o)_y: force e_y - p, Hessian diag(p) - p p^T. Labels, or a distribution for each sample."""

    slack = (32.0, 0.0)
    """What rounding alone may add to values: that of outputs of some ten units, however small the loss."""

    def __init__(self, label_smoothing: float = 0.0):
        self.smoothing = label_smoothing
        self.rows: Tensor | None = None

    def prepare(self, output: Tensor, y: Tensor) -> Tensor:
        """The targets as distributions, or an error."""
        if output.ndim != 2:
            raise ValueError(
                f"cross-entropy takes outputs of shape (samples, classes), given {tuple(output.shape)}; for others "
                "give the loss as a callable, such as lambda o, y: torch.nn.functional.cross_entropy(o, y)"
            )
        classes = output.shape[1]
        if y.shape == output.shape and y.dtype == output.dtype:
            return y * (1 - self.smoothing) + self.smoothing / classes if self.smoothing else y
        if y.dtype != torch.int64 or y.shape != output.shape[:1]:
            raise ValueError(
                f"cross-entropy takes one int64 label per sample, shape ({len(output)},), given {_describe(y)}"
            )
        kind = (classes, output.dtype, output.device)
        if self.rows is None or (len(self.rows), self.rows.dtype, self.rows.device) != kind:
            self.rows = torch.eye(classes, dtype=output.dtype, device=output.device) * (1 - self.smoothing)
            self.rows += self.smoothing / classes  # the same as columns
        if y.is_cuda or vectorised():  # there an index out of range cannot be caught: its loss is made NaN, found later
            return _row_or_nan(self.rows, y)
        try:
            return self.rows.index_select(1, y).mT
        except (IndexError, RuntimeError):
            self.check(output, y)
            raise

    def check(self, output: Tensor, y: Tensor) -> None:
        """Complains of a label out of range."""
        if y.dtype != torch.int64:
            return
        classes, (low, high) = output.shape[1], torch.stack(torch.aminmax(y)).tolist()
        if low < 0 or high >= classes:
            raise ValueError(
                f"label {low if low < 0 else high} is out of range: the model has {classes} outputs, "
                f"so labels go from 0 to {classes - 1}"
            )

    def newton(self, at: Evaluation, y: Tensor, dy: Tensor, costs: Tensor) -> Tensor:
        """The best share of dy in the quadratic model of the loss, at the given costs of all of it."""
        return _softmax_newton(y, at.force, dy, costs)

    def at(self, output: Tensor, y: Tensor) -> Evaluation:
        values, force = _softmax_loss(output, y)
        return Evaluation(output, values, force, lambda q: _softmax_curvature(y, force, q))


@fusible
def _softmax_loss(output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    if output.is_cuda:
        log_p = F.log_softmax(output, 1)
        return -(y * log_p).sum(1), y - log_p.exp()
    log_p, y = F.log_softmax(output.mT.contiguous(), 0), y.mT  # along columns: many times faster for few classes
    return (y * log_p).sum(0).neg_(), (y - log_p.exp()).mT


@fusible
def _row_or_nan(rows: Tensor, y: Tensor) -> Tensor:
    label = y.clamp(0, len(rows) - 1)
    return torch.where((y == label).unsqueeze(1), rows[label], torch.nan)


@fusible
def _softmax_newton(y: Tensor, force: Tensor, dy: Tensor, costs: Tensor) -> Tensor:
    return newton(dot(force, dy), _softmax_curvature(y, force, dy), costs)


@fusible
def _softmax_curvature(y: Tensor, force: Tensor, q: Tensor) -> Tensor:
    pq = (y - force) * q
    return torch.addcmul((pq * q).sum(1), (mean := pq.sum(1)), mean, value=-1)


class SquaredError:
    """The mean over a sample's m outputs of (o - y)^2: force 2 (y - o) / m, Hessian 2 I / m."""

    slack = (0.0, 1.0)

    def prepare(self, output: Tensor, y: Tensor) -> Tensor:
        if y.shape != output.shape or y.dtype != output.dtype:
            raise ValueError(
                f"the squared error compares like with like: the model's output is {_describe(output)}, "
                f"the targets are {_describe(y)}"
            )
        return y

    def newton(self, at: Evaluation, y: Tensor, dy: Tensor, costs: Tensor) -> Tensor:
        m = dy.numel() // dy.shape[0]
        return newton(dot(at.force, dy), dot(dy, dy) * (2 / m), costs)

    def at(self, output: Tensor, y: Tensor) -> Evaluation:
        m = output.numel() // output.shape[0]
        error = y - output
        return Evaluation(output, dot(error, error) / m, error * (2 / m), lambda q: dot(q, q) * (2 / m))


class AnyLoss:
    """Any callable(output, y) -> scalar, the mean over the batch, differentiated at the output and no further."""

    slack = (0.0, 1.0)

    def __init__(self, function: LossFunction):
        self.function = function
        self.summed = getattr(function, "reduction", "mean") == "sum"

    def prepare(self, output: Tensor, y: Tensor) -> Tensor:
        return y

    def at(self, output: Tensor, y: Tensor) -> Evaluation:
        if vectorised():
            gradient, value = torch.func.grad_and_value(self.function)(output, y)
            return self._evaluation(output, value, gradient)
        with torch.enable_grad():
            o = output.detach().requires_grad_()
            value = self.function(o, y)
            if not isinstance(value, Tensor) or value.ndim != 0:
                raise ValueError("the loss must return a scalar tensor, the mean over the batch")
            (gradient,) = torch.autograd.grad(value, o)
        return self._evaluation(output, value.detach(), gradient)

    def _evaluation(self, output: Tensor, value: Tensor, gradient: Tensor) -> Evaluation:
        samples = 1 if self.summed else len(output)
        return Evaluation(output, (value * samples).view(1), gradient * -samples, None)


Loss = CrossEntropy | SquaredError | AnyLoss


def adapt(loss: LossFunction) -> Loss:
    """The loss with its closed forms where it has them."""
    if type(loss) is nn.CrossEntropyLoss and (loss.weight, loss.reduction, loss.ignore_index) == (
        None,
        "mean",
        -100,
    ):
        return CrossEntropy(loss.label_smoothing)
    if type(loss) is nn.MSELoss and loss.reduction == "mean":
        return SquaredError()
    return AnyLoss(loss)


def _describe(x: Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')} of shape {tuple(x.shape)}"
