"""The memory of one layer: the direction of its step from its inputs and the gradient G of its weights, wherever these
come from.

For weights W (n, m), inputs a and the gradient G of the mean loss, with Adam's own statistics M and v of G,

    every step       N = beta M + (1 - beta) G
                     V = N (I - B B^T),      U = P V,      W <- W - U |Adam's step| / |U|
    every k steps    Y <- forget Y + (1 - forget) mean a a^T S
                     I - B B^T = damping s (A + damping s I)^-1      for A = Y (S^T Y)^-1 Y^T, s its mean diagonal
                     K <- forget K + (1 - forget) V V^T / |V|^2,     P = K^(-1/2), roughly, in blocks of rows

V solves the layer's least-squares problem whose target is a small move of its outputs along -N, given the inputs that
the memory A = mean a a^T holds: directions in which inputs hardly vary need large changes of the weights, and get them.
P does the same for the directions of the outputs, and sets the singular values of V to about 1. Where a mini-batch has
many rows of inputs, P is that of V V^T itself, in every step.

S has `rank` orthonormal columns, fixed and random, and is the identity in a layer with no more inputs than that; A is
its best approximation from Y = A S (Nystroem), and with L L^T = Y^T (Y + damping s S), B = Y L^-T. A grouped
convolution is one such problem for each group. A tall V (n > m) is multiplied by P from the right.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from altmin.core.weights.adam_sgd import like

BLOCK = 128
"""The largest number of rows of V that P takes together."""
MANY_ROWS = 800
"""Rows of inputs in a mini-batch from which P is computed anew in every step: an older one would cost learning, and a
new one costs little time beside the gradient."""
SHIFT = 2e-3
"""Added to A, over |Y|: more than the rounding of products on tensor cores, so that S^T Y stays positive."""
COEFFICIENTS = ((8.093369, -23.62043, 17.446152), (3.636586, -2.721927, 0.536546), (2.6613, -1.977155, 0.452616))
"""Coefficients of odd polynomials a s + b s^3 + c s^5 in turn: the first has the least distance from 1 on [0.01, 1],
each other one on the range of the one before (Polar Express, arXiv 2505.16932)."""

SKETCHES: dict[tuple[int, int, torch.dtype, torch.device], Tensor] = {}
"""Cached sketches: in a dict, which torch.compile reads, as a cached function would be traced."""


class Layer(NamedTuple):
    """The arguments of a layer's direction. M: the mean of gradients, with the newest, G. state: of its memory. new:
    the result of `measure`, as a mean over samples, in a step that refreshes the memory, else None. many: whether the
    mini-batch has `MANY_ROWS`."""

    M: Tensor
    G: Tensor
    state: dict[str, Tensor]
    new: dict[str, Tensor] | None
    many: bool


@dataclass(frozen=True)
class LayerMemory:
    """The settings of memories, without state: see `CoActivationMemory` for their meaning."""

    forget: float
    damping: float
    rank: int
    every: int

    def is_due(self, step: int) -> bool:
        """Return whether memories are refreshed in this step, counted from 1: in every one at first, then after 2, 4,
        8, ... steps, at most a quarter of those so far, and in the end in each `every`-th.

        >>> memory = LayerMemory(0.6, 1.0, rank=32, every=10)
        >>> [n for n in range(1, 100) if memory.is_due(n)]
        [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 70, 80, 90]
        """
        return step % min(self.every, 2 ** max(0, step.bit_length() - 3)) == 0

    def init(self, W: Tensor, groups: int = 1) -> dict[str, Tensor]:
        """Return the state of a layer with weights W (outputs, ...), before the first mini-batch."""
        W = matrices(_wide(W.detach()), groups)
        *many, n, m = W.shape
        b, parts = _cut(min(n, m))
        P = torch.eye(b, dtype=W.dtype, device=W.device).expand(*many, *parts, b, b).contiguous()
        Y = W.new_zeros(*many, m, min(m, self.rank))
        zeros = {"Y": Y, "B": torch.zeros_like(Y), "scale": W.new_zeros(*many, 1, 1), "K": torch.zeros_like(P)}
        return {**zeros, "P": P}

    def measure(self, a: Tensor, times: Any, weights: Tensor | None = None) -> dict[str, Tensor]:
        """Return the sum of a a^T over rows (rows, inputs), times S, and the mean of its diagonal, all times a number.
        With groups a is (groups, rows, inputs). weights: of the rows."""
        a = _wide(a)
        if weights is None:
            weighted, squares = a, torch.linalg.matrix_norm(a, keepdim=True).square()
        else:
            weighted = weights.unsqueeze(1) * a
            squares = (weighted * a).sum((-2, -1), keepdim=True)
        Y = weighted.mT @ (a if a.shape[-1] <= self.rank else a @ sketch(a, self.rank))
        return {"Y": Y * times, "scale": squares * (times / a.shape[-1])}

    def directions(
        self, layers: Sequence[Layer], beta: Any, in_place: bool = False
    ) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
        """Return U of each layer, of the shape of M, and those entries of its state that change. in_place: whether
        kernels may be used that torch.func cannot transform."""
        if in_place:
            Ns = list(torch._foreach_lerp([layer.G for layer in layers], [layer.M for layer in layers], beta))
        else:
            Ns = [torch.lerp(layer.G, layer.M, like(layer.M, beta)) for layer in layers]
        groups = _alike(layers)
        changes = self._refreshed(layers, groups)
        Vs = []
        for group in groups:
            N = _together([matrices(Ns[i], _groups(layers[i].state)) for i in group])
            Vs.append(solved(N, _together([changes[i].get("B", layers[i].state["B"]) for i in group]), in_place))
        Xs = [_rows_in_blocks(V) for V in Vs]
        self._set_roots(layers, groups, Xs, changes)
        Us: list[Any] = [None] * len(layers)
        for group, V, X in zip(groups, Vs, Xs, strict=True):
            P = _together([changes[i].get("P", layers[i].state["P"]) for i in group]).view(_square(X))
            for i, U in zip(group, _apart(_times(P, V, X), len(group), layers[group[0]].M), strict=True):
                Us[i] = U
        return Us, changes

    def _set_roots(
        self,
        layers: Sequence[Layer],
        groups: Sequence[Sequence[int]],
        Xs: Sequence[Tensor],
        changes: Sequence[dict[str, Tensor]],
    ) -> None:
        """Set P, and K where it is averaged, of those layers for which this step computes it. X: of each group."""
        fresh, Ks = [], []
        for group, X in zip(groups, Xs, strict=True):
            first, K = layers[group[0]], None
            if first.many:
                K = X @ X.mT
            elif first.new is not None:
                before = _together([layers[i].state["K"] for i in group]).view(_square(X))
                K = self._averaged(X @ X.mT, before, len(group))
                for i, part in zip(group, _apart(K, len(group), first.state["K"]), strict=True):
                    changes[i]["K"] = part
            if K is not None:
                fresh.append(group)
                Ks.append(K)
        for group, P in zip(fresh, inverse_roots(Ks), strict=True):
            for i, part in zip(group, _apart(P, len(group), layers[group[0]].state["P"]), strict=True):
                changes[i]["P"] = part

    def _averaged(self, K: Tensor, before: Tensor, layers: int) -> Tensor:
        """Return the mean of K relative to its trace, of each of several layers, with that before."""
        stacked = K.reshape(layers, -1, *K.shape[-2:])
        traces = stacked.diagonal(dim1=-2, dim2=-1).sum((-2, -1)).clamp_min(tiny(K))
        return torch.lerp((stacked / traces[:, None, None, None]).view_as(K), before, self.forget)

    def _refreshed(self, layers: Sequence[Layer], groups: Sequence[Sequence[int]]) -> list[dict[str, Tensor]]:
        """Return the memories that a mini-batch refreshes, and an empty dict for each other layer."""
        changes: list[dict[str, Tensor]] = [{} for _ in layers]
        due = [group for group in groups if layers[group[0]].new is not None]
        means: dict[str, list[Tensor]] = {}
        for name in ("Y", "scale"):
            news = [_together([layers[i].new[name] for i in group]) for group in due]  # type: ignore[index]
            olds = [_together([layers[i].state[name] for i in group]) for group in due]
            means[name] = [torch.lerp(new, old, self.forget) for new, old in zip(news, olds, strict=True)]
        ridges, sketches = [self.damping * s for s in means["scale"]], [sketch(Y.mT, self.rank) for Y in means["Y"]]
        means["B"] = factors(means["Y"], ridges, sketches)
        for name, those in means.items():
            for group, t in zip(due, those, strict=True):
                for i, part in zip(group, _apart(t, len(group), layers[group[0]].state[name]), strict=True):
                    changes[i][name] = part
        return changes


def _alike(layers: Sequence[Layer]) -> list[list[int]]:
    """Return the numbers of layers that are computed together: with matrices of one shape, in steps of one kind."""
    groups: dict[Any, list[int]] = {}
    for i, (M, _, state, new, many) in enumerate(layers):
        groups.setdefault((M.shape, state["B"].shape, many, new is None, M.dtype, M.device), []).append(i)
    return list(groups.values())


def _together(ts: Sequence[Tensor]) -> Tensor:
    """Return the matrices of several layers, or of several groups of each, along the first dimension; of one layer as
    they are."""
    return ts[0] if len(ts) == 1 else torch.stack(list(ts)) if ts[0].ndim == 2 else torch.cat(list(ts))


def _square(X: Tensor) -> tuple[int, ...]:
    """Return the shape of X X^T."""
    return (*X.shape[:-1], X.shape[-2])


def _apart(t: Tensor, layers: int, like: Tensor) -> Sequence[Tensor]:
    """Return the part of each of several layers, of the shape of another tensor."""
    return t.reshape(layers, *like.shape).unbind() if layers > 1 else [t.reshape(like.shape)]


def matrices(W: Tensor, groups: int) -> Tensor:
    """Return weights (outputs, ...) as a matrix, or as one for each group (groups, outputs / groups, ...)."""
    W = W.flatten(1)
    return W if groups == 1 else W.unflatten(0, (groups, -1))


def factors(Ys: Sequence[Tensor], ridges: Sequence[Tensor], Ss: Sequence[Tensor]) -> list[Tensor]:
    """Return B of each layer, such that ridge (A + ridge I)^-1 = I - B B^T for A = Y (S^T Y)^-1 Y^T. ridges: of shape
    (..., 1, 1). Layers of one rank are factored together.

    >>> (B,) = factors([torch.tensor([[1.0, 0.0], [0.0, 3.0]])], [torch.ones(1, 1)], [torch.eye(2)])
    >>> torch.eye(2) - B @ B.mT  # but for the shift
    tensor([[0.4984, 0.0000],
            [0.0000, 0.2496]])
    """
    alike: dict[Any, list[int]] = {}
    ys, squares = [], []
    for i, (Y, ridge, S) in enumerate(zip(Ys, ridges, Ss, strict=True)):
        size = torch.linalg.matrix_norm(Y, keepdim=True).clamp_min(tiny(Y))
        y, s, ridge = (Y / size + SHIFT * S).double(), S.double(), (ridge.clamp_min(tiny(Y)) / size).double()
        square = y.mT @ (y + ridge * s)
        alike.setdefault((square.shape[-1], square.device), []).append(i)
        ys.append(y)
        squares.append(square.reshape(-1, *square.shape[-2:]))
    Bs: list[Any] = [None] * len(ys)
    for group in alike.values():
        L = torch.linalg.cholesky_ex(torch.cat([squares[i] for i in group]))[0]
        one = torch.eye(L.shape[-1], dtype=L.dtype, device=L.device)
        inverses = torch.linalg.solve_triangular(L, one.expand_as(L), upper=False)
        for i, inverse in zip(group, inverses.split([len(squares[i]) for i in group]), strict=True):
            inverse = inverse if ys[i].ndim > 2 else inverse[0]
            Bs[i] = (ys[i] @ inverse.mT).to(Ys[i].dtype)
    return Bs


def solved(N: Tensor, B: Tensor, in_place: bool = False) -> Tensor:
    """Return N (I - B B^T)."""
    plus = torch.addmm if N.ndim == 2 else torch.baddbmm
    return plus(N, N @ B, B.mT, alpha=-1, out=N if in_place else None)


def inverse_roots(Ss: Sequence[Tensor]) -> list[Tensor]:
    """Return about S^(-1/2) of each matrix S = V V^T (..., n, n): singular values of V of at least 0.01 of the largest
    come to lie between 0.7 and 1.3, smaller ones are raised 78 times. Matrices of about one size are taken together,
    with zeros to fill them up.

    >>> V = torch.tensor([[3.0, 4.0, 0.0], [0.5, 0.0, 1.0]])
    >>> values = torch.linalg.svdvals(inverse_roots([V @ V.mT])[0] @ V)
    >>> bool((values > 0.7).all() and (values < 1.3).all())
    True
    """
    roots: list[Any] = [None] * len(Ss)
    for bucket in dict.fromkeys(map(_bucket, Ss)):
        group = [i for i, S in enumerate(Ss) if _bucket(S) == bucket]
        n = max(Ss[i].shape[-1] for i in group)
        stacks = [Ss[i].reshape(-1, *Ss[i].shape[-2:]) for i in group]
        padded = [F.pad(S, (0, n - S.shape[-1]) * 2) if S.shape[-1] < n else S for S in stacks]
        whole = _inverse_root(torch.cat(padded) if len(padded) > 1 else padded[0])
        for i, P in zip(group, whole.split([len(S) for S in stacks]), strict=True):
            rows = Ss[i].shape[-1]
            roots[i] = P[:, :rows, :rows].reshape(Ss[i].shape)
    return roots


def _inverse_root(S: Tensor) -> Tensor:
    """Return the product of the polynomials at matrices S = V V^T (k, n, n), by which V is multiplied. One of them
    makes (a + b V V^T + c (V V^T)^2) V of V; all are polynomials of S, and commute."""
    (a, b, c), *more = COEFFICIENTS
    one = torch.eye(S.shape[-1], dtype=S.dtype, device=S.device)
    size = S.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None].clamp_min(tiny(S))
    S = S / size  # first: powers of V would leave the range of its type
    square = S @ S
    bound = torch.linalg.matrix_norm(square, keepdim=True).sqrt()  # of the eigenvalues of S, whose mean is 1 / n
    bound = bound.clamp_min(0.5 / S.shape[-1])  # unless V is zero
    S = S / bound
    P = product = torch.add(a * one, S, alpha=b) + square * (c / bound.square())
    for a, b, c in more:
        S = P @ (S @ P)
        P = torch.baddbmm(torch.add(a * one, S, alpha=b), S, S, alpha=c)
        product = P @ product
    return product * (bound * size).rsqrt()


def _bucket(S: Tensor) -> tuple[int, torch.dtype, torch.device]:
    """Return what matrices have in common that are taken together: up to `BLOCK` rows, or their number up to a factor
    of two."""
    return max(BLOCK, S.shape[-1] - 1).bit_length(), S.dtype, S.device


def _cut(rows: int) -> tuple[int, tuple[int, ...]]:
    """Return the number of rows in each of several equal blocks, the last of which may have to be filled up with zeros,
    and the number of blocks, unless there is one.

    >>> _cut(100), _cut(300), _cut(257)
    ((100, ()), (100, (3,)), (86, (3,)))
    """
    parts = math.ceil(rows / BLOCK)
    return math.ceil(rows / parts), () if parts == 1 else (parts,)


def _rows_in_blocks(V: Tensor) -> Tensor:
    """Return V, or its transpose if it is tall, with its rows in blocks: (..., blocks, rows, columns), or V itself."""
    X = V if V.shape[-2] <= V.shape[-1] else V.mT
    b, parts = _cut(X.shape[-2])
    if not parts:
        return X
    lacking = b * parts[0] - X.shape[-2]
    return (F.pad(X, (0, 0, 0, lacking)) if lacking else X).unflatten(-2, (*parts, b))


def _times(P: Tensor, V: Tensor, X: Tensor) -> Tensor:
    """Return P V, or V P if V is tall; X: V in blocks."""
    *_, n, m = V.shape
    if X.ndim == V.ndim:
        return P @ V if n <= m else V @ P
    if n <= m:
        return (P @ X).flatten(-3, -2)[..., :n, :]
    return (X.mT @ P).transpose(-3, -2).flatten(-2)[..., :m]


def _groups(state: dict[str, Tensor]) -> int:
    return len(state["B"]) if state["B"].ndim == 3 else 1


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
    """Return t in float32 if it has fewer bits: there a memory would lose what changes little."""
    return t.float() if t.dtype in (torch.bfloat16, torch.float16) else t


def tiny(t: Tensor) -> float:
    """Return a number whose square is in the range of t's type."""
    return torch.finfo(t.dtype).tiny ** 0.5
