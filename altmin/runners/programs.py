"""An action captured as a CUDA graph, or compiled for a CPU, and where that is possible."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from altmin.runners.capture import CapturedStep
from altmin.runners.compiled import check as check_compiler


@cache
def _stream(device: int) -> torch.cuda.Stream:
    """The stream of all captures on a device: each stream that multiplies has workspaces of its own, 64 MiB of them on
    an H200."""
    return torch.cuda.Stream(device)


class Program:
    """An action captured as a CUDA graph. Before, it runs a few times, so that kernels are compiled and libraries are
    ready; then `state()`, everything that it changes, is put back as it was, and so is the random state."""

    def __init__(self, action: Callable[[], Tensor], state: Callable[[], list[Tensor]]):
        stream = _stream(torch.cuda.current_device())
        stream.wait_stream(torch.cuda.current_stream())
        with _restored(state):
            with torch.cuda.stream(stream):
                for _ in range(3):
                    action()
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(self.graph, stream=stream):
                    self.result = action()
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                _renew_generator()
                raise ValueError(f"this step cannot be captured: {str(error).splitlines()[0]}") from error
        torch.cuda.current_stream().wait_stream(stream)

    def replay(self) -> Tensor:
        """Replays the capture; returns its result, which the next replay overwrites."""
        self.graph.replay()
        return self.result


class Call:
    """An action on a CPU, which is called again. Before, it runs once, so that it is compiled; then `state()` is put
    back as it was, and so is the random state."""

    def __init__(self, action: Callable[[], Tensor], state: Callable[[], list[Tensor]]):
        self.action = action
        with _restored(state):
            action()

    def replay(self) -> Tensor:
        """Runs the action; returns its result."""
        return self.action()


def _renew_generator() -> None:
    """Gives the GPU's random generator a new state, since that of a capture that failed refuses to draw; its numbers
    are for the caller to set."""
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    generator.graphsafe_set_state(torch.Generator(generator.device))


class Programs:
    """A captured step: a `Program` of an action for each of its kinds, on a CPU a `Call`. device: where it runs."""

    def __init__(
        self,
        step: CapturedStep,
        action: Callable[[bool], Tensor],
        state: Callable[[], list[Tensor]],
        device: torch.device,
    ):
        self.step = step
        program: Any = Program if device.type == "cuda" else Call
        self.programs = {kind: program(partial(action, kind), state) for kind in step.kinds}

    def replay(self) -> Tensor:
        """Takes the next step; returns its result, which the next one overwrites."""
        return self.programs[self.step.begin_step()].replay()


@contextmanager
def _restored(state: Callable[[], list[Tensor]]) -> Iterator[None]:
    """Restores the values of tensors, and the random state; tensors created since (an optimizer's first state) become
    zeros."""
    kept = {id(t): t.detach().clone() for t in state()}
    try:
        with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_available() else []):
            yield
    finally:
        with torch.no_grad():
            for t in state():
                old = kept.get(id(t))
                t.zero_() if old is None else t.copy_(old)


def can_fuse(device: torch.device) -> bool:
    """Whether torch can compile for a device."""
    try:
        check_compiler(device)
    except ValueError:
        return False
    if device.type == "cpu":
        return True
    from torch.utils._triton import has_triton

    return torch.cuda.is_available() and has_triton()


def is_on_gpu(model: nn.Module) -> bool:
    """Whether the model's parameters, of which there are some, lie on the current CUDA device, on which steps are
    captured."""
    first = next(iter(model.parameters()), None)
    return first is not None and first.is_cuda and first.device.index == torch.cuda.current_device()


def demand_cuda(model: nn.Module) -> None:
    """ValueError unless the model is on the current CUDA device."""
    device = next(iter(model.parameters())).device
    if device.type != "cuda":
        raise ValueError(f"a step is captured on a CUDA device, the model is on {device}; move it with .to('cuda')")
    if not is_on_gpu(model):
        raise ValueError(
            f"a step is captured on the current CUDA device, cuda:{torch.cuda.current_device()}, and the model is on "
            f"{device}; call torch.cuda.set_device({device.index}) first"
        )
