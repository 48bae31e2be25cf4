"""The paper's online methods: one code solver, three ways for the weights to follow."""

from collections.abc import Sequence

from torch import nn

from altmin.methods.protocol import register
from altmin.objective import LossFunction
from altmin.penalty import Penalty
from altmin.trainer import AltMin, Codes
from altmin.weights.local import LocalAdam, LocalSGD
from altmin.weights.memory import CoActivationMemory


@register("am-adam")
def am_adam(
    model: nn.Module,
    lr: float | Sequence[float] = 1e-3,
    weight_decay: float = 0.0,
    l1: float = 0.0,
    steps: int = 1,
    loss: LossFunction | None = None,
    codes: Codes = None,
    penalty: Penalty | float | None = None,
) -> AltMin:
    """AM-Adam: codes by exact line search, every block's weights by Adam on its own residual."""
    return AltMin(model, loss, codes, LocalAdam(lr, weight_decay=weight_decay, l1=l1, steps=steps), penalty)


@register("am-sgd")
def am_sgd(
    model: nn.Module,
    lr: float | Sequence[float] = 0.1,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    l1: float = 0.0,
    steps: int = 1,
    loss: LossFunction | None = None,
    codes: Codes = None,
    penalty: Penalty | float | None = None,
) -> AltMin:
    """AM-SGD: as AM-Adam, the weights by stochastic gradient descent on f."""
    rule = LocalSGD(lr, momentum=momentum, weight_decay=weight_decay, l1=l1, steps=steps)
    return AltMin(model, loss, codes, rule, penalty)


@register("am-mem")
def am_mem(
    model: nn.Module,
    lr: float = 2e-3,
    forget: float = 0.9,
    damping: float = 30.0,
    sweeps: int | None = None,
    rate: float | None = 1000.0,
    loss: LossFunction | None = None,
    codes: Codes = None,
    penalty: Penalty | float | None = None,
) -> AltMin:
    """AM-mem: hidden weights from the memory of co-activations, the output block by Adam (`lr`)."""
    return AltMin(model, loss, codes, CoActivationMemory(forget, damping, sweeps, rate, LocalAdam(lr)), penalty)
