"""Several ranks for a test: processes on gloo (`run`), or threads of this one where no random number is drawn
(`threads`)."""

import multiprocessing
import os
import pickle
import socket
import threading
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from altmin.calculus.context import BatchShard

START = 240
"""Seconds in which all ranks must have come to their end."""


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _rank(rank: int, size: int, port: int, function: Callable[..., Any], args: tuple[Any, ...], results: Any) -> None:
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    try:
        results.send_bytes(pickle.dumps(("value", function(rank, *args))))  # tensors as bytes, not as shared memory
    except BaseException as error:
        results.send_bytes(pickle.dumps(("error", f"{type(error).__name__}: {error}\n{traceback.format_exc()}")))
    results.close()
    os._exit(0)  # no rank waits for others that have failed


def run(size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """What function(rank, *args) returns on each of `size` ranks, None for one that has died; AssertionError with its
    text if one raises."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed", "torch._dynamo", "altmin"])
    port, found = _free_port(), []
    ends, processes = [], []
    for rank in range(size):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_rank, args=(rank, size, port, function, args, theirs), daemon=True)
        process.start()
        theirs.close()
        ends.append(ours)
        processes.append(process)
    try:
        for rank, end in enumerate(ends):
            assert end.poll(START), f"rank {rank} of {size} did not come to its end"
            try:
                kind, value = pickle.loads(end.recv_bytes())
            except EOFError:  # it is gone
                kind, value = "value", None
            assert kind == "value", f"rank {rank}: {value}"
            found.append(value)
    finally:
        for process in processes:
            process.kill()
    return found


class ThreadRanks:
    """What `Distributed` needs of `altmin.runners.ranks.Ranks`, for one of several threads. messages: how many sums
    it has taken part in."""

    def __init__(self, rank: int, size: int, parts: list[Any], barrier: threading.Barrier):
        self.rank, self.size, self.parts, self.barrier = rank, size, parts, barrier
        self.messages = 0

    def share(self, start: int, own: int, of: int, signature: Any = (), truth: bool = True) -> BatchShard:
        def begin(flat: Tensor) -> Callable[[], Tensor]:
            self.messages += 1
            self.parts[self.rank] = flat.clone() if truth else torch.zeros_like(flat)
            self.barrier.wait()
            total = torch.stack(self.parts).sum(0)
            self.barrier.wait()
            return lambda: total

        return BatchShard(begin, start, own, of, self.rank, self.size)


def threads(size: int, function: Callable[[ThreadRanks], Any]) -> list[Any]:
    """What function(ranks) returns in each of `size` threads, whose sums are over all of them. The error of the first
    rank that has one is raised."""
    barrier, parts, found = threading.Barrier(size), [None] * size, [None] * size
    errors: list[Exception | None] = [None] * size

    def call(rank: int) -> None:
        try:
            found[rank] = function(ThreadRanks(rank, size, parts, barrier))
        except Exception as error:
            errors[rank] = error
            barrier.abort()

    workers = [threading.Thread(target=call, args=(rank,), daemon=True) for rank in range(size)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(START)
    for error in sorted((e for e in errors if e), key=lambda e: isinstance(e, threading.BrokenBarrierError)):
        raise error
    return found
