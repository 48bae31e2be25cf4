"""The solved memory of one layer, on its inputs and the gradient of its weights, wherever these come from.

With inputs a (a 1 appended for the bias) and the gradient G of the mean loss with respect to the weights W as one
matrix,

    A <- forget A + (1 - forget) mean a a^T
    M <- beta M + (1 - beta) G,        N = beta M + (1 - beta) G
    V  = N (A + damping s I)^-1,       s the mean of A's diagonal
    W <- W - lr U,                     U = V with all singular values set to about 1, times a length

V is the solution of the layer's least-squares problem whose target is a small move of its outputs along -G, given the
inputs that the memory holds: directions in which inputs hardly vary need large changes of the weights, and get them.
The length is the norm of Adam's step for this layer, or a constant.

A is kept as Y = A S, where S has `rank` orthonormal columns, fixed and random, or is the identity in a layer with no
more inputs than that; and A is taken to be Y (S^T Y)^-1 Y^T, its best approximation from these (Nystroem). Then

    damping s (A + damping s I)^-1 = I - B B^T,      B = Y L^-T,      L L^T = Y^T (Y + damping s S)

B is computed again in some of the updates only (`LayerMemory.is_due`): A changes slowly, and all others need no
factorisation. A grouped convolution is one such problem for each group.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from altmin.core.weights.adam_sgd import BETAS, EPS, adam_direction, coefficients

LENGTHS = ("adam", "fixed")
ROOT_MEAN_SQUARE = 0.2
"""Of the entries of a step of fixed length, over lr: about that of Adam's, so that rates mean the same."""
SHIFT = 2e-3
"""Added to A, over |Y|: more than the rounding of products on tensor cores, so that S^T Y stays positive."""
COEFFICIENTS = ((8.093369, -23.62043, 17.446152), (3.636586, -2.721927, 0.536546), (2.6613, -1.977155, 0.452616))
"""Of odd polynomials a s + b s^3 + c s^5, one after the other: the first has the least distance from 1 on [0.01, 1],
each other one on the range of the one before (Polar Express, arXiv 2505.16932)."""

SKETCHES: dict[tuple[int, int, torch.dtype, torch.device], Tensor] = {}
"""A dict, which torch.compile reads, in place of a cached function, which it would trace."""


class Given(NamedTuple):
    """What a layer's update depends on. new: what `measure` gives, as a mean over samples. G: the gradient. steps: the
    number of this update, from 1. refresh: whether B is computed again."""

    state: dict[str, Tensor]
    new: dict[str, Tensor]
    G: Tensor
    steps: Tensor
    lr: Any
    refresh: bool


