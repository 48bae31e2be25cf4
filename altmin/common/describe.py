"""Settings in one line of text, the same in every process, which distinguishes one run from another."""

import functools
import hashlib
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


def describe(value: Any) -> str:
    """A value's kind and settings. A function is its qualified name, so that two lambdas of a module look alike; of an
    object that has no text of its own, numbers, texts and functions among its attributes count.

    >>> describe(nn.CrossEntropyLoss(label_smoothing=0.1))
    "CrossEntropyLoss(ignore_index=-100, label_smoothing=0.1, reduction='mean', weight=None)"
    >>> describe(functools.partial(torch.optim.SGD, momentum=0.9))
    'torch.optim.sgd.SGD(momentum=0.9)'
    """
    if isinstance(value, Tensor):
        return f"{kind(value)} {digest(value)}"
    if isinstance(value, functools.partial):
        options = [describe(arg) for arg in value.args]
        options += [f"{name}={describe(arg)}" for name, arg in sorted(value.keywords.items())]
        return f"{describe(value.func)}({', '.join(options)})"
    if isinstance(value, nn.Module):
        parts: dict[str, Any] = {name: part for name, part in vars(value).items() if _plain(part)}
        parts.update(value._buffers)
        parts.update(value._modules)
        return _called(value, {name: part for name, part in parts.items() if name != "training"})
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    if type(value).__repr__ is object.__repr__:
        return _called(value, {name: part for name, part in getattr(value, "__dict__", {}).items() if _plain(part)})
    return " ".join(re.sub(r" at 0x[0-9a-f]+", "", repr(value)).split())


def plain(value: Any) -> Any:
    """Convert a value to one that JSON can represent."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def kind(x: Tensor) -> str:
    """Type and shape, e.g. "float32 8x6"."""
    return " ".join([str(x.dtype).removeprefix("torch."), "x".join(map(str, x.shape))]).strip()


def digest(*parts: Tensor | str, size: int = 8) -> str:
    """A fingerprint of texts and of the bytes of tensors, one after the other: 2 `size` hexadecimal digits."""
    hasher = hashlib.blake2b(digest_size=size)
    for part in parts:
        hasher.update(part.encode(errors="surrogatepass") if isinstance(part, str) else _bytes(part))
    return hasher.hexdigest()


def _bytes(x: Tensor) -> Any:
    """Return the bytes of a tensor's entries, one after the other."""
    return x.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8).numpy()


def _plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_plain, value))
    plain = value is None or isinstance(value, int | float | str | functools.partial)
    return plain or hasattr(value, "__qualname__")


def _called(value: Any, parts: dict[str, Any]) -> str:
    options = (f"{name}={describe(part)}" for name, part in sorted(parts.items()) if not name.startswith("_"))
    return f"{type(value).__qualname__}({', '.join(options)})"
