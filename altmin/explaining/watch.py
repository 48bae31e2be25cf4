"""The instrument under `explain` and `audit`: a copy of a trainer whose operations are watched in a step."""

import copy
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from altmin import methods
from altmin.calculus import Params
from altmin.calculus.context import LOCAL, Context
from altmin.common.errors import shown
from altmin.core.codes.links import Above, LocalProblem, Moves, Segment
from altmin.core.trainer import AltMin
from altmin.explaining.rows import Milliseconds


def trainer_of(subject: nn.Module | AltMin, by: str, method: str, options: Mapping[str, Any]) -> AltMin:
    """A trainer that may be changed: a copy of the one given, or that of a method, with options, for a model's copy.

    by: who asks. TypeError for what is neither, ValueError for a method without codes, for a method or options beside a
    trainer, which has its own, and for what cannot be copied.
    """
    if not isinstance(subject, nn.Module | AltMin):
        raise TypeError(f"{by} takes a model or an altmin.AltMin, given {shown(subject)}")
    given = [*(["method"] if method != "am-adam" else []), *options]
    if isinstance(subject, AltMin) and given:
        raise ValueError(
            f"{by} takes a method and options for a model, and a trainer has its own; leave out {', '.join(given)}"
        )
    try:
        own = copy.deepcopy(subject)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"{by} works on a copy, and this model cannot be copied: {error}") from None
    if isinstance(own, AltMin):
        return own
    kept = ("codes", "penalty")  # objects that have state, or would be watched
    parts = {name: copy.deepcopy(value) if name in kept else value for name, value in options.items()}
    made = methods.create(method, own, **parts)
    if not isinstance(made, AltMin):
        raise ValueError(f"{by} is about codes, and {method!r} moves none in a step; give am-adam, am-sgd or am-mem")
    return made


def around(owner: Any, name: str, call: Callable[..., Any]) -> None:
    """Replaces a method of an object: `call` gets it and its arguments, and returns the result."""
    setattr(owner, name, partial(call, getattr(owner, name)))


def after(owner: Any, name: str, note: Callable[[Any], None]) -> None:
    """Calls `note` with each result of a method of an object."""

    def noted(call: Callable[..., Any], *args: Any) -> Any:
        result = call(*args)
        note(result)
        return result

    around(owner, name, noted)


class Watch:
    """Of every block, by its number, what the trainer's last step did, and the times of all steps since `clear`.

    values: what it gave when the mini-batch was encoded. upstream, left: delta before the code below it moved, and what
    of it its weights were left with. lengths: of its code. residuals, moves: the squared norms of c - F(c_below) and of
    its code's offset. grads: of its parameters. times: for each step seconds by what was done.
    """

    def __init__(self, am: AltMin, context: Context = LOCAL):
        """Watches a trainer, which is changed for it and serves no other purpose any more. context: of its steps."""
        self.am, self.context, self.device, self.solver = am, context, am.theta[0][0].device, am.codes
        self.clear()
        for l, block in enumerate(am.chain):
            around(block, "forward", self._timed("forward", l))
            for m in block.maps:
                for name in ("vjp", "jvp", "quotient"):
                    around(m, name, self._timed("codes", l))
        around(am.updates, "measure", self._measure)
        around(am.updates, "update", self._timed("update"))
        am.codes = self._move_codes

    def clear(self) -> None:
        self.values: list[Tensor] = []
        self.upstream: dict[int, Tensor] = {}
        self.left: dict[int, Tensor] = {}
        self.lengths: dict[int, float] = {}
        self.residuals: list[float] = []
        self.moves: list[float] = []
        self.grads: dict[int, Params] = {}
        self.times: list[dict[tuple[str, int], float]] = []

    def step(self, x: Any, y: Tensor) -> Any:
        self.times.append(defaultdict(float))
        return self.am.step(x, y, context=self.context)

    def milliseconds(self, l: int) -> Milliseconds:
        """The median of block l's times."""
        return Milliseconds(*(self.median(what, l) for what in Milliseconds._fields))

    def median(self, what: str, l: int = 0) -> float:
        return 1000 * median([spent.get((what, l), 0.0) for spent in self.times] or [0.0])

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def _timed(self, what: str, l: int = 0) -> Callable[..., Any]:
        def timed(call: Callable[..., Any], *args: Any) -> Any:
            start = self._now()
            result = call(*args)
            self.times[-1][what, l] += self._now() - start
            return result

        return timed

    def _move_codes(self, segment: Segment, above: Above) -> Moves:
        self.values = [*segment.inputs[1:], above.output]  # type: ignore[union-attr]
        start = self._now()
        moves = self.solver(segment, above)
        self._divide(self._now() - start)
        scales = [float(problem.scale) for problem in moves.problems]
        self.lengths = {l: a / b if b else 0.0 for l, (a, b) in enumerate(itertools.pairwise(scales))}
        self.residuals, self.moves = list(moves.costs), list(moves.moved)
        return moves

    def _divide(self, seconds: float) -> None:
        """Gives every block its part of the time in which the codes moved, by that of its own products."""
        spent, blocks = self.times[-1], range(len(self.am.chain))
        products = sum(spent["codes", l] for l in blocks)
        for l in blocks:
            spent["codes", l] = seconds * (spent["codes", l] / products if products else 1 / len(blocks))

    def _measure(self, call: Callable[..., Any], l: int, p: Params, problem: LocalProblem) -> Any:
        self.left[l], self.upstream[l] = problem.delta, problem.upstream
        self.grads[l] = problem.grads(self.am.chain.blocks[l], p)
        return self._timed("weights", l)(call, l, p, problem)
