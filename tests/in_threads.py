"""Ranks as threads of one process: their sums meet at a barrier. One runs at a time, as torch's forward-mode
differentiation is not made for several."""

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from altmin.calculus.context import BatchShard, Context
from altmin.runners.ranks import bounds

WAIT = 60
"""Seconds after which a rank that waits for another gives up."""


class Meeting:
    """sent: how many numbers each message had, in the order in which they were sent."""

    def __init__(self, size: int):
        self.barrier, self.given = threading.Barrier(size, timeout=WAIT), [torch.empty(0)] * size
        self.turn = threading.Lock()
        self.sent: list[int] = []

    def meet(self) -> None:
        self.turn.release()
        try:
            self.barrier.wait()
        finally:
            self.turn.acquire()

    def begin(self, rank: int) -> Callable[[Tensor], Callable[[], Tensor]]:
        def begin(flat: Tensor) -> Callable[[], Tensor]:
            self.given[rank] = flat
            self.meet()
            total = torch.stack(self.given).sum(0)
            if rank == 0:
                self.sent.append(flat.numel())
            self.meet()
            return lambda: total

        return begin


def run(size: int, samples: int, function: Callable[[slice, Context], Any]) -> tuple[list[Any], list[int]]:
    """What function(rows, context) returns on each rank, without gradients and with its share of the samples; and how
    many numbers each message had. Raises what a rank has raised."""
    meeting, found, errors = Meeting(size), [None] * size, []

    def work(rank: int) -> None:
        first, end = bounds(samples, rank, size)
        try:
            with meeting.turn, torch.no_grad():
                shard = BatchShard(meeting.begin(rank), first, end - first, samples)
                found[rank] = function(slice(first, end), Context(shard))
        except threading.BrokenBarrierError:
            pass
        except BaseException as error:
            errors.append(error)
            meeting.barrier.abort()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return found, meeting.sent
