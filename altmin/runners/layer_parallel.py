"""`LayerParallel`: the blocks of a chain spread over processes, and each mini-batch in parts that pass through them."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

from altmin.calculus import Recurrence
from altmin.common.errors import demand
from altmin.core.chain import Chain
from altmin.core.trainer import AltMin, Metrics
from altmin.methods.wrapper import Wrapper
from altmin.runners.pipelined import Pipelined
from altmin.runners.ranks import Ranks, connected, digest, start


class LayerParallel(Wrapper):
    """An `AltMin` whose blocks are spread over the ranks of torchrun, consecutive ones on each.

    Every process makes the same model and trainer, wraps it once and gives `step` the same batches. A mini-batch passes
    in `micro_batches` parts: codes are sent up from rank to rank, then the targets for their blocks are sent down, and
    each rank moves the weights of its own blocks, whose optimizer state and memories no other rank has. A step is that
    of `am.gather` for each part, in order, and `am.apply`; with one part that of `am.step`. In a script that torchrun
    has not started there is one rank.

    cuts: the numbers of the blocks with which the ranks after the first begin; None for about as many parameters on
    each. Weights of other ranks' blocks are those of the last `synchronize`. Dropout draws numbers of its own for each
    part and block, so that they do not depend on the number of ranks.
    """

    def __init__(self, am: AltMin, micro_batches: int = 4, cuts: Sequence[int] | None = None):
        demand("LayerParallel", "micro_batches", micro_batches, low=1, whole=True)
        _check(am)
        start(am.theta[0][0].device)
        super().__init__(am)
        self.micro_batches = micro_batches
        self.ranks = Ranks()
        stage, stages = self.ranks.rank, self.ranks.size
        self.bounds = boundaries(am.chain, stages, cuts)
        self.blocks = range(*self.bounds[stage : stage + 2])
        self.below = None if stage == 0 else stage - 1
        self.above = None if stage == stages - 1 else stage + 1
        if stages > 1:
            self.ranks.equalise(list(am.model.state_dict().values()), am.theta[0][0].device)
            self._leave_others()

    def _why_not_copied(self) -> str:
        return "" if self.ranks.size == 1 else "a LayerParallel belongs to its processes; copy its method"

    @torch.no_grad()
    def step(self, x: Tensor, y: Tensor) -> Metrics:
        """Take one mini-batch, the same on all ranks. A rank that fails changes nothing on any; `Diverged` is raised on
        all of them, which can go on."""
        self.ranks.share(0, 1, 1, [tuple(x.shape), digest(x[:1], y)])
        try:
            return Pipelined(self, x, y).run()
        finally:
            self.method.updates.forget()

    def gather(self, x: Tensor, y: Tensor) -> NoReturn:
        """Raise TypeError: a rank has only some of the blocks."""
        raise TypeError("LayerParallel has no gather and apply; give step all samples, and micro_batches their parts")

    @torch.no_grad()
    def synchronize(self) -> None:
        """Copy the weights and buffers of all blocks to all ranks. Must be called on all of them."""
        for stage in range(self.ranks.size if self.ranks.size > 1 else 0):
            for block in self.method.chain.blocks[slice(*self.bounds[stage : stage + 2])]:
                for t in (t for m in block.maps for t in (*m.module.parameters(), *m.module.buffers())):
                    with connected():
                        dist.broadcast(t.detach(), stage)

    def state_dict(self) -> dict[str, Any]:
        """Return the trainer's `state_dict` in one process, collected from all ranks. Must be called on all of them."""
        parts: list[Any] = [self.method.state_dict()]
        if self.ranks.size > 1:
            parts *= self.ranks.size
            with connected():
                dist.all_gather_object(parts, parts[0])
        return _united(parts)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a trainer's `state_dict`, written by any number of ranks; the state of other ranks' blocks is left
        out."""

        def of_rank(blocks: Mapping[int, Any]) -> dict[int, Any]:
            return {l: state for l, state in blocks.items() if l in self.blocks}

        weights = {**state["weights"], **{name: of_rank(state["weights"][name]) for name in ("states", "gathered")}}
        codes = {"codes": of_rank(state["codes"])} if "codes" in state else {}
        super().load_state_dict({**state, "weights": weights, **codes})
        self._leave_others()

    def _leave_others(self) -> None:
        """Drop the state of other ranks' blocks."""
        for states in (self.method.updates.states, self.method.code_states):
            for l in [l for l in states if l not in self.blocks]:
                del states[l]


def boundaries(chain: Chain, stages: int, cuts: Sequence[int] | None = None) -> list[int]:
    """Return where to cut a chain for `stages` ranks: the first block of each, and the number of blocks. The rank with
    most parameters has as few as possible, or there are cuts. ValueError for cuts other than where one tensor passes
    that is not a code in time, or if there are not enough such places."""
    places = [
        l
        for l, below in enumerate(chain.blocks[:-1], 1)
        if getattr(below.maps[-1].module, "exit", None) is None and not isinstance(below.core.maps[0], Recurrence)
    ]
    if cuts is not None:
        if len(cuts) != stages - 1 or sorted(set(cuts)) != list(cuts) or not set(cuts) <= set(places):
            raise ValueError(
                f"cuts of LayerParallel are {stages - 1} rising numbers of blocks, one for each rank but the first, "
                f"among {places}; given {list(cuts)}"
            )
        return [0, *cuts, len(chain)]
    if len(places) + 1 < stages:
        raise ValueError(
            f"{stages} ranks need a net with at least as many blocks to spread, this one has {len(places) + 1} that "
            "can be on ranks of their own; start fewer processes"
        )
    return partition([sum(p.numel() for p in block.parameters()) for block in chain], stages, places)


def partition(sizes: Sequence[float], parts: int, places: Sequence[int]) -> list[int]:
    """Return where to cut a sequence into so many parts, at some of the places: 0, the first index of every later
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
            if min(best) < end
        }
    return best[len(sizes)][1]


def _check(am: Any) -> None:
    """Raise TypeError or ValueError for a trainer whose blocks cannot be on several ranks."""
    if not isinstance(am, AltMin):
        raise TypeError(f"LayerParallel takes an altmin.AltMin(...), given a {type(am).__name__}")
    if reason := am.updates.why_not_captured():
        raise ValueError(f"LayerParallel cannot spread these weights: {reason}")
    for rule in am.updates.rules.values():
        if rule.inner_steps > 1 or getattr(rule, "clip_norm", None) is not None:
            raise ValueError(
                "several steps or a clip_norm need all blocks at once, and ranks have some; give "
                f"{type(rule).__name__} steps=1 and clip_norm=None, or use altmin.Distributed"
            )
    am.chain.demand_plain("LayerParallel")


def _united(states: Sequence[Any]) -> Any:
    """Return states merged, of which all have some entries of the same dicts."""
    first = states[0]
    if not isinstance(first, Mapping):
        return first
    keys = dict.fromkeys(key for state in states for key in state)
    return {key: _united([state[key] for state in states if key in state]) for key in keys}
