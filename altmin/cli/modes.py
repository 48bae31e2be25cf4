"""In which ways a step can be run: as it is, recorded as a CUDA graph, compiled; several at once with `+`."""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from altmin.cli import parse
from altmin.errors import unknown

if TYPE_CHECKING:
    import torch

    from altmin.cli.measure import Batch
    from altmin.methods import Method


class Mode(NamedTuple):
    """`wrap` makes a method run in this way. `check` refuses a device without it; `skips` says why a method, in so many
    members, has no such way, or nothing."""

    wrap: "Callable[[Method, Batch], Method]"
    check: "Callable[[torch.device], None]"
    skips: "Callable[[Method, int], str]"


def part(module: str, name: str) -> Any:
    """A part of the library that only some commands need, imported by them."""
    try:
        return getattr(importlib.import_module(module), name)
    except (AttributeError, ModuleNotFoundError) as error:
        if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("altmin"):
            raise  # something else is missing, and the error names it
        raise ImportError(f"this version of altmin has no {module}.{name}; install a newer one") from None


def modes(text: str, device: "torch.device") -> list[str]:
    """The modes in a comma-separated list, if this device has them."""
    found = parse.names("--modes", text)
    for word in [word for mode in found for word in mode.split("+")]:
        if word not in MODES:
            raise unknown("mode", word, MODES)
        MODES[word].check(device)
    return found


def wrapped(method: "Method", mode: str, batch: "Batch") -> "Method":
    for word in mode.split("+"):
        method = MODES[word].wrap(method, batch)
    return method


def skipped(method: "Method", mode: str, members: int) -> str:
    """Why a method is not run in a mode; empty if it is."""
    return next(filter(None, (MODES[word].skips(method, members) for word in mode.split("+"))), "")


def _record(method: "Method", batch: "Batch") -> "Method":
    recorded: Method = part("altmin.execution", "Recorded")(method, *batch)
    return recorded


def _check_graph(device: "torch.device") -> None:
    if device.type != "cuda":
        raise ValueError(
            "--modes graph records CUDA graphs, which --device cpu does not have; "
            "choose --device cuda, or leave graph out"
        )


def _skips_graph(method: "Method", members: int) -> str:
    from altmin.execution.lanes import check_recordable

    try:
        check_recordable(method)
    except ValueError as error:
        return str(error)
    return ""


def _compile(method: Any, batch: "Batch") -> "Method":
    from altmin.execution.compiled import compiled

    return compiled(method)


def _check_compile(device: "torch.device") -> None:
    from altmin.execution.compiled import check

    check(device)


def _skips_compile(method: "Method", members: int) -> str:
    from altmin.methods.backprop import Backprop

    if not isinstance(method, Backprop):
        return "torch.compile is for backprop"
    return "an ensemble is not compiled" if members > 1 else ""


MODES = {
    "eager": Mode(lambda method, batch: method, lambda device: None, lambda method, members: ""),
    "graph": Mode(_record, _check_graph, _skips_graph),
    "compile": Mode(_compile, _check_compile, _skips_compile),
}
