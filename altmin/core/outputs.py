"""The loss of a model that returns a tuple, list or dict."""

from typing import Any

from torch import Tensor, nn

from altmin.calculus.cut_values import OutputValues
from altmin.common.describe import describe
from altmin.core.chain import Chain
from altmin.core.losses import Loss, LossFunction, adapt


class OutputsLoss:
    """A loss of what such a model returns, also of its code (`OutputValues`)."""

    def __init__(self, loss: LossFunction, outputs: OutputValues):
        self.loss, self.outputs = loss, outputs

    def __repr__(self) -> str:
        return describe(self.loss)

    def __call__(self, output: Any, y: Tensor) -> Tensor:
        return self.loss(self.outputs.structured(output) if isinstance(output, Tensor) else output, y)


def loss_of(loss: LossFunction | None, chain: Chain) -> Loss:
    """The loss at the output of a chain, by default cross-entropy. TypeError if it is not a loss, ValueError if the
    model returns a tuple, list or dict and the loss takes a tensor."""
    if chain.outputs is None:
        return adapt(nn.CrossEntropyLoss() if loss is None else loss)
    if loss is None or isinstance(loss, nn.modules.loss._Loss):
        kind = type(chain.outputs.form).__name__
        raise ValueError(f"the model returns a {kind}; give a loss that takes it: a function (output, y) -> scalar")
    adapt(loss)
    return adapt(OutputsLoss(loss, chain.outputs))
