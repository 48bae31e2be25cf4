"""Layers in time: recurrent ones, those of torch's modules, and what reads their outputs."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from altmin.common.scan import differentiable_scan
from altmin.layers.recurrence import Recurrences, recurrence


class Recurrent(nn.RNN):
    """h_t = tanh(U x_t + W h_{t-1} + b), h_0 = 0: sequences (samples, steps, inputs) to (samples, steps, hidden).

    An `nn.RNN` with one bias: the second, which would only double the first, stays zero. The first starts there, so
    that h is initially an odd function of the input and its readout has both signs. padded: the last feature of
    the input says which steps are real; from a sequence's first 0 on all is padding, and h is 0 there.

    >>> Recurrent(2, 3)(torch.zeros(4, 5, 2)).shape
    torch.Size([4, 5, 3])
    """

    def __init__(self, inputs: int, hidden: int, padded: bool = False):
        super().__init__(inputs, hidden, batch_first=True)
        self.padded = padded
        with torch.no_grad():
            self.get_parameter("bias_ih_l0").zero_()
            self.get_parameter("bias_hh_l0").zero_().requires_grad_(False)

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """The input proper, and a 1 for every real step (samples, steps, 1), None without padding."""
        return sequences("Recurrent", x, self.input_size, self.padded)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        steps, real = self.parts(x)
        h = _one_layer(self.mode, steps, [getattr(self, name) for name in self._all_weights[0]])
        return h if real is None else h * real


class RecurrentLayer(nn.Module):
    """One layer of an `nn.RNN` (tanh), `nn.GRU` or `nn.LSTM`, in one direction, whose parameters it has: sequences
    (samples, steps, inputs) to (samples, steps, hidden), from h_0 = 0. padded: the last feature of the input says which
    steps are real, and so does that of the output (see `Outputs`).

    >>> layer = RecurrentLayer(nn.GRU(2, 3, num_layers=2), 1)
    >>> layer(torch.zeros(4, 5, 3)).shape
    torch.Size([4, 5, 3])
    """

    def __init__(self, of: nn.RNNBase, layer: int = 0, padded: bool = False):
        super().__init__()
        self.mode, self.hidden_size, self.padded = of.mode, of.hidden_size, padded
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            self.register_parameter(name, getattr(of, f"{name}_l{layer}", None))
        self.input_size = self.get_parameter("weight_ih").shape[1]

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """The input proper, and a 1 for every real step (samples, steps, 1), None without padding."""
        return sequences(self._get_name(), x, self.input_size, self.padded)

    def forward(self, x: Tensor) -> Tensor:
        x, real = self.parts(x)
        h = _one_layer(self.mode, x, [p for p in self._parameters.values() if p is not None])
        return h if real is None else torch.cat([h * real, real], -1)

    def _get_name(self) -> str:
        return {"RNN_TANH": "RNN"}.get(self.mode, self.mode)


class Outputs(nn.Module):
    """The outputs of all steps of an `nn.RNN`, `nn.GRU` or `nn.LSTM` with batch_first=True, without its last state, so
    that it can stand in an `nn.Sequential`. ValueError for another module.

    padded: for sequences of different lengths (`models.pad`): the last feature of the input says which steps are real,
    and so does that of the output, which is 0 elsewhere; `LastReal` picks the last of them. In one direction only.

    >>> Outputs(nn.GRU(2, 3, batch_first=True))(torch.zeros(4, 5, 2)).shape
    torch.Size([4, 5, 3])
    """

    def __init__(self, rnn: nn.RNNBase, padded: bool = False):
        super().__init__()
        if not isinstance(rnn, nn.RNNBase) or not rnn.batch_first:
            raise ValueError(f"Outputs takes an nn.RNN, nn.GRU or nn.LSTM with batch_first=True, given {rnn!r}")
        if padded and rnn.bidirectional:
            raise ValueError("padded sequences are read in one direction; give a module with bidirectional=False")
        if padded and rnn.dropout:
            raise ValueError("dropout between layers would drop the mark of padded sequences; give dropout=0")
        self.rnn, self.padded = rnn, padded

    def forward(self, x: Tensor) -> Tensor:
        x, real = sequences(self.rnn._get_name(), x, self.rnn.input_size, self.padded)
        # torch.func has no rule for the fused kernel
        h: Tensor = _by_layers(self.rnn, x) if torch._C._functorch.maybe_current_level() is not None else self.rnn(x)[0]
        return h if real is None else torch.cat([h * real, real], -1)


class LayerDropout(nn.Dropout):
    """The dropout between the layers of a recurrent module, whose mode (`train`, `eval`) it has."""

    def __init__(self, of: nn.RNNBase):
        self.__dict__["of"] = of
        super().__init__(of.dropout)

    @property
    def training(self) -> bool:
        return bool(self.__dict__["of"].training)

    @training.setter
    def training(self, mode: bool) -> None:
        """Ignore the mode, which is that of the recurrent module."""


class Readout(nn.Linear):
    """z_t = V h_t at every step: `nn.Linear` for sequences that lie in memory step by step, which are not copied; z,
    of few features, is, and lies sample by sample."""

    def forward(self, h: Tensor) -> Tensor:
        return F.linear(h.transpose(0, 1), self.weight, self.bias).transpose(0, 1).contiguous()


class GatedScan(nn.Module):
    """A gated recurrence without weights: (samples, steps, 2 k) to (samples, steps, k). With the first k features u_t
    and the others v_t of its input,

        h_t = (1 - z_t) h_{t-1} + z_t tanh(v_t),        z_t = sigmoid(u_t),        h_0 = 0.

    After an `nn.Linear` of the input it is a minimal gated recurrent unit (minGRU: Feng et al. 2024, arXiv 2410.01201),
    whose gates do not depend on its state, so that all steps are computed at once. ValueError for another shape.

    >>> GatedScan()(torch.tensor([[[0.0, 100.0], [0.0, 100.0]]])).flatten().tolist()
    [0.5, 0.75]
    """

    def forward(self, x: Tensor) -> Tensor:
        u, v = self.halves(x)
        z = u.sigmoid()
        return differentiable_scan(1 - z, z * v.tanh())

    def halves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Gates and candidates, before their activations."""
        if x.ndim != 3 or x.shape[-1] % 2:
            raise ValueError(
                "GatedScan reads (samples, steps, features) with an even number of features, one half for the gates; "
                f"given shape {tuple(x.shape)}"
            )
        u, v = x.chunk(2, -1)
        return u, v


