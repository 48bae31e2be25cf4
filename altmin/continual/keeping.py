"""A method that keeps what it has learnt: memories that never fade, and an output layer that moves slowly."""

from collections.abc import Mapping

from torch import nn

from altmin.common.errors import demand
from altmin.core.losses import LossFunction
from altmin.core.trainer import AltMin
from altmin.core.weights.local import LocalAdam
from altmin.core.weights.memory import CoActivationMemory, Memory


def learner(
    model: nn.Module,
    lr: float = 1e-4,
    rate: float = 30.0,
    damping: float = 10.0,
    prior: Mapping[int, Memory] | None = None,
    loss: LossFunction | None = None,
) -> AltMin:
    """AM-mem for data that come in tasks, one after the other, and are not seen again.

    Hidden layers are fitted to A = sum a a^T and B = sum c a^T over all samples ever seen (forget = 1), by an exact
    solve a mini-batch; the output layer follows by Adam with a small lr, since no memory holds it. The other options
    are those of `CoActivationMemory`; the defaults are those of docs/continual.md.

    The result is an ordinary method: it takes `step(x, y)`, `altmin.fit` and `continual.run`, and is not told when a
    task ends. prior: memories to go on from, the `weights.memories` of an earlier one, beside the weights that the
    model has; checkpoints (`state_dict`) hold them too. ValueError if they do not fit the model.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> learner(model).weights.forget
    1.0
    """
    demand("learner", "lr", lr)
    rule = CoActivationMemory(1.0, damping, None, rate, LocalAdam(lr), prior, steps=None)
    return AltMin(model, loss, weights=rule)
