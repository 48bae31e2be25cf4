"""Layers of the library's own: activations without derivatives (`Sign`, `Staircase`), `StraightThrough`, which gives
them an estimate of one, layers in time (`Recurrent`, `Readout`, `GatedScan`, `Last`, and `RecurrentLayer`
of a module of torch), `Residual`, `View`, `Scale`."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from altmin.common.scan import scan


def straight_through(model: nn.Module) -> nn.Module:
    """A copy of a model, with the same parameters and buffers, in which every `Sign` and `Staircase` is wrapped in
    `StraightThrough`.

    >>> x = torch.tensor([-3.0, -0.5, 0.5], requires_grad=True)
    >>> straight_through(nn.Sequential(Sign()))(x).sum().backward()
    >>> x.grad
    tensor([0., 1., 1.])
    """
    twin = copy.deepcopy(model, {id(t): t for t in (*model.parameters(), *model.buffers())})
    if isinstance(twin, Stepwise):
        return StraightThrough(twin)
    for owner in [m for m in twin.modules() if not isinstance(m, StraightThrough)]:
        for name, child in owner.named_children():
            if isinstance(child, Stepwise):
                setattr(owner, name, StraightThrough(child))
    return twin


class Stepwise(nn.Module):
    """y_i is one of `levels` values, equally spaced in [-1, 1]; thresholds lie half-way between neighbours.

    Under autograd the forward pass is that of any module; a backward pass that reaches it raises a TypeError.
    """

    levels: int

    @property
    def spacing(self) -> float:
        """The distance of neighbouring levels."""
        return 2 / (self.levels - 1)

    def values(self, x: Tensor) -> Tensor:
        """The level of each entry of x. NaN stays NaN, so that the trainer detects it."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = _Refuse.apply(x, self)
        return y


class Sign(Stepwise):
    """-1 or +1; sign(0) = +1.

    >>> Sign()(torch.tensor([-0.5, 0.0, 2.0]))
    tensor([-1.,  1.,  1.])
    """

    levels = 2

    def values(self, x: Tensor) -> Tensor:
        return torch.where(x < 0, -1.0, torch.where(x >= 0, 1.0, x))


class Staircase(Stepwise):
    """The nearest of `levels` values: `Staircase(2)` is `Sign`, `Staircase(4)` has 2 bits. ValueError below 2 levels.

    >>> Staircase(4)(torch.tensor([-0.9, -0.5, 0.0, 5.0]))
    tensor([-1.0000, -0.3333,  0.3333,  1.0000])
    """

    def __init__(self, levels: int = 4):
        super().__init__()
        if isinstance(levels, bool) or not isinstance(levels, int) or levels < 2:
            raise ValueError(f"a Staircase has a whole number of levels, at least 2, given {levels!r}")
        self.levels = levels

    def values(self, x: Tensor) -> Tensor:
        h = self.spacing
        thresholds = torch.arange(1, self.levels, dtype=x.dtype, device=x.device).mul_(h).sub_(1 + h / 2)
        y = torch.bucketize(x, thresholds, right=True).to(x.dtype) * h - 1
        return torch.where(x.isnan(), x, y)

    def extra_repr(self) -> str:
        return f"levels={self.levels}"


class StraightThrough(nn.Module):
    """The values of an activation; backward, the gradient passes unchanged where |x| <= 1 and is 0 elsewhere.

    So a net with `Sign` or `Staircase` can be trained by backprop, with an estimate in place of a derivative. TypeError
    if the module has parameters.

    >>> x = torch.tensor([-3.0, -0.5, 0.5], requires_grad=True)
    >>> StraightThrough(Sign())(x).sum().backward()
    >>> x.grad
    tensor([0., 1., 1.])
    """

    def __init__(self, module: nn.Module):
        super().__init__()
        if not isinstance(module, nn.Module) or any(True for _ in module.parameters()):
            raise TypeError(f"StraightThrough wraps an activation without parameters, such as Sign(), given {module!r}")
        self.module = module

    def values(self, x: Tensor) -> Tensor:
        y: Tensor = self.module(x.detach())
        return y.detach()

    def forward(self, x: Tensor) -> Tensor:
        passes = x.clamp(-1, 1)
        return self.values(x) + (passes - passes.detach())


