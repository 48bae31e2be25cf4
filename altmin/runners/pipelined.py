"""One mini-batch of `LayerParallel` on one rank: its parts pass through the blocks, up and down again."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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


class Pipelined:
    """One mini-batch on one rank. runner: the `LayerParallel` whose step it is."""

    def __init__(self, runner: Any, x: Tensor, y: Tensor):
        self.runner, self.am, self.x, self.y = runner, runner.method, x, y
        am = self.am
        am.chain.demand_unchanged()
        check(x, y)
        am.check_once(x, y)
        least = 1 + any(block.mixes_samples for block in am.chain)  # batch norm needs two samples
        count = max(1, min(runner.micro_batches, len(x) // least))
        self.rows = [bounds(len(x), i, count) for i in range(count)]
        self.neighbours = Neighbours(runner.below, runner.above, am.theta[0][0])
        self.parts: dict[int, tuple[list[Tensor], list[State]]] = {}
        """Parts on their way up: the inputs of this rank's blocks and, last, their output; and the blocks' states."""
        self.unmeasured: deque[tuple[int, dict[int, Problem]]] = deque()
        """Parts that have come back, whose weights have not been measured yet: their sizes, and problems by block."""
        self.checked: list[Tensor] = []
        """Buffers after each part, which must be finite."""
        self.solver_states = dict(am.code_states)
        """States by block, after the parts whose codes have moved."""
        self.sums = torch.zeros(3, len(am.chain), dtype=torch.float64)
        """Cost of every block, the squared movement of its code, and the number of the code's entries."""
        self.loss = torch.zeros(1, dtype=torch.float64)
        self.error: Exception | None = None
        self.seed = int(torch.randint(1 << 62, ())) if _draws(am.chain) else None

    def run(self) -> Metrics:
        """Take the step. An error changes nothing."""
        am, ranks = self.am, self.runner.ranks
        maps = [m for l in self.runner.blocks for m in am.chain.blocks[l].maps]
        before = [(b, b.clone()) for m in maps for b in m.module.buffers()]
        try:
            self.neighbours.expect_codes([end - first for first, end in self.rows])
            for forward, i in schedule(ranks.rank, ranks.size, len(self.rows)):
                (self.forward if forward else self.backward)(i)
            self.measure(0)
            self.neighbours.finish()
            self._agree(self._prepared())
        except BaseException:
            for buffer, value in before:
                buffer.copy_(value)
            raise
        am.updates.apply()
        overwrite(am.code_states, self.solver_states)
        mu, (costs, squares, sizes) = am.penalty.value, self.sums.tolist()
        am.penalty.step()
        objective = costs[-1] + mu / (1 if am.loss.adds else len(self.x)) * sum(costs[:-1])
        return Metrics(self.loss[0].to(am.theta[0][0]), mu, objective, costs[:-1], squares[:-1], sizes[:-1])

    def forward(self, i: int) -> None:
        """Encode a part, and send its last code up."""
        runner, chain, theta = self.runner, self.am.chain, self.am.theta
        first, end = self.rows[i]
        values, states = [self.x[first:end] if runner.below is None else self.neighbours.code(i)], []
        for l in runner.blocks:
            with self._drawing(i, l):
                (_, value), state = encode([chain.blocks[l]], [theta[l]], values[-1], LOCAL)
            values.append(value)
            states += state
        for m, saved in statistics([chain.blocks[l] for l in runner.blocks], states):
            self.checked += [t.sum() for t in m.checked(saved)]
            m.commit(saved)  # the next part begins with them
        self.parts[i] = values, states
        if runner.above is not None:
            self.neighbours.send_code(i, values[-1], end - first)

    def backward(self, i: int) -> None:
        """Move the codes of a part, from the last to the first, and send the target of the first one down."""
        blocks, am, (values, states) = self.runner.blocks, self.am, self.parts.pop(i)
        first, end = self.rows[i]
        weight = 1.0 if am.loss.adds else (end - first) / len(self.x)
        if self.runner.above is None:
            top = OutputLoss(am.loss, values[-1], self.y[first:end], am.penalty.value, LOCAL)
            self.loss += top.value.item() * weight
            target = Target(top.delta, 1.0, top)
        else:
            target = self.neighbours.target(i)
        encoded = [
            Encoded(am.chain.blocks[l], am.theta[l], c, saved, l > 0)
            for l, c, saved in zip(blocks, values[:-1], states, strict=True)
        ]
        moved = with_states(am.codes, list(self.solver_states.values()))(encoded, target, LOCAL)
        self.solver_states.update(zip(blocks, moved.solver_states, strict=False))
        for l, problem, cost, square in zip(blocks, moved.problems, moved.costs, moved.squares, strict=True):
            cost = float(cost) * (weight if l == len(am.chain) - 1 else 1.0)
            self.sums[:, l] += self.sums.new_tensor([cost, float(square), problem.delta.numel()])
        self.unmeasured.append((end - first, dict(zip(blocks, moved.problems, strict=True))))
        if moved.below is not None:
            self.neighbours.send_target(i, moved.below)
        self.measure(2 * self.runner.ranks.rank)

    def measure(self, later: int) -> None:
        """Gather what the weight rule needs of the parts that have come back, but for the last ones, `later` of them,
        which wait until the ranks below have their targets (`schedule`)."""
        while len(self.unmeasured) > later:
            samples, problems = self.unmeasured.popleft()
            try:
                self.am.updates.gather(self.am.updates.measure(self.am.theta, problems), samples)
            except Diverged as error:  # the other ranks are still at work
                self.error = self.error or error

    def _prepared(self) -> Exception | None:
        """Return the error that keeps this rank from moving its weights, or None."""
        numbers = [self.x, self.loss, self.sums[0], *self.checked, *pytree.tree_leaves(self.solver_states)]
        if not all(map(all_finite, numbers)):
            return Diverged(f"a number of {self._named(self.runner.ranks.rank)}")
        if self.error is None:
            try:
                self.am.updates.prepare()
            except Diverged as error:
                return error
        return self.error

    def _agree(self, error: Exception | None) -> None:
        """Raise this rank's error or that of another rank, if there is one; otherwise all ranks have all sums."""
        ranks = self.runner.ranks
        if ranks.size > 1:
            failed = torch.zeros(ranks.size, dtype=torch.float64)
            failed[ranks.rank] = error is not None
            vector = torch.cat([failed, self.loss, self.sums.flatten()]).nan_to_num(0.0, 0.0, 0.0)
            failed, self.loss, sums = ranks.begin(vector)().split([ranks.size, 1, self.sums.numel()])
            self.sums = sums.view_as(self.sums)
            stages = [stage for stage, number in enumerate(failed.tolist()) if number]
            if error is None and stages:
                error = Diverged(f"a number of {' and of '.join(map(self._named, stages))}")
        if error is not None:
            demand_finite(self.x, self.y)  # all ranks have them
            raise error

    def _named(self, stage: int) -> str:
        first, end = self.runner.bounds[stage : stage + 2]
        return f"blocks {first} to {end - 1}"

    @contextmanager
    def _drawing(self, i: int, l: int) -> Iterator[None]:
        """Draw random numbers that depend on the step, the part and the block."""
        if self.seed is None:
            yield
            return
        with torch.random.fork_rng([self.x.device] if self.x.is_cuda else []):
            torch.manual_seed((self.seed + 1_000_003 * i + l) % (1 << 63))
            yield


def schedule(stage: int, stages: int, parts: int) -> list[tuple[bool, int]]:
    """Return the schedule of a stage: (True, i) is the forward pass of part i, (False, i) its way back. First two
    forward passes for each stage above, since a way back takes about two, then one forward and one back in turn.

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
    """Return whether a pass may draw random numbers: by dropout, or inside a module that goes through autograd."""
    modules = list(chain.model.modules())
    dropout = any(isinstance(m, nn.modules.dropout._DropoutNd) and m.training and m.p > 0 for m in modules)
    return dropout or (any(block.uses_autograd for block in chain) and any(m.training for m in modules))
