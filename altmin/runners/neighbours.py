"""Messages between ranks with neighbouring blocks: codes go up, and the targets for their blocks come down."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from altmin.core.codes.problem import Target
from altmin.runners.ranks import connected

KINDS = 4
SHAPE, CODE, SCALE, DELTA = range(KINDS)
"""Kinds of messages; the tag of one is its kind and its part of the batch."""
LONGEST = 12
"""Dimensions of a code, at most, and one more number."""


class Neighbours:
    """The messages of one mini-batch between a rank and those that have the blocks below and above its own, None where
    there are none. like: a tensor of the codes' type, on their device.

    Messages are in the processor's memory and go by gloo, also from GPUs: nccl sends and receives between two ranks in
    one order, and a receive that is begun early would hold up what is sent after it.
    """

    def __init__(self, below: Any, above: Any, like: Tensor):
        self.below, self.above, self.like = below, above, like
        self._leaving: list[tuple[Any, Tensor]] = []
        self._coming: dict[tuple[int, int], tuple[Any, Tensor]] = {}

    def expect_codes(self, counts: list[int]) -> None:
        """Wait for the shape of the codes from below, and begin to receive those of all parts. counts: the number of
        samples of each."""
        if self.below is None:
            return
        header = torch.empty(LONGEST, dtype=torch.int64)
        with connected():
            dist.recv(header, self.below, tag=SHAPE)
        ndim, rows, *sizes = header.tolist()
        for i, count in enumerate(counts):
            self._expect(CODE, i, (count * rows, *sizes[: ndim - 1]), self.below)

    def send_code(self, i: int, code: Tensor, count: int) -> None:
        """Send the code of `count` samples to the rank above, and begin to receive its target."""
        if i == 0:
            sizes = [code.ndim, len(code) // count, *code.shape[1:]]
            self._send(torch.tensor(sizes + [0] * (LONGEST - len(sizes))), SHAPE, 0, self.above)
        self._send(code, CODE, i, self.above)
        self._expect(SCALE, i, (1,), self.above, torch.float64)
        self._expect(DELTA, i, code.shape, self.above)

    def code(self, i: int) -> Tensor:
        """Wait for a code from below."""
        return self._arrived(CODE, i).to(self.like.device)

    def send_target(self, i: int, target: Target) -> None:
        """Send the target that a code sets for its block, a tensor and a number, to the rank below."""
        self._send(torch.tensor([float(target.scale)], dtype=torch.float64), SCALE, i, self.below)
        self._send(target.delta, DELTA, i, self.below)

    def target(self, i: int) -> Target:
        """Wait for the target of the rank above for a code."""
        scale = self._arrived(SCALE, i).item()
        return Target(self._arrived(DELTA, i).to(self.like.device), scale)

    def finish(self) -> None:
        """Wait until all that was sent has left."""
        with connected():
            for work, _ in self._leaving:
                work.wait()

    def _send(self, t: Tensor, kind: int, i: int, to: int) -> None:
        t = t.detach().cpu().contiguous()
        with connected():
            self._leaving.append((dist.isend(t, to, tag=kind + KINDS * i), t))  # t lives until it is sent

    def _expect(self, kind: int, i: int, shape: Sequence[int], source: int, dtype: torch.dtype | None = None) -> None:
        t = torch.empty(shape, dtype=dtype or self.like.dtype)
        with connected():
            self._coming[kind, i] = dist.irecv(t, source, tag=kind + KINDS * i), t

    def _arrived(self, kind: int, i: int) -> Tensor:
        work, t = self._coming.pop((kind, i))
        with connected():
            work.wait()
        return t
