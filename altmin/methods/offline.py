"""The offline variants: the whole training set is one mini-batch, seen in parts, with one AM iteration per epoch."""

from typing import Any

import torch
from torch import Tensor, nn

from altmin.core.losses import LossFunction
from altmin.core.penalty import Penalty
from altmin.core.trainer import AltMin, Codes, Metrics
from altmin.core.weights.local import LocalAdam
from altmin.core.weights.memory import CoActivationMemory
from altmin.methods.alternating import Cuts, solver
from altmin.methods.protocol import register


class Offline:
    """`step` sets the codes of a part and gathers its share, holding no more; `end_epoch` moves the weights."""

    def __init__(self, am: AltMin):
        self.am, self.model = am, am.model

    def __repr__(self) -> str:
        return f"Offline({self.am!r})"

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        return self.am.optimizer

    @property
    def loss(self) -> LossFunction:
        """As the trainer has it: a function (output, y) -> scalar to measure with."""
        return self.am.loss

    def step(self, x: Tensor, y: Tensor) -> Metrics:
        return self.am.gather(x, y)

    def end_epoch(self) -> None:
        self.am.apply()
        self.am.end_epoch()

    def state_dict(self) -> dict[str, Any]:
        return self.am.state_dict()

    def check_state(self, state: Any) -> None:
        """ValueError unless `load_state_dict` can take the state: then it takes all of it."""
        self.am.check_state(state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.am.load_state_dict(state)


@register("am-adam-offline")
def am_adam_offline(
    model: nn.Module,
    lr: float = 0.01,
    weight_decay: float = 0.0,
    l1: float = 0.0,
    loss: LossFunction | None = None,
    codes: Codes = None,
    share: float | None = None,
    order: str | None = None,
    penalty: Penalty | float | None = None,
    at: Cuts = None,
    clip_norm: float | None = None,
    decay_biases: bool = True,
) -> Offline:
    """AM-Adam-off: one Adam step per epoch on every block's problem over all the data. at: as in `split`. clip_norm,
    decay_biases: as in `LocalOptimizer`."""
    rule = LocalAdam(lr, weight_decay=weight_decay, l1=l1, clip_norm=clip_norm, decay_biases=decay_biases)
    return Offline(AltMin(model, loss, solver(model, codes, share, order, at), rule, penalty, at))


@register("am-mem-offline")
def am_mem_offline(
    model: nn.Module,
    lr: float = 0.01,
    damping: float = 1.0,
    sweeps: int | None = None,
    rate: float | None = 100.0,
    loss: LossFunction | None = None,
    codes: Codes = None,
    share: float | None = None,
    order: str | None = None,
    penalty: Penalty | float | None = None,
    steps: int | None = None,
    at: Cuts = None,
) -> Offline:
    """AM-mem-off: per epoch one fit of every hidden block to the codes of all the data. at: as in `split`."""
    rule = CoActivationMemory(0.0, damping, sweeps, rate, LocalAdam(lr), steps=steps)
    return Offline(AltMin(model, loss, solver(model, codes, share, order, at), rule, penalty, at))
