"""The paper's Algorithms 1 to 3 as they are printed, by name.

They are slower and less accurate than the library's own methods, and are what the paper's claims are held against.
Each choice, with its place in the paper:

| choice | value | from |
|---|---|---|
| codes | values, moved one after the other from the last, by steps of fixed length | Algorithm 2, eqs. 4 and 5 |
| norms, loss | sums over units and samples | eq. 3 |
| steps on each code | 5 | text: a hyper-parameter; public code: 5; appendix: 1 (LeNet-5), 5 (RNN) |
| their momentum | 0.9, Nesterov's | public code |
| weights of the last layer | SGD (AM-mem, AM-SGD), Adam (AM-Adam) | Algorithm 3, step 1; public code |
| hidden weights | Adam or SGD on mu times the mean of the layer's squared residual | Algorithm 3, step 10 |
| the same with memory | sweeps over the columns, A and B sums since the first sample | Algorithm 3, steps 4 to 6 |
| mu | starts at 0.01, grows with batches and epochs, at most 1.5 | appendix (LeNet-5) |
| l1 | off; proximal, after each step or column | footnote 1; public code (columns) |
| biases | as any weight, with an input of 1 | the paper has none, its public code in the last layer |
"""

from collections.abc import Sequence

from torch import nn

from altmin.core.codes.printed import PrintedCodes
from altmin.core.losses import LossFunction
from altmin.core.penalty import Penalty
from altmin.core.trainer import AltMin, WeightRule
from altmin.core.weights.local import LocalAdam, LocalSGD
from altmin.core.weights.sums import FittedMemory
from altmin.methods.alternating import register_rule
from altmin.methods.offline import Offline


def as_printed(  # noqa: PLR0913
    model: nn.Module,
    rule: WeightRule,
    loss: LossFunction | None = None,
    code_lr: float = 0.1,
    code_steps: int = 5,
    momentum: float = 0.9,
    code_l1: float = 0.0,
    mean: bool = False,
    anchored: bool = True,
    mu: float = 0.01,
    increment: float = 0.0,
    growth: float = 1.0,
    maximum: float | None = 1.5,
    at: Sequence[str] | None = None,
) -> AltMin:
    """An `AltMin` with this weight rule and the paper's codes and mu.

    code_lr, code_steps, momentum, code_l1, mean, anchored: those of `PrintedCodes`. mu, increment, growth, maximum:
    those of `Penalty`. at: as in `split`.
    """
    codes = PrintedCodes(code_steps, code_lr, momentum, code_l1, mean, anchored)
    return AltMin(model, loss, codes, rule, Penalty(mu, increment, growth, maximum), at)


@register_rule("am-adam-printed", build=as_printed)
def am_adam_printed(lr: float = 1e-3, steps: int = 1, l1: float = 0.0) -> WeightRule:
    """AM-Adam as the paper prints it: every layer's weights by `steps` steps of Adam on its own term of f."""
    return LocalAdam(lr, steps=steps, l1=l1)


@register_rule("am-sgd-printed", build=as_printed)
def am_sgd_printed(lr: float = 0.1, steps: int = 1, l1: float = 0.0) -> WeightRule:
    """AM-SGD as the paper prints it: as AM-Adam, by stochastic gradient descent, whose steps in hidden layers have the
    factor mu of their term."""
    return LocalSGD(lr, momentum=0.0, l1=l1, steps=steps)


@register_rule("am-mem-printed", build=as_printed)
def am_mem_printed(lr: float = 0.1, sweeps: int = 1, l1: float = 0.0) -> WeightRule:
    """AM-mem as the paper prints it: hidden weights by sweeps of coordinate descent on the sums A and B over all
    samples since the first, the last layer by SGD (`lr`)."""
    return FittedMemory(1.0, sweeps=sweeps, rate=None, rest=LocalSGD(lr, momentum=0.0), l1=l1)


@register_rule("am-adam-offline-printed", Offline, build=as_printed)
def am_adam_offline_printed(lr: float = 0.01, l1: float = 0.0) -> WeightRule:
    """AM-Adam-off as the paper prints it: all the data are one mini-batch, so that an epoch is one step."""
    return LocalAdam(lr, l1=l1)


@register_rule("am-mem-offline-printed", Offline, build=as_printed)
def am_mem_offline_printed(lr: float = 0.1, sweeps: int = 1, l1: float = 0.0) -> WeightRule:
    """AM-mem-off as the paper prints it: all the data are one mini-batch, and A and B their sums over all epochs."""
    return FittedMemory(1.0, sweeps=sweeps, rate=None, rest=LocalSGD(lr, momentum=0.0), l1=l1)
