"""The ways in which a step can be run: as it is, recorded as a CUDA graph, compiled, with activations computed again;
one after the other with `+`."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint_sequential

from altmin import AltMin, Recorded
from altmin.common.errors import unknown
from altmin.methods import Method
from altmin.methods.backprop import Backprop
from reproduction.speed import compiled


class Segments(nn.Module):
    """A sequential model of L layers in sqrt(L) segments, of which only the inputs are stored for the backward pass
    (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost")."""

    def __init__(self, layers: nn.Sequential):
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = checkpoint_sequential(self.layers, math.isqrt(len(self.layers)), x, use_reentrant=False)
        return result


def _checkpointed(method: Any) -> Method:
    if type(method) is not Backprop or not isinstance(method.model, nn.Sequential):
        raise ValueError("activations are computed again by backprop in an nn.Sequential")
    return Backprop(Segments(method.model), method.optimizer, method.loss, method.clip_norm)


def _compiled(method: Any) -> Method:
    """Compile backprop by torch.compile; on a CPU steps of AM too, which are recorded so."""
    on_cpu = isinstance(method, AltMin) and next(iter(method.model.parameters())).device.type == "cpu"
    return Recorded(method) if on_cpu else compiled.compiled(method)


MODES: dict[str, Callable[[Any], Method]] = {
    "eager": lambda method: method,
    "graph": Recorded,
    "compile": _compiled,
    "checkpoint": _checkpointed,
}


def allowed(device: torch.device) -> tuple[list[str], list[str]]:
    """Return the modes that a device allows: of all methods, and of backprop and of methods that have them too."""
    of_all = ["eager", "graph"] if device.type == "cuda" else ["eager"]
    try:
        compiled.check(device)
    except ValueError:
        return of_all, ["checkpoint"]
    return of_all, ["checkpoint", "compile", *(["compile+graph"] if device.type == "cuda" else [])]


def apply(mode: str, method: Any) -> Any:
    """Return the method run in this mode: "compile+graph" records the compiled step. ValueError or TypeError, with the
    reason, if this method cannot run so."""
    for word in mode.split("+"):
        if word not in MODES:
            raise unknown("mode", word, MODES)
        method = MODES[word](method)
    return method
