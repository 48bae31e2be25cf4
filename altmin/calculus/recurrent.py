"""The maps of the layers in time.

A recurrent layer is handled as a linear map and an activation across time. The map gives the codes

    c_t = U x_t + W h_{t-1} + b,

linear in x_t and in the weights with every h_{t-1} given; the activation makes h_1..h_T of all codes. For an Elman
layer that is tanh. For gated layers it is a recurrence whose gates are given, linear in its state and elementwise, so
that a scan follows all steps at once.

Sequences are (samples, steps, features) to the outside and lie in memory step by step, as the fused recurrence leaves
them; here they are handled as (steps, samples, features), so that nothing is copied.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from altmin.calculus import products
from altmin.calculus.base import Map, Params, divisor, rounded, shifted
from altmin.calculus.context import LOCAL, Context
from altmin.calculus.elementwise import Sigmoid, Tanh
from altmin.calculus.linear import Linear
from altmin.calculus.scan import backward_scan
from altmin.layers import BothDirections, Recurrences, Recurrent, recurrence, scan

SMALL = 32
"""Hidden units up to which a scan over time is faster on a GPU than one step after the other."""


class Steps(NamedTuple):
    """What a recurrent layer saves, all of shape (steps, samples, features): its input, h_1..h_T, and which steps are
    real (None: all)."""

    x: Tensor
    h: Tensor
    real: Tensor | None


class Recurrence(Map):
    """A recurrent layer. Its forward pass is the whole recurrence; its local calculus is that of the map to the codes,
    with every h_{t-1} given: it belongs to the code of its own step. `activation` and `feedback` are what else moving
    the codes takes."""

    affine = True

    def __init__(self, module: Any):
        super().__init__(module)
        if isinstance(module, Recurrent):
            self.names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0")
        self.is_linear = isinstance(module, Recurrent)
        self.mode: str = module.mode
        self.reverse: bool = getattr(module, "reverse", False)
        self.padded: bool = module.padded
        self.hidden = self.features = module.hidden_size

    def operands(self, p: Params) -> Params:
        return rounded(p)

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Steps]:
        steps, real = self.module.parts(x)
        steps, real = self._by_step(steps).contiguous(), None if real is None else real.transpose(0, 1)
        weights = [q.to(x.dtype) for q in (*p[:2], *self._biases(p))]
        h = (Recurrences.apply if context.traced else recurrence)(self.mode, steps, *weights)
        h = h if real is None else h * real
        return self._by_sample(h), Steps(steps, h, real)

    def vjp(self, p: Params, saved: Steps, v: Tensor) -> Tensor:
        u = products.matmul(self._of_input(v), p[0])
        return F.pad(u, (0, 1)) if self.padded else u

    def jvp(self, p: Params, saved: Steps, u: Tensor) -> Tensor:
        return self._joined(products.linear(u[..., :-1] if self.padded else u, p[0]), None)

    def quotient(self, p: Params, saved: Steps, u: Tensor, e: Tensor) -> tuple[Tensor, Steps]:
        steps = self._by_step(u[..., :-1] if self.padded else u)
        return self.jvp(p, saved, u), saved._replace(x=shifted(saved.x, steps, e))

    def grads(self, p: Params, saved: Steps, v: Tensor) -> Params:
        v = self._by_step(v)
        of_input, of_state = self._of_input(v), self._of_state(v)
        found = [_product(of_input, saved.x, p[0]), _product(of_state[1:], saved.h[:-1], p[1])]
        if len(p) > 2:
            found.append(_total(of_input))
        if len(p) > 3:
            found.append(found[2] if of_state is of_input else _total(of_state))
        return found

    def replay(self, p: Params, saved: Steps, x: Tensor) -> tuple[Tensor, Steps]:
        """c_t at every real step, with the saved h_{t-1}."""
        return self._by_sample(self._codes(p, saved)), saved

    def columns(self, saved: Steps, r: Tensor) -> tuple[Tensor, Tensor]:
        x, h, real = saved
        a = torch.cat([x, _later(h), torch.ones_like(x[..., :1])], 2)
        return (a if real is None else a * real).flatten(0, 1), r.transpose(0, 1).flatten(0, 1)

    def activation(self, p: Params, saved: Steps) -> "Activation":
        """h as a function of all codes, at those of the saved pass."""
        if self.mode == "RNN_TANH":
            return TanhOfCodes(self, p, saved)
        return (GRUOfCodes if self.mode == "GRU" else LSTMOfCodes)(self, p, saved)

    def feedback(self, p: Params, saved: Steps, q: Tensor) -> Tensor:
        """W q_{t-1} in the codes of every step."""
        back = products.linear(self._by_step(q)[:-1], p[1])
        back = F.pad(self._joined(None, back), (0, 0, 0, 0, 1, 0))
        return self._by_sample(back if saved.real is None else back * saved.real)

    def moved(self, saved: Steps, q: Tensor, e: Tensor) -> Steps:
        """`saved` once the codes have moved h by -e q."""
        return saved._replace(h=shifted(saved.h, self._by_step(q), e))

    def _codes(self, p: Params, saved: Steps) -> Tensor:
        """c_t at every real step, by steps."""
        b, b2 = self._biases(p)
        c = self._joined(products.linear(saved.x, p[0], b), products.linear(_later(saved.h), p[1], b2))
        return c if saved.real is None else c * saved.real

    def _biases(self, p: Params) -> Sequence[Tensor]:
        given = [*p[2:], *([self.module.bias_hh_l0] if self.is_linear else [])]
        return given or [p[1].new_zeros(len(p[1]))] * 2

    def _of_input(self, v: Tensor) -> Tensor:
        """Of codes, or of gradients at them, the part to which U belongs."""
        return v[..., : 3 * self.hidden] if self.mode == "GRU" else v

    def _of_state(self, v: Tensor) -> Tensor:
        """Of codes, or of gradients at them, the part to which W belongs."""
        H = self.hidden
        return torch.cat([v[..., : 2 * H], v[..., 3 * H :]], -1) if self.mode == "GRU" else v

    def _joined(self, of_input: Tensor | None, of_state: Tensor | None) -> Tensor:
        """The codes, from what U and W give; None for zeros."""
        if self.mode != "GRU":
            return of_state if of_input is None else of_input if of_state is None else of_input + of_state  # type: ignore[return-value]
        H, like = self.hidden, of_state if of_input is None else of_input
        assert like is not None
        none = torch.zeros_like(like)
        x, s = (none if each is None else each for each in (of_input, of_state))
        return torch.cat([x[..., : 2 * H] + s[..., : 2 * H], x[..., 2 * H :], s[..., 2 * H :]], -1)

    def _by_step(self, t: Tensor) -> Tensor:
        """(samples, steps, features) as (steps, samples, features), in the order of the recurrence."""
        t = t.transpose(0, 1)
        return t.flip(0) if self.reverse else t

    def _by_sample(self, t: Tensor) -> Tensor:
        return (t.flip(0) if self.reverse else t).transpose(0, 1)


class Activation:
    """h of a recurrent layer as a function of all its codes, at those of a saved pass."""

    def __init__(self, layer: Recurrence, p: Params, saved: Steps):
        self.layer, self.p, self.saved, self.h = layer, p, saved, saved.h

    def sweep(self, e: Tensor, rounds: int | None = None) -> Tensor:
        """The gradient at all codes, given that at h: that of backprop through time. rounds: of an Elman layer, by how
        many steps at most an error goes back; None for all."""
        e, real = self.layer._by_step(e), self.saved.real
        return self.layer._by_sample(self.gradients(e if real is None else e * real, rounds))

    def jvp(self, u: Tensor) -> Tensor:
        """The derivative of h along u."""
        return self.layer._by_sample(self.difference(self.layer._by_step(u), None))

    def quotient(self, u: Tensor, e: Tensor) -> Tensor:
        """(h(c) - h(c - e u)) / e without cancellation, the derivative for e = 0."""
        return self.layer._by_sample(self.difference(self.layer._by_step(u), e))

    def gradients(self, e: Tensor, rounds: int | None) -> Tensor:
        """`sweep`, by steps."""
        raise NotImplementedError

    def difference(self, u: Tensor, e: Tensor | None) -> Tensor:
        """`quotient`, or `jvp` for None, by steps."""
        raise NotImplementedError


class TanhOfCodes(Activation):
    """h_t = tanh(c_t)."""

    def gradients(self, e: Tensor, rounds: int | None) -> Tensor:
        """g_t = s_t (e_t + W^T g_{t+1}), s_t = 1 - h_t^2; with `rounds`, in that many rounds over all steps at once, in
        the first of which g_{t+1} is 0 and then that of the round before."""
        h, W = self.h, self.p[1]
        if rounds is None:
            return backward_scan(e, 1 - h * h, W, None if h.is_cuda and h.shape[-1] <= SMALL else len(h))
        g = _times_slope(e, h)
        for _ in range(1, rounds):
            total = e.clone()
            total[:-1] += products.matmul(g[1:], W)
            g = _times_slope(total, h)
        return g

    def difference(self, u: Tensor, e: Tensor | None) -> Tensor:
        """tanh(c) - tanh(c - e u) = (1 - h^2) v / (1 - h v) with v = tanh(e u), from h = tanh(c)."""
        if e is None:
            return _times_slope(u, self.h)
        e = divisor(e)
        v = (u * e).tanh_()
        one = self.h.new_full((), 1 + torch.finfo(u.dtype).eps)  # where |h| and |v| are 1 there is no change
        return _times_slope(v, self.h).div_(torch.addcmul(one, self.h, v, value=-1)).div_(e)


class GRUOfCodes(Activation):
    """h_t = (1 - z_t) n_t + z_t h_{t-1} with n_t = tanh(k_t + r_t m_t), from codes of r, z, k and m: k is the product
    with the input in the candidate n, m that with the state."""

    def __init__(self, layer: Recurrence, p: Params, saved: Steps):
        super().__init__(layer, p, saved)
        r, z, k, self.m = layer._codes(p, saved).chunk(4, -1)
        (self.r, self.of_r), (self.z, self.of_z) = SIGMOID.forward((), r), SIGMOID.forward((), z)
        self.n, self.of_n = TANH.forward((), k + self.r * self.m)

    def gradients(self, e: Tensor, rounds: int | None) -> Tensor:
        """g_t = d_t F_t with the total gradient d_t = e_t + z_{t+1} d_{t+1} + W^T g_{t+1} at h_t, and F_t the
        derivatives of h_t by each code of its step."""
        r, z, m, n, H = self.r, self.z, self.m, self.n, self.layer.hidden
        of_k = (1 - z) * (1 - n * n)
        factors = torch.stack([of_k * m * r * (1 - r), (_later(self.h) - n) * z * (1 - z), of_k, of_k * r], -2)
        W = torch.cat([self.p[1][: 2 * H], torch.zeros_like(self.p[1][:H]), self.p[1][2 * H :]])
        d = e[-1]
        found: list[Tensor] = []
        for t in range(len(e) - 1, -1, -1):
            if found:
                d = torch.addcmul(e[t], z[t + 1], d) + products.matmul(found[-1], W)
            found.append((d.unsqueeze(-2) * factors[t]).flatten(-2))
        return torch.stack(found[::-1])

    def difference(self, u: Tensor, e: Tensor | None) -> Tensor:
        r, z, dk, dm = u.chunk(4, -1)
        dr, dz = _change(SIGMOID, self.of_r, r, e), _change(SIGMOID, self.of_z, z, e)
        moved_r, moved_z = _moved(self.r, dr, e), _moved(self.z, dz, e)
        dn = _change(TANH, self.of_n, dk + dr * self.m + moved_r * dm, e)
        return scan(moved_z, dz * (_later(self.h) - self.n) + (1 - moved_z) * dn, 0)


class LSTMOfCodes(Activation):
    """h_t = o_t tanh(s_t) with s_t = f_t s_{t-1} + i_t tanh(g_t), from codes of i, f, g and o."""

    def __init__(self, layer: Recurrence, p: Params, saved: Steps):
        super().__init__(layer, p, saved)
        i, f, g, o = layer._codes(p, saved).chunk(4, -1)
        (self.i, self.of_i), (self.f, self.of_f), (self.o, self.of_o) = (SIGMOID.forward((), t) for t in (i, f, o))
        self.g, self.of_g = TANH.forward((), g)
        self.s = scan(self.f, self.i * self.g, 0)
        self.out, self.of_out = TANH.forward((), self.s)

    def gradients(self, e: Tensor, rounds: int | None) -> Tensor:
        """The total gradients are d_t = e_t + W^T g_{t+1} at h_t and a_t = f_{t+1} a_{t+1} + o_t tanh'(s_t) d_t at s_t;
        g_t is these times the derivatives of s_t by i, f and g, and of h_t by o."""
        i, f, g, o = self.i, self.f, self.g, self.o
        of_s, of_o = o * (1 - self.out * self.out), self.out * o * (1 - o)
        factors = torch.stack([g * i * (1 - i), _later(self.s) * f * (1 - f), i * (1 - g * g)], -2)
        found: list[Tensor] = []
        a = torch.zeros_like(e[0])
        for t in range(len(e) - 1, -1, -1):
            d = e[t] + products.matmul(found[-1], self.p[1]) if found else e[t]
            a = torch.addcmul(f[t + 1] * a, of_s[t], d) if found else of_s[t] * d
            found.append(torch.cat([(a.unsqueeze(-2) * factors[t]).flatten(-2), d * of_o[t]], -1))
        return torch.stack(found[::-1])

    def difference(self, u: Tensor, e: Tensor | None) -> Tensor:
        i, f, g, o = u.chunk(4, -1)
        of = (self.of_i, i), (self.of_f, f), (self.of_o, o)
        di, df, do = (_change(SIGMOID, saved, t, e) for saved, t in of)
        dg = _change(TANH, self.of_g, g, e)
        ds = scan(_moved(self.f, df, e), df * _later(self.s) + di * self.g + _moved(self.i, di, e) * dg, 0)
        return do * self.out + _moved(self.o, do, e) * _change(TANH, self.of_out, ds, e)


SIGMOID, TANH = Sigmoid(nn.Sigmoid()), Tanh(nn.Tanh())


def _change(function: Map, saved: Any, u: Tensor, e: Tensor | None) -> Tensor:
    """(f(x) - f(x - e u)) / e; without e the derivative along u."""
    return function.jvp((), saved, u) if e is None else function.quotient((), saved, u, e)[0]


def _moved(y: Tensor, dy: Tensor, e: Tensor | None) -> Tensor:
    """y - e dy."""
    return y if e is None else y - e * dy


class BidirectionalRecurrence(Map):
    """Two recurrent layers on the same sequences, their codes and their h side by side."""

    affine = True

    def __init__(self, module: BothDirections):
        super().__init__(module)
        self.layers = Recurrence(module.first), Recurrence(module.second)
        count = len(self.layers[0].names)
        self.slices = slice(0, count), slice(count, None)
        self.features = 2 * self.layers[0].hidden

    def operands(self, p: Params) -> Params:
        return rounded(p)

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, tuple[Steps, ...]]:
        found = [layer.forward(p[of], x, context) for layer, of in self._each()]
        return torch.cat([h for h, _ in found], -1), tuple(saved for _, saved in found)

    def vjp(self, p: Params, saved: Sequence[Steps], v: Tensor) -> Tensor:
        first, second = (
            layer.vjp(p[of], s, part) for (layer, of), s, part in zip(self._each(), saved, v.chunk(2, -1), strict=True)
        )
        return first + second

    def jvp(self, p: Params, saved: Sequence[Steps], u: Tensor) -> Tensor:
        return torch.cat([layer.jvp(p[of], s, u) for (layer, of), s in zip(self._each(), saved, strict=True)], -1)

    def quotient(self, p: Params, saved: Sequence[Steps], u: Tensor, e: Tensor) -> tuple[Tensor, tuple[Steps, ...]]:
        found = [layer.quotient(p[of], s, u, e) for (layer, of), s in zip(self._each(), saved, strict=True)]
        return torch.cat([change for change, _ in found], -1), tuple(moved for _, moved in found)

    def grads(self, p: Params, saved: Sequence[Steps], v: Tensor) -> Params:
        parts = zip(self._each(), saved, v.chunk(2, -1), strict=True)
        return [g for (layer, of), s, part in parts for g in layer.grads(p[of], s, part)]

    def replay(self, p: Params, saved: Sequence[Steps], x: Tensor) -> tuple[Tensor, Sequence[Steps]]:
        parts = zip(self._each(), saved, strict=True)
        return torch.cat([layer.replay(p[of], s, x)[0] for (layer, of), s in parts], -1), saved

    def activation(self, p: Params, saved: Sequence[Steps]) -> "BothActivations":
        parts = zip(self._each(), saved, strict=True)
        return BothActivations([layer.activation(p[of], s) for (layer, of), s in parts])

    def feedback(self, p: Params, saved: Sequence[Steps], q: Tensor) -> Tensor:
        parts = zip(self._each(), saved, q.chunk(2, -1), strict=True)
        return torch.cat([layer.feedback(p[of], s, part) for (layer, of), s, part in parts], -1)

    def moved(self, saved: Sequence[Steps], q: Tensor, e: Tensor) -> tuple[Steps, ...]:
        parts = zip(self.layers, saved, q.chunk(2, -1), strict=True)
        return tuple(layer.moved(s, part, e) for layer, s, part in parts)

    def _each(self) -> Sequence[tuple[Recurrence, slice]]:
        return list(zip(self.layers, self.slices, strict=True))


class BothActivations:
    """Those of two layers side by side."""

    def __init__(self, parts: Sequence[Activation]):
        self.parts = parts

    def sweep(self, e: Tensor, rounds: int | None = None) -> Tensor:
        return torch.cat([each.sweep(part, rounds) for each, part in self._each(e)], -1)

    def jvp(self, u: Tensor) -> Tensor:
        return torch.cat([each.jvp(part) for each, part in self._each(u)], -1)

    def quotient(self, u: Tensor, e: Tensor) -> Tensor:
        return torch.cat([each.quotient(part, e) for each, part in self._each(u)], -1)

    def _each(self, v: Tensor) -> list[tuple[Activation, Tensor]]:
        return list(zip(self.parts, v.chunk(2, -1), strict=True))


InTime = Recurrence | BidirectionalRecurrence
"""The maps whose codes depend on their own values at earlier steps."""


class StepwiseLinear(Linear):
    """The map of a `Readout`."""

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Tensor]:
        return products.linear(x.transpose(0, 1), *p).transpose(0, 1).contiguous(), x

    def vjp(self, p: Params, saved: Tensor, v: Tensor) -> Tensor:
        return super().vjp(p, saved, v.transpose(0, 1).contiguous()).transpose(0, 1)

    def jvp(self, p: Params, saved: Tensor, u: Tensor) -> Tensor:
        return super().jvp(p, saved, u.transpose(0, 1)).transpose(0, 1)

    def quotient(self, p: Params, saved: Tensor, u: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        return self.jvp(p, saved, u), shifted(saved, u, e)

    def grads(self, p: Params, saved: Tensor, v: Tensor) -> Params:
        return super().grads(p, saved.transpose(0, 1), v.transpose(0, 1))

    def rows(self, x: Tensor, positions: int | None = None) -> Tensor:
        return super().rows(x.transpose(0, 1) if positions is None else x, positions)

    def columns(self, saved: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        return super().columns(saved, r.transpose(0, 1))


def _times_slope(v: Tensor, h: Tensor) -> Tensor:
    """(1 - h^2) v in one pass over memory."""
    return torch.ops.aten.tanh_backward(v, h)


def _later(h: Tensor) -> Tensor:
    """h_{t-1} at every step, 0 at the first."""
    return F.pad(h[:-1], (0, 0, 0, 0, 1, 0))


def _total(v: Tensor) -> Tensor:
    """The sum over steps and samples; on a CPU a product is many times faster."""
    return v.sum((0, 1)) if v.is_cuda else (v.flatten(0, 1).mT @ v.new_ones(v[..., 0].numel(), 1)).squeeze(1)


def _product(v: Tensor, x: Tensor, W: Tensor) -> Tensor:
    """sum over steps and samples of v x^T."""
    return products.outer(v.flatten(0, 1), x.flatten(0, 1), W)
