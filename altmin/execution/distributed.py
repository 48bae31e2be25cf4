"""`Distributed`: the samples of every mini-batch spread over processes (data-parallel)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from altmin.calculus.ranks import sharing
from altmin.execution.ranks import Ranks, bounds, start
from altmin.execution.recorded import Recorded
from altmin.weights.sparse import NOT_SPARSE, tables


class Distributed:
    """A method whose mini-batches are spread over processes: `Distributed(method)` under torchrun.

    Every process runs the same script and gives `step` the same batches; each computes its own share of the rows, and
    what is summed over samples is summed over ranks. All have the same weights after each step: those that one process
    would have, up to the order in which numbers are added. In a script that torchrun has not started there is one rank,
    and a step is the method's own.

    At its making all ranks take weights, buffers, state and random numbers of rank 0. A batch with fewer samples than
    ranks is computed by all of them, and rank 0's numbers count. An error on one rank is raised on all, with its name.
    """

    def __init__(self, method: Any, group: Any = None):
        if isinstance(method, Recorded | Distributed):
            raise TypeError(f"Distributed takes a method itself, given a {type(method).__name__}; give its method")
        self.method = method
        start(next((p.device for p in method.model.parameters()), torch.device("cpu")))
        self.ranks = Ranks(group)
        if self.ranks.size == 1:
            return
        if tables(method.model):
            raise ValueError(f"ranks do not sum the sparse gradients of an embedding with sparse=True; {NOT_SPARSE}")
        state = torch.get_rng_state()
        held = pytree.tree_leaves((method.model.state_dict(), method.state_dict()))
        self.ranks.equalise([state, *(t for t in held if isinstance(t, Tensor))])
        torch.set_rng_state(state)

    def __repr__(self) -> str:
        return f"Distributed({self.method!r})"

    def __getattr__(self, name: str) -> Any:
        """All else is the method's own."""
        if name == "method":
            raise AttributeError(name)
        return getattr(self.method, name)

    @property
    def model(self) -> nn.Module:
        model: nn.Module = self.method.model
        return model

    @property
    def optimizer(self) -> Any:
        return self.method.optimizer

    def step(self, x: Tensor, y: Tensor, **how: Any) -> Any:
        """One mini-batch, the same on all ranks. how: what the method's own step takes besides; what has one entry for
        each sample is shared out too."""
        if self.ranks.size == 1:
            return self.method.step(x, y, **how)
        n = len(x)
        if n < self.ranks.size:
            return self._step(x, y, 0, n, how, self.ranks.rank == 0)
        first, end = bounds(n, self.ranks.rank, self.ranks.size)
        own = {name: v[first:end] if isinstance(v, Tensor) and len(v) == n else v for name, v in how.items()}
        return self._step(x[first:end], y[first:end], first, n, own)

    def step_share(self, x: Tensor, y: Tensor, first: int, of: int, **how: Any) -> Any:
        """As `step`, for a batch of `of` samples of which this rank is given its own: those from `first` on, as
        `bounds` shares them out. ValueError for others."""
        if (first, first + len(x)) != bounds(of, self.ranks.rank, self.ranks.size):
            mine = bounds(of, self.ranks.rank, self.ranks.size)
            raise ValueError(f"of {of} samples this rank has {mine[0]} to {mine[1] - 1}, given {len(x)} from {first}")
        if self.ranks.size == 1:
            return self.method.step(x, y, **how)
        return self._step(x, y, first, of, how)

    def _step(self, x: Tensor, y: Tensor, first: int, of: int, how: dict[str, Any], truth: bool = True) -> Any:
        share = self.ranks.share(first, len(x), of, [tuple(x.shape[1:]), *how], truth)
        try:
            with sharing(share):
                return self.method.step(x, y, **how)
        except Exception as error:
            found = self.ranks.post(error)
            if found is error:
                raise
            raise found from error

    def end_epoch(self) -> None:
        self.method.end_epoch()

    def state_dict(self) -> dict[str, Any]:
        """The method's own, the same on all ranks."""
        state: dict[str, Any] = self.method.state_dict()
        return state

    def check_state(self, state: Any) -> None:
        """ValueError unless `load_state_dict` can take the state."""
        self.method.check_state(state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.method.load_state_dict(state)
