"""Alternating minimization from its equations, in float64, by autograd.

Nothing here is fast and nothing is shared with the package: codes are full values, every derivative comes from
autograd on the formula itself. A network is

    c_l = W_l s_{l-1}(c_{l-1}) + b_l,   l = 1..L,   c_0 = x, s_0 = identity,   output = W_{L+1} s_L(c_L) + b_{L+1},

with one row for each sample.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.autograd.functional import jvp, vhp, vjp

Loss = Callable[[Tensor, Tensor], Tensor]
"""(output, y) -> the mean over samples."""


@dataclass
class Net:
    """W, b and s of every layer; activations[0] stands before the first layer."""

    weights: list[Tensor]
    biases: list[Tensor]
    activations: list[Callable[[Tensor], Tensor]]

    def __len__(self) -> int:
        return len(self.weights)

    def layer(self, l: int, c: Tensor) -> Tensor:
        return self.activations[l](c) @ self.weights[l].T + self.biases[l]


def of(model: Sequence[torch.nn.Module]) -> Net:
    """A Net with copies of the weights of an nn.Sequential of Linear layers and activations."""
    net, pending = Net([], [], []), []
    for module in model:
        if isinstance(module, torch.nn.Linear):
            net.weights.append(module.weight.detach().double().clone())
            bias = module.bias if module.bias is not None else torch.zeros(len(module.weight))
            net.biases.append(bias.detach().double().clone())
            net.activations.append(torch.nn.Sequential(*pending))
            pending = []
        else:
            pending = [*pending, module]
    assert not pending
    return net


def cross_entropy(o: Tensor, y: Tensor) -> Tensor:
    return (torch.logsumexp(o, 1) - o.gather(1, y.unsqueeze(1)).squeeze(1)).mean()


def squared_error(o: Tensor, y: Tensor) -> Tensor:
    return (o - y).square().mean()


# -- f, and the forward pass ------------------------------------------------------------------------------------------


def encode(net: Net, x: Tensor) -> list[Tensor]:
    """c_1..c_L and the output."""
    values = []
    for l in range(len(net)):
        x = net.layer(l, x)
        values.append(x)
    return values


def f(net: Net, x: Tensor, y: Tensor, codes: Sequence[Tensor], mu: float, loss: Loss) -> Tensor:
    """The paper's eq. 3 divided by the number of samples."""
    c = [x, *codes]
    total = loss(net.layer(len(net) - 1, c[-1]), y)
    for l in range(len(net) - 1):
        total = total + mu / len(x) * (c[l + 1] - net.layer(l, c[l])).square().sum()
    return total


# -- codes ------------------------------------------------------------------------------------------------------------

TINY = 1e-30
"""A square below this counts as zero."""


@dataclass
class Result:
    """Moved codes c_1..c_L, and lists with an entry for each layer: the gradient `upstream` at its output; `deltas`,
    from which its weights learn; the scale of its own code, which moves by -scale * upstream; |c - W a|^2, were the
    layer linear along the move of the code below. For the output layer the scale is 1, and the cost is the loss."""

    codes: list[Tensor]
    upstream: list[Tensor]
    deltas: list[Tensor]
    scales: list[float]
    costs: list[float]


@dataclass
class Codes:
    """One step for every code, with the length that is best, were the layers linear."""

    share: float = 0.1
    order: str = "codes-first"

    def update(self, net: Net, x: Tensor, y: Tensor, mu: float, loss: Loss) -> Result:
        """From the last code to the first."""
        *codes, output = encode(net, x)
        top = len(net) - 1

        def value(o: Tensor) -> Tensor:
            return loss(o, y)

        delta, m = gradient(value, output), 1.0
        found: list[tuple[Tensor, Tensor, float, float]] = []
        for l in range(top, 0, -1):
            layer, c, kappa = partial(net.layer, l), codes[l - 1], 2 * mu / len(x) if l == top else 1.0
            g = vjp(layer, c, delta)[1]
            q = jvp(layer, c, g)[1]
            Hq = bounded = q
            if l == top:
                Hq = vhp(value, output, q)[1]
                bounded = torch.where((Hq == 0) & (delta != 0), (1 - self.share) / len(x) * q, Hq)
            a = self.length(delta, g, q, Hq, bounded, kappa)
            r, below = delta - a * q, m * a
            cost = m**2 * square(r)
            if l == top:
                moved = layer(c - a * g)
                falls = value(moved) + kappa / 2 * a**2 * square(g) <= value(output) + 1e-14 * (1 + abs(value(output)))
                moved, below = (moved, a) if falls else (output, 0.0)
                r, cost = gradient(value, moved), float(value(moved))
            elif self.order == "weights-first":
                r = delta
            found.append((delta, r, m, cost))
            delta, m = g, below
            codes[l - 1] = c - m * g
        found.append((delta, delta, m, m**2 * square(delta) if top else float(value(output))))
        return Result(codes, *(list(column) for column in zip(*found[::-1], strict=True)))

    def length(self, delta: Tensor, g: Tensor, q: Tensor, Hq: Tensor, bounded: Tensor, kappa: float) -> float:
        """|g|^2 / (<q, Hq> + kappa |g|^2), so short that the bounded product is at most a share of delta."""
        gg = square(g) if square(g) > TINY else 0.0
        best = gg / max(float((q * Hq).sum()) + kappa * gg, TINY)
        return min(best, self.share * (square(delta) / max(square(bounded), TINY)) ** 0.5)


