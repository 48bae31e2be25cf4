"""Models of one's own by name: `module:function`, a function (sample_shape, classes) -> nn.Module in a module."""

import importlib
import inspect
import math
import re
from collections.abc import Callable, Sequence

import torch
from torch import nn

from altmin.common.unchanged import evaluating

CONTRACT = "module:function names a function (sample_shape, classes) -> nn.Module"


def imported(name: str, sample_shape: Sequence[int], outputs: int, tokens: bool = False) -> nn.Module:
    """Return the model of the function for samples of this shape, with `outputs` outputs for each.

    ValueError or TypeError in one sentence if there is no such module or function, or if it gives something else. An
    error inside the function propagates.
    """
    shape = tuple(sample_shape)
    model = _function(name)(shape, outputs)
    if not isinstance(model, nn.Module):
        raise TypeError(f"{CONTRACT}, and {name} gives {model!r:.60}")
    _check(name, model, torch.zeros(2, *shape, dtype=torch.int64 if tokens else torch.float32), outputs)
    return model


def _function(name: str) -> Callable[[tuple[int, ...], int], nn.Module]:
    if not re.fullmatch(r"[^\W\d][\w.]*:\w+", name):
        raise ValueError(f"{CONTRACT}, given {name!r}")
    module, _, function = name.partition(":")
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ValueError(
            f"there is no module {module} for the model {name}; give my_models:build for build in my_models.py"
        ) from None
    made = getattr(loaded, function, None)
    if made is None:
        raise ValueError(f"module {module} has no function {function!r}; {CONTRACT}")
    if not callable(made):
        raise TypeError(f"{CONTRACT}, and {name} is {made!r:.60}")
    try:
        takes = inspect.signature(made)
    except ValueError:  # of a function that is not written in Python
        return made
    try:
        takes.bind((), 0)
    except TypeError:
        raise TypeError(f"{CONTRACT}, and {name} takes {takes}; let it take these two") from None
    return made


def _check(name: str, model: nn.Module, x: torch.Tensor, outputs: int) -> None:
    """Raise ValueError unless the model gives (samples, outputs), or for tokens (samples, ..., outputs)."""
    try:
        with evaluating(model):
            output = model(x)
    except (RuntimeError, ValueError, TypeError) as error:
        words = str(error).partition("\n")[0]
        raise ValueError(f"the model {name} cannot take samples of shape {tuple(x.shape[1:])}: {words}") from None
    shape = tuple(getattr(output, "shape", ()))
    tokens = not x.is_floating_point()
    if math.prod(shape) != (x.numel() if tokens else len(x)) * outputs or (not tokens and shape != (len(x), outputs)):
        actual = shape if isinstance(output, torch.Tensor) else type(output).__name__
        raise ValueError(f"the model {name} gives {actual} for {len(x)} samples, {(len(x), outputs)} is expected")
