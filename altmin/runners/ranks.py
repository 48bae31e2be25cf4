"""The processes of a run (ranks): the rows of each, sums over all of them, and what must be the same on all.

torchrun starts the processes, and ends all of them if one fails. Until then a rank that waits for one that has failed
waits for torch's process group: to its time-out, or to a lost connection, which is a `ConnectionError`.
"""

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from altmin.calculus.context import BatchShard

DIGESTED = 4096
"""Number of entries of a tensor that `digest` reads."""
SIGNATURES = 4096
"""Signatures are numbers below this: small enough for their sum to be exact in float32."""


def start(device: torch.device | str = "cpu") -> None:
    """Join the processes that torchrun has started, if it has and this one has not yet: by gloo for CPUs, nccl for
    GPUs. On a GPU the process takes the one of its number on this machine."""
    if dist.is_initialized() or not dist.is_torchelastic_launched():
        return
    if torch.device(device).type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("cuda:nccl,cpu:gloo")
    else:
        dist.init_process_group("gloo")


class Ranks:
    """The processes of torch's group, which hold the same model; one rank, which sends nothing, where there is none, or
    joined=False.

    size, rank: how many there are, and which this is.
    """

    def __init__(self, joined: bool = True):
        joined = joined and dist.is_initialized()
        self.size = dist.get_world_size() if joined else 1
        self.rank = dist.get_rank() if joined else 0
        self.steps = 0
        self._signature: int | None = None

    def share(self, start: int, count: int, of: int, signature: Sequence[Any] = (), truth: bool = True) -> BatchShard:
        """Return this rank's part of the next step. signature: what must be the same on all ranks; it is checked with
        the first sum. truth: False for a rank whose numbers do not count, because another has the same rows."""
        self.steps += 1
        text = repr((self.steps, of, *signature)).encode()
        self._signature = zlib.crc32(torch.get_rng_state().numpy().tobytes(), zlib.crc32(text)) % SIGNATURES

        def begin(flat: Tensor) -> Callable[[], Tensor]:
            return self.begin(flat if truth else torch.zeros_like(flat))

        return BatchShard(begin, start, count, of, self.rank, self.size)

    def begin(self, flat: Tensor) -> Callable[[], Tensor]:
        """Begin to sum a flat tensor over ranks; the function returned waits for the sum. ValueError if ranks are not
        in the same step, `ConnectionError` if one is gone."""
        signature, self._signature = self._signature, None
        sent = flat if signature is None else torch.cat([flat, flat.new_tensor([signature])])
        with connected():
            work = dist.all_reduce(sent, async_op=True)

        def wait() -> Tensor:
            with connected():
                work.wait()
            if signature is None:
                return sent
            if sent[-1].item() != self.size * signature:
                raise ValueError(
                    "ranks have been given different batches, or have drawn different random numbers, or one has "
                    "failed in an earlier step (nothing was changed)"
                )
            return sent[:-1]

        return wait

    def total(self, *numbers: float) -> list[float]:
        """Sum numbers over ranks outside of mini-batches; all ranks wait here for one another."""
        if self.size == 1:
            return list(numbers)
        self._signature = None  # that of a share which sent nothing
        return self.begin(torch.tensor(numbers, dtype=torch.float64))().tolist()

    def check_same(self, value: Any, otherwise: str) -> None:
        """Raise ValueError with this text unless a value, by its `repr`, is the same on all ranks."""
        if self.size > 1:
            values: list[Any] = [None] * self.size
            with connected():
                dist.all_gather_object(values, repr(value))
            if len(set(values)) > 1:
                raise ValueError(otherwise)

    def equalise(self, tensors: Sequence[Tensor], device: torch.device) -> None:
        """Write the first rank's numbers over these tensors, and let all ranks draw its random numbers from now on, in
        main memory and on this device."""
        states = [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]
        for t in (*tensors, *states):
            sent = t.detach().contiguous()
            with connected():
                dist.broadcast(sent, src=0)
            if sent.data_ptr() != t.data_ptr():
                t.copy_(sent)
        torch.set_rng_state(states[0])
        for state in states[1:]:
            torch.cuda.set_rng_state(state, device)


def ranks_of(method: Any) -> Ranks:
    """Return the ranks that a method is trained on, those of `Distributed` or `LayerParallel`; one for any other."""
    ranks = getattr(method, "ranks", None)
    return ranks if isinstance(ranks, Ranks) else Ranks(joined=False)


@contextmanager
def connected() -> Iterator[None]:
    """Turn torch's error for a message that fails into a `ConnectionError`, which no block takes for its own."""
    try:
        yield
    except RuntimeError as error:
        text = " ".join(str(error).split())[:200]
        raise ConnectionError(f"another rank has failed first, or does not answer: {text}") from error


def bounds(samples: int, rank: int, size: int) -> tuple[int, int]:
    """Return the first row that a rank has of a batch, and the one after its last; where rows do not come out even, the
    first ranks have one more.

    >>> [bounds(7, rank, 3) for rank in range(3)]
    [(0, 3), (3, 5), (5, 7)]
    """
    rows, more = divmod(samples, size)
    first = rank * rows + min(rank, more)
    return first, first + rows + (rank < more)


def digest(*values: Any) -> int:
    """Return a checksum by which batches differ: of the first entries of those tensors that are in main memory."""
    checksum = 0
    for t in values:
        if isinstance(t, Tensor) and not t.is_cuda:
            first = t.detach().reshape(-1)[:DIGESTED].contiguous()
            checksum = zlib.crc32(first.view(torch.uint8).numpy().tobytes(), checksum)
    return checksum
