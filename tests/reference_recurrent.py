"""Codes in time from the formulas of the cells of `nn.RNN`, `nn.GRU` and `nn.LSTM`, in float64, one sequence and one
step of time at a time:

    c_t = U x_t + W h_{t-1} + b,        h_t and the next state from c_t and the state before.

Of a batch, whose sequences may have different lengths, the steps of all sequences are the rows of one tensor.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from reference import TINY, gradient, square
from torch import Tensor, nn
from torch.autograd.functional import jvp, vhp, vjp

KINDS = [nn.RNN, nn.GRU, nn.LSTM]
F64 = torch.float64


def code(kind: type, p: Sequence[Tensor], x_t: Tensor, h: Tensor) -> Tensor:
    """c_t from x_t and h_{t-1}; of a GRU the two products in its candidate are codes of their own."""
    U, W, b, b2 = p
    x, s = U @ x_t + b, W @ h + b2
    if kind is nn.GRU:
        n = len(h)
        return torch.cat([x[: 2 * n] + s[: 2 * n], x[2 * n :], s[2 * n :]])
    return x + s


def cell(kind: type, c: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The next state, whose first entry is h_t, from c_t and the state before."""
    if kind is nn.RNN:
        return (torch.tanh(c),)
    if kind is nn.GRU:
        r, z, k, m = c.chunk(4)
        r, z = 1 / (1 + torch.exp(-r)), 1 / (1 + torch.exp(-z))
        return ((1 - z) * torch.tanh(k + r * m) + z * state[0],)
    i, f, g, o = c.chunk(4)
    i, f, o = (1 / (1 + torch.exp(-t)) for t in (i, f, o))
    s = f * state[1] + i * torch.tanh(g)
    return o * torch.tanh(s), s


@dataclass
class Layer:
    """A recurrent layer with weights U, W, b, b2 and the sequences x of a batch."""

    kind: type
    p: Sequence[Tensor]
    xs: Sequence[Tensor]

    def rows(self, t: Tensor) -> Sequence[Tensor]:
        """The steps of each sequence."""
        return t.split([len(x) for x in self.xs])

    def start(self) -> tuple[Tensor, ...]:
        return (torch.zeros(self.p[1].shape[1], dtype=F64),) * (2 if self.kind is nn.LSTM else 1)

    def encode(self, added: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """All codes and all h; added: to every code as soon as it is known."""
        codes: list[Tensor] = []
        hs: list[Tensor] = []
        for x in self.xs:
            state = self.start()
            for x_t in x:
                c = code(self.kind, self.p, x_t, state[0])
                codes.append(c if added is None else c + added[len(codes)])
                state = cell(self.kind, codes[-1], state)
                hs.append(state[0])
        return torch.stack(codes), torch.stack(hs)

    def h(self, codes: Tensor) -> Tensor:
        """h as a function of all codes."""
        hs: list[Tensor] = []
        for sequence in self.rows(codes):
            state = self.start()
            for c in sequence:
                state = cell(self.kind, c, state)
                hs.append(state[0])
        return torch.stack(hs)

    def codes(self, h: Tensor) -> Tensor:
        """U x_t + W h_{t-1} + b, the value to which f ties each code, as a function of all h."""
        return torch.stack(
            [
                code(self.kind, self.p, x_t, before)
                for x, each in zip(self.xs, self.rows(h), strict=True)
                for x_t, before in zip(x, [self.start()[0], *each[:-1]], strict=True)
            ]
        )


@dataclass
class Step:
    """The direction g of the codes, the changes q_h of h and q of the output above along it, rest = g - W q_{t-1}, and
    the length."""

    g: Tensor
    q_h: Tensor
    q: Tensor
    rest: Tensor
    a: float = 0.0


@dataclass
class CodesInTime:
    """One step of all codes of a layer with the length that is best, were the layer and the block above linear. above:
    the output of that block as a function of all h."""

    share: float = 0.1
    truncated: bool = False

    def update(
        self, layer: Layer, above: Callable[[Tensor], Tensor], delta: Tensor, offset: Tensor | None = None
    ) -> Step:
        """For an output that is to move along -delta. offset: the part of it, if not all, that moves of codes above
        have not brought about by themselves."""
        step = self.direction(layer, above, delta)
        step.a = self.length(delta, delta if offset is None else offset, step, step.q, step.q, 1.0)
        return step

    def below_loss(
        self, layer: Layer, above: Callable[[Tensor], Tensor], loss: Callable[[Tensor], Tensor], mu: float
    ) -> Step:
        """For an output whose loss, a mean over the sequences, is given. A step that would raise f has no length."""
        h = layer.encode()[1]
        output, kappa = above(h), 2 * mu / len(layer.xs)
        delta = gradient(loss, output)
        step = self.direction(layer, above, delta)
        Hq = vhp(loss, output, step.q)[1]
        bounded = torch.where((Hq == 0) & (delta != 0), (1 - self.share) / len(layer.xs) * step.q, Hq)
        a = self.length(delta, delta, step, Hq, bounded, kappa)
        falls = loss(above(h - a * step.q_h)) + kappa / 2 * a**2 * square(step.rest) <= loss(output) + 1e-14
        step.a = a if falls else 0.0
        return step

    def direction(self, layer: Layer, above: Callable[[Tensor], Tensor], delta: Tensor) -> Step:
        codes, h = layer.encode()
        e = vjp(above, h, delta)[1]
        still = torch.zeros_like(codes)
        g = vjp(layer.h, codes, e)[1] if self.truncated else vjp(lambda added: layer.encode(added)[1], still, e)[1]
        q_h = jvp(layer.h, codes, g)[1]
        return Step(g, q_h, jvp(above, h, q_h)[1], g - jvp(layer.codes, h, q_h)[1])

    def length(self, delta: Tensor, offset: Tensor, step: Step, Hq: Tensor, bounded: Tensor, kappa: float) -> float:
        falls = max(0.0, float((offset * step.q).sum()))
        best = falls / (float((step.q * Hq).sum()) + kappa * square(step.rest))
        return min(best, self.share * (square(delta) / max(square(bounded), TINY)) ** 0.5)
