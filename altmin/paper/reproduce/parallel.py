"""`WeightsInParallel`: every block's weight update from its own residual, one after the other and all at once."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from altmin import data, methods, models
from altmin.calculus.context import LOCAL
from altmin.core.step import move_codes
from altmin.paper.reproduce.measurement import Row, Setting, Tick

Block = Callable[[], Sequence[Tensor]]


@dataclass(frozen=True)
class WeightsInParallel:
    """On one mini-batch whose codes have moved, the gradients of all blocks: from the first to the last, from the last
    to the first, and at once (on a GPU each on a stream of its own in a CUDA graph, elsewhere in a thread of its own).
    name, panel: of the curve; at: where it stands on the figure's axis."""

    name: str
    panel: str
    model: str
    at: float
    batch_size: int = 200
    repeats: int = 50
    seeds: int = 3

    def config(self) -> dict[str, Any]:
        return {"measured": "weights in parallel", "model": self.model, "batch_size": self.batch_size}

    def lacking(self, setting: Setting) -> str:
        return ""

    def reduced(self) -> "WeightsInParallel":
        return replace(self, seeds=1, repeats=5)

    def make(self, seeds: Sequence[int], setting: Setting, tick: Tick) -> list[Row]:
        """Rows with "difference", the largest between the gradients of the three ways, "in_turn" and "at_once", the
        seconds of the first and the last way."""
        x, y = setting.samples("mnist", "train", self.batch_size)
        rows = []
        for seed in seeds:
            torch.manual_seed(seed)
            model = models.create(self.model, data.dataset("mnist").sample_shape, 10).to(setting.device)
            blocks = moved(methods.create("am-adam", model), x, y)
            ways = [
                [block() for block in blocks],
                [block() for block in reversed(blocks)][::-1],
                (_graph_of_streams if x.is_cuda else _threads)(blocks)(),
            ]
            seconds = [self._seconds(way(blocks)) for way in (_ways(x.is_cuda))]
            rows.append(
                {"seed": seed, **setting.about((x, y)), "blocks": len(blocks), "difference": difference(ways)}
                | dict(zip(("in_turn", "at_once"), seconds, strict=True))
            )
            tick(len(rows), len(seeds), self.model)
        return rows

    def _seconds(self, way: Callable[[], Any]) -> float:
        way()
        found = []
        for _ in range(self.repeats):
            _wait()
            start = time.perf_counter()
            way()
            _wait()
            found.append(time.perf_counter() - start)
        return median(found)

    def points(self, row: Row, axis: str) -> list[tuple[float, float]]:
        """How many times as fast all blocks at once are."""
        return [(self.at, row["in_turn"] / row["at_once"])]


def moved(am: Any, x: Tensor, y: Tensor) -> list[Block]:
    """For each block of a trainer, after the codes of a mini-batch have moved, what computes its gradients from its own
    residual."""
    with torch.no_grad():
        mu = x.new_tensor(am.penalty.value)
        problems = move_codes(am.chain, am.theta, am.codes, am.loss, x, y, mu, LOCAL).problems
    return [partial(problem.grads, *of) for problem, *of in zip(problems, am.chain.blocks, am.theta, strict=True)]


def difference(ways: Sequence[Sequence[Sequence[Tensor]]]) -> float:
    """The largest between the gradients of the first way and of any other."""
    first, *others = ([g for block in way for g in block] for way in ways)
    return max(float((a - b).abs().max()) for other in others for a, b in zip(first, other, strict=True))


def _ways(cuda: bool) -> Sequence[Callable[[Sequence[Block]], Callable[[], Any]]]:
    return (lambda blocks: _graph_of_streams(blocks, 1), _graph_of_streams) if cuda else (_in_turn, _threads)


def _in_turn(blocks: Sequence[Block]) -> Callable[[], Any]:
    return lambda: [block() for block in blocks]


def _threads(blocks: Sequence[Block]) -> Callable[[], Any]:
    pool = ThreadPoolExecutor(len(blocks))

    def run() -> list[Sequence[Tensor]]:
        return list(pool.map(lambda block: block(), blocks))

    return run


def _graph_of_streams(blocks: Sequence[Block], streams: int | None = None) -> Callable[[], Any]:
    """A CUDA graph of all blocks, spread over so many streams; None for one each."""
    for block in blocks:
        block()  # libraries choose their kernels before the capture
    torch.cuda.synchronize()
    graph, found = torch.cuda.CUDAGraph(), list[Sequence[Tensor]]([()] * len(blocks))
    own = [torch.cuda.Stream() for _ in range(streams or len(blocks))]
    with torch.cuda.graph(graph):
        here = torch.cuda.current_stream()
        for stream in own:
            stream.wait_stream(here)
        for i, block in enumerate(blocks):
            with torch.cuda.stream(own[i % len(own)]):
                found[i] = block()
        for stream in own:
            here.wait_stream(stream)

    def run() -> list[Sequence[Tensor]]:
        graph.replay()
        torch.cuda.synchronize()
        return found

    return run


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
