"""The offline variants: the whole training set is one mini-batch, seen in parts, with one AM iteration per epoch."""

from torch import Tensor

from altmin.calculus.context import LOCAL, Context
from altmin.core.trainer import AltMin, Metrics, WeightRule
from altmin.core.weights.local import LocalAdam
from altmin.core.weights.memory import CoActivationMemory
from altmin.core.weights.sums import FittedMemory
from altmin.methods.alternating import register_rule
from altmin.methods.wrapper import Wrapper


class Offline(Wrapper):
    """`step` moves the codes of a part of the data and gathers what the weights need of it, holding no more;
    `end_epoch` moves the weights."""

    method: AltMin

    def step(self, x: Tensor, y: Tensor, *, context: Context = LOCAL) -> Metrics:
        return self.method.gather(x, y, context)

    def end_epoch(self) -> None:
        self.method.apply()
        self.method.end_epoch()


@register_rule("am-adam-offline", Offline)
def am_adam_offline(
    lr: float = 0.01,
    weight_decay: float = 0.0,
    l1: float = 0.0,
    clip_norm: float | None = None,
    decay_biases: bool = True,
) -> WeightRule:
    """AM-Adam-off: one Adam step per epoch on every block's problem over all the data. at: as in `split`. clip_norm,
    decay_biases: as in `LocalOptimizer`."""
    return LocalAdam(lr, weight_decay=weight_decay, l1=l1, clip_norm=clip_norm, decay_biases=decay_biases)


@register_rule("am-mem-offline", Offline)
def am_mem_offline(
    lr: float = 0.03,
    length: str = "adam",
    beta: float = 0.5,
    damping: float = 1.0,
    rank: int = 32,
    weight_decay: float = 0.0,
    decay_biases: bool = True,
    clip_norm: float | None = None,
) -> WeightRule:
    """AM-mem-off: per epoch one solve of every layer's regression over all the data. The options are those of
    `CoActivationMemory`; the memory holds this epoch's inputs alone. at: as in `split`."""
    return CoActivationMemory(lr, beta, 0.0, damping, length, rank, weight_decay, decay_biases, clip_norm, 1, 2000)


@register_rule("am-mem-fitted-offline", Offline)
def am_mem_fitted_offline(
    lr: float = 0.01,
    damping: float = 1.0,
    sweeps: int | None = None,
    rate: float | None = 100.0,
    steps: int | None = None,
) -> WeightRule:
    """AM-mem-fitted-off: per epoch one fit of every hidden block to the codes of all the data (`FittedMemory`). at: as
    in `split`."""
    return FittedMemory(0.0, damping, sweeps, rate, LocalAdam(lr), steps=steps)
