"""A step compiled as a whole by torch.compile, with all of its small operations in few kernels."""

import gc
import warnings
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

import torch

MOST_BLOCKS = 64
"""Blocks up to which a step is compiled; a longer one would take minutes."""
Options = dict[str, Any]
SAME: Options = {"fallback_random": True}
"""Random numbers are those of the ordinary step."""


class FullGraph:
    """A method of an object that is compiled at its first call. Later calls must be like it: nothing may differ but the
    values in tensors.

    device: where it computes. works: whether torch can compile it, None before the first call. If it cannot, a warning
    says why, and each call returns None.
    """

    def __init__(self, function: Any, owner: Any, device: torch.device):
        # a code object of its own: torch compiles each at most eight times
        code = function.__code__.replace()
        self.function = MethodType(FunctionType(code, function.__globals__, function.__name__), owner)
        self.options = _on_gpu() if device.type == "cuda" else _on_cpu()
        self.compiled: Any = None
        self.works: bool | None = None

    def __call__(self, *args: Any) -> Any:
        """Return the method's result, which is not None; None if torch cannot compile it."""
        if self.works:
            return self.compiled(*args)
        return None if self.works is False else self._first(args)

    def _first(self, args: Any) -> Any:
        from torch._dynamo import config  # not before something is compiled: it takes seconds
        from torch._dynamo.exc import TorchDynamoException

        reason = ""
        for options in self.options:
            compiled = torch.compile(self.function, fullgraph=True, dynamic=False, options=options)
            try:
                with config.patch(allow_rnn=True):  # a recurrent layer is called by `opaque_recurrence`
                    found = compiled(*args)
            except (TorchDynamoException, AssertionError) as error:  # torch 2.11 has defects that are the latter
                reason = " ".join(str(error).split())[:300] or type(error).__name__
            else:
                self.compiled, self.works = compiled, True
                return found
        self.works = False
        with torch._C._PreserveDispatchKeyGuard():  # a failed trace leaves guards that change it when they are freed
            gc.collect()
        warnings.warn(f"a step is recorded without being compiled, since torch cannot: {reason}")
        return None


def _on_cpu() -> Iterator[Options]:
    """Yield options with layouts as they are, since the gradients of convolutions would be copied to and fro. What a
    call checks first, that it is like the one that was compiled, takes as long as a small step."""
    yield {**SAME, "layout_optimization": False, "guard_filter_fn": lambda guards: [False] * len(guards)}


def _on_gpu() -> Iterator[Options]:
    """Yield options that join independent kernels and batch products of one shape; then the same without reordered
    loops, in which torch 2.11 fails for some nets, and none of it."""
    from altmin.runners.batching import BatchedProducts  # imports the compiler, which takes seconds

    joined: Options = {**SAME, "combo_kernels": True, "post_grad_custom_pre_pass": BatchedProducts()}
    yield from (joined, {**joined, "loop_ordering_after_fusion": False}, SAME)
