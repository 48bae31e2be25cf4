"""Sums over all samples seen, and weights that are fitted to them: Algorithm 3 with memory.

With a the input of a block's affine map (a 1 appended for the bias) and c its code, the sums are

    A = sum_t a_t a_t^T,   B = sum_t c_t a_t^T,

and sum_t |c_t - W a_t|^2 = Tr(W^T W A) - 2 Tr(W^T B) + sum_t |c_t|^2, so W can be fitted to all codes seen without
keeping one. Sums from t = 1 also keep codes of much older weights; with forget < 1 older samples weigh less.

`Sums` holds A and B. The state of `FittedMemory` is A and R = B - W A, the remaining residual of the present weights on
the codes seen. A mini-batch adds its residuals r = c - W a to it, as sum_t r_t a_t^T, and a change V of the weights
subtracts V A.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from altmin.calculus import Params
from altmin.calculus.conjugate_gradients import conjugate_gradients
from altmin.common.errors import Diverged, demand
from altmin.core.chain import Block, Chain
from altmin.core.codes.problem import Problem
from altmin.core.step import soft_threshold
from altmin.core.weights.local import LocalAdam
from altmin.core.weights.rule import Rates, WeightRule, as_matrix, parted


class Sums:
    """A and B of a least-squares problem z = W a whose samples come in parts, in float64 by default; with a
    bias a has a 1 appended."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True, device: Any = None, dtype: Any = torch.float64):
        size, self.bias = inputs + bias, bias
        self.A = torch.zeros(size, size, dtype=dtype, device=device)
        self.B = torch.zeros(outputs, size, dtype=dtype, device=device)

    def add(self, a: Tensor, z: Tensor, new: Tensor | None = None) -> None:
        """Add samples a (samples, inputs) with targets z (samples, outputs). new: those rows of a that A does not have
        yet; None for all."""
        a, new = (F.pad(t, (0, int(self.bias)), value=1.0) for t in (a, a if new is None else new))
        self.A += new.mT @ new
        self.B += z.mT @ a

    def solve(self, ridge: Any = 0.0, proximal: float = 0.0, old: Tensor | None = None) -> Tensor:
        """Return the W, in float64, of the least sum |z - W a|^2 + ridge |W|^2 + proximal |W - old|^2, by Cholesky.

        `Diverged` if the matrix is not positive definite, or not finite.
        """
        matrix, B = self.A.double(), self.B.double()
        matrix = matrix + (ridge + proximal) * torch.eye(len(matrix), dtype=torch.float64, device=matrix.device)
        factor, info = torch.linalg.cholesky_ex(matrix)
        solved = torch.cholesky_solve((B if old is None else B + proximal * old).mT, factor).mT
        if bool(info) or not bool(solved.isfinite().all()):
            raise Diverged("a least-squares fit of weights", "raise the ridge or the proximal term")
        return solved

    def state_dict(self) -> dict[str, Tensor]:
        return {"A": self.A, "B": self.B}


Fit = tuple[Tensor, Tensor]
"""Change V of the weights, and the R after it, R - V A."""


def sweep(A: Tensor, R: Tensor) -> Fit:
    """Return one pass of block-coordinate descent over the columns of V, each set to its best with the others fixed.
    Column j solves sum_{k <= j} V_k A_kj = R_j, so that all of them are one triangular solve; one with A_jj = 0 stays.

    >>> A, R = torch.tensor([[2.0, 1.0], [1.0, 2.0]]), torch.tensor([[1.0, 0.0]])
    >>> sweep(A, R)[0]
    tensor([[ 0.5000, -0.2500]])
    """
    diagonal = A.diagonal()
    triangle = A.triu() + torch.diag_embed((diagonal <= 0).to(A.dtype))
    V = torch.linalg.solve_triangular(triangle, R * (diagonal > 0), upper=True, left=False)
    return V, R - V @ A


def shrinking_sweep(A: Tensor, R: Tensor, W: Tensor, l1: float) -> Fit:
    """Return `sweep` with every column of W + V moved towards zero by l1 right after it is set.

    >>> A, R = torch.tensor([[2.0, 1.0], [1.0, 2.0]]), torch.tensor([[1.0, 0.0]])
    >>> shrinking_sweep(A, R, torch.zeros(1, 2), 0.1)[0]
    tensor([[ 0.4000, -0.1000]])
    """
    columns = []
    for j in range(len(A)):
        best = torch.where(A[j, j] > 0, R[:, j] / A[j, j], 0.0)
        columns.append(soft_threshold(W[:, j] + best, l1) - W[:, j])
        R = torch.addcmul(R, columns[-1].unsqueeze(1), A[j], value=-1)
    return torch.stack(columns, 1), R


def solve(A: Tensor, R: Tensor, damping: float) -> Fit:
    """Return argmin_V Tr(V^T V A) - 2 Tr(V^T R) + lambda |V|^2 with lambda = damping times the mean of A's diagonal.
    Without damping there may be many minimisers: then the one with the smallest norm.

    >>> A, R = torch.tensor([[2.0, 1.0], [1.0, 2.0]]), torch.tensor([[1.0, 0.0]])
    >>> solve(A, R, damping=0.0)[0]
    tensor([[ 0.6667, -0.3333]])
    """
    if damping == 0:
        V = R @ torch.linalg.pinv(A, hermitian=True)
    else:
        ridge = damping * A.diagonal().mean()
        factor = torch.linalg.cholesky_ex(A + ridge.expand(len(A)).diag())[0]
        V = torch.cholesky_solve(R.mT, factor).mT
    return V, R - V @ A


