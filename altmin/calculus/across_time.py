"""The activations of recurrent layers: h_1..h_T as a function of all codes.

For an Elman layer that is tanh. For gated layers it is a recurrence whose gates are given, linear in its state and
elementwise, so that a scan follows all steps at once. Tensors are (steps, samples, features), in the order of the
recurrence, but for those that methods of `Activation` take and give: (samples, steps, features).
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from altmin.calculus.sweep import sweep
from altmin.common.scan import previous, scan


def h_of(output: Tensor, marked: bool) -> Tensor:
    """Return the part of h, by steps, in an output, a change or gradient of it. marked: whether the output has, besides
    h, a feature that marks the real steps and does not move."""
    return (output[..., :-1] if marked else output).transpose(0, 1)


class Activation:
    """The output of a recurrent layer as a function of all its codes, at those of a pass that gave h. W: by which
    h_{t-1} enters the codes. real: which steps are; None for all. marked: as in `h_of`."""

    def __init__(self, codes: Tensor, h: Tensor, W: Tensor, real: Tensor | None, marked: bool):
        self.h, self.W, self.real, self.marked = h, W, real, marked

    def sweep(self, e: Tensor, truncated: bool = False) -> Tensor:
        """Return the gradient at all codes, given that at the output: that of backprop through time. truncated: of an
        Elman layer, whether an error goes back no further than its own step."""
        return self.gradients(self._real(h_of(e, self.marked)), truncated).transpose(0, 1)

    def jvp(self, u: Tensor) -> Tensor:
        """Return the derivative of the output along u."""
        change = self._real(self.derivative(u.transpose(0, 1))).transpose(0, 1)
        return F.pad(change, (0, 1)) if self.marked else change

    def _real(self, t: Tensor) -> Tensor:
        return t if self.real is None else t * self.real

    def gradients(self, e: Tensor, truncated: bool) -> Tensor:
        """Return `sweep`, by steps."""
        raise NotImplementedError

    def derivative(self, u: Tensor) -> Tensor:
        """Return `jvp`, by steps."""
        raise NotImplementedError


class TanhOfCodes(Activation):
    """h_t = tanh(c_t)."""

    def gradients(self, e: Tensor, truncated: bool) -> Tensor:
        """Return g_t = s_t (e_t + W^T g_{t+1}), s_t = 1 - h_t^2; truncated, with 0 for g_{t+1}."""
        if truncated:
            return _times_slope(e, self.h)
        slope = 1 - self.h * self.h
        return slope * sweep(e, slope.unsqueeze(2), self.W)[0]

    def derivative(self, u: Tensor) -> Tensor:
        return _times_slope(u, self.h)


class GRUOfCodes(Activation):
    """h_t = (1 - z_t) n_t + z_t h_{t-1} with n_t = tanh(k_t + r_t m_t), from codes of r, z, k and m: k is the product
    with the input in the candidate n, m that with the state."""

    def __init__(self, codes: Tensor, *args: Any):
        super().__init__(codes, *args)
        r, z, k, self.m = codes.chunk(4, -1)
        self.r, self.z = r.sigmoid(), z.sigmoid()
        self.n = (k + self.r * self.m).tanh()

    def gradients(self, e: Tensor, truncated: bool) -> Tensor:
        """g_t = d_t F_t with the total gradient d_t = e_t + z_{t+1} d_{t+1} + W^T g_{t+1} at h_t, and F_t the
        derivatives of h_t by each code of its step."""
        r, z, m, n = self.r, self.z, self.m, self.n
        of_k = (1 - z) * (1 - n * n)
        of_r, of_z, of_m = of_k * m * r * (1 - r), (later(self.h) - n) * z * (1 - z), of_k * r
        d, _ = sweep(e, torch.stack([of_r, of_z, of_m], 2), self.W, z)
        return torch.cat([d * of_r, d * of_z, d * of_k, d * of_m], -1)

    def derivative(self, u: Tensor) -> Tensor:
        r, z, dk, dm = u.chunk(4, -1)
        dr, dz = self.r * (1 - self.r) * r, self.z * (1 - self.z) * z
        dn = _times_slope(dk + dr * self.m + self.r * dm, self.n)
        return scan(self.z, dz * (later(self.h) - self.n) + (1 - self.z) * dn, 0)


class LSTMOfCodes(Activation):
    """h_t = o_t tanh(s_t) with s_t = f_t s_{t-1} + i_t tanh(g_t), from codes of i, f, g and o."""

    def __init__(self, codes: Tensor, *args: Any):
        super().__init__(codes, *args)
        i, f, g, o = codes.chunk(4, -1)
        self.i, self.f, self.o, self.g = i.sigmoid(), f.sigmoid(), o.sigmoid(), g.tanh()
        self.s = scan(self.f, self.i * self.g, 0)
        self.out = self.s.tanh()

    def gradients(self, e: Tensor, truncated: bool) -> Tensor:
        """The total gradients are d_t = e_t + W^T g_{t+1} at h_t and a_t = f_{t+1} a_{t+1} + o_t tanh'(s_t) d_t at s_t;
        g_t is these times the derivatives of s_t by i, f and g, and of h_t by o."""
        i, f, g, o = self.i, self.f, self.g, self.o
        of_i, of_f, of_g = g * i * (1 - i), later(self.s) * f * (1 - f), i * (1 - g * g)
        of_o, of_s = self.out * o * (1 - o), o * (1 - self.out * self.out)
        d, a = sweep(e, torch.stack([of_i, of_f, of_g, of_o], 2), self.W, f, of_s)
        return torch.cat([a * of_i, a * of_f, a * of_g, d * of_o], -1)

    def derivative(self, u: Tensor) -> Tensor:
        di, df, dg, do = u.chunk(4, -1)
        di, df, do = (y * (1 - y) * d for y, d in ((self.i, di), (self.f, df), (self.o, do)))
        ds = scan(self.f, df * later(self.s) + di * self.g + self.i * _times_slope(dg, self.g), 0)
        return do * self.out + self.o * _times_slope(ds, self.out)


def _times_slope(v: Tensor, h: Tensor) -> Tensor:
    """Return (1 - h^2) v in one pass over memory."""
    return torch.ops.aten.tanh_backward(v, h)


def later(h: Tensor) -> Tensor:
    """Return h_{t-1} at every step, 0 at the first."""
    return previous(h, 0)
