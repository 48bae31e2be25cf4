"""One mini-batch as functions without state: encode, move the codes, judge the outcome.

Every runner (the trainer, an ensemble, a captured step) calls these; what differs is where the state lives.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from altmin.calculus import Map, Number, Saved
from altmin.calculus.numbers import finite, number
from altmin.core.chain import Chain, Theta
from altmin.core.codes.above import Residual, Top
from altmin.core.codes.gradient import Trace, encode
from altmin.core.losses import Loss


@runtime_checkable
class CodeSolver(Protocol):
    """Moves the codes of a mini-batch; yields every block's number and residual, from the last to the first."""

    def __call__(self, chain: Chain, theta: Theta, trace: Trace, top: Top) -> Iterator[tuple[int, Residual]]: ...


class Moved(NamedTuple):
    """A mini-batch whose codes have moved.

    loss: the mean loss of the encoded batch, without dimensions. costs, moved: of every block as in `Residual`, first
    to last. found: of every block what `measure` made of its residual. price: mu over the number of samples. checked:
    not finite where the loss of the encoded batch, what batch norm keeps or the input is not, the latter seen in its
    sum or, if that is smaller and shows it, in that of the first code. statistics: what batch norm is to keep.
    """

    loss: Tensor
    costs: list[Number]
    moved: list[Number | None]
    found: list[Any]
    price: Number
    checked: Number
    statistics: list[tuple[Map, Saved]]

    @property
    def objective(self) -> Number:
        """f over the number of samples, once the codes have moved."""
        return self.costs[-1] + self.price * sum(self.costs[:-1])


def move_codes(
    chain: Chain,
    theta: Theta,
    codes: CodeSolver,
    loss: Loss,
    x: Tensor,
    y: Tensor,
    mu: Number,
    measure: Callable[[int, Residual], Any],
) -> Moved:
    """Encodes a mini-batch and moves its codes. Every block's residual is measured as soon as it is known and then
    released; nothing of the model changes."""
    trace = encode(chain, theta, x)
    first = (trace.values[0] if chain.shows_input and x.numel() >= trace.values[0].numel() else x).sum()
    statistics = [t for block, state in zip(chain, trace.states, strict=True) for t in block.statistics(state)]
    top = Top(loss, trace.values[-1], y, mu)
    costs, moved, found = [], [], []
    for l, residual in codes(chain, theta, trace, top):
        costs.append(residual.cost)
        moved.append(residual.moved)
        found.append(measure(l, residual))
        del residual  # before the next one is made
    kept = [t.flatten() for m, what in statistics for t in m.checked(what)]
    checked = number(first + 0 * torch.cat(kept).sum() if kept else first) + 0 * top.start.value
    return Moved(top.loss_value, costs[::-1], moved[::-1], found[::-1], mu / top.unit, checked, statistics)


def verdict(step: Moved) -> Any:
    """Whether input, loss and objective are finite: a bool, or a tensor of one where numbers are tensors."""
    return finite(step.objective + 0 * step.checked)


def soft_threshold(p: Tensor, threshold: Any) -> Tensor:
    """The proximal step of threshold * |p|_1.

    >>> import torch
    >>> soft_threshold(torch.tensor([-3.0, 0.5]), 1.0)
    tensor([-2.,  0.])
    """
    return p.sign() * (p.abs() - threshold).clamp_min(0)
