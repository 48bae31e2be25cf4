"""The output of a command: files, each written completely or not at all, tables, progress on a terminal."""

import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import typer
from rich.console import Console

from altmin import __version__
from altmin.common.files import is_stream, replacing
from altmin.common.optional import need
from altmin.training.reporters import Bar
from altmin.training.runs import Tick

PICTURES = (".png", ".svg", ".pdf")


def check_writable(*paths: Path | None, picture: Path | None = None, read: Sequence[str | Path | None] = ()) -> None:
    """Raise, before training starts, if a result could not be written, would replace a file that is read, or a picture
    could not be drawn."""
    if picture is not None and picture.suffix not in PICTURES:
        raise ValueError(f"{picture} should end in {' or '.join(PICTURES)} to be a picture")
    if picture is not None:
        need("matplotlib", "plot", "a picture")
    seen = {Path(path).resolve() for path in read if path}
    for path in filter(None, (*paths, picture)):
        if is_stream(path):
            continue
        target = path.resolve()
        if not os.access(target if target.exists() else target.parent, os.W_OK) or target.is_dir():
            raise PermissionError(f"{path} cannot be written: it is a folder, or its folder is not there or closed")
        if target in seen:
            raise ValueError(f"{path} is read, or another result goes there; give each result a file of its own")
        seen.add(target)


def write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, and say so."""
    with replacing(path) as file:
        file.write(content)
    if not is_stream(path):
        print(f"wrote {path}")


def write_json(path: Path | None, result: Any) -> None:
    if path is not None:
        write(path, (json.dumps(result, indent=2) + "\n").encode())


def report_failures(runs: Mapping[str, str | None]) -> None:
    """End with 1 if a run diverged, and say which and why."""
    if failures := [f"{name}: {why}" for name, why in runs.items() if why]:
        print("altmin:", "; ".join(failures), file=sys.stderr)
        raise typer.Exit(1)


def console() -> Console:
    """Where tables go. A pipe has no width, so nothing is cut there."""
    return Console() if sys.stdout.isatty() else Console(width=200)


@contextmanager
def progress(what: str, shown: bool = True) -> Iterator[Tick]:
    """A bar on the terminal, gone when done; nothing in a pipe."""
    bar = Bar(what, hidden=not shown)
    try:
        yield bar.update
    finally:
        bar.stop()


def environment(device: torch.device) -> dict[str, Any]:
    """The versions and the machine a result belongs to, without anything that names a place or a person."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "altmin": __version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
