"""Weights of all blocks at once: every block's update follows from its own residual."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from statistics import mean
from typing import Any

import torch
from torch import Tensor
from torch.utils.benchmark import Timer

from altmin import data, methods, models
from altmin.calculus.context import LOCAL
from altmin.core.step import move_codes
from altmin.core.weights.rule import WeightRule
from reproduction import Claim, Figure, Finding, Results, Row, Setting, Statement, Tick

Block = Callable[[], Sequence[Tensor]]
Way = Callable[[], Sequence[Sequence[Tensor]]]


@dataclass(frozen=True)
class WeightsInParallel:
    """On one mini-batch whose codes have moved, the gradients of all blocks: from the first to the last, from the last
    to the first, and at once (on a GPU each on a stream of its own in a CUDA graph, elsewhere in a thread of its own).
    name, panel: of the curve; at: where it stands on the figure's axis. seconds: how long each way is measured."""

    name: str
    panel: str
    model: str
    at: float
    batch_size: int = 200
    seconds: float = 0.2
    seeds: int = 3

    def config(self) -> dict[str, Any]:
        return {"measured": "weights in parallel", "model": self.model, "batch_size": self.batch_size}

    def lacking(self, setting: Setting) -> str:
        return ""

    def reduced(self) -> "WeightsInParallel":
        return replace(self, seeds=1, seconds=0.01)

    def make(self, seeds: Sequence[int], setting: Setting, tick: Tick) -> list[Row]:
        """Return rows with "difference", the largest between the gradients of the three ways, "in_turn" and "at_once",
        the seconds of the first and the last way."""
        x, y = setting.samples("mnist", "train", self.batch_size)
        rows = []
        for seed in seeds:
            torch.manual_seed(seed)
            model = models.create(self.model, data.dataset("mnist").sample_shape, 10).to(setting.device)
            blocks = moved(methods.create("am-adam", model), x, y)
            in_turn, at_once = (captured(blocks, 1), captured(blocks, len(blocks))) if x.is_cuda else threads(blocks)
            ways = [[block() for block in blocks], [block() for block in reversed(blocks)][::-1], at_once()]
            row = {"seed": seed, **setting.about((x, y)), "blocks": len(blocks), "difference": difference(ways)}
            rows.append({**row, "in_turn": self._time(in_turn), "at_once": self._time(at_once)})
            tick(len(rows), len(seeds), self.model)
        return rows

    def _time(self, way: Way) -> float:
        timer = Timer("way()", globals={"way": way}, num_threads=torch.get_num_threads())
        return timer.blocked_autorange(min_run_time=self.seconds).median

    def points(self, row: Row, axis: str) -> list[tuple[float, float]]:
        """Return how many times as fast all blocks at once are."""
        return [(self.at, row["in_turn"] / row["at_once"])]


def moved(am: Any, x: Tensor, y: Tensor) -> list[Block]:
    """Return, for each block of a trainer after the codes of a mini-batch have moved, what computes its gradients from
    its own residual."""
    with torch.no_grad():
        problems = move_codes(am.chain, am.theta, am.codes, am.loss, x, y, am.penalty.value, LOCAL).problems
    measure = WeightRule().measure
    return [partial(measure, problem.block, p, problem) for problem, p in zip(problems, am.theta, strict=True)]


def difference(ways: Sequence[Sequence[Sequence[Tensor]]]) -> float:
    """Return the largest difference between the gradients of the first way and of any other."""
    first, *others = ([g for block in way for g in block] for way in ways)
    return max(float((a - b).abs().max()) for other in others for a, b in zip(first, other, strict=True))


def threads(blocks: Sequence[Block]) -> tuple[Way, Way]:
    """Return ways to run all blocks in turn, and each in a thread of its own."""
    pool = ThreadPoolExecutor(len(blocks))
    return lambda: [block() for block in blocks], lambda: list(pool.map(lambda block: block(), blocks))


def captured(blocks: Sequence[Block], streams: int) -> Way:
    """Return a CUDA graph of all blocks, spread over the given number of streams."""
    for block in blocks:
        block()  # libraries choose their kernels before the capture
    torch.cuda.synchronize()
    graph, found = torch.cuda.CUDAGraph(), list[Sequence[Tensor]]([()] * len(blocks))
    own = [torch.cuda.Stream() for _ in range(streams)]
    with torch.cuda.graph(graph):
        here = torch.cuda.current_stream()
        for stream in own:
            stream.wait_stream(here)
        for i, block in enumerate(blocks):
            with torch.cuda.stream(own[i % streams]):
                found[i] = block()
        for stream in own:
            here.wait_stream(stream)

    def run() -> Sequence[Sequence[Tensor]]:
        graph.replay()
        torch.cuda.synchronize()
        return found

    return run


RUNS = [
    WeightsInParallel("all blocks at once", "mlp, 512 units a layer, batch 200", f"mlp-{depth}x512", depth)
    for depth in (2, 5, 10, 20, 50)
]


def in_any_order(results: Results) -> Finding:
    off = max(row["difference"] for run in RUNS for row in results.all(run))
    text = f"largest difference {off:.0e}"
    return Finding(text, "reproduced") if off <= 1e-6 else Finding(text, "not reproduced", "they depend on the order")


def at_once(results: Results) -> Finding:
    gains = {run.model: mean(row["in_turn"] / row["at_once"] for row in results.all(run)) for run in RUNS}
    text = "times as fast: " + ", ".join(f"{net} {gain:.2f}" for net, gain in gains.items())
    faster = gains[RUNS[-1].model] > 1.1
    return Finding(text, "reproduced") if faster else Finding(text, "not reproduced", "they are not faster")


STATEMENTS = [
    Statement(
        "the weights of all layers can be updated in any order, and at once",
        "gradients of all blocks in any order, and computed at once, differ by at most 1e-6",
        in_any_order,
    ),
    Statement(
        "parallel updates give a speed-up",
        "with 50 layers all blocks at once take less than 1 / 1.1 of the time of one after the other",
        at_once,
    ),
]
FIGURES = [
    Figure(
        name="parallel",
        title="The weight updates of all blocks at once, against one after the other",
        runs=RUNS,
        axes=("hidden layers",),
        measure="times as fast",
        log="x",
        claims=[Claim("C18", "weight updates run in parallel across layers", "no numbers", STATEMENTS)],
    )
]
