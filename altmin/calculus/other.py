"""Modules without a closed form here."""

import torch
from torch import Tensor, nn

from altmin.calculus.base import Map, Params, Saved


class AnyModule(Map):
    """Everything else, through a vector-Jacobian product of this one module. Samples are taken to be independent,
    unless the module holds a batch norm in training."""

    @property
    def couples(self) -> bool:  # type: ignore[override]
        return any(isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training for m in self.module.modules())

    def commit(self, saved: Saved) -> None:
        if self.couples:  # the module's own pass, for its running statistics
            self.module(saved)

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        return self._call(p, x), x

    def pull(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return torch.func.vjp(lambda x: self._call(p, x), saved)[1](v)[0]

    def push(self, p: Params, saved: Saved, u: Tensor) -> Tensor:
        return torch.func.jvp(lambda x: self._call(p, x), (saved,), (u,))[1]

    def move(self, p: Params, saved: Saved, u: Tensor) -> tuple[Tensor, Saved]:
        moved = saved + u
        return self._call(p, moved) - self._call(p, saved), moved

    def grads(self, p: Params, saved: Saved, v: Tensor) -> Params:
        return torch.func.vjp(lambda *p: self._call(p, saved), *p)[1](v) if p else ()

    def _call(self, p: Params, x: Tensor) -> Tensor:
        buffers = {name: b.clone() for name, b in self.module.named_buffers()}  # not to be written before `commit`
        return torch.func.functional_call(self.module, dict(zip(self.names, p, strict=True)) | buffers, (x,))
