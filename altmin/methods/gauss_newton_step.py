"""Gauss-Newton for single samples: a step with each sample's own curvature and without a learning rate.

Of sample i let r_i be the negative gradient and H_i the Hessian of its loss at the output, a_il the input of layer l
with a 1 appended for the bias, and J_il the Jacobian of the output with respect to the layer's output. Each layer has a
matrix P_l, the inverse of a co-activation memory that starts at I / start and fades by `forget`. The samples that come
together take the step

    K_ij = sum_l (a_il^T P_l a_jl) J_il J_jl^T
    r'   = (I + H K)^-1 r                                   what is left of r once all layers have moved
    W_l <- W_l + sum_i (J_il^T r'_i) (P_l a_il)^T
    P_l <- (forget P_l^-1 + sum_i f_il a_il a_il^T)^-1 + walk I,
           f_il = max(tr(J_il^T H_i J_il) / outputs of l, floor),

the exact minimum of the losses' quadratic models plus sum_l tr(dW_l P_l^-1 dW_l^T) / 2. Of cross-entropy H_i is
diag(p) - p p^T halfway between the prediction and the target, p = (softmax(o_i) + y_i) / 2: at a confident and wrong
prediction the Hessian itself is 0, and nothing would bound the step. The trace of P_l is bounded by its first value, so
that directions without input do not grow without end. A convolution has an input a and a Jacobian at each of its
places, over which products and sums go too, with floor divided by their number.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from altmin.common.errors import Diverged, demand

Array = NDArray[np.float64]
NOISE = 0.99
"""Decay of the running mean of squared errors, by which a squared error is divided."""
LEAST_NOISE = 1e-6
LARGEST_CHANGE = 1e30
"""Bound on changes; beyond, weights in single precision may not be finite."""


class Memory(NamedTuple):
    """Rule by which every P fades and is bounded, the options of `GaussNewton`. forget: one for each net."""

    start: float
    forget: Array
    floor: float
    walk: float

    def update(self, P: Array, a: Array, moved: Array, f: Array, q: Array | None = None) -> None:
        """Set P (nets, inputs, inputs), or its diagonal (nets, inputs), in place to that after inputs a (nets, rows,
        inputs) with weights f (nets, rows), given P a as `moved`."""
        if P.ndim == 2:
            new = self.forget[:, None] / P + (f[:, :, None] * a * a).sum(1)
            np.minimum(1 / new + self.walk, self.start, out=P)
            return
        forget = self.forget[:, None, None]
        if a.shape[1] == 1:
            q = moved @ a.swapaxes(1, 2) if q is None else q
            gain = f / (self.forget[:, None] + f * q[:, 0])
            P -= moved.swapaxes(1, 2) * (gain[:, :, None] * moved)
            P /= forget
        elif a.shape[1] <= a.shape[2]:
            root = np.sqrt(f)[:, :, None]
            U = root * moved
            P -= U.swapaxes(1, 2) @ np.linalg.solve(forget * eye(a.shape[1]) + U @ (root * a).swapaxes(1, 2), U)
            P /= forget
        else:
            A = (f[:, :, None] * a).swapaxes(1, 2) @ moved
            P[:] = np.linalg.solve((forget * eye(a.shape[2]) + A).swapaxes(1, 2), P)
            P[:] = (P + P.swapaxes(1, 2)) / 2
        diagonal = np.einsum("mii->mi", P)  # a view, also of a part of a larger P
        if self.walk:
            diagonal += self.walk
        trace, most = diagonal.sum(1), self.start * P.shape[1]
        if trace.max() > most:
            P *= np.minimum(most / trace, 1.0)[:, None, None]


def memory_of(start: float, forget: float, floor: float, walk: float) -> Memory:
    """Return the options of one net. ValueError or TypeError for those that cannot be."""
    for name, value in (("start", start), ("forget", forget), ("floor", floor), ("walk", walk)):
        demand("gauss-newton", name, value, above=name in ("start", "forget"))
    if forget > 1:
        raise ValueError(f"forget of gauss-newton lies above 0 and is at most 1, given {forget!r}")
    return Memory(start, np.array([forget]), floor, walk)


class Matrix:
    """A linear map with one place a sample. a: its inputs (nets, samples, inputs). J: the Jacobians of the net's
    outputs with respect to its own, (nets, samples, outputs of the net, outputs)."""

    def __init__(self, a: Array, J: Array, P: Array):
        self.a, self.J, self.P = a, J, P
        self.moved = a * P[:, None] if P.ndim == 2 else a @ P
        self.q = self.moved @ a.swapaxes(1, 2)
        self.squares = J @ J.swapaxes(2, 3)

    def kernel(self) -> Array:
        """Return what the map adds to K, (nets, samples times outputs, the same)."""
        m, n, k, _ = self.J.shape
        if n == 1:
            return self.q * self.squares[:, 0]
        J = self.J.reshape(m, n * k, -1)
        K = (J @ J.swapaxes(1, 2)).reshape(m, n, k, n, k) * self.q[:, :, None, :, None]
        return K.reshape(m, n * k, n * k)

    def change(self, left: Array) -> Array:
        """Return the change of the weights (nets, outputs, inputs). left: r' (nets, samples, 1, outputs of the net)."""
        D = (left @ self.J)[:, :, 0].swapaxes(1, 2)
        return D * self.moved if D.shape[2] == 1 else D @ self.moved

    def remember(self, H: Array, memory: Memory) -> None:
        """Set P to the next one. H: (nets, samples, outputs, outputs)."""
        f = (H * self.squares).sum((2, 3)) / self.J.shape[-1]
        memory.update(self.P, self.a, self.moved, np.maximum(f, memory.floor), self.q)