def descend(A: Tensor, R: Tensor, damping: Any, steps: int) -> Fit:
    """Return V after `steps` conjugate gradient steps from 0 on the problem of `solve`, a row of V at a time. One step
    is a step along the gradient, with the best length for the row.

    >>> A, R = torch.tensor([[2.0, 1.0], [1.0, 2.0]]), torch.tensor([[1.0, 0.0]])
    >>> [descend(A, R, 0.0, steps)[0].tolist() for steps in (1, 2)]
    [[[0.5, 0.0]], [[0.6666666865348816, -0.3333333432674408]]]
    """
    return conjugate_gradients(lambda V: V @ A, R, steps, damping * A.diagonal().mean())


class FittedMemory(WeightRule):
    """Fit of hidden Linear and convolution layers to their memory; other blocks, such as the output's, are trained by
    `rest`.

    forget: factor on the memory before each mini-batch; 1 is the paper's plain sum. steps: conjugate gradient steps of
    the fit per mini-batch, or None for the exact solve; `damping` keeps both near the present weights. sweeps: passes
    of block-coordinate descent instead, without damping (the paper's AM-mem); l1: each moves columns of weights towards
    zero by that much. rate: a learning rate on the loss: the
    target of a sample is a move of -rate times the gradient of its loss, less the part that the codes below have
    accounted for; None for the paper's rule, whose target is the code itself, so that the newest codes weigh little
    against those remembered. A block whose
    parameters do not require a gradient keeps weights and memory as they are.
    """

    def __init__(
        self,
        forget: float = 0.9,
        damping: float = 30.0,
        sweeps: int | None = None,
        rate: float | None = 300.0,
        rest: WeightRule | None = None,
        steps: int | None = 1,
        l1: float = 0.0,
    ):
        if l1 and sweeps is None:
            raise ValueError(f"l1 of FittedMemory belongs to sweeps, given {l1!r} without; give sweeps=1")
        for name, number in {"l1": l1, "forget": forget, "damping": damping}.items():
            demand("FittedMemory", name, number)
        for name, count in {"sweeps": sweeps, "steps": steps}.items():
            demand("FittedMemory", name, 1 if count is None else count, low=1, whole=True)
        demand("FittedMemory", "rate", 1 if rate is None else rate, above=True)
        self.forget, self.damping, self.rate = forget, damping, rate
        self.sweeps, self.steps, self.l1 = sweeps, steps, l1
        self.rest = rest or LocalAdam(2e-3)

    def assign(self, chain: Chain) -> dict[int, WeightRule]:
        """Return this rule for hidden blocks that are a regression, `rest` for the others."""
        rest = self.rest.assign(chain)
        return {l: self if l < len(chain) - 1 and _fits(block) else rest[l] for l, block in enumerate(chain)}

    def init(self, block: Block, parameters: Params) -> dict[str, Tensor]:
        W = as_matrix(parameters).detach()
        samples = W.new_zeros((), dtype=torch.float64)
        return {"A": W.new_zeros(W.shape[1], W.shape[1]), "R": torch.zeros_like(W), "samples": samples}

    def measure(self, block: Block, parameters: Params, problem: Problem, kind: int = 0) -> dict[str, Tensor]:
        """Return the means over samples of a a^T and r a^T."""
        context = problem.context
        a, delta = block.core.maps[0].columns(problem.saved[0], problem.delta)
        weighted, n = context.weighted(a), context.samples(problem.delta)
        # deltas belong to the mean loss
        times = problem.scale / n if self.rate is None else self.rate
        rows = a.new_full((), len(a)) if context.weights is None else context.weights.sum()
        return {"A": (weighted.mT @ a) / n, "R": (-times * delta).mT @ weighted, "rows": rows / n}

    def update(
        self, parameters: Params, state: Any, contribution: Any, rates: Rates
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Return the fit of the parameters to the memory plus the contribution of a mini-batch."""
        samples = rates["samples"]
        A, R = (contribution[name] * samples + self.forget * state[name] for name in ("A", "R"))
        count = contribution["rows"].double() * samples + self.forget * state["samples"]
        if self.sweeps is not None:
            V, W = torch.zeros_like(R), as_matrix(parameters)
            for _ in range(self.sweeps):
                change, R = shrinking_sweep(A, R, W + V, self.l1) if self.l1 else sweep(A, R)
                V = V + change
        elif self.steps is None:
            V, R = solve(A, R, self.damping)
        else:
            V, R = descend(A, R, self.damping, self.steps)
        return parted(V, parameters), {"A": A, "R": R, "samples": count}

    def why_not_captured(self) -> str:
        return "" if self.steps or self.sweeps else "the exact fit to a memory is not captured; give steps=1"


def _fits(block: Block) -> bool:
    """Return whether the core is one map whose parameters are a matrix, all of it trained or all of it frozen."""
    alike = len({p.requires_grad for p in block.parameters()}) == 1
    return len(block.core.maps) == 1 and block.core.maps[0].is_linear and alike
