"""How long a step takes on several processes, on paper.

The alpha-beta model: a message of s bytes takes latency + s / bandwidth, f operations take f / flops, and nothing else
takes any time. Steps are data-parallel, or have consecutive blocks on consecutive ranks and pass micro-batches on.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2

from scaling_cost import Layer, data_parallel, layer_parallel

from altmin.runners.layer_parallel import partition

DOWN, UP, WEIGHTS = range(3)
"""What a rank does with a micro-batch, the most urgent first."""


@dataclass(frozen=True)
class Work:
    """Operations of a block for some samples: forward, what it hands down, and its own weights; of these whole is what
    does not shrink with the samples."""

    up: float
    down: float
    weights: float
    whole: float = 0.0

    @property
    def total(self) -> float:
        return self.up + self.down + self.weights + self.whole


def work(net: Sequence[Layer], samples: float, method: str = "am") -> list[Work]:
    """Of every block. Products only: a pass forward, a vjp, a jvp, a finite difference and gradients each take as many
    operations as the pass forward. A fit to a memory is one conjugate gradient step, on every rank."""
    found = []
    for l, layer in enumerate(net):
        f, top = layer.flops * samples, l == len(net) - 1
        passes = 0 if l == 0 else 1 if method == "backprop" else 2 if layer.piecewise_linear and not top else 3
        if method == "am-mem-fitted" and layer.memory is not None:
            n, m = layer.memory
            found.append(Work(f, passes * f, f * (1 + n / m), 2 * n * n * m))
        else:
            found.append(Work(f, passes * f, f))
    return found


@dataclass(frozen=True)
class Machine:
    """flops: operations a second of one rank. latency: seconds until a message arrives that holds nothing. bandwidth:
    bytes a second between two ranks."""

    flops: float
    latency: float
    bandwidth: float

    def send(self, size: float) -> float:
        return self.latency + size / self.bandwidth

    def all_reduce(self, size: float, ranks: int) -> float:
        """In a ring, or up and down a tree in small parts, whichever takes less time."""
        if ranks == 1:
            return 0.0
        ring = 2 * (ranks - 1) * self.send(size / ranks)
        return min(ring, 2 * ceil(log2(ranks)) * self.latency + 2 * size / self.bandwidth)


def data_parallel_time(
    net: Sequence[Layer], samples: int, ranks: int, machine: Machine, method: str = "am"
) -> dict[str, float]:
    """Seconds of a step with so many samples on each rank: compute, numbers, norms, and what gradients or memories take
    beyond the work that goes on meanwhile: the weights of the blocks below, and with backprop what is handed down to
    them, which AM has computed by then."""
    sent, blocks = data_parallel(net, method), work(net, samples, method)
    meanwhile = sum(b.weights + (b.down if method == "backprop" else 0.0) for b in blocks[:-1]) / machine.flops
    bulk = [machine.all_reduce(size, ranks) for size in sent.bulk]
    return {
        "compute": sum(b.total for b in blocks) / machine.flops,
        "numbers": sum(machine.all_reduce(size, ranks) for size in sent.numbers),
        "norms": sum(machine.all_reduce(size, ranks) for size in sent.norms),
        "bulk": max(bulk[-1], sum(bulk) - meanwhile),
    }


def even(net: Sequence[Layer], ranks: int, method: str = "am") -> list[int]:
    """Cuts of a network into runs of blocks, one for each rank, the longest of which takes as little work as can be.

    ValueError for more ranks than blocks."""
    if not 1 <= ranks <= len(net):
        raise ValueError(f"a network of {len(net)} blocks is cut for 1 to {len(net)} ranks, given {ranks}")
    return partition([b.total for b in work(net, 1, method)], ranks, range(1, len(net)))[1:-1]


def layer_parallel_time(
    net: Sequence[Layer],
    cuts: Sequence[int],
    batch: int,
    micro_batches: int,
    machine: Machine,
    method: str = "am",
    fill: bool = True,
) -> float:
    """Seconds of a step in micro-batches on as many ranks as there are runs of blocks. fill: a rank computes gradients
    of weights while it would wait, as in layer-parallel AM and in zero-bubble pipelines of backprop; False: right
    before it hands on what belongs to them, as in 1F1B."""
    blocks, ends = work(net, batch / micro_batches, method), [0, *cuts, len(net)]
    runs = [blocks[a:end] for a, end in itertools.pairwise(ends)]
    stages = [
        tuple(sum(getattr(b, part) for b in run) / machine.flops for part in ("up", "down", "weights")) for run in runs
    ]
    sent = layer_parallel(net, cuts, batch, micro_batches, method=method)
    up = [machine.send(b.up / micro_batches) for b in sent]
    down = [machine.send(b.down / micro_batches) for b in sent]
    whole = max(sum(b.whole for b in run) for run in runs) / machine.flops
    return makespan(stages, micro_batches, up, down, fill) + whole


def makespan(
    stages: Sequence[Sequence[float]], micro_batches: int, up: Sequence[float], down: Sequence[float], fill: bool
) -> float:
    """When the last task ends. stages: of each rank the seconds of a micro-batch upwards, downwards and for weights.
    up, down: seconds from each rank to the next, and back. fill: as in `layer_parallel_time`.

    A rank that is free does what has arrived, rather downwards than upwards. Of the micro-batches that it has sent on,
    at most as many are under way as there are ranks above, twice as many where weights fill the gaps (`schedule`).
    """
    ranks, end = len(stages), 0.0
    free, may_go_up = [0.0] * ranks, [_ahead(ranks - 1 - r, fill) + 1 for r in range(ranks)]
    seconds = [(d, f, w) if fill else (d + w, f, 0.0) for f, d, w in stages]
    arrived: list[tuple[list[float], ...]] = [([], [0.0] * micro_batches * (r == 0), []) for r in range(ranks)]
    for _ in range(3 * ranks * micro_batches):
        start, kind, r = min(
            (max(free[r], times[0]), kind, r)
            for r, kinds in enumerate(arrived)
            for kind, times in enumerate(kinds)
            if times and (kind != UP or may_go_up[r])
        )
        arrived[r][kind].pop(0)
        free[r] = now = start + seconds[r][kind]
        end = max(end, now)
        if kind == UP:
            may_go_up[r] -= 1
            arrived[min(r + 1, ranks - 1)][UP if r + 1 < ranks else DOWN].append(now + [*up, 0.0][r])
        elif kind == DOWN:
            may_go_up[r] += 1
            arrived[r][WEIGHTS].append(now)
            if r:
                arrived[r - 1][DOWN].append(now + down[r - 1])
    return end


def _ahead(above: int, fill: bool) -> int:
    return 2 * above if fill else above
