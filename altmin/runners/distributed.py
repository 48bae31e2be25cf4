"""`Distributed`: the samples of every mini-batch spread over processes (data-parallel)."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from altmin.calculus.ranks import Share, sharing
from altmin.core.weights.sparse import NOT_SPARSE, tables
from altmin.runners.ensemble import Ensemble
from altmin.runners.ranks import Ranks, bounds, digest, start
from altmin.runners.recorded import Recorded


class Distributed:
    """A method whose mini-batches are spread over processes: `Distributed(method)` under torchrun.

    Every process runs the same script and gives `step` the same batches; each computes its own share of the rows, and
    what is summed over samples is summed over ranks. All have the same weights after each step: those that one process
    would have, up to the order in which numbers are added. In a script that torchrun has not started there is one rank,
    and a step is the method's own.

    At its making all ranks take weights, buffers, state and random numbers of rank 0. A batch with fewer samples than
    ranks is computed by all of them, and rank 0's numbers count. Of a method that keeps variables for each sample
    (`takes_rows`) each rank keeps those of every size-th row of the data. An error on one rank is raised on all, with
    its name.
    """

    def __init__(self, method: Any, group: Any = None):
        if isinstance(method, Recorded | Ensemble) or isinstance(getattr(method, "ranks", None), Ranks):
            raise TypeError(f"Distributed takes one method itself, given {type(method).__name__}(...)")
        self.method = method
        start(next((p.device for p in method.model.parameters()), torch.device("cpu")))
        self.ranks = Ranks(group)
        if self.ranks.size == 1:
            return
        if tables(method.model):
            raise ValueError(f"ranks do not sum the sparse gradients of an embedding with sparse=True; {NOT_SPARSE}")
        state = method.state_dict()
        held = pytree.tree_leaves((method.model.state_dict(), state))
        self.ranks.equalise([t for t in held if isinstance(t, Tensor)])
        self.ranks.equalise_random_numbers(next(method.model.parameters()).device)
        if self.takes_rows:
            self.load_state_dict(state)

    def __repr__(self) -> str:
        return f"Distributed({self.method!r})"

    def __getattr__(self, name: str) -> Any:
        """All else is the method's own."""
        if name == "method":
            raise AttributeError(name)
        return getattr(self.method, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """TypeError for a copy or a pickle, unless there is one rank."""
        if self.ranks.alone:
            return super().__reduce_ex__(protocol)
        raise TypeError("a Distributed belongs to its processes and cannot be copied; copy its method")

    @property
    def model(self) -> nn.Module:
        model: nn.Module = self.method.model
        return model

    @property
    def optimizer(self) -> Any:
        return self.method.optimizer

    @property
    def takes_rows(self) -> bool:
        """Whether the method keeps variables for each sample."""
        return bool(getattr(self.method, "takes_rows", False))

    def step(self, x: Tensor, y: Tensor, **how: Any) -> Any:
        """One mini-batch, the same on all ranks. how: what the method's own step takes besides; what has one entry for
        each sample is shared out too."""
        return self._shared_out("step", x, y, how)

    def gather(self, x: Tensor, y: Tensor) -> Any:
        """A part of a mini-batch too large to hold, the same on all ranks; the weights wait for `apply`."""
        return self._shared_out("gather", x, y, {})

    def _shared_out(self, name: str, x: Tensor, y: Tensor, how: dict[str, Any]) -> Any:
        """What the method of this name makes of this rank's rows."""
        method = getattr(self.method, name)
        if self.ranks.size == 1:
            return method(x, y, **how)
        if not isinstance(x, Tensor) or not isinstance(y, Tensor):
            raise TypeError(
                f"{name} takes tensors, given {type(x).__name__} and {type(y).__name__}; use torch.as_tensor"
            )
        n = len(x)
        if len(y) != n:
            raise ValueError(f"as many targets as samples are needed: {n} samples, targets of {tuple(y.shape)}")
        first, end, truth = 0, n, True
        if n < self.ranks.size:
            truth = self.takes_rows or self.ranks.rank == 0
        elif not self.takes_rows:
            first, end = bounds(n, self.ranks.rank, self.ranks.size)
        signature = [name, tuple(x.shape[1:]), *how, digest(x[:1], y, *how.values())]
        own = {key: v[first:end] if isinstance(v, Tensor) and v.ndim and len(v) == n else v for key, v in how.items()}
        with self._sharing(self.ranks.share(first, end - first, n, signature, truth)):
            return method(x[first:end], y[first:end], **own)

    def step_share(self, x: Tensor, y: Tensor, first: int, of: int, **how: Any) -> Any:
        """As `step`, for a batch of `of` samples of which this rank is given its own: those from `first` on, as
        `bounds` shares them out. ValueError for others."""
        mine = bounds(of, self.ranks.rank, self.ranks.size)
        if (first, first + len(x)) != mine:
            raise ValueError(f"of {of} samples this rank has {mine[0]} to {mine[1] - 1}, given {len(x)} from {first}")
        if self.ranks.size == 1:
            return self.method.step(x, y, **how)
        with self._sharing(self.ranks.share(first, len(x), of, [tuple(x.shape[1:]), *how])):
            return self.method.step(x, y, **how)

    @contextmanager
    def _sharing(self, share: Share) -> Iterator[None]:
        """Sums go over ranks within, and an error is told to the others."""
        try:
            with sharing(share):
                yield
        except Exception as error:
            found = self.ranks.post(error)
            if found is error:
                raise
            raise found from error
        except BaseException as error:
            self.ranks.interrupted(error)
            raise

    @contextmanager
    def _without_samples(self) -> Iterator[None]:
        """Sums go over ranks within, outside of any mini-batch."""
        if self.ranks.size == 1:
            yield
            return
        with self._sharing(self.ranks.share(0, 1, 1)):
            yield

    def end_epoch(self) -> None:
        with self._without_samples():
            self.method.end_epoch()

    def state_dict(self) -> dict[str, Any]:
        """The method's own, the same on all ranks. Of a method that `takes_rows` it has the variables of all samples,
        and all ranks have to ask for it; of others one rank may ask alone."""
        with self._without_samples() if self.takes_rows else nullcontext():
            state: dict[str, Any] = self.method.state_dict()
            return state

    def check_state(self, state: Any) -> None:
        """ValueError unless `load_state_dict` can take the state."""
        self.method.check_state(state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from the state of one process, or of any number of ranks; all have to take the same."""
        with self._without_samples() if self.takes_rows else nullcontext():
            self.method.load_state_dict(state)