class Places:
    """A linear map of one net with several places a sample. a: its inputs there (samples, places, inputs). J: the
    Jacobians (samples, outputs of the net, places, outputs)."""

    def __init__(self, a: Array, J: Array, P: Array):
        self.a, self.J, self.P = a, J, P
        self.G = np.einsum("ikmo,imd->ikod", J, a).reshape(-1, J.shape[-1], a.shape[-1])
        self.moved = self.G @ P

    def kernel(self) -> Array:
        n = len(self.G)
        return self.moved.reshape(1, n, -1) @ self.G.reshape(n, -1).T

    def change(self, left: Array) -> Array:
        return np.tensordot(left.reshape(1, -1), self.moved, 1)

    def remember(self, H: Array, memory: Memory) -> None:
        f = np.einsum("ikmo,ikh,ihmo->im", self.J, H[0], self.J, optimize=True) / self.J.shape[-1]
        rows = self.a.reshape(1, -1, self.a.shape[-1])
        memory.update(self.P, rows, rows @ self.P, np.maximum(f, memory.floor / self.a.shape[1]).reshape(1, -1))


def gauss_newton_step(factors: Sequence[Matrix | Places], r: Array, H: Array, memory: Memory) -> list[Array]:
    """Return the changes of all factors' parameters, and set every P to the next one. r: (nets, samples, outputs). H:
    (nets, samples, outputs, outputs). `Diverged`, and no P has changed, if a change is not finite."""
    m, n, k = r.shape
    K = factors[0].kernel()
    for factor in factors[1:]:
        K = K + factor.kernel()
    left = _solved((H @ K.reshape(m, n, k, n * k)).reshape(m, n * k, n * k), r.reshape(m, n * k)).reshape(m, n, 1, k)
    changes = [factor.change(left) for factor in factors]
    if not sum(abs(float(change.sum())) for change in changes) < LARGEST_CHANGE:
        raise Diverged("the weights' next value", "give inputs of a smaller size")
    for factor in factors:
        factor.remember(H, memory)
    return changes


def _solved(HK: Array, r: Array) -> Array:
    """Return (I + H K)^-1 r; NaN where the matrix cannot be inverted."""
    if r.shape[1] == 1:
        return r / (1.0 + HK[:, :, 0])
    HK += eye(r.shape[1])
    try:
        left: Any = np.linalg.solve(HK, r[:, :, None])
        return left[:, :, 0]
    except np.linalg.LinAlgError:
        return np.full_like(r, np.nan)


@cache
def eye(n: int) -> Array:
    """Return an identity matrix that is made once."""
    return np.eye(n)
