"""Layers of the library's own: activations without derivatives (`Sign`, `Staircase`), `StraightThrough`, which gives
them an estimate of one, layers in time (`Recurrent`, `Readout`, `GatedScan`, `Last`), `Residual`, `View`, `Scale`."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


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
        features = self.input_size + self.padded
        if x.ndim != 3 or x.shape[-1] != features:
            marked = f" and 1 that marks the real steps, {features} in all" if self.padded else ""
            raise ValueError(
                f"Recurrent reads sequences (samples, steps, features) with {self.input_size} features{marked}; "
                f"given shape {tuple(x.shape)}"
            )
        return (x[..., :-1], x[..., -1:].cumprod(1)) if self.padded else (x, None)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        steps, real = self.parts(x)
        if torch._C._functorch.maybe_current_level() is not None:  # torch.func has no rule for the fused kernel
            weights = [getattr(self, name) for name in self._all_weights[0]]
            h = Recurrences.apply(steps.transpose(0, 1), *weights).transpose(0, 1)
        else:
            h = super().forward(steps)[0]
        return h if real is None else h * real


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


def scan(a: Tensor, b: Tensor) -> Tensor:
    """h_t = a_t h_{t-1} + b_t along the second dimension, with h_0 = 0, in about log2(T) rounds over all steps.

    >>> scan(torch.full((1, 4), 0.5), torch.ones(1, 4)).tolist()
    [[1.0, 1.5, 1.75, 1.875]]
    """
    reach = 1
    while reach < b.shape[1]:
        b = torch.cat([b[:, :reach], torch.addcmul(b[:, reach:], a[:, reach:], b[:, :-reach])], 1)
        a = torch.cat([a[:, :reach], a[:, reach:] * a[:, :-reach]], 1)
        reach *= 2
    return b


def recurrence(x: Tensor, U: Tensor, W: Tensor, b: Tensor, b2: Tensor, *, train: bool = False) -> Tensor:
    """h_1..h_T of h_t = tanh(U x_t + W h_{t-1} + b + b2) by torch's own kernel, for x (steps, samples, features).
    train: whether it is to be differentiated."""
    start = x.new_zeros(1, x.shape[1], len(W))
    return torch.rnn_tanh(x, start, [U, W, b, b2], True, 1, 0.0, train, False, False)[0]


class Recurrences(torch.autograd.Function):
    """`recurrence` inside `torch.func`, which has no rule for the kernel: the members of an ensemble one by one."""

    @staticmethod
    def forward(*given: Tensor) -> Tensor:
        return recurrence(*given)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        return _Backward.apply(*ctx.saved_tensors, v)

    @staticmethod
    def vmap(info: Any, dims: Any, *given: Tensor) -> tuple[Tensor, int]:
        return torch.stack([recurrence(*each) for each in _members(given, dims, info.batch_size)]), 0


class _Backward(torch.autograd.Function):
    """J^T v for the input and every weight, by the kernel's own derivative."""

    @staticmethod
    def forward(*given: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_() for t in given[:-1]]
            return torch.autograd.grad(recurrence(*leaves, train=True), leaves, given[-1])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, dims: Any, *given: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        each = [_Backward.forward(*member) for member in _members(given, dims, info.batch_size)]
        return tuple(torch.stack(grads) for grads in zip(*each, strict=True)), (0,) * len(each[0])


def _members(given: Sequence[Tensor], dims: Sequence[int | None], n: int) -> list[list[Tensor]]:
    """The arguments of each member."""
    pairs = list(zip(given, dims, strict=True))
    return [[t if dim is None else t.select(dim, i) for t, dim in pairs] for i in range(n)]
