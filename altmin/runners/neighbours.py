"""Messages between ranks with neighbouring blocks: codes go up, and the gradients at them come down."""

import queue
import threading
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from altmin.core.codes.links import Upstream
from altmin.runners.ranks import POLL, Ranks

CODE, SHAPE, NUMBERS, DELTA, OFFSET = range(5)
"""Kinds of messages; the tag of one is its kind and its part of the batch, `_tag`."""
LONGEST = 12
"""Dimensions of a code, at most, and one more number."""


class Incoming:
    """A tensor that is being received. done: whether it has arrived."""

    def __init__(self, tensor: Tensor):
        self.tensor, self.error = tensor, ""
        self._here = threading.Event()

    def arrive(self, error: str = "") -> None:
        """Marks it as arrived, or as failed with an error."""
        self.error = error
        self._here.set()

    @property
    def done(self) -> bool:
        return self._here.is_set()

    def wait(self, seconds: float) -> bool:
        """Whether it arrives within the given number of seconds."""
        return self._here.wait(seconds)


class Receiver:
    """Receives from one rank in the background, one tensor after the other, in a thread: gloo reports a message only
    to a waiting thread, and cannot stop waiting without closing the connection."""

    def __init__(self, source: int, group: Any = None):
        self.source, self.group = source, group
        self.queue: queue.SimpleQueue[tuple[Incoming, int]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def expect(self, t: Tensor, tag: int) -> Incoming:
        """Begins to receive a tensor into t."""
        found = Incoming(t)
        self.queue.put((found, tag))
        return found

    def _run(self) -> None:
        while True:
            found, tag = self.queue.get()
            try:
                dist.recv(found.tensor, self.source, self.group, tag)
                found.arrive()
            except RuntimeError as error:
                found.arrive(" ".join(str(error).split())[:200] or "it is gone")


class Neighbours:
    """The ranks below and above in a chain of ranks, None where there is none. sent, messages: bytes and messages that
    this rank has sent so far.

    Messages are received into preallocated memory: receives are started before their messages are sent. The
    shape of codes, and whether they stop at kinks, is known from the first batch of a kind. Messages are in the memory
    of the processor and go by gloo, also on GPUs: nccl sends and receives between two ranks in one order, and a receive
    that is begun early would hold up what is sent after it.
    """

    def __init__(self, ranks: Ranks, below: int | None, above: int | None):
        self.ranks, self.below, self.above = ranks, below, above
        self.sent = self.messages = 0
        self.known: dict[Any, tuple[int, ...]] = {}
        """Shapes of codes from below, with the rows of one sample first, by kind of batch."""
        self.announced: set[Any] = set()
        self.offsets: dict[Any, bool] = {}
        self._leaving: list[tuple[Any, Tensor]] = []
        self._coming: dict[tuple[int, int], Incoming] = {}
        self._device = torch.device("cpu")
        self._from = {rank: Receiver(rank, ranks.group) for rank in (below, above) if rank is not None}

    def expect_codes(self, kind: Any, counts: list[int], like: Tensor) -> None:
        """Begins to receive the codes of a batch from below, in parts with the given numbers of samples. like: a tensor
        of their type, on their device."""
        self._device = like.device
        if self.below is None:
            return
        if kind not in self.known:
            found = self._receive(torch.empty(LONGEST, dtype=torch.int64), self.below, SHAPE)
            ndim, *sizes = self._arrived(found).tolist()
            self.known[kind] = tuple(sizes[:ndim])
        rows, *shape = self.known[kind]
        for i, count in enumerate(counts):
            self._coming[CODE, i] = self._receive(
                torch.empty(count * rows, *shape, dtype=like.dtype), self.below, _tag(CODE, i)
            )

    def send_code(self, kind: Any, i: int, code: Tensor, count: int) -> None:
        """Sends the code of `count` samples to the rank above."""
        assert self.above is not None
        if kind not in self.announced:
            sizes = [code.ndim, len(code) // count, *code.shape[1:]]
            self._send(torch.tensor(sizes + [0] * (LONGEST - len(sizes))), self.above, SHAPE)
            self.announced.add(kind)
        self._send(code, self.above, _tag(CODE, i))

    def expect_upstream(self, kind: Any, i: int, code: Tensor) -> None:
        """Starts to receive the target of the rank above for a code that was sent to it."""
        assert self.above is not None
        self._coming[NUMBERS, i] = self._receive(torch.empty(4, dtype=torch.float64), self.above, _tag(NUMBERS, i))
        self._coming[DELTA, i] = self._receive(_empty(code), self.above, _tag(DELTA, i))
        if self.offsets.get(kind):
            self._coming[OFFSET, i] = self._receive(_empty(code), self.above, _tag(OFFSET, i))

    @property
    def awaited(self) -> bool:
        """Whether messages are still expected, which must not be confused with those of another step."""
        return bool(self._coming)

    def arrived(self, i: int) -> bool:
        """Whether a code from below has arrived."""
        return self._coming[CODE, i].done

    def upstream_arrived(self, i: int) -> bool:
        """Whether the target of the rank above for a code has arrived, as far as is known."""
        return all(self._coming[tag, i].done for tag in (NUMBERS, DELTA))

    def code(self, i: int) -> Tensor:
        """Waits for a code from below."""
        return self._take(CODE, i)

    def upstream(self, kind: Any, i: int) -> Upstream:
        """Waits for the target of the rank above for a code."""
        numbers = self._arrived(self._coming.pop((NUMBERS, i)))
        delta = self._take(DELTA, i)
        stopped, scale, longest, square = numbers.to(delta.dtype)
        if not stopped:
            return Upstream(delta, scale, longest, delta, square)
        self.offsets[kind] = True
        if (OFFSET, i) not in self._coming:  # it was not expected
            self._coming[OFFSET, i] = self._receive(_empty(delta), self.above, _tag(OFFSET, i))
        return Upstream(delta, scale, longest, self._take(OFFSET, i), square)

    def send_upstream(self, i: int, wanted: Upstream) -> None:
        """Sends the target that a code sets for its block to the rank below, with its offset if that is not delta."""
        assert self.below is not None
        stopped = wanted.offset is not wanted.delta
        numbers: list[Any] = [stopped, wanted.scale, wanted.longest, wanted.offset_square]
        self._send(torch.tensor([float(n) for n in numbers], dtype=torch.float64), self.below, _tag(NUMBERS, i))
        self._send(wanted.delta, self.below, _tag(DELTA, i))
        if stopped:
            self._send(wanted.offset, self.below, _tag(OFFSET, i))

    def finish(self) -> None:
        """Waits until all that was sent has left."""
        with self.ranks.connected():
            for work, _ in self._leaving:
                work.wait()
        self._leaving = []

    def _send(self, t: Tensor, to: int, tag: int) -> None:
        t = t.detach().cpu().contiguous()
        self.sent += t.numel() * t.element_size()
        self.messages += 1
        with self.ranks.connected():
            self._leaving.append((dist.isend(t, to, self.ranks.group, tag), t))  # kept until it is sent

    def _receive(self, t: Tensor, source: Any, tag: int) -> Incoming:
        return self._from[source].expect(t, tag)

    def _take(self, tag: int, i: int) -> Tensor:
        return self._arrived(self._coming.pop((tag, i))).to(self._device)

    def _arrived(self, found: Incoming) -> Tensor:
        while not found.wait(POLL.total_seconds()):
            self.ranks.check_failures()
        if found.error:
            raise self.ranks.gone(found.error)
        return found.tensor


def _empty(t: Tensor) -> Tensor:
    """Memory for a message like this tensor."""
    return torch.empty(t.shape, dtype=t.dtype)


def _tag(kind: int, part: int) -> int:
    return kind + 8 * part
