"""The map of a gated recurrence whose gates do not depend on its state: linear in time, by scans."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from altmin.calculus.base import Map, Params, Saved
from altmin.calculus.context import LOCAL, Context
from altmin.calculus.elementwise import Sigmoid, Tanh
from altmin.common.scan import previous, scan


class Gates(NamedTuple):
    """Values that a `GatedScan` saves: those that its sigmoid and its tanh save, their values z and c, and h."""

    gate: Saved
    candidate: Saved
    z: Tensor
    c: Tensor
    h: Tensor

    @property
    def before(self) -> Tensor:
        """The states h_{t-1}."""
        return previous(self.h, 1)


class GatedRecurrence(Map):
    """h_t = (1 - z_t) h_{t-1} + z_t c_t with z = sigmoid(u), c = tanh(v).

    A change of h obeys the same recurrence: with z', c' after and differences written as d,

        dh_t = (1 - z'_t) dh_{t-1} + dz_t (c_t - h_{t-1}) + z'_t dc_t.
    """

    def __init__(self, module: nn.Module):
        super().__init__(module)
        self.gate, self.candidate = Sigmoid(nn.Sigmoid()), Tanh(nn.Tanh())

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Gates]:
        u, v = self.module.halves(x)
        (z, gate), (c, candidate) = self.gate.forward((), u), self.candidate.forward((), v)
        h = scan(1 - z, z * c)
        return h, Gates(gate, candidate, z, c, h)

    def vjp(self, p: Params, saved: Gates, v: Tensor) -> Tensor:
        d = scan(previous(1 - saved.z, 1, reverse=True), v, reverse=True)
        gate = self.gate.vjp((), saved.gate, d * (saved.c - saved.before))
        return torch.cat([gate, self.candidate.vjp((), saved.candidate, d * saved.z)], -1)

    def jvp(self, p: Params, saved: Gates, u: Tensor) -> Tensor:
        gate, candidate = u.chunk(2, -1)
        dz, dc = self.gate.jvp((), saved.gate, gate), self.candidate.jvp((), saved.candidate, candidate)
        return scan(1 - saved.z, dz * (saved.c - saved.before) + saved.z * dc)
