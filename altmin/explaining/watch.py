"""A trainer whose steps are watched: what passes between its parts, and how long each of them takes."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch
from torch import Tensor

from altmin.calculus import Params
from altmin.core.chain import Chain, Theta
from altmin.core.codes.above import Residual, Top
from altmin.core.codes.gradient import Trace
from altmin.core.trainer import AltMin
from altmin.explaining.rows import Milliseconds


class Watch:
    """Of every block, by its number, from the trainer's steps since `clear`; those of the last one, but for times.

    values: what it gave when the mini-batch was encoded. asked, left: delta before the code below it moved, and what of
    it its weights were left with. lengths: of its code, if the solver moves codes one by one. residuals, moves: the
    squared norms of c - F(c_below) and of its code's offset. grads: of its parameters. time: seconds by what was done.
    """

    def __init__(self, am: AltMin):
        """Watches a trainer, which is changed for it and serves no other purpose any more."""
        self.am, self.device, self.solver = am, am.theta[0][0].device, am.codes
        self.clear()
        for l, block in enumerate(am.chain):
            block.forward = self._timed(("forward", l), block.forward)  # type: ignore[method-assign]
        self._measure, rule = am.weights.measure, am.weights
        rule.measure = self._watched_measure  # type: ignore[method-assign]
        rule.update = self._timed(("update", 0), rule.update)  # type: ignore[method-assign]
        if hasattr(am.codes, "move"):
            am.codes.move = self._watched_move(am.codes.move)
        am.codes = self._watched_codes

    def clear(self) -> None:
        self.values: list[Tensor] = []
        self.asked: dict[int, Tensor] = {}
        self.left: dict[int, Tensor] = {}
        self.lengths: dict[int, float] = {}
        self.residuals: dict[int, float] = {}
        self.moves: dict[int, float] = {}
        self.grads: dict[int, Params] = {}
        self.time: defaultdict[tuple[str, int], list[float]] = defaultdict(list)

    def milliseconds(self, l: int) -> Milliseconds:
        """The median of block l's times."""
        return Milliseconds(*(self.median(what, l) for what in Milliseconds._fields))

    def median(self, what: str, l: int = 0) -> float:
        return 1000 * median(self.time.get((what, l), [0.0]))

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def _timed(self, key: tuple[str, int], call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            start = self._now()
            result = call(*args)
            self.time[key].append(self._now() - start)
            return result

        return timed

    def _watched_codes(self, chain: Chain, theta: Theta, trace: Trace, top: Top) -> Iterator[tuple[int, Residual]]:
        self.values = list(trace.values)
        solved = iter(self.solver(chain, theta, trace, top))
        for l in reversed(range(len(chain))):
            yield self._timed(("codes", l), next)(solved)

    def _watched_move(self, move: Callable[..., Any]) -> Callable[..., Any]:
        def watched(chain: Chain, theta: Theta, trace: Trace, l: int, above: Any) -> Any:
            self.asked[l] = above.delta
            residual, ask = move(chain, theta, trace, l, above)
            self.lengths[l - 1] = float(ask.scale) / float(above.scale) if float(above.scale) else 0.0
            self.asked[l - 1] = ask.delta
            return residual, ask

        return watched

    def _watched_measure(self, l: int, p: Params, residual: Residual) -> Any:
        self.left[l], self.residuals[l] = residual.delta, float(residual.cost)
        self.moves[l] = 0.0 if residual.moved is None else float(residual.moved)
        self.grads[l] = self.am.chain.blocks[l].core.grads(p, residual.saved, residual.delta)
        return self._timed(("weights", l), self._measure)(l, p, residual)
