"""The processes of a run (ranks): sums over them, what they send, and how the failure of one becomes known to all."""

import os
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from altmin.calculus.ranks import Share
from altmin.errors import Diverged

LOOK = timedelta(seconds=1)
"""How long a rank waits for a sum before it looks whether another one has failed."""
POSTED = timedelta(seconds=5)
"""How long a rank whose step is not finite waits to hear from the others why."""
DIGESTED = 4096
"""How many entries of a tensor `digest` looks at."""
SIGNATURES = 4096
"""Signatures are numbers below this: small enough for their sum to be exact in float32."""


class RankFailed(ConnectionError):
    """Another rank has failed or is gone, so that this one cannot go on. Nothing of the step was done here."""


def start(device: torch.device | str = "cpu") -> None:
    """Joins the processes that torchrun has started, if it has and this one has not yet: gloo for CPUs, nccl for GPUs.

    On a GPU the process takes the one of its number on this machine.
    """
    if dist.is_initialized() or "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    cuda = torch.device(device).type == "cuda"
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cuda:nccl,cpu:gloo" if cuda else "gloo")


class Ranks:
    """A group of processes that hold the same model. group: one of torch's, None for all processes.

    size, rank: how many there are, and which this is. messages, bytes: reductions begun so far, and the bytes in them.
    Without torch's process group there is one rank, and nothing is sent.
    """

    def __init__(self, group: Any = None):
        self.alone = not dist.is_initialized()
        self.group = group
        self.size = 1 if self.alone else dist.get_world_size(group)
        self.rank = 0 if self.alone else dist.get_rank(group)
        self.messages = self.bytes = self.steps = 0
        self.broken = ""
        self._signature: int | None = None
        if not self.alone:
            members = [0] if group is None else dist.get_process_group_ranks(group)
            name = "all" if group is None else "-".join(map(str, members))
            self.store = dist.PrefixStore(f"altmin {name}", dist.distributed_c10d._get_default_store())

    def share(self, start: int, own: int, of: int, signature: Sequence[Any] = (), truth: bool = True) -> Share:
        """This rank's part of the next step. signature: what must be the same on all ranks; it is checked with the
        first sum. truth: False for a rank whose numbers do not count, because another has the same rows."""
        self.steps += 1
        text = repr((self.steps, of, *signature)).encode()
        self._signature = zlib.crc32(torch.get_rng_state().numpy().tobytes(), zlib.crc32(text)) % SIGNATURES

        def begin(flat: Tensor) -> Callable[[], Tensor]:
            return self.begin(flat if truth else torch.zeros_like(flat))

        return Share(begin, start, own, of, self.rank, self.size)

    def begin(self, flat: Tensor) -> Callable[[], Tensor]:
        """Begins to sum a flat tensor over ranks; the function waits for the sum. `RankFailed` if a rank is gone."""
        if self.broken:
            raise RankFailed(self.broken)
        signature, self._signature = self._signature, None
        sent = flat if signature is None else torch.cat([flat, flat.new_tensor([signature])])
        if dist.get_backend(self.group) == "nccl" and not sent.is_cuda:
            sent = sent.cuda()
        self.messages += 1
        self.bytes += sent.numel() * sent.element_size()
        try:
            work = dist.all_reduce(sent, group=self.group, async_op=True)
        except RuntimeError as error:
            raise self.gone(error) from None

        def wait() -> Tensor:
            self.wait(work)
            found = sent.to(flat.device)
            if signature is None:
                return found
            if found[-1].item() != self.size * signature:
                raise ValueError(
                    f"rank {self.rank} has another batch, or other random numbers, than the rest: give all ranks the "
                    "same batches, and draw nothing from torch's generator on some ranks only (nothing was changed)"
                )
            return found[:-1]

        return wait

    def wait(self, work: Any) -> None:
        """Waits for one of torch's handles. `RankFailed` if a rank has failed or is gone."""
        while True:
            try:
                work.wait(LOOK)
                return
            except RuntimeError as error:
                if work.is_completed():  # it has failed
                    raise self.gone(error) from None
            self.look()

    def look(self) -> None:
        """`RankFailed` if another rank has failed in this step."""
        if failed := self.posted():
            raise self._failed(failed)

    def gone(self, error: Any) -> RankFailed:
        """The error for a connection that is lost."""
        failed = self.posted()
        if failed:
            return self._failed(failed)
        self.broken = f"rank {self.rank} has lost the others: {' '.join(str(error).split())[:200]}"
        return RankFailed(self.broken)

    def _failed(self, failed: dict[int, str]) -> RankFailed:
        told = "; ".join(f"rank {rank}: {text}" for rank, text in failed.items())
        self.broken = f"another rank has stopped this step, {told} (nothing was changed on rank {self.rank})"
        return RankFailed(self.broken)

    def post(self, error: Exception) -> Exception:
        """Tells the others of an error in this step. The error to raise here: the same with the rank's name, or where
        numbers are not finite because of another rank, that rank's."""
        if self.alone or isinstance(error, RankFailed):
            return error
        text = " ".join(str(error).split())
        everywhere = isinstance(error, Diverged)
        self.store.set(f"{self.steps} {self.rank}", ("?" if everywhere else "!") + text)
        if everywhere:
            others = [f"{self.steps} {rank}" for rank in range(self.size) if rank != self.rank]
            with suppress(RuntimeError):  # they have not failed
                self.store.wait(others, POSTED)
            if failed := self.posted():
                return self._failed(failed)
            return error
        self.broken = f"rank {self.rank} has stopped a step that others were in: {text}"
        return _named(error, f"rank {self.rank} of {self.size}: {text}")

    def posted(self) -> dict[int, str]:
        """Errors of this step that other ranks have met by themselves, by rank."""
        found = {}
        for rank in range(self.size):
            key = f"{self.steps} {rank}"
            if rank != self.rank and self.store.check([key]):
                text = self.store.get(key).decode()
                if text.startswith("!"):
                    found[rank] = text[1:]
        return found

    def equalise(self, tensors: Sequence[Tensor]) -> None:
        """Rank 0's numbers for all, written over these tensors."""
        for t in tensors:
            dist.broadcast(t, self.first, group=self.group)

    @property
    def first(self) -> int:
        """The number of the group's first rank among all processes."""
        return 0 if self.group is None else dist.get_process_group_ranks(self.group)[0]


def bounds(samples: int, rank: int, size: int) -> tuple[int, int]:
    """The first row that a rank has of a batch, and the one after its last; where rows do not come out even, the first
    ranks have one more.

    >>> [bounds(7, rank, 3) for rank in range(3)]
    [(0, 3), (3, 5), (5, 7)]
    """
    each, more = divmod(samples, size)
    first = rank * each + min(rank, more)
    return first, first + each + (rank < more)


def digest(*given: Any) -> int:
    """A number that tells batches from each other: of the first entries of those tensors that lie in main memory."""
    found = 0
    for t in given:
        if isinstance(t, Tensor) and not t.is_cuda:
            found = zlib.crc32(t.detach().reshape(-1)[:DIGESTED].contiguous().view(torch.uint8).numpy(), found)
    return found


def _named(error: Exception, text: str) -> Exception:
    """An error of the same kind with another text, where it can be made of one."""
    try:
        return type(error)(text)
    except TypeError:
        return RuntimeError(text)
