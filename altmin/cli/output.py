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
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import nn

from altmin import __version__
from altmin.cli import torchrun
from altmin.common.files import is_stream, replacing
from altmin.common.optional import need
from altmin.training import model_file
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
    for path in (path for path in (*paths, picture) if path and not is_stream(path)):
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


def write_model(args: Any, network: nn.Module, **about: Any) -> None:
    """Write a trained model if --save-model asks for it. about: what `model_file.save` keeps besides the names."""
    if args.save_model is not None:
        model_file.save(args.save_model, network, {"model": args.model, "data": args.data, **about})
        print(f"wrote {args.save_model}")


def write_run(args: Any, result: Mapping[str, Any]) -> None:
    """Print what was trained on what and the last epoch's numbers, and write the result if --json asks for it."""
    epochs = result["epochs"]
    last = {key.replace("_", " "): value for key, value in epochs[-1].items() if key not in ("epoch", "seconds")}
    values = ", ".join(f"{key} {value:.4f}" for key, value in last.items())
    seconds, name = sum(row.get("seconds", 0) for row in epochs), f"{args.method}, {args.model}, {args.data}"
    print(f"{name}: {values} after {len(epochs)} epochs in {seconds:.1f} s")
    write_json(args.json_file, result)


def result(args: Any, device: torch.device, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of every result: the names and the seed, all settings, and the environment."""
    named = {key: getattr(args, key) for key in ("data", "model", "method", "seed")}
    return {**named, "config": config, "environment": environment(device)}


def console() -> Console:
    """Return where tables go. A pipe has no width, so nothing is cut there."""
    return Console() if sys.stdout.isatty() else Console(width=200)


def show(rows: Sequence[Mapping[str, Any]], title: str | None = None) -> None:
    """Print a table of rows, each a text by the name of its column; one may have fewer than another."""
    names = dict.fromkeys(name for row in sorted(rows, key=len, reverse=True) for name in row)
    lines = any("\n" in str(cell) for row in rows for cell in row.values())
    table = Table(title=title, title_justify="left", header_style="bold", show_lines=lines)
    for name in names:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(escape(str(row.get(name, ""))) for name in names))
    console().print(table)


@contextmanager
def progress(what: str, shown: bool = True) -> Iterator[Tick]:
    """Show a bar on the terminal, gone when done; nothing in a pipe."""
    bar = Bar(what, hidden=not shown)
    try:
        yield bar.update
    finally:
        bar.stop()


def environment(device: torch.device) -> dict[str, Any]:
    """Return the versions and the machine a result belongs to, without anything that names a place or a person."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "altmin": __version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        **({"ranks": torchrun.count()} if torchrun.started() else {}),
    }


def _cpu() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