def no_derivative(module: nn.Module) -> TypeError:
    """The error for the use of a derivative that does not exist."""
    name = type(module).__name__
    return TypeError(
        f"{name} has no derivative, so neither backprop nor GradientCodes can go through it: train with altmin and "
        f"codes=DiscreteCodes() or codes=StraightThroughCodes(), or put StraightThrough({name}(...)) in its place"
    )


class _Refuse(torch.autograd.Function):
    """The module's values forward, an error backward."""

    @staticmethod
    def forward(x: Tensor, module: Stepwise) -> Tensor:
        return module.values(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Stepwise], output: Tensor) -> None:
        ctx.module = inputs[1]

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        raise no_derivative(ctx.module)


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
        if torch._C._functorch.maybe_current_level() is not None:  # torch.func has no rule for the fused kernel
            weights = [getattr(self, name) for name in self._all_weights[0]]
            h = Recurrences.apply(self.mode, steps.transpose(0, 1), *weights).transpose(0, 1)
        else:
            h = super().forward(steps)[0]
        return h if real is None else h * real


class RecurrentLayer(nn.Module):
    """One layer of an `nn.RNN` (tanh), `nn.GRU` or `nn.LSTM`, in one direction, whose parameters it has: sequences
    (samples, steps, inputs) to (samples, steps, hidden), from h_0 = 0. reverse: from the last step to the first.
    padded: the last feature of the input says which steps are real, and so does that of the output (see `Outputs`).

    >>> layer = RecurrentLayer(nn.GRU(2, 3, num_layers=2), 1)
    >>> layer(torch.zeros(4, 5, 3)).shape
    torch.Size([4, 5, 3])
    """

    def __init__(self, of: nn.RNNBase, layer: int = 0, reverse: bool = False, padded: bool = False):
        super().__init__()
        self.mode, self.hidden_size, self.reverse, self.padded = of.mode, of.hidden_size, reverse, padded
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            given = getattr(of, f"{name}_l{layer}{'_reverse' * reverse}", None)
            self.register_parameter(name, given)
        self.input_size = self.get_parameter("weight_ih").shape[1]

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """The input proper, and a 1 for every real step (samples, steps, 1), None without padding."""
        return sequences(self._get_name(), x, self.input_size, self.padded)

    def forward(self, x: Tensor) -> Tensor:
        x, real = self.parts(x)
        h = _one_layer(self.mode, x, [p for p in self._parameters.values() if p is not None], self.reverse)
        return h if real is None else torch.cat([h * real, real], -1)

    def _get_name(self) -> str:
        return {"RNN_TANH": "RNN"}.get(self.mode, self.mode)


class BothDirections(nn.Module):
    """Two recurrent layers on the same sequences, their features side by side.

    >>> rnn = nn.LSTM(2, 3, bidirectional=True)
    >>> BothDirections(RecurrentLayer(rnn), RecurrentLayer(rnn, reverse=True))(torch.zeros(4, 5, 2)).shape
    torch.Size([4, 5, 6])
    """

    def __init__(self, first: RecurrentLayer, second: RecurrentLayer):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.first(x), self.second(x)], -1)

    def _get_name(self) -> str:
        return f"{self.first._get_name()} in both directions"


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
        """Changes nothing: the mode is that of the recurrent module."""


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
        return scan(1 - z, z * v.tanh())

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


class Residual(nn.Module):
    """y = x + s W relu(x), with `scale` for s. The weights W start as N(0, 1 / width); there is no bias.

    >>> layer = Residual(2, scale=0.5)
    >>> with torch.no_grad():
    ...     _ = layer.weight.copy_(torch.tensor([[0.0, 2.0], [4.0, 0.0]]))
    >>> layer(torch.tensor([[1.0, -1.0]])).tolist()
    [[1.0, 1.0]]
    """

    def __init__(self, width: int, scale: float = 1.0):
        super().__init__()
        self.width, self.scale = width, scale
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.scale * F.linear(F.relu(x), self.weight)

    def extra_repr(self) -> str:
        return f"width={self.width}, scale={self.scale:.6g}"


class View(nn.Module):
    """The entries of x in other sizes, those of the whole batch; one of them may be -1.

    >>> View(-1, 6)(torch.zeros(4, 2, 3)).shape
    torch.Size([4, 6])
    """

    def __init__(self, *sizes: int):
        super().__init__()
        self.sizes = sizes

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(self.sizes)

    def extra_repr(self) -> str:
        return ", ".join(map(str, self.sizes))


