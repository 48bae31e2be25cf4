"""Activations without derivatives: `Sign` and `Staircase`, `StraightThrough`, which gives them an estimate of one, and
`Committed`, which becomes one of them entry by entry."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def replaced(model: nn.Module, kind: type[nn.Module], other: Callable[[Any], nn.Module]) -> nn.Module:
    """Return a copy of a model, with the same parameters and buffers, in which every module of a kind is another."""
    twin = copy.deepcopy(model, {id(t): t for t in (*model.parameters(), *model.buffers())})
    if isinstance(twin, kind):
        return other(twin)
    for owner in [m for m in twin.modules() if not isinstance(m, StraightThrough)]:
        for name, child in owner.named_children():
            if isinstance(child, kind):
                setattr(owner, name, other(child))
    return twin


def straight_through(model: nn.Module) -> nn.Module:
    """Return a copy of a model, with the same parameters and buffers, in which every `Sign` and `Staircase` is wrapped
    in `StraightThrough`.

    >>> x = torch.tensor([-3.0, -0.5, 0.5], requires_grad=True)
    >>> straight_through(nn.Sequential(Sign()))(x).sum().backward()
    >>> x.grad
    tensor([0., 1., 1.])
    """
    return replaced(model, Stepwise, StraightThrough)


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


class Committed(nn.Module):
    """An activation on its way from a smooth one to a discrete one: a share of its entries takes the discrete values.

    In training each entry of x has, with probability `share`, the value of `discrete`, and otherwise that of `smooth`;
    new ones are drawn at every call. The derivative is exact: that of `smooth`, and 0 for an entry that is discrete. In
    evaluation all entries are discrete. `share` is a buffer, initially 0; `altmin.training.commitment` raises it layer
    by layer. TypeError if `discrete` is not a `Sign` or `Staircase`, or if `smooth` has parameters.

    >>> layer = Committed(smooth=nn.Hardtanh())
    >>> layer(torch.tensor([-0.5, 0.25]))
    tensor([-0.5000,  0.2500])
    >>> _ = layer.share.fill_(1.0)
    >>> layer(torch.tensor([-0.5, 0.25]))
    tensor([-1.,  1.])
    """

    share: Tensor

    def __init__(self, discrete: Stepwise | None = None, smooth: nn.Module | None = None):
        super().__init__()
        self.discrete = Sign() if discrete is None else discrete
        self.smooth = nn.Tanh() if smooth is None else smooth
        if not isinstance(self.discrete, Stepwise):
            raise TypeError(f"the discrete part of Committed is a Sign or a Staircase, given {self.discrete!r}")
        if not isinstance(self.smooth, nn.Module) or any(True for _ in self.smooth.parameters()):
            raise TypeError(f"the smooth part of Committed is a module without parameters, given {self.smooth!r}")
        self.register_buffer("share", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            y: Tensor = self.discrete(x)
            return y
        return torch.where(torch.rand_like(x) < self.share, self.discrete.values(x.detach()), self.smooth(x))


def committed(model: nn.Module) -> nn.Module:
    """Return a copy of a model, with the same parameters and buffers, in which every `Committed` is discrete.

    >>> committed(nn.Sequential(nn.Linear(2, 3), Committed(Staircase(4))))[1]
    Staircase(levels=4)
    """
    return replaced(model, Committed, lambda layer: layer.discrete)
