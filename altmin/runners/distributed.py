"""`Distributed`: the samples of every mini-batch spread over processes (data-parallel)."""

from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from altmin.calculus.context import LOCAL
from altmin.core.trainer import check
from altmin.methods.wrapper import Wrapper
from altmin.runners.ensemble import Ensemble
from altmin.runners.ranks import Ranks, bounds, digest, start
from altmin.runners.recorded import Recorded
from altmin.runners.rowwise import Rowwise


class Distributed(Wrapper):
    """A method whose mini-batches are spread over processes: `Distributed(method)` under torchrun.

    Every process runs the same script and gives `step` the whole mini-batch, the same on all ranks, of which each
    computes its own rows. In `torch.nn.parallel.DistributedDataParallel`, by contrast, each rank gives rows of its own:
    here a DataLoader needs no DistributedSampler, and batch sizes are global. `step_share` takes a rank's rows alone.

    What is summed over samples is summed over ranks. All have the same weights after each step: those that one process
    would have, up to the order in which numbers are added. In a script that torchrun has not started there is one rank,
    and a step is the method's own.

    When it is built, all ranks take weights, buffers, state and random numbers of rank 0. A batch with fewer samples
    than ranks is computed by all of them, and rank 0's numbers count. Of a method that keeps variables for each sample
    (`takes_rows`) each rank keeps those of every size-th row of the data. A rank that fails changes nothing on the
    others, which wait for it until torchrun ends them. A model whose output for a sample depends on others other than
    by torch's batch norm, or that draws random numbers other than by torch's dropout, rand_like and randn_like, is
    refused at its first step with a ValueError.
    """

    def __init__(self, method: Any):
        if isinstance(method, Recorded | Ensemble) or isinstance(getattr(method, "ranks", None), Ranks):
            raise TypeError(f"Distributed takes one method itself, given {type(method).__name__}(...)")
        if not _takes_context(method.step):
            raise TypeError(
                f"Distributed gives {type(method).__name__}.step a context by which sums go over ranks, and it takes "
                "none; add the argument context=altmin.methods.LOCAL to it, and sum over samples by context.sum"
            )
        super().__init__(method)
        start(next((p.device for p in method.model.parameters()), torch.device("cpu")))
        self.ranks = Ranks()
        self.rowwise = Rowwise()
        if self.ranks.size == 1:
            return
        state = method.state_dict()
        leaves = pytree.tree_leaves((method.model.state_dict(), state))
        self.ranks.equalise([t for t in leaves if isinstance(t, Tensor)], next(method.model.parameters()).device)
        self.load_state_dict(state)  # some of it are copies, and of samples' variables each rank keeps its own

    def _why_not_copied(self) -> str:
        return "" if self.ranks.size == 1 else "a Distributed belongs to its processes; copy its method"

    @property
    def takes_rows(self) -> bool:
        """Return whether the method keeps variables for each sample."""
        return bool(getattr(self.method, "takes_rows", False))

    def step(self, x: Tensor, y: Tensor, **how: Any) -> Any:
        """Take one mini-batch, the same on all ranks. how: further arguments of the method's own step; those with one
        entry for each sample are divided among the ranks too."""
        return self._divided("step", x, y, how)

    def gather(self, x: Tensor, y: Tensor) -> Any:
        """Add a part of a mini-batch too large to hold, the same on all ranks; the weights wait for `apply`."""
        return self._divided("gather", x, y, {})

    def _divided(self, name: str, x: Tensor, y: Tensor, how: dict[str, Any]) -> Any:
        """Call the method's function of this name with this rank's rows."""
        if self.ranks.size == 1:
            return getattr(self.method, name)(x, y, **how)
        check(x, y)
        n = len(x)
        divided = n >= self.ranks.size and not self.takes_rows
        first, end = bounds(n, self.ranks.rank, self.ranks.size) if divided else (0, n)
        alike = [name, tuple(x.shape[1:]), *how, digest(x[:1], y, *how.values())]
        how = {key: v[first:end] if isinstance(v, Tensor) and v.ndim and len(v) == n else v for key, v in how.items()}
        part = (first, end - first, n, alike, divided or self.takes_rows or self.ranks.rank == 0)
        return self._call(getattr(self.method, name), x[first:end], y[first:end], part=part, tried=x, **how)

    def step_share(self, x: Tensor, y: Tensor, first: int, of: int, **how: Any) -> Any:
        """Take a `step` for a batch of `of` samples, given only this rank's: those from `first` on, as
        `bounds` divides them. ValueError for others."""
        mine = bounds(of, self.ranks.rank, self.ranks.size)
        if (first, first + len(x)) != mine:
            raise ValueError(f"of {of} samples this rank has {mine[0]} to {mine[1] - 1}, given {len(x)} from {first}")
        part = (first, len(x), of, [tuple(x.shape[1:]), *how])
        return self._call(self.method.step, x, y, part=part, tried=x, **how)

    def _call(
        self, function: Callable[..., Any], *args: Any, part: Any = (0, 1, 1), tried: Tensor | None = None, **how: Any
    ) -> Any:
        """Call a function of the method, whose sums go over ranks.

        part: this rank's part of the mini-batch, as `Ranks.share` takes it; outside of any mini-batch that of one
        sample, which all ranks have. tried: samples with which the model is tried, if it has not been (`Rowwise`)."""
        if self.ranks.size == 1:
            return function(*args, **how)
        context = replace(how.pop("context", LOCAL), shard=self.ranks.share(*part))
        if _takes_context(function):
            how["context"] = context
        if tried is not None:
            self.rowwise.demand(self.method.model, tried)
        return function(*args, **how)

    def end_epoch(self) -> None:
        self._call(self.method.end_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the method's state, the same on all ranks. Of a method that `takes_rows` it has the variables of all
        samples, and all ranks have to call it; of others one rank may call it alone."""
        state: dict[str, Any] = self._call(self.method.state_dict) if self.takes_rows else self.method.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the state of one process, or of any number of ranks; all have to load the same."""
        self._call(self.method.load_state_dict, state) if self.takes_rows else self.method.load_state_dict(state)


def _takes_context(function: Callable[..., Any]) -> bool:
    """Return whether a function has an argument `context`, or takes any by name."""
    return any(p.name == "context" or p.kind is p.VAR_KEYWORD for p in signature(function).parameters.values())
