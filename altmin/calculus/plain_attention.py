"""Torch's attention by operations with derivatives of every order, in one thread alone.

Torch's own settings for this (`sdpa_kernel`, `torch.backends.mha`) are of the process: a model that another thread
calls meanwhile would take other kernels, and round otherwise.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode


class LayerByLayer(TorchFunctionMode):
    """Within, torch's modules of attention do not use the kernel for a whole layer, which has no derivatives: they
    never do where functions are overridden. plain: attention itself is computed by a product, a softmax and a product;
    torch's kernels for it can be differentiated once, and draw random numbers in different ways."""

    def __init__(self, plain: bool = False):
        super().__init__()
        self.plain = plain

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = PLAIN.get(func, func) if self.plain else func
        return call(*args, **(kwargs or {}))


def plain_attention() -> AbstractContextManager[Any]:
    """`LayerByLayer(plain=True)`; where operations are compiled, torch's own settings, which apply to what is
    compiled."""
    return sdpa_kernel(SDPBackend.MATH) if torch.compiler.is_compiling() else LayerByLayer(plain=True)


def layer_by_layer() -> AbstractContextManager[Any]:
    """`LayerByLayer()`; where operations are compiled, torch's own setting."""
    return _setting() if torch.compiler.is_compiling() else LayerByLayer()


@contextmanager
def _setting() -> Iterator[None]:
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`F.scaled_dot_product_attention`."""
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(~attn_mask, -torch.inf)
    plain = torch.ops.aten._scaled_dot_product_attention_math
    found: Tensor = plain(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)[0]
    return found


_of_modules = FunctionType(
    F.multi_head_attention_forward.__code__,
    {**vars(F), "has_torch_function": lambda *_: False, "scaled_dot_product_attention": _attention},
    argdefs=F.multi_head_attention_forward.__defaults__,
)
"""`F.multi_head_attention_forward`, which a mode sees, but not what that calls."""
PLAIN: dict[Any, Any] = {F.scaled_dot_product_attention: _attention, F.multi_head_attention_forward: _of_modules}
