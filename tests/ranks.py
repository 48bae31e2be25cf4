"""Several processes for a test: each runs the same function as one rank of torch's process group, on gloo."""

import multiprocessing
import os
import pickle
import socket
import traceback
from collections.abc import Callable
from typing import Any

START = 120
"""Seconds in which all ranks must have come to their end."""


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _rank(rank: int, size: int, port: int, function: Callable[..., Any], args: tuple[Any, ...], results: Any) -> None:
    import torch
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
    """What function(rank, *args) returns on each of `size` ranks; AssertionError with its text if one raises."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed", "altmin"])
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
            kind, value = pickle.loads(end.recv_bytes())
            assert kind == "value", f"rank {rank}: {value}"
            found.append(value)
    finally:
        for process in processes:
            process.kill()
    return found
