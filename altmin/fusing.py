"""Marks short chains of element-wise operations that a compiler may run as one kernel.

A marked function is an ordinary function of tensors. On a GPU each of its operations is a kernel that takes longer to
start than to run; within `fusing()` the function is compiled, so that it starts once. What it computes is the same.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Callable[..., Any])
_active = False


def fusible(function: F) -> F:
    """The function as it is, compiled within `fusing()`."""

    @functools.cache
    def compiled() -> Callable[..., Any]:
        return torch.compile(function, fullgraph=True, dynamic=False)

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        # inside torch.func there is nothing to compile yet: its members are not tensors of their own
        wanted = _active and torch._C._functorch.maybe_current_level() is None
        return compiled()(*args) if wanted else function(*args)

    return call  # type: ignore[return-value]


@contextmanager
def fusing(wanted: bool = True) -> Iterator[None]:
    """Compiles what is marked, as far as it is run in here; every shape once."""
    global _active
    before, _active = _active, wanted
    try:
        with torch._dynamo.config.patch(recompile_limit=256, accumulated_recompile_limit=4096):
            yield
    finally:
        _active = before


def can_fuse() -> bool:
    """Whether torch can compile for this machine's GPU."""
    from torch.utils._triton import has_triton

    return torch.cuda.is_available() and has_triton()
