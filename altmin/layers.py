"""Activations without derivatives: `Sign`, `Staircase`, and `StraightThrough`, which lends them an estimate of one."""

from typing import Any

import torch
from torch import Tensor, nn


class Stepwise(nn.Module):
    """y_i is one of `levels` values, equally spaced in [-1, 1]; thresholds lie half-way between neighbours.

    Under autograd the forward pass is as ever; a backward pass that reaches it is refused.
    """

    levels: int

    @property
    def spacing(self) -> float:
        """From one level to the next."""
        return 2 / (self.levels - 1)

    def values(self, x: Tensor) -> Tensor:
        """The levels of x. What is not a number stays so, for the trainer to notice."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return _Refuse.apply(x, self)


class Sign(Stepwise):
    """-1 or +1; sign(0) = +1.

    >>> Sign()(torch.tensor([-0.5, 0.0, 2.0]))
    tensor([-1.,  1.,  1.])
    """

    levels = 2

    def values(self, x: Tensor) -> Tensor:
        return torch.where(x < 0, -1.0, torch.where(x >= 0, 1.0, x))


class Staircase(Stepwise):
    """k bits: `levels` values. `Staircase(2)` is `Sign`, `Staircase(4)` has 2 bits.

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

    So a net with `Sign` or `Staircase` can be trained by backprop, with an estimate in place of a derivative.

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
    """What is said where somebody asks for a derivative that does not exist."""
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
