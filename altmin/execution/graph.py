"""A step recorded once as a CUDA graph and replayed: the GPU no longer waits for the processor to start its kernels."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from altmin.execution.lanes import Lane, check_recordable, lane
from altmin.fusing import can_fuse, fusing
from altmin.methods.backprop import LossOnly

LOOK = 64
"""Steps after which `Recorded` looks whether all were taken."""


class Recorded:
    """A method whose step is replayed from a recording: `Recorded(method)`, made with the first batch that comes, or
    with one given now.

    It is a `Method` again, for `fit` and everybody else, and gives the numbers of the method's own step. Batches of
    another shape (the last of an epoch, often) are done by that step, and it says so once. A step that turns out to
    need an answer from the processor (a code that must be halved; numbers that are not finite) is left out with all
    that follow, found at the next look, and done in the ordinary way, with those after it.
    """

    def __init__(self, method: Any, x: Tensor | None = None, y: Tensor | None = None, fuse: bool | None = None):
        demand_cuda(method.model)
        check_recordable(method)
        self.method, self.fuse = method, fuse
        self.program: Program | None = None
        self.pending: list[tuple[Tensor, Tensor]] = []
        self.how: dict[str, Any] = {}
        self.others = 0
        if x is not None and y is not None:
            self._record(x, y)

    def _record(self, x: Tensor, y: Tensor) -> "Program":
        self.x, self.y, self.lane = x.clone(), y.clone(), lane(self.method)
        self.program = Program(self.lane, lambda: self.lane.advance(self.x, self.y, **self.how), self.fuse)
        return self.program

    @property
    def model(self) -> nn.Module:
        """The method's model, after a look."""
        self.look()
        return self.method.model

    def __getattr__(self, name: str) -> Any:
        """All else (`optimizer`, `penalty`, and what an ensemble has) is the method's own, after a look."""
        if name in ("method", "program"):
            raise AttributeError(name)
        self.look()
        return getattr(self.method, name)

    def __len__(self) -> int:
        return len(self.method)

    def __bool__(self) -> bool:
        return True

    def step(self, x: Tensor, y: Tensor, **how: Any) -> Any:
        """One mini-batch; `how` is what the method's own step takes besides, the same for all batches recorded."""
        if self.program is None:
            self.how = how
            self._record(x, y)
        if how != self.how:
            return self._ordinary(x, y, how)
        if (x.shape, x.dtype, y.shape, y.dtype) != (self.x.shape, self.x.dtype, self.y.shape, self.y.dtype):
            return self._ordinary(x, y, how)
        self.pending.append((x, y))
        loss = self._replay(x, y)
        if len(self.pending) >= LOOK:
            self.look()
        return LossOnly(loss)

    def _replay(self, x: Tensor, y: Tensor) -> Tensor:
        assert self.program is not None
        self.x.copy_(x, non_blocking=True)
        self.y.copy_(y, non_blocking=True)
        self.lane.set_rates()
        return self.program.run().clone()

    def _ordinary(self, x: Tensor, y: Tensor, how: Any) -> Any:
        if not self.others:
            warnings.warn(
                f"a batch of {tuple(x.shape)} takes the ordinary step; recorded are those of {tuple(self.x.shape)}",
                stacklevel=3,
            )
        self.others += 1
        return self._apart(self.method.step, x, y, **how)

    def _apart(self, action: Callable[..., Any], *args: Any, **more: Any) -> Any:
        """Something that the processor does between replays, and that may change what it knows."""
        self.look()
        result = action(*args, **more)
        if self.program is not None:
            self.lane.before()
        return result

    def look(self) -> None:
        """Waits for the device and makes up for what it could not do alone."""
        if self.program is None:
            return
        while (taken := self.lane.taken()) is not None:
            again, self.pending = self.pending[taken:][: self.lane.careful], self.pending[taken + self.lane.careful :]
            self.lane.after()
            try:
                for x, y in again:
                    self.method.step(x, y, **self.how)
            finally:  # whatever is wrong with one batch, those after it are taken
                self.lane.before()
                self.lane.forgive()
                for x, y in self.pending:
                    self._replay(x, y)
        self.lane.forgive()
        self.pending = []
        self.lane.after()

    def end_epoch(self) -> None:
        self._apart(self.method.end_epoch)

    def state_dict(self) -> dict[str, Any]:
        self.look()
        return self.method.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.program is not None:
            raise RuntimeError("a state is loaded before the first step is recorded; make a new Recorded(method)")
        self.method.load_state_dict(state)


class Program:
    """Records what a lane does and replays it. Recording needs a few rehearsals; they leave no trace."""

    def __init__(self, lane: Lane, action: Callable[[], Tensor], fuse: bool | None = None):
        self.lane = lane
        with fusing(can_fuse() if fuse is None else fuse):
            kept = _Kept(lane)
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    action()
            torch.cuda.current_stream().wait_stream(stream)
            torch.cuda.synchronize()
            kept.restore()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.result = action()
            kept.restore()
        lane.before()

    def run(self) -> Tensor:
        self.graph.replay()
        return self.result

    def apart(self, action: Callable[..., Any], *args: Any) -> Any:
        """Something that the processor does between replays, and that may change what it knows."""
        self.lane.after()
        result = action(*args)
        self.lane.before()
        return result


class _Kept:
    """What a lane's tensors held; those that came up later (an optimizer's first state) held zeros."""

    def __init__(self, lane: Lane):
        self.lane = lane
        self.kept = {id(t): t.detach().clone() for t in lane.tensors()}

    @torch.no_grad()
    def restore(self) -> None:
        for t in self.lane.tensors():
            old = self.kept.get(id(t))
            t.zero_() if old is None else t.copy_(old)


def demand_cuda(model: nn.Module) -> None:
    device = next(model.parameters()).device
    if device.type != "cuda":
        raise ValueError(f"a step is recorded on a CUDA device, the model is on {device}; move it with .to('cuda')")
