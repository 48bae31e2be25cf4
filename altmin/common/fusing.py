"""Decorators for short chains of element-wise operations that `torch.compile` may run as one kernel.

A marked function is an ordinary function of tensors. On a GPU each of its operations is a kernel that takes longer to
start than to run; within `fusing()` the function is compiled into one kernel. The result is the same up to rounding.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from altmin.common.flags import Flag

F = TypeVar("F", bound=Callable[..., Any])
_active = Flag()


def vectorised() -> bool:
    """Whether this runs inside `torch.func`, where tensors cannot be asked for their numbers, written by `out=` or
    handed to fused kernels."""
    return torch._C._functorch.maybe_current_level() is not None


def functional() -> bool:
    """Whether this is inside `torch.func` or in what is compiled, where tensors can have no graph of their own."""
    return torch.compiler.is_compiling() or vectorised()


def fusible(function: F) -> F:
    """Mark a function of tensors (and numbers, None, and tuples of these) that returns new tensors and writes to none.

    Within `fusing()` a call is compiled, also inside `torch.func.vmap`, where all members are computed by one kernel.
    Elsewhere, and inside a function that is being compiled, it is called as it is.
    """

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        if not _active.on or torch.compiler.is_compiling():
            return function(*args)
        if not vectorised():
            return _compiled(function)(*args)
        leaves, form = pytree.tree_flatten(args)
        return _Members.apply(function, form, *leaves)

    return call  # type: ignore[return-value]


def fusible_alone(function: F) -> F:
    """Mark a function that writes to its arguments or returns something other than tensors.

    Within `fusing()` a call is compiled, except inside `torch.func.vmap`, where it is called as it is.
    """

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        alone = _active.on and not torch.compiler.is_compiling() and not vectorised()
        return _compiled(function)(*args) if alone else function(*args)

    return call  # type: ignore[return-value]


@contextmanager
def fusing(wanted: bool = True) -> Iterator[None]:
    """Compile the marked functions that are called within this block, in this thread, once for each shape of their
    arguments.

    wanted=False: call them as they are within this block.
    """
    limits = {"recompile_limit": 256, "accumulated_recompile_limit": 4096}
    with _active.set(wanted), torch._dynamo.config.patch(limits) if wanted else nullcontext():
        yield


def fusing_now() -> bool:
    """Whether this runs within `fusing()`."""
    return _active.on


def can_fuse() -> bool:
    """Whether this machine has a GPU that torch can compile for."""
    from torch.utils._triton import has_triton

    return torch.cuda.is_available() and has_triton()


@functools.cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, fullgraph=True, dynamic=False)


@functools.cache
def _vectorised(function: Callable[..., Any], form: Any, dims: tuple[Any, ...], fixed: tuple[Any, ...]) -> Any:
    """`function` over all members at once, compiled, as a function of its tensor arguments.

    form: the structure of the arguments. dims: the axis of the members for each leaf, None where it is shared. fixed:
    None for each leaf that is a tensor, else the leaf in a tuple; the leaves are part of the key of the cache.
    """

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
    """Calls a marked function inside `torch.func.vmap`.

    There the arguments are wrappers around all members' tensors, which cannot be compiled. The `vmap` rule of an
    autograd function gets the tensors themselves.
    """

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
