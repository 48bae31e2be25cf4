"""The ways in which a step can be run: as it is, recorded as a CUDA graph, compiled, with activations computed again;
one after the other with `+`."""

from collections.abc import Callable
from typing import Any

import torch

from altmin.common.errors import unknown
from altmin.core.trainer import AltMin
from altmin.methods import Method
from altmin.runners import Recorded
from reproduction.speed import compiled
from reproduction.speed.checkpointed import checkpointed


def _compiled(method: Any) -> Method:
    """Backprop compiled by torch.compile; on a CPU steps of AM too, which are recorded so."""
    on_cpu = isinstance(method, AltMin) and next(iter(method.model.parameters())).device.type == "cpu"
    return Recorded(method) if on_cpu else compiled.compiled(method)


MODES: dict[str, Callable[[Any], Method]] = {
    "eager": lambda method: method,
    "graph": Recorded,
    "compile": _compiled,
    "checkpoint": checkpointed,
}


ALL = "all"
"""The name of all modes that a device allows."""


def allowed(device: torch.device) -> tuple[list[str], list[str]]:
    """The modes that a device allows: of all methods, and of backprop and of methods that have them too."""
    of_all = ["eager", "graph"] if device.type == "cuda" else ["eager"]
    try:
        compiled.check(device)
    except ValueError:
        return of_all, ["checkpoint"]
    return of_all, ["checkpoint", "compile", *(["compile+graph"] if device.type == "cuda" else [])]


def check(mode: str, device: torch.device) -> None:
    """Raises ValueError if a mode is unknown or the device cannot run it."""
    for word in mode.split("+"):
        if word not in MODES:
            raise unknown("mode", word, MODES)
        if word == "graph" and device.type != "cuda":
            raise ValueError(
                f"--modes {mode} records CUDA graphs, which --device {device.type} does not have; "
                "choose --device cuda, or leave graph out"
            )
        if word == "compile":
            compiled.check(device)


def apply(mode: str, method: Method) -> Method:
    """The method, run in this mode: "compile+graph" records the compiled step.

    Raises ValueError or TypeError, with the reason, if this method cannot run so.
    """
    for word in mode.split("+"):
        method = MODES[word](method)
    return method
