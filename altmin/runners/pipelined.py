"""One mini-batch of `LayerParallel` on one rank: its parts pass through the blocks, up and down again, and the weights
are measured while the rank waits for others."""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from altmin.calculus import Map, Saved
from altmin.calculus.numbers import all_finite
from altmin.calculus.ranks import Share, Sums, of_all, sharing
from altmin.common.errors import Diverged
from altmin.core.chain import Chain
from altmin.core.codes.above import Above, Residual, Top
from altmin.core.codes.gradient import Trace, encode, move_below
from altmin.core.reweighted import of_batch
from altmin.core.trainer import Metrics, check
from altmin.methods.layered import demand_finite
from altmin.runners.ranks import bounds


class Part(NamedTuple):
    """A part of a mini-batch on its way: its trace, what batch norm keeps of it, and its residuals by block once its
    codes have moved."""

    trace: Trace
    statistics: list[tuple[Map, Saved]]
    residuals: dict[int, Residual]


class Pipelined:
    """One mini-batch on one rank. run: the `LayerParallel` whose step it is. signature: what ranks must have alike."""

    def __init__(self, run: Any, x: Tensor, y: Tensor, signature: Sequence[Any] = ()):
        self.own, self.am, self.x, self.y, self.signature = run, run.am, x, y, signature
        am = self.am
        am.chain.demand_unchanged()
        check(x, y, am.theta[0][0], integers=am.chain.blocks[0].takes_integers)
        coupled = any(am.chain.blocks[l].couples for l in run.blocks)
        self.in_order = run.data is not None and coupled
        """Whether the weights must be measured at the same moment on all ranks that have these blocks: their gradients
        take sums of batch norm."""
        least = 1 + any(block.couples for block in am.chain)  # batch norm needs two samples
        parts = max(1, min(run.micro_batches, len(x) // least))
        self.rows, self.shares = [], []
        for i in range(parts):
            rows, share = self._part(*bounds(len(x), i, parts))
            self.rows.append(rows)
            self.shares.append(share)
        self.kind = (tuple(x.shape[1:]), x.dtype, tuple(m.training for m in am.model.modules()))
        self.parts: dict[int, Part] = {}
        self.statistics: list[tuple[Map, Saved]] = []
        self.unmeasured: deque[tuple[int, int]] = deque()
        """Parts and blocks whose weights have not been measured yet."""
        self.found: dict[int, list[Any]] = {}
        self.costs, self.moved, self.sizes = ([0.0] * len(am.chain) for _ in range(3))
        self.loss = 0.0
        self.error: Exception | None = None
        self.seed = int(torch.randint(1 << 62, ())) if _draws(am.chain) else None

    def _part(self, first: int, end: int) -> tuple[tuple[int, int], Share | None]:
        """This rank's rows of a part, and its share of it; None if no other rank has any."""
        own = self.own
        if own.data is None:
            return (first, end), None
        of = end - first
        if of < own.data_ranks:  # all chains have all rows, and the first one's numbers count
            return (first, end), own.data.share(0, of, of, self.signature, own.replica == 0)
        start, stop = bounds(of, own.replica, own.data_ranks)
        return (first + start, first + stop), own.data.share(start, stop - start, of, self.signature)

    def run(self) -> Metrics:
        own, passed = self.own, len(self.rows)
        own.neighbours.expect_codes(self.kind, [end - first for first, end in self.rows], self.am.theta[0][0])
        for forward, i in schedule(own.stage, own.column.size, passed):
            (self.forward if forward else self.backward)(i)
        while self.unmeasured:
            self.measure()
        self._sum_gathered()
        error = self._prepared()
        self._agree(error)
        self.am.weights.apply()
        for m, kept in self.statistics:
            m.commit(kept)
        mu = self.am.penalty.value
        self.am.penalty.step()
        own.neighbours.finish()
        objective = self.costs[-1] + mu / (1 if self.am.loss.adds else len(self.x)) * sum(self.costs[:-1])
        loss = self.am.theta[0][0].new_tensor(self.loss)
        return Metrics(loss, mu, objective, self.costs[:-1], self.moved[:-1], self.sizes[:-1])

    def forward(self, i: int) -> None:
        """Codes of a part, and the last one sent up."""
        own, chain, theta = self.own, self.am.chain, self.am.theta
        first, end = self.rows[i]
        if not own.first:
            self._work_until(lambda: own.neighbours.arrived(i))
        below = self.x[first:end] if own.first else own.neighbours.code(i)
        trace = Trace([] if own.first else [below], [])
        for l in own.blocks:
            with self._drawing(i, l), sharing(self.shares[i]):
                found = encode(chain, theta, below, [l])
            below = found.values[0]
            trace.values.append(below)
            trace.states.extend(found.states)
        with sharing(self.shares[i]):
            states = zip(own.blocks, trace.states, strict=True)
            kept = [t for l, state in states for t in chain.blocks[l].statistics(state)]
        self.parts[i] = Part(trace, kept, {})
        if not own.last:
            own.neighbours.expect_ask(self.kind, i, below)
            own.neighbours.send_code(self.kind, i, below, end - first)

    def backward(self, i: int) -> None:
        """The codes of a part move, from the last to the first; what the first one asks is sent down."""
        own, am, part = self.own, self.am, self.parts[i]
        first, end = self.rows[i]
        if own.last:
            with sharing(self.shares[i]):
                top = Top(of_batch(am.loss), part.trace.values[-1], self.y[first:end], am.penalty.value)
            self.loss += float(top.start.value) * self.weight(i)
            above: Above = top
        else:
            self._work_until(lambda: own.neighbours.asked(i))
            above = own.neighbours.ask(self.kind, i)
        part.trace.values.pop()
        asked = None
        codes: Any = am.codes
        with sharing(self.shares[i]):
            for l in reversed(own.blocks):
                part.residuals[l], asked = move_below(codes, am.chain, am.theta, part.trace, l, above)
                above = asked or above
                self.unmeasured.append((i, l))
        if not own.first:
            assert asked is not None
            own.neighbours.send_ask(i, asked)
        while self.in_order and self.unmeasured:
            self.measure()

    def weight(self, i: int) -> float:
        """What the loss of a part counts in that of the batch."""
        return 1.0 if self.am.loss.adds else self._samples(i) / len(self.x)

    def _repeats(self, i: int) -> bool:
        """Whether this rank has the rows of a part that another has too, and that count there."""
        share = self.shares[i]
        return share is not None and share.own == share.of and self.own.replica > 0

    def _samples(self, i: int) -> int:
        """Of a part, on all ranks."""
        first, end = self.rows[i]
        share = self.shares[i]
        return end - first if share is None else share.of

    def measure(self) -> None:
        """What the weight rule needs of one block and part; a part that is complete is gathered."""
        i, l = self.unmeasured.popleft()
        am, part = self.am, self.parts[i]
        residual = part.residuals.pop(l)
        self.costs[l] += float(residual.cost) * (self.weight(i) if l == len(am.chain) - 1 else 1.0)
        self.moved[l] += float(residual.moved or 0.0)
        found = self.found.setdefault(i, [None] * len(am.chain))
        with sharing(self.shares[i]):
            self.sizes[l] += of_all(residual.delta.numel())
            found[l] = am.weights.measure(l, am.theta[l], residual)
        if self._repeats(i):
            found[l] = pytree.tree_map_only(Tensor, torch.zeros_like, found[l])
        if not part.residuals:
            try:
                am.weights.gather(self.found.pop(i), self._samples(i))
            except Diverged as error:  # the other ranks are still at work
                self.error = self.error or error

    def _work_until(self, ready: Any) -> None:
        while self.unmeasured and not ready():
            self.measure()

    def _sum_gathered(self) -> None:
        """What was gathered, over all ranks that have these blocks."""
        if self.own.data is None:
            return
        rule: Any = self.am.weights
        with sharing(self.shares[0]):
            sums = Sums()
            for part in {id(part): part for part in (rule, getattr(rule, "rest", rule))}.values():
                part.gathered = {l: sums.add(part.gathered[l]) for l in sorted(part.gathered)}
            sums.finish()

    def _prepared(self) -> Exception | None:
        """What keeps this rank from moving its weights, None for nothing."""
        self.statistics = [t for i in range(len(self.rows)) for t in self.parts[i].statistics]
        numbers = [t.sum().item() for m, kept in self.statistics for t in m.checked(kept)]
        if self.own.first:
            numbers.append(0.0 if all_finite(self.x) else math.nan)
        if not all(map(math.isfinite, (self.loss, *self.costs, *numbers))):
            return Diverged(f"a number of {_named(self.own, self.own.stage)}")
        if self.error is None:
            try:
                self.am.weights.prepare()
            except Diverged as error:
                return error
        return self.error

    def _agree(self, error: Exception | None) -> None:
        """Raises the error, or that of another rank, unless no rank has one; all ranks have all costs then."""
        own = self.own
        if own.column.size > 1:
            bad = [0.0] * own.column.size
            bad[own.stage] = float(error is not None)
            mine = [self.loss, *self.costs, *self.moved, *self.sizes]
            mine = [n if math.isfinite(n) else 0.0 for n in mine]
            vector = own.column.begin(torch.tensor([*bad, *mine], dtype=torch.float64))().tolist()
            bad, (self.loss, *rest) = vector[: len(bad)], vector[len(bad) :]
            n = len(self.costs)
            self.costs, self.moved, self.sizes = rest[:n], rest[n : 2 * n], rest[2 * n :]
            if error is None and any(bad):
                stages = [stage for stage, each in enumerate(bad) if each]
                error = Diverged(f"a number of {' and of '.join(_named(own, stage) for stage in stages)}")
        if error is not None:
            demand_finite(self.x, self.y)  # all ranks have them
            raise error

    @contextmanager
    def _drawing(self, i: int, l: int) -> Iterator[None]:
        """Random numbers that depend on the step, the part and the block."""
        if self.seed is None:
            yield
            return
        with torch.random.fork_rng([self.x.device] if self.x.is_cuda else []):
            torch.manual_seed((self.seed + 1_000_003 * i + l) % (1 << 63))
            yield


def _named(run: Any, stage: int) -> str:
    """The blocks of a stage, in words."""
    first, end = run.bounds[stage : stage + 2]
    return f"block {first}" if end - first == 1 else f"blocks {first} to {end - 1}"


def schedule(stage: int, stages: int, parts: int) -> list[tuple[bool, int]]:
    """What a stage does in turn: (True, i) is the forward pass of part i, (False, i) its way back. First two forward
    passes for each stage above, then one forward and one back in turn.

    A way back takes about two forward passes, and the weights are measured where a stage would wait. With f, d and w
    seconds for each, M parts and P equal stages take max((P - 1) f + M (f + d + w), (M + P - 1)(f + d) + w), and no
    order takes less: the last stage begins after (P - 1) f, and the last part to come back has its weights left.

    >>> ["FB"[not forward] + str(i) for forward, i in schedule(0, 2, 4)]
    ['F0', 'F1', 'F2', 'B0', 'F3', 'B1', 'B2', 'B3']
    """
    ahead = min(parts, 2 * (stages - 1 - stage))
    order = [(True, i) for i in range(ahead)]
    for i in range(parts):
        if ahead + i < parts:
            order.append((True, ahead + i))
        order.append((False, i))
    return order


def _draws(chain: Chain) -> bool:
    """Whether a pass may draw random numbers: by dropout, or inside a module that goes through autograd."""
    modules = list(chain.model.modules())
    dropout = any(isinstance(m, nn.modules.dropout._DropoutNd) and m.training and m.p > 0 for m in modules)
    return dropout or (any(block.opaque for block in chain) and any(m.training for m in modules))
