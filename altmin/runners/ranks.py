"""The processes of a run (ranks): sums over them, what they send, and how the failure of one becomes known to all."""

import os
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from altmin.calculus.context import BatchShard
from altmin.common.errors import Diverged

POLL = timedelta(seconds=1)
"""How long a rank waits for a sum before it checks whether another one has failed."""
PUBLISHED = timedelta(seconds=5)
"""How long a rank whose step is not finite waits to hear from the others why."""
DIGESTED = 4096
"""How many entries of a tensor `digest` reads."""
PAUSE = 5e-5
"""Seconds between two checks of a sum on a GPU."""
SIGNATURES = 4096
"""Signatures are numbers below this: small enough for their sum to be exact in float32."""


OWN, EVERYWHERE, FOLLOWED = "!", "?", "~"
"""Kinds of errors: of a rank by itself, of numbers that are not finite on any rank, and of one that another stopped."""
_made: Counter[str] = Counter()
"""How many groups of the same processes there have been: each has its own marks in the store."""
_renewed: dict[tuple[str, int], Any] = {}
"""Groups of torch made in place of one that a failure has left in a sum: by its processes' names, and how many such
failures there were."""


class RankFailed(ConnectionError):
    """Another rank has failed or is gone, and this one has stopped. The step changed nothing here."""


class Mark(NamedTuple):
    """An error as a rank publishes it: the kind, the number of sums begun by then, and the text."""

    kind: str
    messages: int
    text: str

    def agrees(self, messages: int) -> bool:
        """Whether no rank waits for a sum that only one of two ranks has begun."""
        return self.kind != FOLLOWED and self.messages == messages


def start(device: torch.device | str = "cpu") -> None:
    """Joins the processes that torchrun has started, if it has and this one has not yet: gloo for CPUs, nccl for GPUs.

    On a GPU the process takes the one of its number on this machine; ValueError if there is none.
    """
    if dist.is_initialized() or "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    cuda = torch.device(device).type == "cuda"
    if cuda:
        own, there = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if own >= there:
            raise ValueError(
                f"process {own} of this machine, counted from 0, takes the GPU of its number, and torch finds {there}; "
                "start as many processes as there are GPUs, or put the model on the CPU"
            )
        torch.cuda.set_device(own)
    store, rank, size = next(dist.rendezvous("env://"))
    # That store outlives the processes: without a name of their own, restarted ones meet the addresses of the dead.
    name = f"attempt {os.environ['TORCHELASTIC_RESTART_COUNT']} of {size}"
    backend = "cuda:nccl,cpu:gloo" if cuda else "gloo"
    dist.init_process_group(backend, store=dist.PrefixStore(name, store), rank=rank, world_size=size)


