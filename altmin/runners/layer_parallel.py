"""`LayerParallel`: the blocks of a chain spread over processes, and each mini-batch in parts that pass through them."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NoReturn
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch import Tensor, nn

from altmin.calculus import InTime
from altmin.common.errors import demand
from altmin.core.chain import Chain
from altmin.core.trainer import AltMin, Metrics
from altmin.methods.wrapper import Wrapper
from altmin.runners.neighbours import Neighbours
from altmin.runners.pipelined import Pipelined
from altmin.runners.ranks import RankFailed, Ranks, digest, start
from altmin.runners.rowwise import Rowwise

_spread: WeakSet[AltMin] = WeakSet()
"""Trainers whose blocks are on several ranks."""
_ahead: WeakSet[nn.Module] = WeakSet()
"""Models whose newest weights are on other ranks."""


class LayerParallel(Wrapper):
    """An `AltMin` whose blocks are spread over the ranks of torchrun, consecutive ones on each.

    Every process makes the same model and trainer and gives `step` the same batches. A mini-batch passes in
    `micro_batches` parts: codes are sent up from rank to rank, then the targets for their blocks are sent down, and
    each rank moves the weights of its own blocks, whose optimizer state and memories no other rank has. Weights are
    measured while a rank waits for others. A step is that of `am.gather` for each part, in order, and `am.apply`; with
    one part that of `am.step`. In a script that torchrun has not started there is one rank.

    data_ranks: how many ranks have the same blocks, each with a share of every part's rows, as in `Distributed`: with 8
    ranks and data_ranks=2 there are 2 chains of 4 ranks, ranks 0 to 3 and 4 to 7. cuts: the numbers of the blocks with
    which the ranks of a chain after the first begin; None for about as many parameters on each.

    Weights of other ranks' blocks are those of the last `synchronize`. Dropout draws numbers of its own for each part
    and block, so that they do not depend on the number of ranks.
    """

    def __init__(self, am: AltMin, micro_batches: int = 4, data_ranks: int = 1, cuts: Sequence[int] | None = None):
        demand("LayerParallel", "micro_batches", micro_batches, low=1, whole=True)
        demand("LayerParallel", "data_ranks", data_ranks, low=1, whole=True)
        _check(am)
        start(am.theta[0][0].device)
        super().__init__(am)
        self.micro_batches = micro_batches
        self.ranks, self.rowwise = Ranks(), Rowwise()
        if self.ranks.size % data_ranks:
            raise ValueError(
                f"{self.ranks.size} ranks cannot be divided into {data_ranks} chains of ranks; give data_ranks that "
                "divides their number, or start other ones"
            )
        stages = self.ranks.size // data_ranks
        self.replica, self.stage = divmod(self.ranks.rank, stages)
        self.data_ranks = data_ranks
        self.column, self.data = self._groups(stages)
        self.bounds = boundaries(am.chain, stages) if cuts is None else _given(am.chain, cuts, stages)
        self.blocks = range(*self.bounds[self.stage : self.stage + 2])
        self.first, self.last = self.stage == 0, self.stage == stages - 1
        rank = self.ranks.rank
        self.neighbours = Neighbours(self.ranks, None if self.first else rank - 1, None if self.last else rank + 1)
        if self.ranks.size > 1:
            self._claim()
            self.ranks.equalise(list(am.model.state_dict().values()))
            self.ranks.equalise_random_numbers(am.theta[0][0].device)
            self._leave_others()

    def _claim(self) -> None:
        """ValueError for a trainer or a model whose newest state is partly on other ranks."""
        if self.method in _spread:
            raise ValueError(
                "the blocks of this trainer are spread by another LayerParallel, and ranks have the state of their own "
                "ones; go on with that one, or give its state_dict() to a new trainer"
            )
        if self.method.model in _ahead:
            raise ValueError(
                "other ranks have newer weights of this model; call synchronize() of the LayerParallel that has "
                "trained it first"
            )
        if self.column.size > 1:
            _spread.add(self.method)

    def _groups(self, stages: int) -> tuple[Ranks, Ranks | None]:
        """The ranks of this rank's chain, and those that have its blocks; None if it alone has them."""
        if self.data_ranks == 1:
            return Ranks(self.ranks.group, self.ranks), None
        ranks = range(self.ranks.size)
        columns = [dist.new_group(list(ranks[i * stages :][:stages])) for i in range(self.data_ranks)]
        alike = [dist.new_group(list(ranks[stage::stages])) for stage in range(stages)]
        return Ranks(columns[self.replica], self.ranks), Ranks(alike[self.stage], self.ranks)

    def __repr__(self) -> str:
        return f"LayerParallel({self.method!r}, micro_batches={self.micro_batches})"

    def _why_not_copied(self) -> str:
        reason = "a LayerParallel belongs to its processes and cannot be copied; copy its model or state_dict()"
        return "" if self.ranks.alone else reason

    @torch.no_grad()
    def step(self, x: Tensor, y: Tensor) -> Metrics:
        """One mini-batch, the same on all ranks. Errors are raised on all of them; then nothing has changed."""
        if not isinstance(x, Tensor) or not isinstance(y, Tensor):
            raise TypeError(f"step takes tensors, given {type(x).__name__} and {type(y).__name__}; use torch.as_tensor")
        if self.ranks.broken:
            raise RankFailed(self.ranks.broken)
        signature = [tuple(x.shape), digest(x[:1], y)]
        for ranks in (self.ranks, self.column):
            ranks.share(0, 1, 1, signature)
        if self.column.size > 1:
            _ahead.add(self.model)
        try:
            if self.data_ranks > 1:
                self.rowwise.demand(self.model, x)
            return Pipelined(self, x, y, signature).run()
        except Exception as error:
            self.method.updates.forget()
            found = self.ranks.publish(error)
            if self.neighbours.awaited:
                self.ranks.end(" ".join(str(error).split()))
            if found is error:
                raise
            raise found from error
        except BaseException as error:
            self.method.updates.forget()
            self.ranks.interrupted(error)
            raise

    def gather(self, x: Tensor, y: Tensor) -> NoReturn:
        """Not to be had: TypeError."""
        raise TypeError("LayerParallel has no gather and apply; give step all samples, and micro_batches their parts")

    def apply(self) -> NoReturn:
        """Not to be had: TypeError."""
        self.gather(torch.empty(0), torch.empty(0))

    @torch.no_grad()
    def synchronize(self) -> None:
        """Copies the weights and buffers of all blocks to all ranks. Must be called on all of them."""
        stages = self.column.size
        for stage in range(stages if stages > 1 else 0):
            held = [t for l in range(*self.bounds[stage : stage + 2]) for t in _tensors(self.method.chain, l)]
            for kind in dict.fromkeys((t.dtype, t.device) for t in held):  # in the same order on all ranks
                alike = [t for t in held if (t.dtype, t.device) == kind]
                flat = torch.cat([t.reshape(-1) for t in alike])
                with self.ranks.connected():
                    dist.broadcast(flat, self.replica * stages + stage, group=self.column.group)
                for t, part in zip(alike, flat.split([t.numel() for t in alike]), strict=True):
                    t.copy_(part.view(t.shape))
        _ahead.discard(self.model)

    def state_dict(self) -> dict[str, Any]:
        """The `state_dict` of the trainer in one process, collected from all ranks. Must be called on all of them."""
        own = self.method.state_dict()
        if self.column.size == 1:
            return own
        parts: list[Any] = [None] * self.column.size
        with self.ranks.connected():
            dist.all_gather_object(parts, own, group=self.column.group)
        return _united(parts)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a trainer's `state_dict`, written by any number of ranks; the state of other ranks' blocks is left
        out."""

        def of_rank(blocks: Mapping[int, Any]) -> dict[int, Any]:
            return {l: each for l, each in blocks.items() if l in self.blocks}

        weights = {**state["weights"], **{name: of_rank(state["weights"][name]) for name in ("states", "gathered")}}
        codes = {"codes": of_rank(state["codes"])} if "codes" in state else {}
        super().load_state_dict({**state, "weights": weights, **codes})
        self._leave_others()

    def _leave_others(self) -> None:
        """Drops the state of other ranks' blocks, and gradients that the optimizer would use."""
        keep = {id(p) for l in self.blocks for p in self.method.theta[l]}
        for own in self.model.parameters():
            own.grad = own.grad if id(own) in keep else None
        held = self.method.optimizer.state
        for p in [p for p in held if id(p) not in keep]:
            del held[p]
        for states in (self.method.updates.states, self.method.code_states):
            for l in [l for l in states if l not in self.blocks]:
                del states[l]