class Last(nn.Module):
    """The last step of sequences (samples, steps, features).

    >>> Last()(torch.tensor([[[1.0], [2.0]]]))
    tensor([[2.]])
    """

    def forward(self, x: Tensor) -> Tensor:
        return x[:, -1]


class LastReal(nn.Module):
    """The last real step of sequences (samples, steps, features), whose last feature is 1 at every real step; that
    feature is left out.

    >>> LastReal()(torch.tensor([[[5.0, 1.0], [6.0, 1.0], [0.0, 0.0]]]))
    tensor([[6.]])
    """

    def forward(self, x: Tensor) -> Tensor:
        return x.gather(1, self.places(x)).squeeze(1)[:, :-1]

    def places(self, x: Tensor) -> Tensor:
        """The last real step of every sample, for each feature: (samples, 1, features)."""
        last = x[..., -1:].cumprod(1).sum(1, keepdim=True).long() - 1
        return last.clamp_min(0).expand(-1, -1, x.shape[-1])


def sequences(name: str, x: Tensor, inputs: int, padded: bool) -> tuple[Tensor, Tensor | None]:
    """The input of a recurrent layer without its mark, and a 1 for every real step (samples, steps, 1), None without
    padding. ValueError for another shape; name: of the layer, as it is said there."""
    features = inputs + padded
    if x.ndim != 3 or x.shape[-1] != features:
        marked = f" and 1 that marks the real steps, {features} in all" if padded else ""
        raise ValueError(
            f"{name} reads sequences (samples, steps, features) with {inputs} features{marked}; "
            f"given shape {tuple(x.shape)}"
        )
    return (x[..., :-1], x[..., -1:].cumprod(1)) if padded else (x, None)


def _one_layer(mode: str, x: Tensor, weights: Sequence[Tensor], reverse: bool = False) -> Tensor:
    """Return h_1..h_T (samples, steps, hidden) of one layer in one direction; weights: U and W, and the biases if
    there are any."""
    x = (x.flip(1) if reverse else x).transpose(0, 1)
    parameters = [*weights[:2], *(weights[2:] or [x.new_zeros(len(weights[1]))] * 2)]
    if torch._C._functorch.maybe_current_level() is not None:  # torch.func has no rule for the kernel
        h: Tensor = Recurrences.apply(mode, x, *parameters)
    else:
        h = recurrence(mode, x, *parameters, train=torch.is_grad_enabled())
    return h.transpose(0, 1).flip(1) if reverse else h.transpose(0, 1)


def _by_layers(rnn: nn.RNNBase, x: Tensor) -> Tensor:
    """The outputs of a recurrent module, one layer and direction after the other."""
    for i in range(rnn.num_layers):
        x = F.dropout(x, rnn.dropout, rnn.training) if i else x
        ends = [f"l{i}", f"l{i}_reverse"][: 1 + rnn.bidirectional]
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")[: 4 if rnn.bias else 2]
        weights = [[getattr(rnn, f"{name}_{end}") for name in names] for end in ends]
        x = torch.cat([_one_layer(rnn.mode, x, w, bool(k)) for k, w in enumerate(weights)], -1)
    return x
