"""The paper's online methods: one code solver, three ways for the weights to follow."""

from collections.abc import Sequence

from torch import nn

from altmin.core.chain import split
from altmin.core.codes.choose import choose
from altmin.core.losses import LossFunction
from altmin.core.penalty import Penalty
from altmin.core.trainer import AltMin, Codes
from altmin.core.weights.local import LocalAdam, LocalSGD
from altmin.core.weights.memory import CoActivationMemory
from altmin.methods.protocol import register

Cuts = Sequence[str] | None


def solver(model: nn.Module, codes: Codes, share: float | None, order: str | None, at: Cuts = None) -> Codes:
    """codes as given, or with a share or an order that solver, chosen by name or by default, with these options.

    ValueError if codes is a solver, which has options of its own.
    """
    return codes if share is None and order is None else choose(codes, split(model, at), share, order)


@register("am-adam")
def am_adam(
    model: nn.Module,
    lr: float | Sequence[float] = 1e-3,
    weight_decay: float = 0.0,
    l1: float = 0.0,
    steps: int = 1,
    loss: LossFunction | None = None,
    codes: Codes = None,
    share: float | None = None,
    order: str | None = None,
    penalty: Penalty | float | None = None,
    at: Cuts = None,
    clip_norm: float | None = None,
    decay_biases: bool = True,
) -> AltMin:
    """AM-Adam: codes by exact line search, every block's weights by Adam on its own residual.

    share, order: options of the code solver, as in `GradientCodes`; None for its own. at: as in `split`. clip_norm,
    decay_biases: as in `LocalOptimizer`.
    """
    rule = LocalAdam(lr, weight_decay=weight_decay, l1=l1, steps=steps, clip_norm=clip_norm, decay_biases=decay_biases)
    return AltMin(model, loss, solver(model, codes, share, order, at), rule, penalty, at)


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
    share: float | None = None,
    order: str | None = None,
    penalty: Penalty | float | None = None,
    at: Cuts = None,
    clip_norm: float | None = None,
    decay_biases: bool = True,
) -> AltMin:
    """AM-SGD: as AM-Adam, the weights by stochastic gradient descent with momentum."""
    rule = LocalSGD(lr, momentum, weight_decay, l1, steps, clip_norm, decay_biases)
    return AltMin(model, loss, solver(model, codes, share, order, at), rule, penalty, at)


@register("am-mem")
def am_mem(
    model: nn.Module,
    lr: float = 2e-3,
    forget: float = 0.9,
    damping: float = 30.0,
    sweeps: int | None = None,
    rate: float | None = 300.0,
    loss: LossFunction | None = None,
    codes: Codes = None,
    share: float | None = None,
    order: str | None = None,
    penalty: Penalty | float | None = None,
    steps: int | None = 1,
    at: Cuts = None,
) -> AltMin:
    """AM-mem: hidden weights from the memory of co-activations, the output block by Adam (`lr`)."""
    rule = CoActivationMemory(forget, damping, sweeps, rate, LocalAdam(lr), steps=steps)
    return AltMin(model, loss, solver(model, codes, share, order, at), rule, penalty, at)
