"""What a step sends on several processes: data-parallel, layer-parallel, and backprop beside it.

A network is a list of `Layer`, one for each block of a chain. What data-parallel steps send is counted message by
message, as `Distributed(method).ranks` counts it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from altmin.calculus.context import BUCKET
from altmin.calculus.normalisation import BatchNorm
from altmin.core.chain import Chain
from altmin.core.cutting import split

METHODS = ("am", "am-mem-fitted", "backprop")
WIDE = 8
"""Bytes of a number of a loss or a mean of batch norm: float64."""
HEADER = 4
"""Numbers that go down with a code's delta: whether it has an offset, the scale, its bound, the offset's square."""


@dataclass(frozen=True)
class Layer:
    """What counts of a block. tensors: numbers in each of its parameters. memory: n and m of its regression (m outputs,
    n inputs with the bias), None for a block that no memory serves. code: numbers of its output for one sample. flops:
    of its forward pass, for one sample. piecewise_linear, kinks: as in `Block`, and
    whether a code below it stops at kinks. norms:
    channels of each batch norm that trains. graph: whether these are parts of one module with branches."""

    tensors: tuple[int, ...]
    memory: tuple[int, int] | None
    code: int
    flops: float
    piecewise_linear: bool
    kinks: bool
    norms: tuple[int, ...]
    graph: bool

    @property
    def parameters(self) -> int:
        return sum(self.tensors)


def layers(model: nn.Module | Chain, x: Tensor) -> list[Layer]:
    """The layers of a model in training; x: two samples or more, on the model's device, also the meta device."""
    chain, found, value = model if isinstance(model, Chain) else split(model), [], x
    for l, block in enumerate(chain):
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            value, state = block.forward(block.parameters(), value)
        tensors, inner = block.parameters(), [m for each in block.maps for m in each.inner]
        is_linear = l < len(chain) - 1 and len(block.core.maps) == 1 and block.core.maps[0].is_linear
        outputs = len(tensors[0])
        found.append(
            Layer(
                tuple(p.numel() for p in tensors),
                (sum(p[0].numel() for p in tensors), outputs) if is_linear else None,
                value[0].numel(),
                counter.get_total_flops() / len(x),
                block.piecewise_linear,
                block.piecewise_linear and block.kink_distance(state) is not None,
                tuple(m.module.num_features for m in inner if isinstance(m, BatchNorm) and m.mixes_samples),
                len(inner) > len(block.maps),
            )
        )
    return found


@dataclass(frozen=True)
class Traffic:
    """The messages of a step, each by its bytes on one rank: single numbers and sums of batch norm, for which all ranks
    wait, and gradients or memories, which are sent while others are computed."""

    numbers: tuple[int, ...]
    norms: tuple[int, ...]
    bulk: tuple[int, ...]

    @property
    def messages(self) -> int:
        return len(self.numbers) + len(self.norms) + len(self.bulk)

    @property
    def bytes(self) -> int:
        return sum(self.numbers) + sum(self.norms) + sum(self.bulk)

    def sent(self, ranks: int) -> float:
        """Bytes that each rank sends if its messages go round in a ring: 2 (R - 1) / R times those in them."""
        return 2 * (ranks - 1) / ranks * self.bytes


def data_parallel(net: Sequence[Layer], method: str = "am", item: int = 4) -> Traffic:
    """What a step of a method sends on each rank. item: bytes of a number of the model.

    Counted for cross-entropy and other means over samples, with one exact step on each code, long enough to be seen in
    the numbers of the model: below a code whose move is lost in rounding, a step sends less.
    """
    if method not in METHODS:
        raise ValueError(f"a cost is known of {', '.join(METHODS)}, given {method!r}")
    if method == "backprop":
        wide = [2 * WIDE]
        norms = [WIDE * 2 * c for layer in net for c in layer.norms] * 2  # up and down
        bulk = [item * size for layer in net for size in layer.tensors]
    else:
        wide = _numbers(net, item)
        norms = [size for l, layer in enumerate(net) for size in _norms(layer, l, item)]
        bulk = [
            _memory(layer, item) if method == "am-mem-fitted" else item * layer.parameters for layer in reversed(net)
        ]
    (norms if norms else wide)[0] += WIDE  # the signature
    sent = _buckets(bulk)
    sent[-1] += 0 if method == "backprop" else item  # whether all is finite
    return Traffic(tuple(wide), tuple(norms), tuple(sent))


def _numbers(net: Sequence[Layer], item: int) -> list[int]:
    """Bytes of each message of loss and line searches, as core/codes/gradient.py sums them: the loss; the squares; the
    inner products of hidden blocks; what trial steps leave of offsets above blocks that are not linear; the loss once
    the last code has moved."""
    hidden = [layer.piecewise_linear for layer in net[1:-1]]
    smooth = hidden.count(False)
    if len(net) == 1:
        return [3 * WIDE]
    vectors = [len(net) + 2 + smooth, 3 * len(hidden), smooth]
    return [3 * WIDE, *(item * n for n in vectors if n), WIDE]


def _norms(layer: Layer, l: int, item: int) -> list[int]:
    """Bytes of each message of a block's batch norms: the moments; vjp, jvp and the finite difference; gradients."""
    found = []
    for c in layer.norms:
        replay = [WIDE * 2 * c] if l and layer.graph else []
        search = [item * 2 * c] * 2 + [item * 3 * c] if l else []
        found += [WIDE * 2 * c, *search, *replay, item * 2 * c]
    return found


def _memory(layer: Layer, item: int) -> int:
    """Bytes of A and R, or of the gradients where no memory serves the block."""
    if layer.memory is None:
        return item * layer.parameters
    n, m = layer.memory
    return item * (n * n + n * m + 1)


def _buckets(sizes: Sequence[int]) -> list[int]:
    """Bytes of the messages that carry these: one leaves as soon as it is full, the last one at the end."""
    sent, waiting = [], 0
    for size in sizes:
        waiting += size
        if waiting >= BUCKET:
            sent.append(waiting)
            waiting = 0
    return [*sent, waiting]


@dataclass(frozen=True)
class Boundary:
    """Bytes between two ranks that have consecutive blocks, for a whole mini-batch: towards the loss, and back."""

    up: int
    down: int


def layer_parallel(
    net: Sequence[Layer], cuts: Sequence[int], batch: int, micro_batches: int, item: int = 4, method: str = "am"
) -> list[Boundary]:
    """What passes each cut. cuts: the number of the first block above each. Of AM codes go up; down come delta, and the
    offset where the block above has stopped a code at kinks, with a header for each micro-batch. Of backprop one tensor
    goes each way."""
    found = []
    for cut in cuts:
        code = item * batch * net[cut - 1].code
        if method == "backprop":
            found.append(Boundary(code, code))
        else:
            offset = net[cut].kinks and cut < len(net) - 1
            found.append(Boundary(code, code * (2 if offset else 1) + WIDE * HEADER * micro_batches))
    return found


def verdict(blocks: int, ranks: int) -> int:
    """Bytes of the one message that is summed over the ranks of a layer-parallel step of AM: whether each of them has
    failed; the loss; of each block its cost, its code's move and its size; and the signature."""
    return WIDE * (ranks + 1 + 3 * blocks + 1)