def boundaries(chain: Chain, stages: int) -> list[int]:
    """Where to cut a chain for `stages` ranks: the first block of each, and the number of blocks. The rank with most
    parameters has as few as possible. ValueError if there are not enough places to cut."""
    places = _places(chain)
    if len(places) + 1 < stages:
        raise ValueError(
            f"{stages} ranks need a net with at least as many blocks to spread, this one has {len(places) + 1} that "
            "can be on ranks of their own; start fewer processes"
        )
    return partition([sum(p.numel() for p in block.parameters()) for block in chain], stages, places)


def partition(sizes: Sequence[float], parts: int, places: Sequence[int]) -> list[int]:
    """Where to cut a sequence into the given number of parts, at some of the places: 0, the first index of every later
    part, and the length. The largest sum of a part is minimal.

    >>> partition([1, 1, 1, 5], 2, [1, 2, 3])
    [0, 3, 4]
    """
    before = [0.0, *accumulate(sizes)]
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [0])}
    for _ in range(parts):
        best = {
            end: min(
                (max(most, before[end] - before[begin]), [*cuts, end])
                for begin, (most, cuts) in best.items()
                if begin < end
            )
            for end in [*places, len(sizes)]
            if any(begin < end for begin in best)
        }
    return best[len(sizes)][1]


