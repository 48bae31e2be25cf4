"""The co-activation memory, solved: every layer's own regression instead of a step downhill.

Of each Linear layer and convolution, with inputs a (a 1 appended for the bias) and the gradient G of the mean loss with
respect to its weights W as one matrix,

    A <- forget A + (1 - forget) mean a a^T
    M <- beta M + (1 - beta) G,        N = beta M + (1 - beta) G
    V  = N (A + damping s I)^-1,       s the mean of A's diagonal
    W <- W - lr U,                     U of the length that `length` gives to V

V is the solution of the layer's least-squares problem whose target is a small move of its outputs along -G, given the
inputs that the memory holds: directions in which inputs hardly vary need large changes of the weights, and get them.

A layer with more inputs than `rank` keeps the products Y = A S with a fixed random matrix S of `rank` columns instead
of A, and A is taken to be Y (S^T Y)^-1 Y^T, its best approximation from these (Nystroem). Both are sums over samples.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from altmin.calculus import Params
from altmin.calculus.graph import Graph
from altmin.calculus.linear import Affine
from altmin.common.errors import demand, demand_switch
from altmin.core.chain import Block
from altmin.core.codes.links import LocalProblem
from altmin.core.weights.rule import WeightRule, as_matrix

LENGTHS = ("spectral", "adam")
POSITIONS = 16
"""About how many places of an image or a sequence enter the memory of a layer."""
ROOT_MEAN_SQUARE = 0.2
"""Of the entries of a spectral step, over lr: about that of Adam's, so that rates mean the same."""
BETAS, EPS = (0.9, 0.999), 1e-8
"""Of Adam, for parameters without a memory and for the length "adam"."""
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the odd polynomial of degree five that moves singular values towards 1 from far away (Muon's)."""


class Layer(NamedTuple):
    """A linear map of a block: where it is among the core's maps, and inside a graph; the number of its first parameter
    among the block's."""

    map: Any
    core: int
    node: int | None
    first: int

    def input(self, saved: Sequence[Any]) -> Tensor:
        of = saved[self.core]
        return self.map.input(of if self.node is None else of.saved[self.node])


def layers(block: Block) -> Iterator[Layer]:
    """The linear maps of a block, also inside graphs, whose parameters are all trained."""
    for core, (m, of) in enumerate(block.core.pairs):
        inner: list[tuple[Any, int | None, int]] = [(m, None, 0)]
        if isinstance(m, Graph):
            inner = [(node.map, i, m.slices[i].start) for i, node in enumerate(m.nodes)]
        for each, node, start in inner:
            trained = all(each.module.get_parameter(name).requires_grad for name in each.names)
            if isinstance(each, Affine) and each.is_linear and trained:
                yield Layer(each, core, node, of.start + start)


def polar(V: Tensor, steps: int = 5) -> Tensor:
    """The nearest matrix with orthonormal rows or columns, roughly: singular values are between 0.6 and 1.3, unless
    they were below a thousandth of the norm.

    All steps are polynomials of V V^T, and commute: they are taken on that small matrix.

    >>> values = torch.linalg.svdvals(polar(torch.tensor([[3.0, 4.0, 0.0], [0.5, 0.0, 1.0]])))
    >>> bool((values > 0.6).all() and (values < 1.3).all())
    True
    """
    X = V / torch.linalg.matrix_norm(V).clamp_min(_tiny(V))
    X = X if X.shape[0] <= X.shape[1] else X.mT
    S = X @ X.mT
    one = torch.eye(len(S), dtype=S.dtype, device=S.device)
    product, (a, b, c) = one, COEFFICIENTS
    for _ in range(steps):
        factor = a * one + b * S + c * (S @ S)
        product, S = factor @ product, factor @ S @ factor
    X = product @ X
    return X if V.shape[0] <= V.shape[1] else X.mT


def solve(A: Tensor, scale: Tensor, N: Tensor, damping: float, S: Tensor | None) -> Tensor:
    """N (A + damping scale I)^-1, up to a factor. S: if A is a sketch, the matrix that it was multiplied by."""
    ridge = damping * scale.clamp_min(_tiny(A))
    if S is None:
        return _divided(N.mT, A + ridge * torch.eye(len(A), dtype=A.dtype, device=A.device)).mT
    B = ridge * (S.mT @ A) + A.mT @ A
    rounding = len(B) * torch.finfo(B.dtype).eps * B.diagonal().mean() + _tiny(B)
    B = (B + B.mT) / 2 + rounding * torch.eye(len(B), dtype=B.dtype, device=B.device)
    return N - _divided((N @ A).mT, B).mT @ A.mT


@cache
def sketch(inputs: int, rank: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The matrix S for a layer with so many inputs: the same in all processes."""
    normal = np.random.default_rng(inputs).standard_normal((inputs, rank))  # torch's would be drawn anew inside vmap
    return torch.from_numpy(normal).to(device, dtype)


def _divided(right: Tensor, C: Tensor) -> Tensor:
    """C^-1 times a matrix, for a symmetric positive C."""
    return torch.cholesky_solve(right, torch.linalg.cholesky_ex(C)[0])


def _tiny(t: Tensor) -> float:
    return torch.finfo(t.dtype).tiny ** 0.5


class CoActivationMemory(WeightRule):
    """Solves each layer's regression with a memory of its inputs (see the module). Linear layers and convolutions have
    one, also inside branches; all other parameters (normalisations, embeddings, grouped, transposed and 3-D
    convolutions, parts through autograd, partly frozen layers) take steps of Adam.

    lr: the learning rate, for both parts with the meaning that it has for Adam. beta: of the momentum. forget: of the
    memory. damping: of the solve, relative to the mean square of an input. length: "spectral" for a step with equal
    singular values, whose entries are 0.2 lr in the mean square; "adam" for the direction V with the length of Adam's
    step. rank: the number of inputs up to which a layer's memory is exact. weight_decay: decoupled, as in AdamW.
    decay_biases: whether it acts on parameters with one dimension too.
    """

    def __init__(
        self,
        lr: float = 0.01,
        beta: float = 0.95,
        forget: float = 0.95,
        damping: float = 1.0,
        length: str = "spectral",
        rank: int = 128,
        weight_decay: float = 0.0,
        decay_biases: bool = True,
    ):
        of = "CoActivationMemory"
        demand(of, "lr", lr)
        demand(of, "damping", damping, above=True)
        demand(of, "weight_decay", weight_decay)
        demand(of, "rank", rank, low=1, whole=True)
        demand_switch(of, "decay_biases", decay_biases)
        for name, value in (("beta", beta), ("forget", forget)):
            demand(of, name, value)
            if value >= 1:
                raise ValueError(f"{name} of {of} lies between 0 and 1, and is not 1, given {value!r}")
        if length not in LENGTHS:
            raise ValueError(f"length of {of} is {' or '.join(map(repr, LENGTHS))}, given {length!r}")
        self.lr, self.beta, self.forget, self.damping = lr, beta, forget, damping
        self.length, self.rank, self.weight_decay, self.decay_biases = length, rank, weight_decay, decay_biases

    def init(self, block: Block, parameters: Params) -> dict[str, Any]:
        """ "memory": by the number of each layer's first parameter. "adam": by the number of the parameter."""
        of = {layer.first: layer for layer in layers(block)}
        held = {i + k for i, layer in of.items() for k in range(len(layer.map.names))}
        memory = {}
        for i, layer in of.items():
            W = as_matrix(parameters[i : i + len(layer.map.names)])
            A = W.new_zeros(W.shape[1], min(W.shape[1], self.rank))
            memory[i] = {"A": A, "scale": W.new_zeros(()), "M": torch.zeros_like(W)}
            memory[i] |= {"squares": torch.zeros_like(W)} if self.length == "adam" else {}
        adam = {
            j: {"mean": torch.zeros_like(p), "square": torch.zeros_like(p)}
            for j, p in enumerate(parameters)
            if j not in held
        }
        return {"steps": parameters[0].new_zeros(()), "memory": memory, "adam": adam}

    def measure(self, block: Block, parameters: Params, problem: LocalProblem) -> dict[str, Any]:
        """Gradients of all parameters, and for each layer A of the mini-batch, or its sketch, and its mean diagonal."""
        grads, context = problem.grads(block, parameters), problem.context
        n, found = context.samples(problem.delta), {}
        for layer in layers(block):
            x = layer.input(problem.saved)
            a = layer.map.rows(x, POSITIONS)
            w = 1.0 if context.weights is None else context.weights.repeat_interleave(len(a) // len(x)).unsqueeze(1)
            times, weighted = len(x) / (len(a) * n), w * a
            right = a if a.shape[1] <= self.rank else a @ sketch(a.shape[1], self.rank, a.dtype, a.device)
            scale = (weighted * a).sum() * (times / a.shape[1])
            found[layer.first] = {"A": weighted.mT @ right * times, "scale": scale}
        return {"grads": [g.to_dense() if g.is_sparse else g for g in grads], "memory": found}

    def update(
        self, parameters: Params, state: Any, contribution: Any, samples: Any, rates: Mapping[str, Any]
    ) -> tuple[list[Tensor], dict[str, Any]]:
        steps, grads, lr = state["steps"] + 1, contribution["grads"], rates["lr"]
        memory, adam, changes = {}, {}, [torch.zeros_like(p) for p in parameters]
        for i, held in state["memory"].items():
            count = 1 + (held["M"].shape[1] > parameters[i][0].numel())
            own, G = parameters[i : i + count], as_matrix(grads[i : i + count])
            new = contribution["memory"][i]
            memory[i] = {name: self.forget * held[name] + (1 - self.forget) * new[name] for name in ("A", "scale")}
            M = memory[i]["M"] = self.beta * held["M"] + (1 - self.beta) * G
            S = None if M.shape[1] <= self.rank else sketch(M.shape[1], self.rank, M.dtype, M.device)
            N = self.beta * M + (1 - self.beta) * G
            V = solve(memory[i]["A"], memory[i]["scale"], N, self.damping, S)
            if "squares" in held:
                squares = memory[i]["squares"] = BETAS[1] * held["squares"] + (1 - BETAS[1]) * G * G
                wanted = torch.linalg.matrix_norm(_adam(M, squares, steps, self.beta))
            else:
                V, wanted = polar(V), ROOT_MEAN_SQUARE * math.sqrt(V.numel())
            V = V * (wanted / torch.linalg.matrix_norm(V).clamp_min(_tiny(V)))
            parts = zip(own, V.split([q[0].numel() for q in own], 1), strict=True)
            changes[i : i + count] = [part.reshape(q.shape) for q, part in parts]
        for j, held in state["adam"].items():
            mean = BETAS[0] * held["mean"] + (1 - BETAS[0]) * grads[j]
            square = BETAS[1] * held["square"] + (1 - BETAS[1]) * grads[j] * grads[j]
            adam[j] = {"mean": mean, "square": square}
            changes[j] = _adam(mean, square, steps, BETAS[0])
        decay = [self.weight_decay if p.ndim > 1 or self.decay_biases else 0.0 for p in parameters]
        changes = [-lr * (c + d * p) for c, d, p in zip(changes, decay, parameters, strict=True)]
        return changes, {"steps": steps, "memory": memory, "adam": adam}

    def why_not_captured(self) -> str:
        return "the solve of a memory is not captured; use the method itself, without Recorded(...)"


def _adam(mean: Tensor, square: Tensor, steps: Tensor, beta: float) -> Tensor:
    """Adam's step, for a learning rate of 1."""
    return mean / (1 - beta**steps) / ((square / (1 - BETAS[1] ** steps)).sqrt() + EPS)
