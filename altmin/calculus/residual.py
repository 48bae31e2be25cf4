"""The residual layer x + s W relu(x)."""

from typing import Any

from torch import Tensor, nn

from altmin.calculus import products
from altmin.calculus.base import Map, Params, Saved
from altmin.calculus.context import LOCAL, Context
from altmin.calculus.elementwise import ReLU


class ResidualLayer(Map):
    """y = x + s W relu(x). It saves x and relu(x)."""

    def __init__(self, module: Any):
        super().__init__(module)
        self.relu = ReLU(nn.ReLU())

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Saved]:
        a = x.clamp_min(0)
        return self._add(x, p, a), (x, a)

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return self._sum(v, self.relu.vjp((), saved[1], products.matmul(v, p[0])))

    def jvp(self, p: Params, saved: Saved, u: Tensor) -> Tensor:
        return self._add(u, p, self.relu.jvp((), saved[1], u))

    def grads(self, p: Params, saved: Saved, v: Tensor) -> Params:
        v, a = v.flatten(0, -2), saved[1].flatten(0, -2)
        return (products.outer(v, a).mul_(self.module.scale),)

    def input(self, saved: Saved) -> Tensor:
        x: Tensor = saved[0]
        return x

    def _add(self, x: Tensor, p: Params, a: Tensor) -> Tensor:
        """Return x + s W a."""
        return self._sum(x, products.linear(a, p[0]))

    def _sum(self, x: Tensor, y: Tensor) -> Tensor:
        """Return x + s y, written over y. Torch's compiler makes one product of x.add(W a, alpha=s), and forgets s."""
        return y.mul_(self.module.scale).add_(x)
