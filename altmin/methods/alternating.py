"""The paper's online methods: one code solver, three ways for the weights to follow."""

from collections.abc import Sequence

from torch import nn

from altmin.memory import CoActivationMemory
from altmin.methods.protocol import register
from altmin.objective import LossFunction
from altmin.penalty import Penalty
from altmin.recurrent import RecurrentCodes
from altmin.trainer import AltMin, CodeSolver
from altmin.weights import LocalAdam, LocalSGD


def solver(codes: CodeSolver | float | None, sweep: str | None) -> CodeSolver | float | None:
    """The code solver from a method's options; a sweep is the order in which codes in time move."""
    if sweep is None:
        return codes
    if codes is not None and not isinstance(codes, int | float):
        raise ValueError(f"give either the code solver or the sweep: codes is {codes!r}, sweep {sweep!r}")
    return RecurrentCodes(sweep, lr="exact" if codes is None else codes)


@register("am-adam")
def am_adam(
    model: nn.Module,
    lr: float | Sequence[float] = 1e-3,
    weight_decay: float = 0.0,
    l1: float = 0.0,
    steps: int = 1,
    loss: LossFunction | None = None,
    codes: CodeSolver | float | None = None,
    penalty: Penalty | float | None = None,
    sweep: str | None = None,
) -> AltMin:
    """AM-Adam: codes by exact line search, every block's weights by Adam on its own residual."""
    return AltMin(
        model, loss, solver(codes, sweep), LocalAdam(lr, weight_decay=weight_decay, l1=l1, steps=steps), penalty
    )


@register("am-sgd")
def am_sgd(
    model: nn.Module,
    lr: float | Sequence[float] = 0.1,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    l1: float = 0.0,
    steps: int = 1,
    loss: LossFunction | None = None,
    codes: CodeSolver | float | None = None,
    penalty: Penalty | float | None = None,
    sweep: str | None = None,
) -> AltMin:
    """AM-SGD: as AM-Adam, the weights by stochastic gradient descent on f."""
    rule = LocalSGD(lr, momentum=momentum, weight_decay=weight_decay, l1=l1, steps=steps)
    return AltMin(model, loss, solver(codes, sweep), rule, penalty)


@register("am-mem")
def am_mem(
    model: nn.Module,
    lr: float = 2e-3,
    forget: float = 0.9,
    damping: float = 30.0,
    sweeps: int | None = None,
    rate: float | None = 1000.0,
    loss: LossFunction | None = None,
    codes: CodeSolver | float | None = None,
    penalty: Penalty | float | None = None,
    sweep: str | None = None,
) -> AltMin:
    """AM-mem: hidden weights from the memory of co-activations, the output block by Adam (`lr`)."""
    return AltMin(
        model, loss, solver(codes, sweep), CoActivationMemory(forget, damping, sweeps, rate, LocalAdam(lr)), penalty
    )
