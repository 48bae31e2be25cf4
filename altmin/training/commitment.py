"""Nets that become discrete layer by layer, from the input upwards.

The activations of such a net are `Committed`: in training a random share of the entries is discrete and passes no
gradient, the rest is smooth. The share of the layer next to the input rises from 0 to 1 first, then that of the next
layer, and so on. While a layer becomes discrete, those above are smooth and adapt to it by exact derivatives; once all
of it is, nothing below it changes any more. In the reverse order every gradient would have to pass a discrete layer.

StoMPP (arXiv 2601.22660, 2606.27759) trains binary residual nets by such masks.
"""

from typing import Any

from torch import nn

from altmin.common.errors import demand
from altmin.layers import Committed


def shares(layers: int, done: float, begin: float = 0.4, end: float = 0.9) -> list[float]:
    """The share of discrete entries of each layer when the fraction `done` of a run is over: layer i of n rises
    linearly in the i-th of n equal parts of [begin, end].

    >>> shares(2, 0.5, begin=0.2, end=0.6)
    [1.0, 0.5]
    """
    part = (end - begin) / max(layers, 1)
    return [round(min(1.0, max(0.0, (done - begin) / part - i)), 12) for i in range(layers)]


def commit(model: nn.Module, done: float = 1.0, begin: float = 0.4, end: float = 0.9) -> None:
    """Set the shares of all `Committed` layers of a model, in the order of its modules, as `shares` says. ValueError
    if there are none."""
    layers = [m for m in model.modules() if isinstance(m, Committed)]
    if not layers:
        raise ValueError("the model has no Committed activation, so nothing in it can become discrete step by step")
    for layer, share in zip(layers, shares(len(layers), done, begin, end), strict=True):
        layer.share.fill_(share)


class Commitment:
    """A callback that makes the `Committed` layers of a model discrete, from the input upwards, between the fractions
    `begin` and `end` of a run; in the rest of it, only what lies above the last of them is trained.

    It has no state: the shares are buffers of the model. It follows one model, not an ensemble. ValueError unless
    0 <= begin < end <= 1.
    """

    for_one = True

    def __init__(self, begin: float = 0.4, end: float = 0.9):
        for name, value in (("begin", begin), ("end", end)):
            demand("Commitment", name, value)
        if not begin < end <= 1:
            raise ValueError(f"Commitment takes place between begin < end <= 1, given begin {begin} and end {end}")
        self.begin, self.end = begin, end

    def __repr__(self) -> str:
        return f"Commitment(begin={self.begin}, end={self.end})"

    def on_start(self, progress: Any) -> None:
        """Raise ValueError if the length of the run is unknown, or if the model has no `Committed` layer."""
        if progress.batches is None:
            raise ValueError("Commitment needs the number of batches of an epoch; give data whose length is known")
        commit(progress.model, 0.0, self.begin, self.end)

    def on_batch_end(self, progress: Any) -> None:
        commit(progress.model, progress.batch / progress.batches, self.begin, self.end)
