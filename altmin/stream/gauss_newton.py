"""Small nets that learn one sample at a time by `altmin.methods.gauss_newton`, in numpy: calls are all that takes time.

Several nets of one shape, with other initial weights and factors of forgetting, are computed together; what they
predict is averaged, weighted by their recent losses. Arrays have the nets as their first dimension. Of each layer
W is (nets, outputs, 1 + inputs), the bias first, and P is (nets, 1 + inputs, 1 + inputs); with more than `DENSE` inputs
the first layer keeps the diagonal of P, (nets, 1 + inputs), and a sample changes only what belongs to its inputs that
are not zero.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from altmin.methods.gauss_newton_step import LEAST_NOISE, NOISE, Matrix, eye, gauss_newton_step, memory_of

Array = NDArray[np.float64]
DENSE = 256
"""Inputs up to which the first layer has a whole matrix P."""
GAIN = 0.8
"""Initial weights have this times the deviation of He; biases are drawn as the weights are."""
SPREAD = 5.0
"""1 - forget of the first net is so many times as large as that of the second, of the third as small, and so on."""
TRUST, RECENT = 0.1, 0.99
"""A net counts exp(-TRUST times its summed losses), which fade by RECENT."""


class GaussNewtonNets:
    """Nets of rectified units. hidden: widths of hidden layers. outputs: classes, or 0 for a regression of one target,
    whose squared error is divided by its running mean. seed: of the initial weights. members: how many nets. start,
    forget, floor, walk: as of `altmin.methods.gauss_newton`; forget is that of the middle one of several nets."""

    def __init__(  # noqa: PLR0913
        self,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        seed: int,
        members: int = 3,
        start: float = 0.5,
        forget: float = 0.999,
        floor: float = 0.06,
        walk: float = 0.0,
    ):
        self.classifies, self.inputs, self.members = outputs > 0, inputs, members
        self.random = np.random.default_rng(seed)
        middle = (members - 1) / 2
        fading = np.array([max(0.5, 1 - (1 - forget) * SPREAD ** (middle - m)) for m in range(members)])
        self.memory = memory_of(start, forget, floor, walk)._replace(forget=fading)
        sizes = [inputs, *hidden, max(outputs, 1)]
        self.W = [
            self.random.normal(0.0, GAIN * (2 / max(m, 1)) ** 0.5, (members, n, 1 + m))
            for m, n in itertools.pairwise(sizes)
        ]
        self.W[-1][:] = 0.0
        self.P = [np.tile(start * np.eye(w.shape[2]), (members, 1, 1)) for w in self.W[1:]]
        self.P.insert(0, self._first(inputs))
        self.noise, self.losses = np.ones(members), np.zeros(members)

    def _first(self, inputs: int) -> Array:
        if inputs > DENSE:
            return np.full((self.members, 1 + inputs), self.memory.start)
        return np.tile(self.memory.start * np.eye(1 + inputs), (self.members, 1, 1))

    @property
    def outputs(self) -> int:
        return self.W[-1].shape[1]

    @property
    def module(self) -> nn.Module:
        """A copy as a module of torch: an `nn.Sequential`, or `Averaged` ones."""
        nets = [self.net(m) for m in range(self.members)]
        return nets[0] if len(nets) == 1 else Averaged(nets, torch.tensor(self.trust), self.classifies)

    def net(self, m: int) -> nn.Sequential:
        """A copy of one of the nets as modules of torch."""
        layers: list[nn.Module] = []
        for w in [w[m, :, : 1 + self.inputs] if l == 0 else w[m] for l, w in enumerate(self.W)]:
            layer = nn.Linear(w.shape[1] - 1, w.shape[0], device="meta")  # draws no random numbers
            layer.weight, layer.bias = nn.Parameter(torch.tensor(w[:, 1:])), nn.Parameter(torch.tensor(w[:, 0]))
            layers += [layer, nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    def add_inputs(self, count: int) -> None:
        """Add inputs, with weights drawn as the others were. Arrays grow by half at least, so that a
        stream with ever new features does not copy them every time."""
        old, new = self.inputs, self.inputs + count
        room = self.W[0].shape[2] - 1
        if new > room:
            room = max(new, min(room + room // 2, DENSE) if new <= DENSE else room + room // 2)
            w = np.zeros((self.members, self.W[0].shape[1], 1 + room))
            w[:, :, : 1 + old] = self.W[0][:, :, : 1 + old]
            P = self._first(room)
            previous = self.P[0][..., : 1 + old]
            if P.ndim == 2:
                P[:, : 1 + old] = previous if previous.ndim == 2 else np.einsum("mii->mi", previous[:, : 1 + old])
            else:
                P[:, : 1 + old, : 1 + old] = previous[:, : 1 + old]
            self.W[0], self.P[0] = w, P
        last = len(self.W) == 1
        scale = 0.0 if last else GAIN * (2 / new) ** 0.5
        self.W[0][:, :, 1 + old : 1 + new] = self.random.normal(0.0, scale, (*self.W[0].shape[:2], count))
        added = slice(1 + old, 1 + new)
        if self.P[0].ndim == 2:
            self.P[0][:, added] = self.memory.start
        else:
            self.P[0][:, added, : 1 + new] = 0.0
            self.P[0][:, : 1 + new, added] = 0.0
            self.P[0][:, range(1 + old, 1 + new), range(1 + old, 1 + new)] = self.memory.start
        self.inputs = new

    def add_outputs(self, count: int) -> None:
        """Add classes, whose outputs are 0 until they are trained."""
        w = self.W[-1]
        self.W[-1] = np.concatenate([w, np.zeros((len(w), count, w.shape[2]))], 1)

    def predict(self, rows: Array) -> Array:
        """Return the probabilities of classes, or the values, (samples, outputs), for inputs (samples, inputs)."""
        x = rows
        for l, w in enumerate(self.W):
            w = w[:, :, : 1 + self.inputs] if l == 0 else w
            z = x @ w[:, :, 1:].swapaxes(1, 2) + w[:, None, :, 0]
            x = np.maximum(z, 0.0)
        outputs = _softmax(z) if self.classifies else z
        return outputs[0] if self.members == 1 else np.tensordot(self.trust, outputs, 1)

    @property
    def trust(self) -> Array:
        """The weights of the nets in a prediction."""
        w = np.exp(-TRUST * (self.losses - self.losses.min()))
        return w / w.sum()

    def relearn(self) -> None:
        """Reset the memories, for data that have changed: weights stay, and steps are long again."""
        for P in self.P[1:]:
            P[:] = self.memory.start * np.eye(P.shape[1])
        self.P[0] = self._first(self.W[0].shape[2] - 1)

    @np.errstate(all="ignore")
    def learn(self, x: Array, y: Any, weight: float = 1.0) -> None:
        """Learn a sample (1, inputs) with a class, by its number, or a value. One of weight w counts as w samples.
        `Diverged` if a number of the step is not finite; then it has not been taken."""
        whole = np.empty(1 + self.inputs)
        whole[0], whole[1:] = 1.0, x[0]
        used: Any = slice(1 + self.inputs) if self.P[0].ndim == 3 else np.flatnonzero(whole)
        a, masks = [whole[None, None, used]], []
        z = a[0] @ self.W[0][:, :, used].swapaxes(1, 2)  # (nets, 1, outputs), as all that follows
        for w in self.W[1:]:
            masks.append(z > 0)
            a.append(np.ones((self.members, 1, w.shape[2])))
            np.maximum(z, 0.0, out=a[-1][:, :, 1:])
            z = a[-1] @ w.swapaxes(1, 2)
        r, H, losses, noise = self._at_output(z[:, 0], y, weight)
        J = [eye(z.shape[2])[None, None]]
        for w, mask in zip(self.W[:0:-1], masks[::-1], strict=True):
            J.insert(0, (J[0] @ w[:, None, :, 1:]) * mask[:, :, None])
        first = self.P[0][:, used] if self.P[0].ndim == 2 else self.P[0][:, used, used]
        factors = [Matrix(inputs, j, P) for inputs, j, P in zip(a, J, [first, *self.P[1:]], strict=True)]
        changes = gauss_newton_step(factors, r[:, None], H[:, None], self.memory)
        self.W[0][:, :, used] += changes[0]
        for w, change in zip(self.W[1:], changes[1:], strict=True):
            w += change
        if self.P[0].ndim == 2:
            self.P[0][:, used] = first
        self.losses, self.noise = RECENT * self.losses + losses, noise

    def _at_output(self, z: Array, y: Any, weight: float) -> tuple[Array, Array, Array, Array]:
        """Return the negative gradient and the Hessian of the loss at the outputs, the loss, and the next noise."""
        if self.classifies:
            p = _softmax(z)
            r = -p
            r[:, y] += 1.0
            half = p + 0.5 * r
            H = half[:, :, None] * (eye(z.shape[1]) - half[:, None, :])
            return weight * r, weight * H, -np.log(np.maximum(p[:, y], 1e-12)), self.noise
        e = y - z
        H = (weight / self.noise)[:, None, None]
        noise = NOISE * self.noise + (1 - NOISE) * np.maximum(e[:, 0] ** 2, LEAST_NOISE)
        return e * H[:, :, 0], H, np.abs(e[:, 0]), noise


class Averaged(nn.Module):
    """Nets whose predictions are averaged with these weights: values, or the probabilities of classes, of which it
    gives the logarithms."""

    trust: Tensor

    def __init__(self, nets: Sequence[nn.Module], trust: Tensor, classifies: bool):
        super().__init__()
        self.nets, self.classifies = nn.ModuleList(nets), classifies
        self.register_buffer("trust", trust)

    def forward(self, x: Tensor) -> Tensor:
        outputs = torch.stack([net(x) for net in self.nets])
        if self.classifies:
            return torch.logsumexp(outputs.log_softmax(-1) + self.trust.log()[:, None, None], 0)
        return torch.tensordot(self.trust, outputs, 1)


def _softmax(z: Array) -> Array:
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
