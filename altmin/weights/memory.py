"""The co-activation memory (Algorithm 3, with memory): what a block needs to know of all samples seen, and no more.

With a the input of a block's affine map (a 1 appended for the bias) and c its code, the memory is

    A = sum_t a_t a_t^T,   B = sum_t c_t a_t^T,

and sum_t |c_t - W a_t|^2 = Tr(W^T W A) - 2 Tr(W^T B) + sum_t |c_t|^2, so W can be fitted to all codes seen without
keeping one. Sums from t = 1 also keep codes of weights long gone; with forget < 1 the past fades.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from altmin.calculus import Number, Params
from altmin.calculus.numbers import eager
from altmin.chain import Block, Chain
from altmin.codes.gradient import Residual
from altmin.errors import Diverged, demand, demand_unclaimed
from altmin.state import demand_blocks, demand_entries, demand_number, demand_tensor
from altmin.weights.local import LocalAdam, LocalOptimizer


class Memory(NamedTuple):
    """A and B of one block, and the weight of the samples in them. Memories of two streams merge by addition."""

    A: Tensor
    B: Tensor
    samples: Any

    def __add__(self, other: "Memory") -> "Memory":  # type: ignore[override]
        return Memory(self.A + other.A, self.B + other.B, self.samples + other.samples)

    def fade(self, factor: Any) -> "Memory":
        return Memory(self.A * factor, self.B * factor, self.samples * factor)


def sweep(W: Tensor, A: Tensor, B: Tensor) -> Tensor:
    """One pass of block-coordinate descent over the columns of W, each set to its best with the others fixed.

    >>> A, B = torch.tensor([[2.0, 1.0], [1.0, 2.0]]), torch.tensor([[1.0, 0.0]])
    >>> sweep(torch.zeros(1, 2), A, B)
    tensor([[ 0.5000, -0.2500]])
    """
    W = W.clone()
    for j in range(len(A)):
        W[:, j] += torch.where(A[j, j] > 0, (B[:, j] - W @ A[:, j]) / A[j, j], 0.0)
    return W


def solve(W: Tensor, A: Tensor, B: Tensor, damping: float) -> Tensor:
    """argmin_V Tr(V^T V A) - 2 Tr(V^T B) + lambda |V - W|^2 with lambda = damping times the mean of A's diagonal. Where
    there are many, the one nearest to W; but in a step whose numbers are not read, which needs lambda > 0.

    >>> A, B = torch.tensor([[2.0, 1.0], [1.0, 2.0]]), torch.tensor([[1.0, 0.0]])
    >>> solve(torch.zeros(1, 2), A, B, damping=0.0)
    tensor([[ 0.6667, -0.3333]])
    """
    ridge = damping * A.diagonal().mean()
    factor, failed = torch.linalg.cholesky_ex(A + ridge * torch.eye(len(A), dtype=A.dtype, device=A.device))
    pivots, eps = factor.diagonal().square(), torch.finfo(A.dtype).eps
    singular = (failed != 0) | (pivots.min() <= len(A) * eps * pivots.max())
    if eager() and bool(singular):  # the minimiser nearest to W
        return W + torch.linalg.lstsq(A, (B - W @ A).mT, driver=None if A.is_cuda else "gelsd").solution.mT
    return W + torch.cholesky_solve((B - W @ A).mT, factor).mT


class CoActivationMemory:
    """Hidden Linear and convolution layers from their memory; the other blocks, the output's among them, by `rest`.

    forget: factor on the memory before each mini-batch; 1 is the paper's plain sum. sweeps: passes of block-coordinate
    descent per mini-batch (the paper's AM-mem), or None for the exact solve, which `damping` holds near the present
    weights. rate: a learning rate on the loss: a sample's code asks for a move of -rate times the gradient of its loss,
    as far as the codes have left it; None for the paper's rule, by which it asks for the code itself, and the newest
    codes weigh little against those remembered (where a code has stopped at a kink, it asks for more than it has
    moved). prior: memories to start from, by block (continual learning); `memories` holds the present ones. A block
    whose parameters do not require a gradient keeps weights and memory as they are.
    """

    def __init__(
        self,
        forget: float = 0.9,
        damping: float = 30.0,
        sweeps: int | None = None,
        rate: float | None = 300.0,
        rest: LocalOptimizer | None = None,
        prior: Mapping[int, Memory] | None = None,
    ):
        demand("CoActivationMemory", "forget", forget)
        demand("CoActivationMemory", "damping", damping)
        if forget > 1:
            raise ValueError(f"forget of CoActivationMemory lies between 0 and 1, given {forget!r}")
        if sweeps is not None:
            demand("CoActivationMemory", "sweeps", sweeps, low=1, whole=True)
        if rate is not None:
            demand("CoActivationMemory", "rate", rate, above=True)
        self.forget, self.damping, self.sweeps, self.rate = forget, damping, sweeps, rate
        self.rest = rest or LocalAdam(2e-3)
        self.memories: dict[int, Memory] = dict(prior or {})
        self.gathered: dict[int, Memory] = {}

    def __repr__(self) -> str:
        options = f"forget={self.forget}, damping={self.damping}, sweeps={self.sweeps}, rate={self.rate}"
        return f"CoActivationMemory({options}, rest={self.rest!r})"

    def bind(self, chain: Chain, blocks: Sequence[int]) -> None:
        demand_unclaimed(self, "weight rule")
        self.chain, self.theta = chain, chain.parameters()
        self.blocks = tuple(l for l in blocks if l != len(chain) - 1 and _fits(chain.blocks[l]))
        for l, memory in self.memories.items():
            if l not in self.blocks:
                raise ValueError(f"a memory was given for block {l}, but memory serves the blocks {list(self.blocks)}")
            wanted = _join(self.theta[l]).shape
            if memory.B.shape != wanted:
                raise ValueError(
                    f"the memory for block {l} is for weights {tuple(memory.B.shape)}, not {tuple(wanted)}"
                )
        self.rest.bind(chain, [l for l in blocks if l not in self.blocks])
        self.claimed = True

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        return self.rest.optimizer

    def measure(self, l: int, p: Params, residual: Residual) -> Any:
        """What `update` needs of block l with parameters p: its memory of the mini-batch, or what `rest` measures."""
        if l not in self.blocks:
            return self.rest.measure(l, p, residual)
        # deltas are those of the mean loss
        times = residual.scale if self.rate is None else self.rate * len(residual.delta)
        return recall(self.chain.blocks[l], p, residual, times)

    def update(self, found: Sequence[Any]) -> None:
        """Fits every block to its memory and this mini-batch. `Diverged`, and nothing changes, if weights would not be
        finite."""
        new = self._fit({l: found[l] for l in self.blocks})
        self.rest.update(found)
        self._write(*new)

    def gather(self, found: Sequence[Any], samples: int) -> None:
        """Adds a part of a mini-batch too large to hold; `apply` then fits the whole. `Diverged`, and nothing is added,
        if the memory would not be finite."""
        new = {l: self.gathered[l] + found[l] if l in self.gathered else found[l] for l in self.blocks}
        for l, memory in new.items():
            self._demand_finite(l, memory)
        self.rest.gather(found, samples)
        self.gathered = new

    def apply(self) -> None:
        gathered, self.gathered = self.gathered, {}
        try:
            new = self._fit(gathered)
        except Diverged:
            self.rest.gathered = {}
            raise
        self.rest.apply()
        self._write(*new)

    def _fit(self, gathered: Mapping[int, Memory]) -> tuple[dict[int, Memory], dict[int, list[Tensor]]]:
        """The next memories and the weights fitted to them, of the blocks that are not frozen."""
        memories, weights = {}, {}
        for l, new in gathered.items():
            if any(q.requires_grad for q in self.theta[l]):
                memories[l] = self.memories[l].fade(self.forget) + new if l in self.memories else new
                weights[l] = self._fitted_or_diverged(l, memories[l])
        return memories, weights

    def _fitted_or_diverged(self, l: int, memory: Memory) -> list[Tensor]:
        self._demand_finite(l, memory)
        weights = self.fitted(self.theta[l], memory)
        if not all(bool(w.isfinite().all()) for w in weights):
            raise self._diverged(l)
        return weights

    def _demand_finite(self, l: int, memory: Memory) -> None:
        if not bool(memory.A.isfinite().all() & memory.B.isfinite().all()):
            raise self._diverged(l)

    def _diverged(self, l: int) -> Diverged:
        return Diverged(f"the memory of block {l} ({self.chain.blocks[l]})", "give inputs of a smaller size")

    def _write(self, memories: dict[int, Memory], weights: dict[int, list[Tensor]]) -> None:
        self.memories |= memories
        for l, parts in weights.items():
            for q, part in zip(self.theta[l], parts, strict=True):
                if q.requires_grad:
                    q.copy_(part)

    def fitted(self, p: Params, memory: Memory) -> list[Tensor]:
        """The parameters p of a block, fitted to its memory."""
        W = _join(p)
        A, B = memory.A / memory.samples, memory.B / memory.samples
        if self.sweeps is None:
            W = solve(W, A, B, self.damping)
        for _ in range(self.sweeps or 0):
            W = sweep(W, A, B)
        return [part.reshape(q.shape) for q, part in zip(p, W.split([q[0].numel() for q in p], 1), strict=True)]

    def state_dict(self) -> dict[str, Any]:
        memories, gathered = ({l: m._asdict() for l, m in ms.items()} for ms in (self.memories, self.gathered))
        return {"memories": memories, "gathered": gathered, "rest": self.rest.state_dict()}

    def check_state(self, state: Any) -> None:
        """ValueError unless `load_state_dict` can take the state: then it takes all of it."""
        demand_entries(state, ("memories", "gathered", "rest"), "a CoActivationMemory")
        for name in ("memories", "gathered"):
            for l, memory in demand_blocks(state[name], self.blocks, name).items():
                demand_entries(memory, Memory._fields, f"the memory of block {l}")
                W = _join(self.theta[l])
                demand_tensor(memory["A"], W, f"A of block {l}", (W.shape[1], W.shape[1]))
                demand_tensor(memory["B"], W, f"B of block {l}")
                demand_number(memory["samples"], f"the number of samples in the memory of block {l}", 0.0)
        self.rest.check_state(state["rest"])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.check_state(state)

        def here(l: int, memory: dict[str, Any]) -> Memory:
            device = self.theta[l][0].device
            return Memory(memory["A"].to(device), memory["B"].to(device), memory["samples"])

        self.rest.load_state_dict(state["rest"])
        self.memories, self.gathered = (
            {int(l): here(int(l), m) for l, m in state[name].items()} for name in ("memories", "gathered")
        )


def recall(block: Block, p: Params, residual: Residual, times: Number) -> Memory:
    """A and B of one mini-batch, codes asking for a move of -times * delta.

    As c = W a + r, B = W A + sum_t r_t a_t^T: the codes themselves are not needed.
    """
    a, delta = block.core.maps[0].columns(residual.saved[0], residual.delta)
    A = a.mT @ a
    return Memory(A, _join(p) @ A - times * (delta.mT @ a), len(a))


def _fits(block: Block) -> bool:
    """Whether the block's core is one map whose parameters are a matrix, all of it trained or all of it frozen."""
    alike = len({p.requires_grad for p in block.parameters()}) == 1
    return len(block.core.maps) == 1 and block.core.maps[0].regresses and alike


def _join(p: Params) -> Tensor:
    """All parameters side by side, a bias as one column."""
    return torch.cat([q.flatten(1) if q.ndim > 1 else q.unsqueeze(1) for q in p], 1)
