"""Alternating minimization from its equations, in float64, by autograd.

Nothing here is fast and nothing is shared with the package: codes are kept as full values, every derivative comes from
autograd on the formula itself. A network is

    c_l = W_l s_{l-1}(c_{l-1}) + b_l,   l = 1..L,   c_0 = x, s_0 = identity,   output = W_{L+1} s_L(c_L) + b_{L+1},

with one row for each sample.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]
"""(output, y) -> the mean over samples."""


@dataclass
class Net:
    """W, b and s of every layer; activations[0] stands before the first layer. `kinked` marks layers below which the
    activations are all rectifiers or nothing, `relu` those with a rectifier."""

    weights: list[Tensor]
    biases: list[Tensor]
    activations: list[Callable[[Tensor], Tensor]]
    relu: list[bool]
    kinked: list[bool]

    def __len__(self) -> int:
        return len(self.weights)

    def layer(self, l: int, c: Tensor) -> Tensor:
        return self.activations[l](c) @ self.weights[l].T + self.biases[l]


def of(model: Sequence[torch.nn.Module]) -> Net:
    """A Net with copies of the weights of an nn.Sequential of Linear layers and activations."""
    net, pending = Net([], [], [], [], []), []
    for module in model:
        if isinstance(module, torch.nn.Linear):
            net.weights.append(module.weight.detach().double().clone())
            bias = module.bias if module.bias is not None else torch.zeros(len(module.weight))
            net.biases.append(bias.detach().double().clone())
            net.activations.append(torch.nn.Sequential(*pending))
            net.relu.append(any(isinstance(m, torch.nn.ReLU) for m in pending))
            net.kinked.append(all(isinstance(m, torch.nn.ReLU | torch.nn.Identity) for m in pending))
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


@dataclass
class Result:
    """Moved codes c_1..c_L, and for every layer: delta, from which its weights learn, and the scale of its own code."""

    codes: list[Tensor]
    deltas: list[Tensor]
    scales: list[float]


@dataclass
class Codes:
    """How codes move: one step of the best length."""

    share: float = 0.1
    order: str = "codes-first"

    def update(self, net: Net, x: Tensor, y: Tensor, mu: float, loss: Loss) -> Result:
        """From the last code to the first. A code's objective is that part of f which it touches, multiplied so that
        what is asked of the layer above, -m delta, enters as delta: for the last code f itself, for a lower one f over
        2 mu m^2 / n."""
        encoded = encode(net, x)
        codes, deltas, scales = list(encoded[:-1]), [], []
        delta, m, longest = gradient(lambda o: loss(o, y), encoded[-1]), 1.0, 1.0
        offset = delta  # by -m times which the code above has moved
        for l in range(len(net) - 2, -1, -1):
            last = l == len(net) - 2
            kappa = 2 * mu / len(x) if last else 1.0
            home, there = encoded[l], encoded[l + 1]

            def above(o: Tensor, last=last, there=there, m=m, offset=offset) -> Tensor:
                return loss(o, y) if last else (offset - (there - o) / m).square().sum() / 2

            def phi(v: Tensor, l=l, above=above, home=home, kappa=kappa, m=m) -> Tensor:
                return above(net.layer(l + 1, home - m * v)) + kappa / 2 * v.square().sum()

            if not last and net.kinked[l + 1]:
                u, a, asked, bound = self._straight(net, l, home, delta, offset, longest)
                v, longest = a * u, longest * bound
            else:
                v = self._descend(net, l, home, above, phi, kappa, m, delta, offset, last)
                first = gradient(lambda v: -phi(v), torch.zeros_like(home))
                first = first + adjoint(lambda c, l=l: net.layer(l + 1, c), home, delta - offset)
                a = float(v.norm() / first.norm())
                asked = u = v / a if a > 0 else first
                longest = m * a
            codes[l] = home - m * v
            moved = net.layer(l + 1, codes[l])
            left = gradient(lambda o: loss(o, y), moved) if last else delta - (there - moved) / m
            deltas.append(left if last or self.order == "codes-first" else delta)
            scales.append(m)
            delta, offset, m = asked, u, m * a
        return Result(codes, [delta, *deltas[::-1]], [m, *scales[::-1]])

    def _descend(self, net, l, home, above, phi, kappa, m, delta, offset, last) -> Tensor:
        v = torch.zeros_like(home)
        g = -gradient(phi, v)
        g = g + adjoint(lambda c: net.layer(l + 1, c), home, delta - offset)  # asked, but beyond the kink it stopped at
        Jg = tangent(lambda c: net.layer(l + 1, c), home, g)
        HJg = tangent(lambda o: gradient_of(above, o), net.layer(l + 1, home), Jg) * m**2
        falls = (g * g).sum() if last else (offset * Jg).sum()  # of the way that is left above
        a = float(falls.clamp_min(0) / ((Jg * HJg).sum() + kappa * g.square().sum()))
        a = min(a, self.share * float(delta.norm() / HJg.norm()))
        if not last:
            dd, gg = delta.square().sum(), g.square().sum()
            a = min(a, float(dd / (gg + dd)), float(self.share * dd / gg))
        return a * g if phi(a * g) <= phi(v) + 1e-13 * abs(phi(v)) else v

    def _straight(self, net, l, home, delta, offset, longest) -> tuple[Tensor, float, Tensor, float]:
        """One step of rectified units, none of which crosses zero on the longest way that could be the best."""
        g = adjoint(lambda c: net.layer(l + 1, c), home, delta)
        gg, dd = g.square().sum(), delta.square().sum()
        bound = float(torch.minimum(dd / (gg + dd), self.share * dd / gg))
        u = torch.where(home > 0, torch.minimum(g, home / (longest * bound)), g) if net.relu[l + 1] else g
        Ju = tangent(lambda c: net.layer(l + 1, c), home, u)
        a = float((offset * Ju).sum().clamp_min(0) / (Ju.square().sum() + u.square().sum()))
        a = min(a, self.share * float(delta.norm() / Ju.norm()), bound)
        return u, a, g, bound


def gradient(function: Callable[[Tensor], Tensor], c: Tensor) -> Tensor:
    return gradient_of(function, c.detach()).detach()


def gradient_of(function: Callable[[Tensor], Tensor], c: Tensor) -> Tensor:
    """The gradient, itself differentiable."""
    c = c if c.requires_grad else c.clone().requires_grad_()
    return torch.autograd.grad(function(c), c, create_graph=True)[0]


def adjoint(function: Callable[[Tensor], Tensor], c: Tensor, v: Tensor) -> Tensor:
    """J^T v."""
    return gradient(lambda c: (function(c) * v).sum(), c)


def tangent(function: Callable[[Tensor], Tensor], c: Tensor, u: Tensor) -> Tensor:
    """J u, by differentiating J^T v with respect to v."""
    c, v = c.detach().clone().requires_grad_(), None
    y = function(c)
    v = torch.zeros_like(y, requires_grad=True)
    (g,) = torch.autograd.grad(y, c, v, create_graph=True, allow_unused=True)
    return torch.autograd.grad((g * u).sum(), v)[0].detach()


def soft_threshold(c: Tensor, by: float) -> Tensor:
    return c.sign() * (c.abs() - by).clamp_min(0)


# -- weights ----------------------------------------------------------------------------------------------------------


def weight_gradients(net: Net, x: Tensor, found: Result) -> list[tuple[Tensor, Tensor]]:
    """The gradient of <delta, W s(c) + b> for W and b of each layer, at the moved codes."""
    below = [x, *found.codes]
    return [(delta.T @ net.activations[l](below[l]), delta.sum(0)) for l, delta in enumerate(found.deltas)]


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


def patches(x: Tensor, kernel, stride, padding, dilation) -> list[Tensor]:
    """What a two-dimensional convolution sees of one sample (channels x height x width), place after place."""
    channels, height, width = x.shape

    def pixel(channel: int, i: int, j: int) -> float:
        return float(x[channel, i, j]) if 0 <= i < height and 0 <= j < width else 0.0

    rows = (height + 2 * padding[0] - dilation[0] * (kernel[0] - 1) - 1) // stride[0] + 1
    columns = (width + 2 * padding[1] - dilation[1] * (kernel[1] - 1) - 1) // stride[1] + 1
    return [
        torch.tensor(
            [
                pixel(k, r * stride[0] - padding[0] + i * dilation[0], s * stride[1] - padding[1] + j * dilation[1])
                for k in range(channels)
                for i in range(kernel[0])
                for j in range(kernel[1])
            ],
            dtype=torch.float64,
        )
        for r in range(rows)
        for s in range(columns)
    ]


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