@dataclass(frozen=True)
class LayerMemory:
    """The rule and its settings, without state: see `CoActivationMemory` for their meaning."""

    beta: float
    forget: float
    damping: float
    length: str
    rank: int
    every: int

    def is_due(self, count: int) -> bool:
        """Return whether B is computed again in this update, counted from 1.

        >>> memory = LayerMemory(0.9, 0.95, 1.0, "adam", rank=32, every=10)
        >>> [n for n in range(1, 35) if memory.is_due(n)]
        [1, 2, 4, 8, 10, 20, 30]
        """
        return count % self.every == 0 or (count < self.every and count & (count - 1) == 0)

    def init(self, W: Tensor, groups: int = 1) -> dict[str, Tensor]:
        """Return the state of a layer with weights W (outputs, inputs), before the first mini-batch."""
        W, many = _wide(W), (groups,) if groups > 1 else ()
        A = W.new_zeros(*many, W.shape[1], min(W.shape[1], self.rank))
        state = {"A": A, "B": torch.zeros_like(A), "scale": W.new_zeros(*many, 1, 1), "M": torch.zeros_like(W)}
        return state | ({"squares": torch.zeros_like(W)} if self.length == "adam" else {})

    def measure(self, a: Tensor, times: Any, weights: Tensor | None = None) -> dict[str, Tensor]:
        """Return the sum of a a^T over rows (rows, inputs), times S, and the mean of its diagonal, all times a number.
        With groups a is (groups, rows, inputs). weights: of the rows."""
        a = _wide(a)
        if weights is None:
            weighted, squares = a, torch.linalg.matrix_norm(a, keepdim=True).square()
        else:
            weighted = weights.unsqueeze(1) * a
            squares = (weighted * a).sum((-2, -1), keepdim=True)
        A = weighted.mT @ (a if a.shape[-1] <= self.rank else a @ sketch(a, self.rank))
        return {"A": A * times, "scale": squares * (times / a.shape[-1])}

    def update(self, given: Sequence[Given]) -> list[tuple[Tensor, dict[str, Tensor]]]:
        """Return -lr U of each layer, and its next state. The singular values of all layers are set together."""
        solutions = [self._solved(layer) for layer in given]
        directions = polar([V for V, _ in solutions])
        triples = zip(given, directions, solutions, strict=True)
        return [self._stepped(layer, U, state) for layer, U, (_, state) in triples]

    def _solved(self, given: Given) -> tuple[Tensor, dict[str, Tensor]]:
        """Return V, and the next state."""
        G, state = _wide(given.G), {name: _wide(t) for name, t in given.state.items()}
        A, scale = (torch.lerp(given.new[name], state[name], self.forget) for name in ("A", "scale"))
        B = factor(A, self.damping * scale, sketch(A.mT, self.rank)) if given.refresh else state["B"]
        M = torch.lerp(G, state["M"], self.beta)
        N = torch.lerp(G, M, self.beta)
        after = {"A": A, "B": B, "scale": scale, "M": M}
        if "squares" in state:
            after["squares"] = torch.lerp(state["squares"], G * G, 1 - BETAS[1])
        return solved(N if A.ndim == 2 else N.unflatten(0, (len(A), -1)), B), after

    def _stepped(self, given: Given, U: Tensor, after: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return U with its length, and the next state."""
        length: Any = ROOT_MEAN_SQUARE * math.sqrt(U.numel())
        if "squares" in after:
            c = coefficients({"lr": 1.0, "beta1": self.beta, "beta2": BETAS[1], "eps": EPS}, given.steps)
            length = c["rate"] * torch.linalg.vector_norm(adam_direction(after["M"], after["squares"], c))
        size = torch.linalg.vector_norm(U).clamp_min(_tiny(U))
        return U.reshape(after["M"].shape) * (-given.lr * length / size), after


def factor(Y: Tensor, ridge: Tensor, S: Tensor) -> Tensor:
    """Return B, such that ridge (A + ridge I)^-1 = I - B B^T for A = Y (S^T Y)^-1 Y^T. ridge: of shape (..., 1, 1).

    >>> B = factor(torch.tensor([[1.0, 0.0], [0.0, 3.0]]), torch.ones(1, 1), torch.eye(2))
    >>> torch.eye(2) - B @ B.mT  # but for the shift
    tensor([[0.4984, 0.0000],
            [0.0000, 0.2496]])
    """
    size = torch.linalg.matrix_norm(Y, keepdim=True).clamp_min(_tiny(Y))
    y, s, ridge = (Y / size + SHIFT * S).double(), S.double(), (ridge.clamp_min(_tiny(Y)) / size).double()
    L = torch.linalg.cholesky_ex(y.mT @ (y + ridge * s))[0]
    return torch.linalg.solve_triangular(L, y.mT, upper=False).mT.to(Y.dtype)


def solved(N: Tensor, B: Tensor) -> Tensor:
    """Return N (I - B B^T)."""
    plus = torch.addmm if N.ndim == 2 else torch.baddbmm
    return plus(N, N @ B, B.mT, alpha=-1)


def polar(given: Sequence[Tensor]) -> list[Tensor]:
    """Return of each matrix (..., n, m) V the nearest one with orthonormal rows or columns, roughly: singular values of
    at least 0.01 of the largest come to lie between 0.7 and 1.3, smaller ones are raised 78 times.

    A step is X <- (a + b X X^T + c (X X^T)^2) X. All factors are polynomials of V V^T, and commute: they are taken on
    that small matrix, and on those of all V at once, with zeros to fill them up.

    >>> values = torch.linalg.svdvals(polar([torch.tensor([[3.0, 4.0, 0.0], [0.5, 0.0, 1.0]])])[0])
    >>> bool((values > 0.7).all() and (values < 1.3).all())
    True
    """
    wide = [V if V.shape[-2] <= V.shape[-1] else V.mT for V in given]
    grams = [(X @ X.mT).view(-1, X.shape[-2], X.shape[-2]) for X in wide]
    nearest: list[Any] = [None] * len(given)
    for bucket in dict.fromkeys(map(_bucket, grams)):
        mine = [i for i, S in enumerate(grams) if _bucket(S) == bucket]
        n = max(grams[i].shape[-1] for i in mine)
        padded = [F.pad(grams[i], (0, n - grams[i].shape[-1]) * 2) for i in mine]
        factors = _towards_one(torch.cat(padded)).split([len(S) for S in padded])
        for i, P in zip(mine, factors, strict=True):
            X = wide[i]
            P = P[:, : X.shape[-2], : X.shape[-2]].reshape(*X.shape[:-1], X.shape[-2])
            nearest[i] = P @ X if X is given[i] else (P @ X).mT
    return nearest


def _towards_one(S: Tensor) -> Tensor:
    """The products of the polynomials at the matrices S = V V^T (..., n, n), by which V is multiplied."""
    (a, b, c), *more = COEFFICIENTS
    one, tiny = torch.eye(S.shape[-1], dtype=S.dtype, device=S.device), _tiny(S)
    size = S.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None].clamp_min(tiny)
    S = S / size  # first: powers of V would leave the range of its type
    square = S @ S
    bound = torch.linalg.matrix_norm(square, keepdim=True).sqrt()  # of the eigenvalues of S, whose mean is 1 / n
    bound = bound.clamp_min(0.5 / S.shape[-1])  # unless V is zero
    S = S / bound
    P = product = a * one + b * S + square * (c / bound / bound)
    for a, b, c in more:
        S = P @ (S @ P)
        P = torch.baddbmm(S, S, S, beta=b, alpha=c) + a * one
        product = P @ product
    return product / bound.sqrt() / size.sqrt()


def _bucket(S: Tensor) -> tuple[int, torch.dtype, torch.device]:
    """What matrices have in common that are taken together: those of up to 128 rows, larger ones with others of up to
    twice their size."""
    return max(128, 1 << (S.shape[-1] - 1).bit_length()), S.dtype, S.device


def sketch(a: Tensor, rank: int) -> Tensor:
    """Return the matrix S for inputs (..., inputs): the same in all processes, and made once; the identity if there are
    at most `rank`."""
    inputs = a.shape[-1]
    if inputs <= rank:
        return torch.eye(inputs, dtype=a.dtype, device=a.device)
    key = inputs, rank, a.dtype, a.device
    if key not in SKETCHES:
        normal = np.random.default_rng(inputs).standard_normal((inputs, rank))  # torch's differs inside vmap
        SKETCHES[key] = torch.from_numpy(np.linalg.qr(normal)[0]).to(a.device, a.dtype)
    return SKETCHES[key]


def _wide(t: Tensor) -> Tensor:
    """In float32 if it has fewer bits: there a memory would lose what changes little."""
    return t.float() if t.dtype in (torch.bfloat16, torch.float16) else t


def _tiny(t: Tensor) -> float:
    return torch.finfo(t.dtype).tiny ** 0.5
