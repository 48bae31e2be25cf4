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

A layer with more inputs than `rank` keeps the products Y = A S with a fixed random matrix S of `rank` orthonormal
columns instead of A, and A is taken to be Y (S^T Y)^-1 Y^T, its best approximation from these (Nystroem). Both are sums
over samples. A grouped convolution is one such problem for each group.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

LENGTHS = ("adam", "fixed")
ROOT_MEAN_SQUARE = 0.2
"""Of the entries of a step of fixed length, over lr: about that of Adam's, so that rates mean the same."""
SQUARES, EPS = 0.999, 1e-8
"""Of Adam: the momentum of squared gradients, and what is added to their root."""
SHIFT = 2e-3
"""Added to A along S, over |Y|: more than the rounding of products on tensor cores, so that S^T Y stays positive."""
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the odd polynomial of degree five that moves singular values towards 1 from far away (Muon's)."""

SKETCHES: dict[tuple[int, int, torch.dtype, torch.device], Tensor] = {}
"""A dict, which torch.compile reads, in place of a cached function, which it would trace."""


@dataclass(frozen=True)
class LayerMemory:
    """The rule and its settings, without state: see `CoActivationMemory` for their meaning."""

    beta: float
    forget: float
    damping: float
    length: str
    rank: int

    def init(self, W: Tensor, groups: int = 1) -> dict[str, Tensor]:
        """The state of a layer with weights W (outputs, inputs), before the first mini-batch."""
        W, many = _wide(W), (groups,) if groups > 1 else ()
        A = W.new_zeros(*many, W.shape[1], min(W.shape[1], self.rank))
        state = {"A": A, "scale": W.new_zeros(*many, 1, 1), "M": torch.zeros_like(W)}
        return state | ({"squares": torch.zeros_like(W)} if self.length == "adam" else {})

    def measure(self, a: Tensor, times: Any, weights: Tensor | None = None) -> dict[str, Tensor]:
        """The sum of a a^T over rows (rows, inputs), or its product with S, and the mean of its diagonal, all times a
        number. With groups a is (groups, rows, inputs). weights: of the rows."""
        a = _wide(a)
        S = self._sketch(a)
        if weights is None:
            weighted, squares = a, torch.linalg.matrix_norm(a, keepdim=True).square()
        else:
            weighted = weights.unsqueeze(1) * a
            squares = (weighted * a).sum((-2, -1), keepdim=True)
        A = weighted.mT @ (a if S is None else a @ S)
        return {"A": A * times, "scale": squares * (times / a.shape[-1])}

    def update(
        self, state: dict[str, Tensor], new: dict[str, Tensor], G: Tensor, steps: Tensor, lr: Any
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """-lr U, and the next state. new: what `measure` gives, as a mean over samples. steps: the number of this
        step, from 1."""
        G, state = _wide(G), {name: _wide(t) for name, t in state.items()}
        A, scale = (mixed(new[name], state[name], self.forget) for name in ("A", "scale"))
        M = mixed(G, state["M"], self.beta)
        N = mixed(G, M, self.beta)
        N = N if A.ndim == 2 else N.unflatten(0, (len(A), -1))
        U = polar(solve(A, self.damping * scale, N, self._sketch(N))).reshape(M.shape)
        after, length = {"A": A, "scale": scale, "M": M}, ROOT_MEAN_SQUARE * math.sqrt(U.numel())
        if "squares" in state:
            squares = after["squares"] = mixed(G * G, state["squares"], SQUARES)
            step, factor = adam(M, squares, steps, self.beta)
            length = factor * torch.linalg.vector_norm(step)
        return U * (-lr * length / torch.linalg.vector_norm(U).clamp_min(_tiny(U))), after

    def _sketch(self, a: Tensor) -> Tensor | None:
        return None if a.shape[-1] <= self.rank else sketch(a.shape[-1], self.rank, a.dtype, a.device)


def solve(A: Tensor, ridge: Tensor, N: Tensor, S: Tensor | None) -> Tensor:
    """ridge N (A + ridge I)^-1, which has N's size whatever that of A. ridge: of shape (..., 1, 1). S: if A is a
    sketch, the matrix that it was multiplied by.

    >>> solve(torch.tensor([[1.0, 0.0], [0.0, 3.0]]), torch.ones(1, 1), torch.tensor([[4.0, 4.0]]), None)
    tensor([[2., 1.]])
    """
    ridge = ridge.clamp_min(_tiny(A))
    if S is None:
        one = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
        return _divided(N.mT, A / ridge + one).mT
    size = torch.linalg.matrix_norm(A, keepdim=True).clamp_min(_tiny(A))
    Y, ridge = A / size + SHIFT * S, ridge / size
    fine = torch.float64 if A.is_cuda else A.dtype  # tensor cores round more than the condition of Y^T Y allows
    y = Y.to(fine)
    return N - _divided((N @ Y).mT.to(fine), y.mT @ (y + ridge * S)).mT.to(N.dtype) @ Y.mT


def polar(V: Tensor, steps: int = 3) -> Tensor:
    """The nearest matrix with orthonormal rows or columns, roughly: singular values are between 0.6 and 1.3, unless
    they were small, which are raised some forty times in three steps.

    A step is X <- (a + b X X^T + c (X X^T)^2) X. All factors are polynomials of V V^T, and commute: they are taken on
    that small matrix.

    >>> values = torch.linalg.svdvals(polar(torch.tensor([[3.0, 4.0, 0.0], [0.5, 0.0, 1.0]])))
    >>> bool((values > 0.6).all() and (values < 1.3).all())
    True
    """
    X, (a, b, c) = V if V.shape[-2] <= V.shape[-1] else V.mT, COEFFICIENTS
    plus = torch.addmm if V.ndim == 2 else torch.baddbmm
    S = X @ X.mT
    size = S.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None].clamp_min(_tiny(V))
    S = S / size  # first: powers of V would leave the range of its type
    square = S @ S
    bound = torch.linalg.matrix_norm(square, keepdim=True).sqrt().clamp_min(_tiny(V))  # of the eigenvalues of S
    S, T = S / bound, square * (c / bound / bound) + S * (b / bound)
    product = T + a * torch.eye(S.shape[-1], dtype=S.dtype, device=S.device)
    for _ in range(1, steps):
        once = plus(S, T, S, beta=a)
        S = plus(once, T, once, beta=a)
        T = plus(S, S, S, beta=b, alpha=c)
        product = plus(product, T, product, beta=a)
    X = (product / bound.sqrt() / size.sqrt()) @ X
    return X if V.shape[-2] <= V.shape[-1] else X.mT


def mixed(new: Tensor, old: Tensor, share: Any) -> Tensor:
    """(1 - share) new + share old. share: a number; a tensor inside an ensemble."""
    return new + share * (old - new) if isinstance(share, Tensor) else torch.lerp(new, old, share)


def adam(mean: Tensor, square: Tensor, steps: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """Adam's step for a learning rate of 1, as a tensor and a factor of it."""
    left = (1 - SQUARES**steps).sqrt()
    return mean / (square.sqrt() + EPS * left), left / (1 - beta**steps)


def sketch(inputs: int, rank: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The matrix S for a layer with so many inputs: the same in all processes, and made once."""
    key = inputs, rank, dtype, device
    if key not in SKETCHES:
        normal = np.random.default_rng(inputs).standard_normal((inputs, rank))  # torch's differs inside vmap
        SKETCHES[key] = torch.from_numpy(np.linalg.qr(normal)[0]).to(device, dtype)
    return SKETCHES[key]


def _divided(right: Tensor, C: Tensor) -> Tensor:
    """C^-1 times a matrix, for a symmetric positive C."""
    return torch.cholesky_solve(right, torch.linalg.cholesky_ex(C)[0])


def _wide(t: Tensor) -> Tensor:
    """In float32 if it has fewer bits: there a memory would lose what changes little."""
    return t.float() if t.dtype in (torch.bfloat16, torch.float16) else t


def _tiny(t: Tensor) -> float:
    return torch.finfo(t.dtype).tiny ** 0.5
