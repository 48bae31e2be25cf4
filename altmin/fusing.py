"""Marks short chains of element-wise operations that a compiler may run as one kernel.

A marked function is an ordinary function of tensors. On a GPU each of its operations is a kernel that takes longer to
start than to run; within `fusing()` the function is compiled, so that it starts once. What it computes is the same.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

F = TypeVar("F", bound=Callable[..., Any])
_active = False


def fusible(function: F) -> F:
    """The function as it is, compiled within `fusing()`. It returns tensors, and changes none."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        if not _active or torch.compiler.is_compiling():
            return function(*args)
        if torch._C._functorch.maybe_current_level() is None:
            return _compiled(function)(*args)
        leaves, form = pytree.tree_flatten(args)
        return _Members.apply(function, form, *leaves)

    return call  # type: ignore[return-value]


def fusible_alone(function: F) -> F:
    """The same for a function that writes into its arguments, or returns something else: not for many members."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        alone = _active and not torch.compiler.is_compiling() and torch._C._functorch.maybe_current_level() is None
        return _compiled(function)(*args) if alone else function(*args)

    return call  # type: ignore[return-value]


@contextmanager
def fusing(wanted: bool = True) -> Iterator[None]:
    """Compiles what is marked, as far as it is run in here; every shape once."""
    global _active
    before, _active = _active, wanted
    limits = {"recompile_limit": 256, "accumulated_recompile_limit": 4096}
    try:
        with torch._dynamo.config.patch(limits) if wanted else nullcontext():
            yield
    finally:
        _active = before


def can_fuse() -> bool:
    """Whether torch can compile for this machine's GPU."""
    from torch.utils._triton import has_triton

    return torch.cuda.is_available() and has_triton()


@functools.cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, fullgraph=True, dynamic=False)


@functools.cache
def _vectorised(function: Callable[..., Any], form: Any, dims: tuple[Any, ...], fixed: tuple[Any, ...]) -> Any:
    """`function` for all members at once, compiled; `fixed` has None where a tensor is to come."""

    def one(*tensors: Tensor) -> Any:
        given = iter(tensors)
        leaves = [next(given) if value is None else value[0] for value in fixed]
        return function(*pytree.tree_unflatten(leaves, form))

    def every(*tensors: Tensor) -> Any:
        return torch.func.vmap(one, in_dims=tuple(d for d, value in zip(dims, fixed, strict=True) if value is None))(
            *tensors
        )

    return torch.compile(every, fullgraph=True, dynamic=False)


class _Members(torch.autograd.Function):
    """Inside `torch.func.vmap` a member's tensors are none of their own; here all members' are, and can be compiled."""

    @staticmethod
    def forward(function: Callable[..., Any], form: Any, *leaves: Any) -> Any:
        return function(*pytree.tree_unflatten(leaves, form))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, dims: Sequence[Any], function: Callable[..., Any], form: Any, *leaves: Any) -> tuple[Any, Any]:
        fixed = tuple(None if isinstance(leaf, Tensor) else (leaf,) for leaf in leaves)
        found = _vectorised(function, form, tuple(dims[2:]), fixed)(*(t for t in leaves if isinstance(t, Tensor)))
        return found, pytree.tree_map(lambda _: 0, found)
