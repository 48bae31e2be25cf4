"""Alternating minimization from the equations of the paper, in float64, one sample at a time, by autograd.

Nothing here is fast and nothing is shared with the package: codes are kept as full values, every derivative comes from
autograd on the formula itself, every line search is a search. A network is

    c_l = W_l s_{l-1}(c_{l-1}) + b_l,   l = 1..L,   c_0 = x, s_0 = identity,   output = W_{L+1} s_L(c_L) + b_{L+1}.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Vector = Tensor
SampleLoss = Callable[[Vector, Tensor], Tensor]


@dataclass
class Net:
    """W, b and s of every layer; activations[0] stands before the first layer. `relu` marks rectified ones,
    `piecewise_linear` those and the ones that do nothing."""

    weights: list[Tensor]
    biases: list[Tensor]
    activations: list[Callable[[Vector], Vector]]
    relu: list[bool]
    piecewise_linear: list[bool]

    def __len__(self) -> int:
        return len(self.weights)

    def layer(self, l: int, c: Vector) -> Vector:
        return self.weights[l] @ self.activations[l](c) + self.biases[l]


def of(model: Sequence[torch.nn.Module]) -> Net:
    """A Net with copies of the weights of an nn.Sequential of Linear layers and activations."""
    net, pending = Net([], [], [], [], []), []
    for module in model:
        if isinstance(module, torch.nn.Linear):
            net.weights.append(module.weight.detach().double().clone())
            bias = module.bias if module.bias is not None else torch.zeros(len(module.weight))
            net.biases.append(bias.detach().double().clone())
            net.activations.append(_composed(pending))
            net.relu.append(bool(pending) and isinstance(pending[0], torch.nn.ReLU))
            simple = (torch.nn.ReLU, torch.nn.Identity)
            net.piecewise_linear.append(all(isinstance(m, simple) for m in pending))
            pending = []
        else:
            pending = [*pending, module]
    assert not pending
    return net


def _composed(modules: Sequence[torch.nn.Module]) -> Callable[[Vector], Vector]:
    def apply(c: Vector) -> Vector:
        for module in modules:
            c = module(c)
        return c

    return apply


def cross_entropy(o: Vector, y: Tensor) -> Tensor:
    return torch.logsumexp(o, 0) - o[y]


def squared_error(o: Vector, y: Vector) -> Tensor:
    return (o - y).square().mean()


# -- f, and the forward pass ------------------------------------------------------------------------------------------


def encode(net: Net, x: Vector) -> list[Vector]:
    """c_1..c_L and the output of one sample."""
    values = []
    for l in range(len(net)):
        x = net.layer(l, x)
        values.append(x)
    return values


def f(net: Net, x: Tensor, y: Tensor, codes: Sequence[Sequence[Vector]], mu: float, loss: SampleLoss) -> Tensor:
    """The paper's eq. 3 divided by the number of samples; codes[t] are those of sample t."""
    total = torch.zeros((), dtype=torch.float64)
    for t in range(len(x)):
        c = [x[t], *codes[t]]
        total = total + loss(net.layer(len(net) - 1, c[-1]), y[t])
        for l in range(len(net) - 1):
            total = total + mu * (c[l + 1] - net.layer(l, c[l])).square().sum()
    return total / len(x)


# -- codes ------------------------------------------------------------------------------------------------------------


@dataclass
class Codes:
    """How codes move. lr None: the exact line search."""

    steps: int = 1
    lr: float | None = None
    momentum: float = 0.0
    l1: float = 0.0

    def update(self, net: Net, x: Vector, y: Tensor, mu: float, loss: SampleLoss) -> list[Vector]:
        """The new codes c_1..c_L of one sample, from the last to the first."""
        encoded = encode(net, x)
        codes = list(encoded[:-1])
        self._longest: tuple[Vector, float] | None = None
        for l in range(len(net) - 2, -1, -1):
            home = encoded[l]
            if l == len(net) - 2:  # the last code trades the loss against mu times its distance

                def above(c: Vector, l: int = l) -> Tensor:
                    return loss(net.layer(l + 1, c), y)

                weight, l1 = 2 * mu, self.l1
            else:  # a lower one, all divided by 2 mu, the fit of the code above against its own distance

                def above(c: Vector, l: int = l) -> Tensor:
                    return (codes[l + 1] - net.layer(l + 1, c)).square().sum() / 2

                weight, l1 = 1.0, self.l1 / (2 * mu)
            if self.steps == 1 and self.lr is None and not l1 and net.piecewise_linear[l + 1]:
                asked = None if l == len(net) - 2 else self._longest or (codes[l + 1] - encoded[l + 1], 1.0)
                codes[l] = self._stopped_at_kinks(net, l, home, above, weight, asked, loss, y)
            else:
                codes[l] = self._descend(net, l, home, above, weight, l1, last=l == len(net) - 2, loss=loss, y=y)
                self._longest = None
        return codes

    def _descend(self, net, l, home, above, weight, l1, last, loss, y) -> Vector:
        def smooth(c: Vector) -> Tensor:
            return above(c) + weight / 2 * (c - home).square().sum()

        def whole(c: Vector) -> float:
            return float(smooth(c) + l1 * c.abs().sum())

        c, v = home.clone(), torch.zeros_like(home)
        for _ in range(self.steps):
            g = -gradient(smooth, c)
            v = g + self.momentum * v
            if self.lr is not None:
                c = soft_threshold(c + self.lr * v, self.lr * l1)
                continue
            if float(g @ v) <= 0:
                continue
            J = torch.autograd.functional.jacobian(lambda c: net.layer(l + 1, c), c)
            if last:  # spec, section 9: |g|^2 / (g^T J^T H J g + 2 mu |g|^2), along v in general
                H = torch.autograd.functional.hessian(lambda o: loss(o, y), net.layer(l + 1, c))
            else:  # |g|^2 / (|Jg|^2 + |g|^2)
                H = torch.eye(len(J), dtype=torch.float64)
            alpha = float(g @ v) / float(v @ J.T @ H @ J @ v + weight * (v @ v))
            c = self._halve_until_lower(c, v, alpha, l1, whole)
        return c

    def _stopped_at_kinks(self, net, l, home, above, weight, asked, loss, y) -> Vector:
        """One step of rectified units: none crosses zero, where it would pay for its move and change nothing.

        The longest step that could be best is stopped there, and handed down before its best share is taken: what the
        code above asks for is part sigma of t.
        """

        def whole(e: Vector) -> float:
            return float(above(home + e) + weight / 2 * e @ e)

        def clip(e: Vector) -> Vector:
            return torch.maximum(e, -home.clamp_min(0)) if net.relu[l + 1] else e

        J = torch.autograd.functional.jacobian(lambda c: net.layer(l + 1, c), home)
        if asked is None:
            e, sigma = clip(-gradient(above, home) / weight), 1.0
            o = net.layer(l + 1, home)
            H = torch.autograd.functional.hessian(lambda o: loss(o, y), o)
            slope = float(-gradient(lambda o: loss(o, y), o) @ J @ e)
            share = min(slope / float(e @ J.T @ H @ J @ e + weight * e @ e), 1.0) if slope > 0 else 0.0
            while whole(share * e) > whole(0 * e) + 1e-14:
                share /= 2
        else:
            t, sigma = asked
            g = J.T @ t
            e = clip(float(t @ t) / max(float(g @ g + t @ t), 1e-300) * g)
            share = best_share(lambda s: whole(s * sigma * e))
        self._longest = (e, share * sigma)
        return home + share * sigma * e

    def _halve_until_lower(self, c, v, alpha, l1, whole) -> Vector:
        before = whole(c)
        for _ in range(11):
            new = soft_threshold(c + alpha * v, alpha * l1)
            if whole(new) <= before * (1 + 1e-15):
                return new
            alpha /= 2
        return c