class Ranks:
    """A group of processes that hold the same model. group: one of torch's, None for all processes. failures: the
    group in which failures of ranks are published, None for this one.

    size, rank: how many there are, and which this is. messages, bytes: reductions begun so far, and the bytes in them.
    Without torch's process group there is one rank, and nothing is sent. After a failure that has left some ranks in a
    sum, the same processes get another group of torch, in which no sum is pending.
    """

    def __init__(self, group: Any = None, failures: "Ranks | None" = None):
        self.failures = failures
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
            _made[name] += 1
            store = dist.distributed_c10d._get_default_store()
            self.store = dist.PrefixStore(f"altmin {name} {_made[name]}", store)
            self._of_all = dist.PrefixStore(f"altmin {name}", store)
            self._left = 0
            while self._of_all.check([f"left in a sum {self._left}"]):
                self._left += 1
            if self._left:
                self.group = _renew(name, self._left, group)

    def share(self, start: int, own: int, of: int, signature: Sequence[Any] = (), truth: bool = True) -> BatchShard:
        """This rank's part of the next step. signature: what must be the same on all ranks; it is checked with the
        first sum. truth: False for a rank whose numbers do not count, because another has the same rows."""
        self.steps += 1
        text = repr((self.steps, of, *signature)).encode()
        self._signature = zlib.crc32(torch.get_rng_state().numpy().tobytes(), zlib.crc32(text)) % SIGNATURES

        def begin(flat: Tensor) -> Callable[[], Tensor]:
            return self.begin(flat if truth else torch.zeros_like(flat))

        return BatchShard(begin, start, own, of, self.rank, self.size)

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
            self.wait(work, sent.is_cuda)
            found = sent.to(flat.device)
            if signature is None:
                return found
            if found[-1].item() != self.size * signature:
                raise ValueError(
                    "ranks have been given different batches, or have drawn different random numbers: give all the "
                    "same batches, and draw nothing from torch's generator on some ranks only (nothing was changed)"
                )
            return found[:-1]

        return wait

    def total(self, *numbers: float) -> list[float]:
        """Numbers summed over ranks outside of mini-batches; all ranks wait here for one another. `RankFailed` if one
        has failed."""
        self.steps += 1
        self._signature = None  # that of a share which sent nothing
        return self.begin(torch.tensor(numbers, dtype=torch.float64))().tolist()

    def wait(self, work: Any, on_gpu: bool) -> None:
        """Waits for a sum, and checks from time to time whether a rank has failed."""
        done = False
        while not done:
            try:
                done = self._done(work, on_gpu)
            except RuntimeError as error:
                raise self.gone(error) from None
            if not done:
                self.check_failures()

    def check_failures(self) -> None:
        """`RankFailed` if another rank has failed in this step, or for good in an earlier one."""
        try:
            failed = self._marks() if self._notified() else {}
        except RuntimeError as error:  # of the store, which lies on the first machine
            raise self.gone(error) from None
        if failed:
            raise self._failed(failed)

    @staticmethod
    def _done(work: Any, on_gpu: bool) -> bool:
        """Whether a sum comes within `POLL`. RuntimeError if it has failed."""
        if on_gpu:  # there a wait that ends too early ends the group
            end = time.monotonic() + POLL.total_seconds()
            while not work.is_completed():
                if time.monotonic() > end:
                    return False
                time.sleep(PAUSE)
            work.wait()
            return True
        try:
            work.wait(POLL)
        except RuntimeError:
            if work.is_completed():
                raise
            return False
        return True

    @contextmanager
    def connected(self) -> Iterator[None]:
        """For messages of torch: a connection that is lost inside is `RankFailed`."""
        try:
            yield
        except RuntimeError as error:
            raise self.gone(error) from None

    def gone(self, error: Any) -> RankFailed:
        """The error for a connection that is lost."""
        with suppress(RuntimeError):
            if failed := self._marks():
                return self._failed(failed)
        self.broken = f"rank {self.rank} has lost the others: {' '.join(str(error).split())[:200]}"
        return RankFailed(self.broken)

    def _failed(self, failed: Mapping[int, "Mark"]) -> RankFailed:
        """The error of a rank that must stop in a step because of others, for good."""
        self.broken = self._because(failed)
        return RankFailed(self.broken)

    def _because(self, failed: Mapping[int, "Mark"]) -> str:
        first = {rank: mark for rank, mark in failed.items() if mark.kind != FOLLOWED} or failed
        reasons = "; ".join(f"rank {rank}: {mark.text}" for rank, mark in first.items())
        return f"another rank has stopped this step, {reasons} (nothing was changed on rank {self.rank})"

    def publish(self, error: Exception) -> Exception:
        """Publishes an error in this step, and waits until the others have failed too. Returns the error to raise: the
        same with the rank's name, or where numbers are not finite because of another rank, that rank's.

        Ranks that have all failed after the same sums can continue with another step. If some were left waiting for a
        sum that never comes, none can.
        """
        if self.alone:
            return error
        text = " ".join(str(error).split())
        kind = FOLLOWED if isinstance(error, RankFailed) else EVERYWHERE if isinstance(error, Diverged) else OWN
        try:
            others = self._notify(kind, text)
        except RuntimeError:  # the store is gone, and with it the first machine
            others = {}
        named = error if kind != OWN else _named(error, f"rank {self.rank} of {self.size}: {text}")
        agreed = len(others) == self.size - 1 and all(mark.agrees(self.messages) for mark in others.values())
        if kind == FOLLOWED or not agreed:
            self.end(text)
            return named
        met = {rank: mark for rank, mark in others.items() if mark.kind == OWN}
        return RankFailed(self._because(met)) if met and kind == EVERYWHERE else named

    def end(self, text: str) -> None:
        """No rank can continue after this step, for which the text is the reason."""
        self.broken = self.broken or f"rank {self.rank} has stopped a step that others were in: {text}"
        with suppress(RuntimeError):
            self.store.compare_set("failed", "", str(self.steps))  # the first one stays
            self._of_all.set(f"left in a sum {self._left}", "")

    def interrupted(self, error: BaseException) -> None:
        """Notifies the others that this rank is being stopped in a step, as by Ctrl-C, and does not wait for them."""
        if self.alone:
            return
        with suppress(RuntimeError):
            self.store.set(f"{self.steps} {self.rank}", f"{OWN}{self.messages} {type(error).__name__}")
            self.store.set(f"{self.steps}", "notified")
        self.end(type(error).__name__)

    def _notify(self, kind: str, text: str) -> dict[int, "Mark"]:
        """Sets this rank's mark in this step. Those of all others, as far as they are set in time."""
        self.store.set(f"{self.steps} {self.rank}", f"{kind}{self.messages} {text}")
        self.store.set(f"{self.steps}", "notified")
        if kind != FOLLOWED:
            with suppress(RuntimeError):  # they have not failed
                self.store.wait([f"{self.steps} {rank}" for rank in range(self.size) if rank != self.rank], PUBLISHED)
        return self._marks()

    def _notified(self) -> bool:
        """Whether a rank has set a mark in this step, or has stopped for good in an earlier one."""
        if self.failures is not None:
            return self.failures._notified()
        return self.store.check([f"{self.steps}"]) or self.store.check(["failed"])

    def _marks(self) -> dict[int, "Mark"]:
        """The errors published by other ranks in this step, or in the one in which one has stopped for good."""
        if self.failures is not None:
            return self.failures._marks()
        step = int(self.store.get("failed")) if self.store.check(["failed"]) else self.steps
        found = {}
        for rank in range(self.size):
            key = f"{step} {rank}"
            if rank != self.rank and self.store.check([key]):
                head, _, text = self.store.get(key).decode().partition(" ")
                found[rank] = Mark(head[0], int(head[1:]), text)
        return found

    def equalise(self, tensors: Sequence[Tensor]) -> None:
        """Rank 0's numbers for all, written over these tensors."""
        by_gpu = dist.get_backend(self.group) == "nccl"
        for t in tensors:
            sent = t.detach().cuda() if by_gpu else t.detach().contiguous()
            with self.connected():
                dist.broadcast(sent, self.first, group=self.group)
            if sent.data_ptr() != t.data_ptr():
                t.copy_(sent)

    def equalise_random_numbers(self, device: torch.device) -> None:
        """All ranks draw rank 0's numbers from now on, in main memory and on this device."""
        state = torch.get_rng_state()
        self.equalise([state])
        torch.set_rng_state(state)
        if device.type == "cuda":
            state = torch.cuda.get_rng_state(device)
            self.equalise([state])
            torch.cuda.set_rng_state(state, device)

    @property
    def first(self) -> int:
        """The number of the group's first rank among all processes."""
        return 0 if self.group is None else dist.get_process_group_ranks(self.group)[0]


def _renew(name: str, left: int, group: Any) -> Any:
    """A new group of torch with the processes of another."""
    if (name, left) not in _renewed:
        members, backend = dist.get_process_group_ranks(group), dist.get_backend_config(group)
        _renewed[name, left] = dist.new_group(members, backend=backend, use_local_synchronization=True)
    return _renewed[name, left]


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
    """A checksum by which batches differ: of the first entries of those tensors that are in main memory."""
    found = 0
    for t in given:
        if isinstance(t, Tensor) and not t.is_cuda:
            found = zlib.crc32(
                t.detach().reshape(-1)[:DIGESTED].contiguous().view(torch.uint8).numpy().tobytes(), found
            )
    return found


def _named(error: Exception, text: str) -> Exception:
    """An error of the same kind with another text, where it can be made of one."""
    try:
        return type(error)(text)
    except TypeError:
        return RuntimeError(text)
