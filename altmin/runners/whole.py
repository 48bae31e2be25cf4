"""A step compiled as a whole by torch.compile, with all of its small operations in few kernels."""

import warnings
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

import torch

Options = dict[str, Any]


class Whole:
    """A method of an object that is compiled at its first call.

    device: where it computes. On a GPU independent kernels are joined, products of one shape are batched, and random
    numbers are those of the ordinary step. works: whether torch can compile it, None before the first call. If it
    cannot, a warning says why, and each call returns None.
    """

    def __init__(self, function: Any, owner: Any, device: torch.device):
        # a code object of its own: torch compiles each at most eight times
        code = function.__code__.replace()
        self.function = MethodType(FunctionType(code, function.__globals__, function.__name__), owner)
        self.left = list[Options](({},) if device.type != "cuda" else _on_gpu())
        """The compiler's options that are still to be tried, from the last to the first."""
        self.compiled: Any = None
        self.works: bool | None = None

    def __call__(self, *args: Any) -> Any:
        """What the method returns, which is not None; None if torch cannot compile it."""
        from torch._dynamo import config  # not before something is compiled: it takes seconds
        from torch._dynamo.exc import TorchDynamoException

        while self.works is not False:
            if self.compiled is None:
                options = self.left.pop() or None
                self.compiled = torch.compile(self.function, fullgraph=True, dynamic=False, options=options)
            try:
                with config.patch(allow_rnn=True):  # a recurrent layer is called by `opaque_recurrence`
                    found = self.compiled(*args)
            except TorchDynamoException as error:
                self.compiled = None
                if not self.left:
                    self.works = False
                    warnings.warn(f"a step is recorded without being compiled, since torch cannot: {_reason(error)}")
            else:
                self.works = True
                return found
        return None


def _on_gpu() -> Iterator[Options]:
    """Without batches and joined kernels; without reordered loops, in which torch 2.11 fails on some nets; with all."""
    from altmin.runners.batching import BatchedProducts  # imports the compiler, which takes seconds

    same: Options = {"fallback_random": True}
    joined: Options = {**same, "combo_kernels": True, "post_grad_custom_pre_pass": BatchedProducts()}
    yield from (same, {**joined, "loop_ordering_after_fusion": False}, joined)


def _reason(error: Exception) -> str:
    """On one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2])[:300] or type(error).__name__