def gradient(function: Callable[[Vector], Tensor], c: Vector) -> Vector:
    c = c.detach().clone().requires_grad_()
    return torch.autograd.grad(function(c), c)[0]


def soft_threshold(c: Tensor, by: float) -> Tensor:
    return c.sign() * (c.abs() - by).clamp_min(0)


def best_share(value: Callable[[float], float]) -> float:
    """The lowest point of a function on [0, 1]: a grid, then golden section around its best point."""
    grid = [i / 50 for i in range(51)]
    i = min(range(51), key=lambda i: value(grid[i]))
    a, b = grid[max(i - 1, 0)], grid[min(i + 1, 50)]
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        left, right = b - ratio * (b - a), a + ratio * (b - a)
        if value(left) <= value(right):
            b = right
        else:
            a = left
    inside = (a + b) / 2
    end = round(inside)  # where nothing tells the two apart, the end itself: there a unit is at zero, not near it
    return end if value(end) <= value(inside) + 1e-14 * abs(value(inside)) else inside


# -- weights ----------------------------------------------------------------------------------------------------------


def local_objective(
    net: Net, l: int, W: Tensor, b: Tensor, x: Tensor, y: Tensor, codes: Sequence[Sequence[Vector]], mu, loss
) -> Tensor:
    """The part of f that layer l has a say in."""
    total = torch.zeros((), dtype=torch.float64)
    for t in range(len(x)):
        c = [x[t], *codes[t]]
        out = W @ net.activations[l](c[l]) + b
        total = total + (loss(out, y[t]) if l == len(net) - 1 else mu * (c[l + 1] - out).square().sum())
    return total / len(x)


def weight_gradients(net: Net, x, y, codes, mu, loss, normalise: bool = False) -> list[tuple[Tensor, Tensor]]:
    """The gradient of f for W and b of each layer, by autograd on that layer's terms alone.

    normalise: that of 1/2 |r / rms|^2, summed over units and averaged over samples, with rms held fixed.
    """
    gradients = []
    for l in range(len(net)):
        W, b = net.weights[l].clone().requires_grad_(), net.biases[l].clone().requires_grad_()
        value = local_objective(net, l, W, b, x, y, codes, mu, loss)
        dW, db = torch.autograd.grad(value, [W, b])
        if normalise and l < len(net) - 1:
            squares = float(value.detach()) / mu * len(x) / (len(x) * len(b))  # mean over samples and units of r^2
            dW, db = (g / (2 * mu) / math.sqrt(squares) for g in (dW, db))
        gradients.append((dW, db))
    return gradients


@dataclass
class Adam:
    """Adam on one tensor, with the decoupled weight decay of AdamW."""

    lr: float
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    decay: float = 0.0
    t: int = 0
    m: Tensor | float = 0.0
    s: Tensor | float = 0.0

    def step(self, p: Tensor, g: Tensor) -> Tensor:
        self.t += 1
        p = p - self.lr * self.decay * p
        self.m = self.beta1 * self.m + (1 - self.beta1) * g
        self.s = self.beta2 * self.s + (1 - self.beta2) * g * g
        m, s = self.m / (1 - self.beta1**self.t), self.s / (1 - self.beta2**self.t)
        return p - self.lr * m / (s.sqrt() + self.eps)


# -- memory -----------------------------------------------------------------------------------------------------------


def memory(pairs: Sequence[tuple[Vector, Vector]]) -> tuple[Tensor, Tensor]:
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


def patches(x: Tensor, kernel, stride, padding, dilation) -> list[Vector]:
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