class Scale(nn.Module):
    """x times a number.

    >>> Scale(0.5)(torch.ones(2))
    tensor([0.5000, 0.5000])
    """

    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor

    def extra_repr(self) -> str:
        return repr(self.factor)


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


KERNELS: dict[str, Any] = {"RNN_TANH": torch.rnn_tanh, "GRU": torch.gru, "LSTM": torch.lstm}
"""Torch's kernels for all steps of one layer, by what a recurrent module of torch calls its mode."""


def recurrence(mode: str, x: Tensor, U: Tensor, W: Tensor, b: Tensor, b2: Tensor, *, train: bool = False) -> Tensor:
    """h_1..h_T of a recurrent layer by torch's own kernel, for x (steps, samples, features) and h_0 = 0; with the mode
    RNN_TANH h_t = tanh(U x_t + b + W h_{t-1} + b2). train: whether it is to be differentiated."""
    zero = x.new_zeros(1, x.shape[1], W.shape[1])
    start = (zero, zero) if mode == "LSTM" else zero
    h: Tensor = KERNELS[mode](x, start, [U, W, b, b2], True, 1, 0.0, train, False, False)[0]
    return h


class Recurrences(torch.autograd.Function):
    """`recurrence` inside `torch.func`, which has no rule for the kernel: the members of an ensemble one by one."""

    @staticmethod
    def forward(mode: str, *given: Tensor) -> Tensor:
        return recurrence(mode, *given)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.mode = inputs[0]
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        return None, *_Backward.apply(ctx.mode, *ctx.saved_tensors, v)

    @staticmethod
    def vmap(info: Any, dims: Any, mode: str, *given: Tensor) -> tuple[Tensor, int]:
        members = _members(given, dims[1:], info.batch_size)
        return torch.stack([recurrence(mode, *each) for each in members]), 0


class _Backward(torch.autograd.Function):
    """J^T v for the input and every weight, by the kernel's own derivative."""

    @staticmethod
    def forward(mode: str, *given: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_() for t in given[:-1]]
            return torch.autograd.grad(recurrence(mode, *leaves, train=True), leaves, given[-1])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, dims: Any, mode: str, *given: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        each = [_Backward.forward(mode, *member) for member in _members(given, dims[1:], info.batch_size)]
        return tuple(torch.stack(grads) for grads in zip(*each, strict=True)), (0,) * len(each[0])


def _one_layer(mode: str, x: Tensor, weights: Sequence[Tensor], reverse: bool) -> Tensor:
    """h_1..h_T (samples, steps, hidden) of one layer in one direction; weights: U and W, and the biases if there are
    any."""
    x = (x.flip(1) if reverse else x).transpose(0, 1)
    biases = weights[2:] or [x.new_zeros(len(weights[1]))] * 2
    if torch._C._functorch.maybe_current_level() is not None:  # torch.func has no rule for the kernel
        h: Tensor = Recurrences.apply(mode, x, *weights[:2], *biases).transpose(0, 1)
    else:
        h = recurrence(mode, x, *weights[:2], *biases, train=torch.is_grad_enabled()).transpose(0, 1)
    return h.flip(1) if reverse else h


def _by_layers(rnn: nn.RNNBase, x: Tensor) -> Tensor:
    """The outputs of a recurrent module, one layer and direction after the other."""
    for i in range(rnn.num_layers):
        x = F.dropout(x, rnn.dropout, rnn.training) if i else x
        ends = [f"l{i}", f"l{i}_reverse"][: 1 + rnn.bidirectional]
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")[: 4 if rnn.bias else 2]
        weights = [[getattr(rnn, f"{name}_{end}") for name in names] for end in ends]
        x = torch.cat([_one_layer(rnn.mode, x, each, bool(k)) for k, each in enumerate(weights)], -1)
    return x


def _members(given: Sequence[Tensor], dims: Sequence[int | None], n: int) -> list[list[Tensor]]:
    """The arguments of each member."""
    pairs = list(zip(given, dims, strict=True))
    return [[t if dim is None else t.select(dim, i) for t, dim in pairs] for i in range(n)]
