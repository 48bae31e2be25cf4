"""A step compiled as a whole by torch.compile, with all of its small operations in few kernels."""

import gc
import warnings
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.utils import _pytree as pytree

from altmin.common.unchanged import same_attributes, same_buffers

MOST_BLOCKS = 64
"""Blocks up to which a step is compiled; a longer one would take minutes."""
Options = dict[str, Any]
UNCOMPILED = "a step is recorded without being compiled, since torch cannot"
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
                    result = compiled(*args)
            except (TorchDynamoException, AssertionError) as error:  # torch 2.11 has defects that are the latter
                reason = " ".join(str(error).split())[:300] or type(error).__name__
            else:
                self.compiled, self.works = compiled, True
                return result
        self.works = False
        with torch._C._PreserveDispatchKeyGuard():  # a failed trace leaves guards that change it when they are freed
            gc.collect()
        warnings.warn(f"{UNCOMPILED}: {reason}")
        return None


def own_functions(method: Any, x: Tensor, y: Tensor) -> list[str]:
    """Return the names of the `torch.autograd.Function`s, other than torch's and altmin's, in a method's model and loss
    for a mini-batch: compiled inside `torch.func`, they may lose their backward. Nothing changes."""
    model, loss = method.model, getattr(method.loss, "function", method.loss)
    devices = [x.device] if x.is_cuda else []
    with torch.random.fork_rng(devices), same_buffers(model), same_attributes(model), torch.enable_grad():
        output = model(x.detach().requires_grad_(x.is_floating_point()))
        ends = [t for t in pytree.tree_leaves((output, loss(output, y))) if isinstance(t, Tensor)]
    nodes = {t.grad_fn: None for t in ends}
    queue = list(nodes)
    for node in queue:  # which grows
        below = [n for n, _ in node.next_functions if n not in nodes] if node is not None else []
        nodes |= dict.fromkeys(below)
        queue += dict.fromkeys(below)
    kinds = {getattr(type(node), "_forward_cls", None) for node in nodes if isinstance(node, BackwardCFunction)}
    return sorted(k.__qualname__ for k in kinds if k and k.__module__.partition(".")[0] not in ("torch", "altmin"))


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