def _places(chain: Chain) -> list[int]:
    """Blocks at which a rank can begin: where one tensor passes that is not a code in time."""
    return [
        l + 1
        for l, block in enumerate(chain.blocks[:-1])
        if getattr(block.maps[-1].module, "exit", None) is None and not isinstance(block.core.maps[0], InTime)
    ]


def _given(chain: Chain, cuts: Sequence[int], stages: int) -> list[int]:
    places = _places(chain)
    if len(cuts) != stages - 1 or sorted(set(cuts)) != list(cuts) or not set(cuts) <= set(places):
        raise ValueError(
            f"cuts of LayerParallel are {stages - 1} rising numbers of blocks, one for each rank but the first, among "
            f"{places}; given {list(cuts)}"
        )
    return [0, *cuts, len(chain)]


def _check(am: Any) -> None:
    """TypeError or ValueError for a trainer whose blocks cannot be on several ranks."""
    if not isinstance(am, AltMin):
        raise TypeError(f"LayerParallel takes an altmin.AltMin(...), given a {type(am).__name__}")
    for rule, name, wanted in (
        (am.updates.local, "steps", 1), (am.updates.local, "clip_norm", None), (am.weights, "clip_norm", None)
    ):  # fmt: skip
        if getattr(rule, name, wanted) != wanted:
            raise ValueError(
                f"{name}={getattr(rule, name)} of {type(rule).__name__} needs all blocks at once, and ranks have some; "
                f"give {name}={wanted}, or share rows alone (altmin.Distributed, no --layer-ranks)"
            )
    am.chain.demand_plain("LayerParallel")


def _tensors(chain: Chain, l: int) -> list[Tensor]:
    """Parameters and buffers of a block, each once."""
    held = [t for m in chain.blocks[l].maps for t in (*m.module.parameters(), *m.module.buffers())]
    return list({id(t): t.detach() for t in held}.values())


def _united(states: Sequence[Any]) -> Any:
    """Merges states, each with some entries of the same dicts."""
    first = states[0]
    if not isinstance(first, Mapping):
        return first
    keys = dict.fromkeys(key for state in states for key in state)
    return {key: _united([state[key] for state in states if key in state]) for key in keys}
