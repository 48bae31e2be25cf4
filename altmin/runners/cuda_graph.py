"""An action recorded as a CUDA graph, whose kernels are launched together."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor


class CudaGraph:
    """An action recorded on the current CUDA device. Before, it runs a few times, so that kernels are compiled and
    libraries are ready; then `state()`, everything that it changes, is put back as it was, and so is the random state.
    ValueError if torch cannot record it."""

    def __init__(self, action: Callable[[], Tensor], state: Callable[[], list[Tensor]]):
        stream = _stream(torch.cuda.current_device())
        with _restored(state):
            stream.wait_stream(torch.cuda.current_stream())  # which copies the state
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
            except (RuntimeError, ValueError) as error:  # the generator of a recording that failed refuses to draw
                generator = torch.cuda.default_generators[torch.cuda.current_device()]
                generator.graphsafe_set_state(torch.Generator(generator.device))
                raise ValueError(f"this step cannot be captured: {str(error).splitlines()[0]}") from error
        torch.cuda.current_stream().wait_stream(stream)

    def __call__(self) -> Tensor:
        """Replay the action; return its result, which the next replay overwrites."""
        self.graph.replay()
        return self.result


@cache
def _stream(device: int) -> torch.cuda.Stream:
    """Return the stream of all recordings on a device: each stream that multiplies has workspaces of its own, 64 MiB of
    them on an H200."""
    return torch.cuda.Stream(device)


@contextmanager
def _restored(state: Callable[[], list[Tensor]]) -> Iterator[None]:
    """Restore the values of tensors, and the random state; tensors created since (an optimizer's first state) become
    zeros."""
    before = {id(t): t.detach().clone() for t in state()}
    try:
        with torch.random.fork_rng([torch.cuda.current_device()]):
            yield
    finally:
        with torch.no_grad():
            for t in state():
                old = before.get(id(t))
                t.zero_() if old is None else t.copy_(old)
