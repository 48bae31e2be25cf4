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

from altmin.calculus.context import BucketedSum, Context
from altmin.calculus.numbers import all_finite
from altmin.common.errors import Diverged
from altmin.common.state import overwrite
from altmin.core.chain import Chain, State
from altmin.core.codes.links import Above, LocalProblem, OutputLoss, Segment
from altmin.core.reweighted import of_batch
from altmin.core.step import encode, statistics
from altmin.core.trainer import Metrics, check
from altmin.methods.layered import demand_finite
from altmin.runners.ranks import bounds


class Part(NamedTuple):
    """A part of a mini-batch in progress: the inputs of this rank's blocks and, last, their output; their
    states; and the blocks' problems by number, once the codes have moved."""

    values: list[Tensor]
    states: list[State]
    problems: dict[int, LocalProblem]


class Pipelined:
    """One mini-batch on one rank. run: the `LayerParallel` whose step it is. signature: what must be the same on all
    ranks."""

    def __init__(self, run: Any, x: Tensor, y: Tensor, signature: Sequence[Any] = ()):
        self.own, self.am, self.x, self.y, self.signature = run, run.method, x, y, signature
        am = self.am
        am.chain.demand_unchanged()
        check(x, y, am.theta[0][0], integers=am.chain.blocks[0].takes_integers)
        am.check_once(x, y)
        coupled = any(am.chain.blocks[l].mixes_samples for l in run.blocks)
        self.in_order = run.data is not None and coupled
        """Whether the weights must be measured at the same moment on all ranks that have these blocks: their gradients
        take sums of batch norm."""
        least = 1 + any(block.mixes_samples for block in am.chain)  # batch norm needs two samples
        parts = max(1, min(run.micro_batches, len(x) // least))
        self.rows, self.contexts = [], []
        for i in range(parts):
            rows, context = self._part(*bounds(len(x), i, parts))
            self.rows.append(rows)
            self.contexts.append(context)
        self.kind = (tuple(x.shape[1:]), x.dtype, tuple(m.training for m in am.model.modules()))
        self.parts: dict[int, Part] = {}
        self.checked: list[Tensor] = []
        """Sums of the buffers after each part, which must be finite."""
        self.solver_states = dict(am.code_states)
        """By block, after the parts whose codes have moved."""
        self.unmeasured: deque[tuple[int, int]] = deque()
        """Parts and blocks whose weights have not been measured yet."""
        self.contributions: dict[int, list[Any]] = {}
        self.costs, self.moved, self.sizes = ([0.0] * len(am.chain) for _ in range(3))
        self.loss = 0.0
        self.error: Exception | None = None
        self.seed = int(torch.randint(1 << 62, ())) if _draws(am.chain) else None
        maps = [m for l in run.blocks for m in am.chain.blocks[l].maps]
        self.before = [(b, b.clone()) for m in maps for b in m.module.buffers()]
        """The buffers of this rank's blocks, and their values before the step."""

    def _part(self, first: int, end: int) -> tuple[tuple[int, int], Context]:
        """This rank's rows of a part, and the context in which it is computed."""
        own = self.own
        if own.data is None:
            return (first, end), Context()
        of = end - first
        if of < own.data_ranks:  # all chains have all rows, and the first one's numbers count
            return (first, end), Context(own.data.share(0, of, of, self.signature, own.replica == 0))
        start, stop = bounds(of, own.replica, own.data_ranks)
        return (first + start, first + stop), Context(own.data.share(start, stop - start, of, self.signature))

    def run(self) -> Metrics:
        try:
            return self._run()
        except BaseException:
            for buffer, value in self.before:
                buffer.copy_(value)
            raise

    def _run(self) -> Metrics:
        own, passed = self.own, len(self.rows)
        own.neighbours.expect_codes(self.kind, [end - first for first, end in self.rows], self.am.theta[0][0])
        for forward, i in schedule(own.stage, own.column.size, passed):
            (self.forward if forward else self.backward)(i)
        while self.unmeasured:
            self.measure()
        self._sum_gathered()
        error = self._prepared()
        self._agree(error)
        self.am.updates.apply()
        overwrite(self.am.code_states, self.solver_states)
        mu = self.am.penalty.value
        self.am.penalty.step()
        own.neighbours.finish()
        objective = self.costs[-1] + mu / (1 if self.am.loss.adds else len(self.x)) * sum(self.costs[:-1])
        loss = self.am.theta[0][0].new_tensor(self.loss)
        f, costs, moved = (torch.tensor(n, dtype=torch.float64) for n in (objective, self.costs[:-1], self.moved[:-1]))
        return Metrics(loss, mu, f, costs, moved, self.sizes[:-1])

    def forward(self, i: int) -> None:
        """Codes of a part, and the last one sent up."""
        own, chain, theta = self.own, self.am.chain, self.am.theta
        first, end = self.rows[i]
        if not own.first:
            self._work_until(lambda: own.neighbours.arrived(i))
        values, states = [self.x[first:end] if own.first else own.neighbours.code(i)], []
        for l in own.blocks:
            with self._drawing(i, l):
                (_, value), state = encode([chain.blocks[l]], [theta[l]], values[-1], self.contexts[i])
            values.append(value)
            states += state
        for m, kept in statistics([chain.blocks[l] for l in own.blocks], states):
            self.checked += [t.sum() for t in m.checked(kept)]
            m.commit(kept)  # the next part begins with them
        self.parts[i] = Part(values, states, {})
        if not own.last:
            own.neighbours.expect_upstream(self.kind, i, values[-1])
            own.neighbours.send_code(self.kind, i, values[-1], end - first)

    def backward(self, i: int) -> None:
        """Moves the codes of a part, from the last to the first, and sends the target of the first one down."""
        own, am, part, context = self.own, self.am, self.parts[i], self.contexts[i]
        first, end = self.rows[i]
        if own.last:
            top = OutputLoss(of_batch(am.loss, context), part.values[-1], self.y[first:end], am.penalty.value, context)
            self.loss += top.start.value.item() * self.weight(i)
            above: Above = top
        else:
            self._work_until(lambda: own.neighbours.upstream_arrived(i))
            above = own.neighbours.upstream(self.kind, i)
        blocks, theta = ([of[l] for l in own.blocks] for of in (am.chain.blocks, am.theta))
        kept = list(self.solver_states.values())
        moves = am.codes(Segment(blocks, theta, part.values[:-1], part.states, context, own.first, kept), above)
        self.solver_states.update(zip(own.blocks, moves.solver_states, strict=False))
        for l, problem, cost, moved in zip(own.blocks, moves.problems, moves.costs, moves.moved, strict=True):
            part.problems[l] = problem
            self.costs[l] += cost * (self.weight(i) if l == len(am.chain) - 1 else 1.0)
            self.moved[l] += moved
        self.unmeasured.extend((i, l) for l in reversed(own.blocks))
        if moves.below is not None:
            own.neighbours.send_upstream(i, moves.below)
        while self.in_order and self.unmeasured:
            self.measure()

    def weight(self, i: int) -> float:
        """The weight of a part's loss in that of the batch."""
        return 1.0 if self.am.loss.adds else self._samples(i) / len(self.x)

    def _repeats(self, i: int) -> bool:
        """Whether this rank has the rows of a part that another has too, and that count there."""
        shard = self.contexts[i].shard
        return shard is not None and shard.own == shard.of and self.own.replica > 0

    def _samples(self, i: int) -> int:
        """The number of samples of a part, on all ranks."""
        first, end = self.rows[i]
        return self.contexts[i].count(end - first)

    def measure(self) -> None:
        """What the weight rule needs of one block and part; a part that is complete is gathered."""
        i, l = self.unmeasured.popleft()
        am, part = self.am, self.parts[i]
        problem = part.problems.pop(l)
        found = self.contributions.setdefault(i, [None] * len(am.chain))
        self.sizes[l] += self.contexts[i].count(problem.delta.numel())
        found[l] = am.updates.measure(l, am.theta[l], problem)
        if self._repeats(i):
            found[l] = pytree.tree_map_only(Tensor, torch.zeros_like, found[l])
        if not part.problems:
            try:
                am.updates.gather(self.contributions.pop(i), self._samples(i))
            except Diverged as error:  # the other ranks are still at work
                self.error = self.error or error

    def _work_until(self, ready: Any) -> None:
        while self.unmeasured and not ready():
            self.measure()

    def _sum_gathered(self) -> None:
        """What was gathered, over all ranks that have these blocks."""
        if self.own.data is not None:
            total = BucketedSum(self.contexts[0])
            self.am.updates.sum_gathered(total)
            total.finish()

    def _prepared(self) -> Exception | None:
        """The error that keeps this rank from moving its weights, or None."""
        numbers = [t.item() for t in self.checked]
        numbers += [t.sum().item() for t in pytree.tree_leaves(self.solver_states)]
        if self.own.first:
            numbers.append(0.0 if all_finite(self.x) else math.nan)
        if not all(map(math.isfinite, (self.loss, *self.costs, *numbers))):
            return Diverged(f"a number of {_named(self.own, self.own.stage)}")
        if self.error is None:
            try:
                self.am.updates.prepare()
            except Diverged as error:
                return error
        return self.error

    def _agree(self, error: Exception | None) -> None:
        """Raises this rank's error or that of another rank, if there is one; otherwise all ranks have all costs."""
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
    """The schedule of a stage: (True, i) is the forward pass of part i, (False, i) its way back. First two forward
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
    return dropout or (any(block.uses_autograd for block in chain) and any(m.training for m in modules))
