"""The paper's Elman network, gated recurrent networks, and padding for sequences of different lengths."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from altmin.layers import GatedScan, Last, LastReal, Outputs, Readout, Recurrent


def elman(hidden: int, length: int = 784, inputs: int = 1, outputs: int = 10, padded: bool = False) -> nn.Sequential:
    """The paper's Elman network for sequences (samples, length, inputs).

    h_t = tanh(U x_t + W h_{t-1} + b) with `hidden` units, z_t = V h_t a scalar, and a linear classifier over the
    rectified z_1..z_T. padded: for sequences of different lengths, padded by `pad`.
    """
    return nn.Sequential(
        Recurrent(inputs, hidden, padded),
        *(Readout(hidden, 1, bias=False), nn.Flatten(), nn.ReLU()),
        nn.Linear(length, outputs),
    )


def gru(
    hidden: int, layers: int = 1, inputs: int = 1, outputs: int = 10, padded: bool = False, **options: Any
) -> nn.Sequential:
    """An `nn.GRU` for sequences (samples, steps, inputs) of any length, and a linear classifier of its last output.
    padded: for sequences of different lengths, padded by `pad`. options: those of `nn.GRU`: bias, dropout,
    bidirectional."""
    return _classifier(nn.GRU(inputs, hidden, layers, batch_first=True, **options), outputs, padded)


def lstm(
    hidden: int, layers: int = 1, inputs: int = 1, outputs: int = 10, padded: bool = False, **options: Any
) -> nn.Sequential:
    """Return the model of `gru` with an `nn.LSTM`."""
    return _classifier(nn.LSTM(inputs, hidden, layers, batch_first=True, **options), outputs, padded)


def _classifier(rnn: nn.RNNBase, outputs: int, padded: bool) -> nn.Sequential:
    features = rnn.hidden_size * (1 + rnn.bidirectional)
    return nn.Sequential(Outputs(rnn, padded), LastReal() if padded else Last(), nn.Linear(features, outputs))


def min_gru(hidden: int, layers: int = 1, inputs: int = 1, outputs: int = 10) -> nn.Sequential:
    """Minimal gated recurrent units for sequences (samples, steps, inputs) of any length: `layers` times an `nn.Linear`
    to gates and candidates and a `GatedScan`, then a linear classifier of the last state. All steps are computed at
    once, forward and backward, and the codes of all steps are those of ordinary linear layers."""
    widths = [inputs, *[hidden] * layers]
    body = [m for width in widths[:-1] for m in (nn.Linear(width, 2 * hidden), GatedScan())]
    return nn.Sequential(*body, Last(), nn.Linear(hidden, outputs))


def pad(sequences: Sequence[Tensor], length: int) -> Tensor:
    """Sequences (steps, inputs) of any lengths as one tensor (samples, length, inputs + 1) for a padded
    `elman`, `gru` or `lstm`.

    Zeros fill the end; the last feature is 1 at every real step. Raises ValueError for a sequence longer than `length`,
    for none at all, and for different numbers of inputs.

    >>> pad([torch.tensor([[5.0], [6.0]]), torch.tensor([[7.0]])], length=2).tolist()
    [[[5.0, 1.0], [6.0, 1.0]], [[7.0, 1.0], [0.0, 0.0]]]
    """
    longest = max((len(s) for s in sequences), default=0)
    if longest > length or not longest:
        raise ValueError(f"sequences of up to {length} steps are wanted, the longest given has {longest}")
    if any(s.ndim != 2 or s.shape[1] != sequences[0].shape[1] for s in sequences):
        shapes = ", ".join(sorted({str(tuple(s.shape)) for s in sequences})[:3])
        raise ValueError(f"each sequence is (steps, inputs) with the same number of inputs, given {shapes}")
    return torch.stack([F.pad(F.pad(s, (0, 1), value=1.0), (0, 0, 0, length - len(s))) for s in sequences])
