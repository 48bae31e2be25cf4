"""The co-activation memory (Algorithm 3, with memory): what a block needs to know of all samples seen, and no more.

With a the input of a block's affine map (a 1 appended for the bias) and c its code, the memory is

    A = sum_t a_t a_t^T,   B = sum_t c_t a_t^T,

and sum_t |c_t - W a_t|^2 = Tr(W^T W A) - 2 Tr(W^T B) + sum_t |c_t|^2, so W can be fitted to all codes seen without
keeping one. Sums from t = 1 also keep codes of weights long gone; with forget < 1 the past fades.

What is kept is R = B - W A, what the codes seen still ask of the present weights. A mini-batch adds its residuals
r = c - W a to it, as sum_t r_t a_t^T, and a change V of the weights takes V A away.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from altmin.calculus import Number, Params
from altmin.calculus.conjugate_gradients import conjugate_gradients
from altmin.calculus.numbers import all_finite, along, eager
from altmin.calculus.sample_weight import samples, weighed
from altmin.common.errors import Diverged, demand, demand_unclaimed
from altmin.common.state import demand_blocks, demand_entries, demand_number, demand_tensor
from altmin.core.chain import Block, Chain
from altmin.core.codes.above import Residual
from altmin.core.weights.local import LocalAdam, LocalOptimizer


class Memory(NamedTuple):
    """A and B of one block, and the weight of the samples in them. Memories of two streams merge by addition."""

    A: Tensor
    B: Tensor
    samples: Any

    def __add__(self, other: "Memory") -> "Memory":  # type: ignore[override]
        return Memory(self.A + other.A, self.B + other.B, self.samples + other.samples)


class Kept(NamedTuple):
    """A memory as it is kept beside the weights W of its block: A, R = B - W A, and the weight of the samples."""

    A: Tensor
    R: Tensor
    samples: Any

    def plus(self, older: "Kept", factor: Any = 1.0) -> "Kept":
        """Itself and factor times an older one; written over itself where numbers may be read."""
        samples = self.samples + factor * older.samples
        if eager():
            return Kept(self.A.add_(older.A, alpha=factor), self.R.add_(older.R, alpha=factor), samples)
        return Kept(along(self.A, factor, older.A), along(self.R, factor, older.R), samples)


class Fit(NamedTuple):
    """What a block's parameters change by, and its next memory; nothing is written yet. finite: whether all of it is, a
    bool, or a tensor of one where numbers are tensors."""

    changes: list[Tensor]
    kept: Kept
    finite: Any


class Change(NamedTuple):
    """A change V of the weights, and the R that it leaves, R - V A."""

    V: Tensor
    left: Tensor


def sweep(A: Tensor, R: Tensor) -> Change:
    """One pass of block-coordinate descent over the columns of V, each set to its best with the others fixed.

    >>> A, R = torch.tensor([[2.0, 1.0], [1.0, 2.0]]), torch.tensor([[1.0, 0.0]])
    >>> sweep(A, R).V
    tensor([[ 0.5000, -0.2500]])
    """
    columns = []
    for j in range(len(A)):
        columns.append(torch.where(A[j, j] > 0, R[:, j] / A[j, j], 0.0))
        R = torch.addcmul(R, columns[-1].unsqueeze(1), A[j], value=-1)
    return Change(torch.stack(columns, 1), R)


def solve(A: Tensor, R: Tensor, damping: Number) -> Change:
    """argmin_V Tr(V^T V A) - 2 Tr(V^T R) + lambda |V|^2 with lambda = damping times the mean of A's diagonal. Where
    there are many, the smallest; but in a step whose numbers are not read, which needs lambda > 0.

    >>> A, R = torch.tensor([[2.0, 1.0], [1.0, 2.0]]), torch.tensor([[1.0, 0.0]])
    >>> solve(A, R, damping=0.0).V
    tensor([[ 0.6667, -0.3333]])
    """
    ridge = damping * A.diagonal().mean()
    factor, failed = torch.linalg.cholesky_ex(A + ridge * torch.eye(len(A), dtype=A.dtype, device=A.device))
    pivots, eps = factor.diagonal().square(), torch.finfo(A.dtype).eps
    singular = (failed != 0) | (pivots.min() <= len(A) * eps * pivots.max())
    if eager() and bool(singular):  # the smallest minimiser
        V = torch.linalg.lstsq(A, R.mT, driver=None if A.is_cuda else "gelsd").solution.mT
    else:
        V = torch.cholesky_solve(R.mT, factor).mT
    return Change(V, R - V @ A)


def descend(A: Tensor, R: Tensor, damping: Number, steps: int) -> Change:
    """So many conjugate gradient steps from V = 0 on the problem of `solve`, a row of V at a time. One is a step along
    the gradient of the length that is best for the row.

    >>> A, R = torch.tensor([[2.0, 1.0], [1.0, 2.0]]), torch.tensor([[1.0, 0.0]])
    >>> [descend(A, R, 0.0, steps).V.tolist() for steps in (1, 2)]
    [[[0.5, 0.0]], [[0.6666666865348816, -0.3333333432674408]]]
    """
    return Change(*conjugate_gradients(lambda V: V @ A, R, steps, damping * A.diagonal().mean()))


class CoActivationMemory:
    """Hidden Linear and convolution layers from their memory; the other blocks, the output's among them, by `rest`.

    forget: factor on the memory before each mini-batch; 1 is the paper's plain sum. steps: conjugate gradient steps of
    the fit per mini-batch, or None for the exact solve; `damping` holds either near the present weights. sweeps: passes
    of block-coordinate descent instead, without damping (the paper's AM-mem). rate: a learning rate on the loss: a
    sample's code asks for a move of -rate times the gradient of its loss, as far as the codes have left it; None for
    the paper's rule, by which it asks for the code itself, and the newest codes weigh little against those remembered
    (where a code has stopped at a kink, it asks for more than it has moved). prior: memories to start from, by block
    (continual learning), beside the weights that the model has when the trainer is made; `memories` has the present
    ones. A block whose parameters do not require a gradient keeps weights and memory as they are.
    """

    claimed = False
    takes_gradients = adam_alone = False

    def __init__(
        self,
        forget: float = 0.9,
        damping: float = 30.0,
        sweeps: int | None = None,
        rate: float | None = 300.0,
        rest: LocalOptimizer | None = None,
        prior: Mapping[int, Memory] | None = None,
        steps: int | None = 1,
    ):
        demand("CoActivationMemory", "forget", forget)
        demand("CoActivationMemory", "damping", damping)
        if forget > 1:
            raise ValueError(f"forget of CoActivationMemory lies between 0 and 1, given {forget!r}")
        for name, count in (("sweeps", sweeps), ("steps", steps)):
            if count is not None:
                demand("CoActivationMemory", name, count, low=1, whole=True)
        if rate is not None:
            demand("CoActivationMemory", "rate", rate, above=True)
        self.forget, self.damping, self.sweeps, self.rate, self.steps = forget, damping, sweeps, rate, steps
        self.rest = rest or LocalAdam(2e-3)
        self.prior = dict(prior or {})
        self.kept: dict[int, Kept] = {}
        self.gathered: dict[int, Kept] = {}
        self.prepared: dict[int, Fit] = {}
        """Fits that `apply` has not written yet."""
        self.scratch: dict[int, Tensor] = {}
        """Where A of a mini-batch is computed: fresh memory costs a processor as much as the product."""

    def __repr__(self) -> str:
        options = f"forget={self.forget}, damping={self.damping}, sweeps={self.sweeps}, rate={self.rate}"
        return f"CoActivationMemory({options}, rest={self.rest!r}, steps={self.steps})"

    def bind(self, chain: Chain, blocks: Sequence[int]) -> None:
        demand_unclaimed(self, "weight rule")
        self.chain, self.theta = chain, chain.parameters()
        self.blocks = tuple(l for l in blocks if l != len(chain) - 1 and _fits(chain.blocks[l]))
        for l, memory in self.prior.items():
            if l not in self.blocks:
                raise ValueError(f"a memory was given for block {l}, but memory serves the blocks {list(self.blocks)}")
            wanted = _join(self.theta[l]).shape
            if memory.B.shape != wanted:
                raise ValueError(
                    f"the memory for block {l} is for weights {tuple(memory.B.shape)}, not {tuple(wanted)}"
                )
            R = memory.B - _join(self.theta[l]).detach() @ memory.A
            self.kept[l] = Kept(memory.A.clone(), R, memory.samples)  # it is written to
        self.rest.bind(chain, [l for l in blocks if l not in self.blocks])
        self.claimed = True

    @property
    def memories(self) -> dict[int, Memory]:
        """The memories by block, as copies; before the rule is bound, those to start from."""
        if not self.claimed:
            return dict(self.prior)
        of = {l: _join(self.theta[l]).detach() for l in self.kept}
        return {l: Memory(A.clone(), of[l] @ A + R, samples) for l, (A, R, samples) in self.kept.items()}

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        return self.rest.optimizer

    def measure(self, l: int, p: Params, residual: Residual) -> Any:
        """What `update` needs of block l with parameters p: its memory of the mini-batch, or what `rest` measures."""
        if l not in self.blocks:
            return self.rest.measure(l, p, residual)
        # deltas are those of the mean loss
        times = residual.scale if self.rate is None else self.rate * samples(residual.delta)
        again = eager() and l in self.kept and not residual.delta.is_cuda
        out = self.scratch.setdefault(l, torch.empty_like(self.kept[l].A)) if again else None
        return recall(self.chain.blocks[l], residual, times, out)

    def update(self, found: Sequence[Any]) -> None:
        """Fits every block to its memory and this mini-batch. `Diverged`, and nothing changes, if weights would not be
        finite."""
        proposed, _ = self.propose(found)
        self.take(proposed)

    def gather(self, found: Sequence[Any], samples: int) -> None:
        """Adds a part of a mini-batch too large to hold; `apply` then fits the whole. `Diverged`, and nothing is added,
        if the memory would not be finite. found: None for blocks that are not gathered here."""
        here = [l for l in self.blocks if found[l] is not None]
        new = {l: found[l].plus(self.gathered[l]) if l in self.gathered else found[l] for l in here}
        for l, memory in new.items():
            if not _finite(memory):
                raise self._diverged(l)
        self.rest.gather(found, samples)
        self.gathered, self.scratch = new, {}

    def prepare(self) -> None:
        """Fits the blocks to what has been gathered, which is then forgotten; `apply` moves the weights. `Diverged` if
        they would not be finite."""
        gathered, self.gathered = self.gathered, {}
        try:
            self.prepared = self._fits(gathered)
            self.rest.prepare()
        except Diverged:
            self.rest.gathered, self.prepared = {}, {}
            raise

    def apply(self) -> None:
        """The step of everything gathered since the last one."""
        if self.gathered or self.rest.gathered:
            self.prepare()
        fits, self.prepared = self.prepared, {}
        if self.rest.prepared or not fits:
            self.rest.apply()
        self._write(fits)

    def why_not_captured(self) -> str:
        """Why an update cannot be captured as a CUDA graph; empty if it can."""
        if self.steps is self.sweeps is None:
            return "the exact fit to a memory looks on the processor whether its solution is the only one; give steps=1"
        return self.rest.why_not_captured()

    def allocate(self) -> None:
        """Makes everything that an update changes, besides what the optimizer has: tensors that it writes to."""
        for l in self.trained:
            W = _join(self.theta[l])
            A, R, samples = self.kept.get(l) or (W.new_zeros(W.shape[1], W.shape[1]), torch.zeros_like(W), 0.0)
            self.kept[l] = Kept(A, R, torch.as_tensor(samples, dtype=torch.float64, device=W.device))

    def tensors(self) -> list[Tensor]:
        """What `allocate` has made, and the weights that are fitted."""
        kept = (t for l in self.trained if l in self.kept for t in self.kept[l])
        return [*(q for l in self.trained for q in self.theta[l]), *(t for t in kept if isinstance(t, Tensor))]

    def propose(self, found: Sequence[Any]) -> tuple[Any, Any]:
        """What `take` needs for an update, and whether all of it is finite; changes nothing. `Diverged` instead where
        numbers may be read."""
        fits = self._fits({l: found[l] for l in self.blocks})
        return (found, fits), torch.stack([f.finite for f in fits.values()]).all() if fits and not eager() else True

    def take(self, proposed: Any, ok: Tensor | None = None) -> None:
        """The update, where ok; the optimizer of `rest` has been told by itself."""
        found, fits = proposed
        self.rest.take(found, ok)
        self._write(fits, ok)

    @property
    def trained(self) -> list[int]:
        """The blocks that are fitted: those of `blocks` that are not frozen."""
        return [l for l in self.blocks if any(q.requires_grad for q in self.theta[l])]

    def _fits(self, gathered: Mapping[int, Kept]) -> dict[int, Fit]:
        """Of the blocks that are not frozen and have gathered something. `Diverged` if one is not finite, where numbers
        may be read."""
        fits = {}
        for l in (l for l in self.trained if l in gathered):
            fits[l] = self.fit(self.theta[l], gathered[l], self.kept.get(l))
            if eager() and not fits[l].finite:
                raise self._diverged(l)
        return fits

    def _diverged(self, l: int) -> Diverged:
        return Diverged(f"the memory of block {l} ({self.chain.blocks[l]})", "give inputs of a smaller size")

    def _write(self, fits: Mapping[int, Fit], ok: Tensor | None = None) -> None:
        """Changes weights and memories, where ok. Memories that `allocate` has made stay where they lie."""
        for l, fit in fits.items():
            for q, change in zip(self.theta[l], fit.changes, strict=True):
                if q.requires_grad:
                    q.add_(change if ok is None else torch.where(ok, change, 0.0))
            kept = self.kept.get(l)
            if kept is not None and isinstance(kept.samples, Tensor):
                for old, new in zip(kept, fit.kept, strict=True):
                    old.copy_(new if ok is None else torch.where(ok, new, old))
                continue
            self.kept[l] = fit.kept
            if kept is not None and l in self.scratch:  # where the new A was computed
                self.scratch[l] = kept.A

    def fit(self, p: Params, new: Kept, older: Kept | None) -> Fit:
        """Fits the parameters p of a block to what a mini-batch adds to an older memory. Changes nothing but `new`,
        which is used up."""
        whole = new if older is None else new.plus(older, self.forget)
        A, R, samples = whole
        finite = _finite(whole)
        if eager() and not finite:
            return Fit([], whole, False)
        if self.sweeps is not None:
            V = torch.zeros_like(R)
            for _ in range(self.sweeps):
                change = sweep(A, R)
                V, R = V + change.V, change.left
        elif self.steps is None:
            V, R = solve(A, R, self.damping)
        else:
            V, R = descend(A, R, self.damping, self.steps)
        parts = zip(p, V.split([q[0].numel() for q in p], 1), strict=True)
        changes = [part.reshape(q.shape) for q, part in parts]
        return Fit(changes, Kept(A, R, samples), finite & all_finite(R) & all_finite(V))

    def state_dict(self) -> dict[str, Any]:
        kept, gathered = (
            {l: each._replace(samples=float(each.samples))._asdict() for l, each in all_.items()}
            for all_ in (self.kept, self.gathered)
        )
        return {"memories": kept, "gathered": gathered, "rest": self.rest.state_dict()}

    def check_state(self, state: Any) -> None:
        """ValueError unless `load_state_dict` can take the state: then it takes all of it."""
        demand_entries(state, ("memories", "gathered", "rest"), "a CoActivationMemory")
        for name in ("memories", "gathered"):
            for l, memory in demand_blocks(state[name], self.blocks, name).items():
                demand_entries(memory, Kept._fields, f"the memory of block {l}")
                W = _join(self.theta[l])
                demand_tensor(memory["A"], W, f"A of block {l}", (W.shape[1], W.shape[1]))
                demand_tensor(memory["R"], W, f"R of block {l}")
                demand_number(memory["samples"], f"the number of samples in the memory of block {l}", 0.0)
        self.rest.check_state(state["rest"])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.check_state(state)

        def here(l: int, memory: dict[str, Any]) -> Kept:
            device = self.theta[l][0].device
            A, R = (memory[name].to(device, copy=True) for name in ("A", "R"))  # they are written to
            return Kept(A, R, memory["samples"])

        self.rest.load_state_dict(state["rest"])
        self.kept, self.gathered = (
            {int(l): here(int(l), m) for l, m in state[name].items()} for name in ("memories", "gathered")
        )


def recall(block: Block, residual: Residual, times: Number, out: Tensor | None = None) -> Kept:
    """What one mini-batch adds, codes asking for a move of -times * delta. out: where its A is written, if given."""
    a, delta = block.core.maps[0].columns(residual.saved[0], residual.delta)
    return Kept(torch.mm(weighed(a).mT, a, out=out), (-times * delta).mT @ a, samples(a))


def _finite(kept: Kept) -> Any:
    """Whether all of it is; no entry of A is larger than the largest on its diagonal."""
    return all_finite(kept.A.diagonal()) & all_finite(kept.R)


def _fits(block: Block) -> bool:
    """Whether the block's core is one map whose parameters are a matrix, all of it trained or all of it frozen."""
    alike = len({p.requires_grad for p in block.parameters()}) == 1
    return len(block.core.maps) == 1 and block.core.maps[0].regresses and alike


def _join(p: Params) -> Tensor:
    """All parameters side by side, a bias as one column."""
    return torch.cat([q.flatten(1) if q.ndim > 1 else q.unsqueeze(1) for q in p], 1)