def gradient(function: Callable[[Tensor], Tensor], c: Tensor) -> Tensor:
    return vjp(function, c)[1]


def square(t: Tensor) -> float:
    """|t|^2."""
    return float(t.square().sum())


def soft_threshold(c: Tensor, by: float) -> Tensor:
    return c.sign() * (c.abs() - by).clamp_min(0)


# -- weights ----------------------------------------------------------------------------------------------------------


def weight_gradients(net: Net, inputs: Sequence[Tensor], found: Result) -> list[tuple[Tensor, Tensor]]:
    """The gradient of <r, W s(c) + b> for W and b of each layer, at the inputs c of the layers."""
    return [(r.T @ s(c), r.sum(0)) for r, s, c in zip(found.deltas, net.activations, inputs, strict=False)]


@dataclass
class Adam:
    """Adam on one tensor; its weight decay is a part of the gradient, or of the step if it is decoupled."""

    lr: float
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    decay: float = 0.0
    decoupled: bool = False
    t: int = 0
    m: Tensor | float = 0.0
    s: Tensor | float = 0.0

    def step(self, p: Tensor, g: Tensor) -> Tensor:
        self.t += 1
        if self.decoupled:
            p = p - self.lr * self.decay * p
        else:
            g = g + self.decay * p
        self.m = self.beta1 * self.m + (1 - self.beta1) * g
        self.s = self.beta2 * self.s + (1 - self.beta2) * g * g
        m, s = self.m / (1 - self.beta1**self.t), self.s / (1 - self.beta2**self.t)
        return p - self.lr * m / (s.sqrt() + self.eps)


# -- memory -----------------------------------------------------------------------------------------------------------


def memory(pairs: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """A = sum a a^T and B = sum c a^T over all pairs of an input and a code."""
    A, B = 0.0, 0.0
    for a, c in pairs:
        A = A + torch.outer(a, a)
        B = B + torch.outer(c, a)
    return A, B


def surrogate(W: Tensor, A: Tensor, B: Tensor) -> Tensor:
    """Tr(W^T W A) - 2 Tr(W^T B)."""
    return torch.trace(W.T @ W @ A) - 2 * torch.trace(W.T @ B)


def coordinate_descent(W: Tensor, A: Tensor, B: Tensor) -> Tensor:
    """Algorithm 3: w_j <- (b_j - sum_{k != j} w_k a_kj) / a_jj, column after column; a unit never active is skipped."""
    W = W.clone()
    for j in range(A.shape[0]):
        if A[j, j] == 0:
            continue
        rest = sum((W[:, k] * A[k, j] for k in range(A.shape[0]) if k != j), torch.zeros_like(W[:, 0]))
        W[:, j] = (B[:, j] - rest) / A[j, j]
    return W


def patches(x: Tensor, **geometry) -> list[Tensor]:
    """What a two-dimensional convolution sees of one sample (channels x height x width), place after place."""
    return list(torch.nn.functional.unfold(x.unsqueeze(0), **geometry)[0].T)


# -- mu ---------------------------------------------------------------------------------------------------------------


def schedule(start: float, increment: float, growth: float, maximum: float | None, events: str) -> list[float]:
    """mu after each event: "b", a mini-batch; "e", the end of an epoch."""
    mu, values = start, []
    for event in events:
        mu = mu + increment if event == "b" else mu * growth
        if maximum is not None and mu > maximum:
            mu = maximum
        values.append(mu)
    return values
