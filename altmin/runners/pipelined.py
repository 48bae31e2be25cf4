"""One mini-batch of `LayerParallel` on one rank: its parts pass through the blocks, up and down again."""

import math
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from altmin.calculus.context import LOCAL
from altmin.common.errors import Diverged
from altmin.common.state import all_finite, overwrite
from altmin.core.chain import Chain, State
from altmin.core.codes.problem import Encoded, OutputLoss, Problem, Target
from altmin.core.step import encode, statistics, with_states
from altmin.core.trainer import Metrics, check
from altmin.methods.base import demand_finite
from altmin.runners.neighbours import Neighbours
from altmin.runners.ranks import bounds


class Part(NamedTuple):
    """A part of a mini-batch in progress: the inputs of this rank's blocks and, last, their output; their states; and
    the blocks' problems by number, once the codes have moved."""

    values: list[Tensor]
    states: list[State]
    problems: dict[int, Problem]


class Pipelined:
    """One mini-batch on one rank. run: the `LayerParallel` whose step it is."""

    def __init__(self, run: Any, x: Tensor, y: Tensor):
        self.own, self.am, self.x, self.y = run, run.method, x, y
        am = self.am
        am.chain.demand_unchanged()
        check(x, y)
        am.check_once(x, y)
        least = 1 + any(block.mixes_samples for block in am.chain)  # batch norm needs two samples
        count = max(1, min(run.micro_batches, len(x) // least))
        self.rows = [bounds(len(x), i, count) for i in range(count)]
        self.neighbours = Neighbours(run.ranks, run.below, run.above, am.theta[0][0])
        self.parts: dict[int, Part] = {}
        self.checked: list[Tensor] = []
        """Numbers that must be finite: sums of the input and of the buffers after each part."""
        self.solver_states = dict(am.code_states)
        """By block, after the parts whose codes have moved."""
        self.unmeasured: deque[tuple[int, int]] = deque()
        """Parts and blocks whose weights have not been measured yet."""
        self.contributions: dict[int, dict[int, Any]] = {}
        self.costs, self.moved, self.sizes = ([0.0] * len(am.chain) for _ in range(3))
        self.loss = 0.0
        self.error: Exception | None = None
        self.seed = int(torch.randint(1 << 62, ())) if _draws(am.chain) else None

    def run(self) -> Metrics:
        maps = [m for l in self.own.blocks for m in self.am.chain.blocks[l].maps]
        before = [(b, b.clone()) for m in maps for b in m.module.buffers()]
        try:
            return self._run()
        except BaseException:
            for buffer, value in before:
                buffer.copy_(value)
            raise

    def _run(self) -> Metrics:
        own, am = self.own, self.am
        self.neighbours.expect_codes([end - first for first, end in self.rows])
        for forward, i in schedule(own.ranks.rank, own.ranks.size, len(self.rows)):
            (self.forward if forward else self.backward)(i)
        self.measure(0)
        self.neighbours.finish()
        self._agree(self._prepared())
        am.updates.apply()
        overwrite(am.code_states, self.solver_states)
        mu = am.penalty.value
        am.penalty.step()
        objective = self.costs[-1] + mu / (1 if am.loss.adds else len(self.x)) * sum(self.costs[:-1])
        loss = am.theta[0][0].new_tensor(self.loss)
        return Metrics(loss, mu, objective, self.costs[:-1], self.moved[:-1], self.sizes[:-1])

    def forward(self, i: int) -> None:
        """Encode a part, and send its last code up."""
        own, chain, theta = self.own, self.am.chain, self.am.theta
        first, end = self.rows[i]
        values, states = [self.x[first:end] if own.below is None else self.neighbours.code(i)], []
        for l in own.blocks:
            with self._drawing(i, l):
                (_, value), state = encode([chain.blocks[l]], [theta[l]], values[-1], LOCAL)
            values.append(value)
            states += state
        for m, saved in statistics([chain.blocks[l] for l in own.blocks], states):
            self.checked += [t.sum() for t in m.checked(saved)]
            m.commit(saved)  # the next part begins with them
        self.parts[i] = Part(values, states, {})
        if own.above is not None:
            self.neighbours.send_code(i, values[-1], end - first)

    def backward(self, i: int) -> None:
        """Move the codes of a part, from the last to the first, and send the target of the first one down."""
        own, am, part = self.own, self.am, self.parts[i]
        first, end = self.rows[i]
        weight = 1.0 if am.loss.adds else (end - first) / len(self.x)
        if own.above is None:
            top = OutputLoss(am.loss, part.values[-1], self.y[first:end], am.penalty.value, LOCAL)
            self.loss += top.value.item() * weight
            target = Target(top.delta, 1.0, top)
        else:
            target = self.neighbours.target(i)
        each = zip(own.blocks, part.values[:-1], part.states, strict=True)
        encoded = [Encoded(am.chain.blocks[l], am.theta[l], c, saved, l > 0) for l, c, saved in each]
        moves = with_states(am.codes, list(self.solver_states.values()))(encoded, target, LOCAL)
        self.solver_states.update(zip(own.blocks, moves.solver_states, strict=False))
        for l, problem, cost, moved in zip(own.blocks, moves.problems, moves.costs, moves.squares, strict=True):
            part.problems[l] = problem
            self.costs[l] += float(cost) * (weight if l == len(am.chain) - 1 else 1.0)
            self.moved[l] += float(moved)
        self.unmeasured.extend((i, l) for l in reversed(own.blocks))
        if moves.below is not None:
            self.neighbours.send_target(i, moves.below)
        self.measure(2 * own.ranks.rank)

    def measure(self, later: int) -> None:
        """Compute what the weight rule needs of the parts that have come back, but for the last ones, `later` of them,
        which wait until the ranks below have their targets (`schedule`). A part that is complete is gathered."""
        am = self.am
        while len(self.unmeasured) > later * len(self.own.blocks):
            i, l = self.unmeasured.popleft()
            problem = self.parts[i].problems.pop(l)
            self.sizes[l] += problem.delta.numel()
            self.contributions.setdefault(i, {}).update(am.updates.measure(am.theta, {l: problem}))
            if not self.parts[i].problems:
                first, end = self.rows[i]
                del self.parts[i]
                try:
                    am.updates.gather(self.contributions.pop(i), end - first)
                except Diverged as error:  # the other ranks are still at work
                    self.error = self.error or error

    def _prepared(self) -> Exception | None:
        """The error that keeps this rank from moving its weights, or None."""
        numbers = [t.item() for t in self.checked]
        numbers += [t.sum().item() for t in pytree.tree_leaves(self.solver_states)]
        finite = self.own.below is not None or all_finite(self.x)
        if not finite or not all(map(math.isfinite, (self.loss, *self.costs, *numbers))):
            return Diverged(f"a number of {_named(self.own, self.own.ranks.rank)}")
        if self.error is None:
            try:
                self.am.updates.prepare()
            except Diverged as error:
                return error
        return self.error

    def _agree(self, error: Exception | None) -> None:
        """Raise this rank's error or that of another rank, if there is one; otherwise all ranks have all costs."""
        ranks = self.own.ranks
        if ranks.size > 1:
            failed = [0.0] * ranks.size
            failed[ranks.rank] = float(error is not None)
            numbers = [self.loss, *self.costs, *self.moved, *self.sizes]
            numbers = [n if math.isfinite(n) else 0.0 for n in numbers]
            vector = ranks.begin(torch.tensor([*failed, *numbers], dtype=torch.float64))().tolist()
            failed, (self.loss, *rest) = vector[: ranks.size], vector[ranks.size :]
            n = len(self.costs)
            self.costs, self.moved, self.sizes = rest[:n], rest[n : 2 * n], rest[2 * n :]
            if error is None and any(failed):
                stages = [stage for stage, number in enumerate(failed) if number]
                error = Diverged(f"a number of {' and of '.join(_named(self.own, stage) for stage in stages)}")
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
    passes for each stage above, since a way back takes about two, then one forward and one back in turn.

    The weights of a part are measured two parts later for each stage below. With f, d = 2 f and w = f seconds for a
    forward pass, a way back and the weights, M parts and P equal stages take
    max((P - 1) f + M (f + d + w), (M + P - 1)(f + d) + w), and no order takes less: the last stage begins after
    (P - 1) f, and the last part to come back has its weights left.

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
